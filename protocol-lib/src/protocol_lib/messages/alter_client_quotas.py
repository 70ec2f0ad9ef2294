"""AlterClientQuotas (49): set or remove quotas of users, client ids and addresses (KIP-546).

1 is flexible.
"""

from protocol_lib.schema import Boolean, Float64, Int16, Int32, message, struct


@struct
class EntityData:
    #: "user", "client-id" or "ip"
    entity_type: str
    #: null for the default of that type
    entity_name: str | None


@struct
class OpData:
    #: producer_byte_rate, consumer_byte_rate, request_percentage, controller_mutation_rate, connection_creation_rate
    key: str
    value: Float64
    remove: Boolean


@struct
class EntryData:
    entity: tuple[EntityData, ...]
    ops: tuple[OpData, ...]


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: tuple[EntryData, ...]
    validate_only: Boolean


@struct
class EntryResult:
    error_code: Int16
    error_message: str | None
    entity: tuple[EntityData, ...]


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: Int32
    entries: tuple[EntryResult, ...]
