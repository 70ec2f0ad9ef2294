"""DescribeClientQuotas (48): the quotas of users, client ids and addresses that match a filter (KIP-546).

1 is flexible.
"""

from protocol_lib.schema import Boolean, Float64, Int8, Int16, Int32, message, struct


@struct
class ComponentData:
    entity_type: str
    #: 0 exactly this name, 1 the default, 2 any name
    match_type: Int8
    match: str | None


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: tuple[ComponentData, ...]
    #: leave out entities that have types the filter does not name
    strict: Boolean


@struct
class EntityData:
    entity_type: str
    entity_name: str | None


@struct
class ValueData:
    key: str
    value: Float64


@struct
class EntryData:
    entity: tuple[EntityData, ...]
    values: tuple[ValueData, ...]


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    entries: tuple[EntryData, ...] | None
