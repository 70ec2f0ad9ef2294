"""CreateDelegationToken (38): a token that authenticates in its owner's name (KIP-48).

1 is the same as 0, 2 is flexible, 3 may name another owner (KIP-373). Kafka 4 dropped 0.
"""

from protocol_lib.schema import Bytes, Int16, Int32, Int64, message, struct, wire


@struct
class CreatableRenewers:
    principal_type: str
    principal_name: str


@message(api_key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenRequest:
    #: null for the principal that asks
    owner_principal_type: str | None = wire("3+", default="")
    owner_principal_name: str | None = wire("3+", default="")
    renewers: tuple[CreatableRenewers, ...]
    #: -1 for the broker's own
    max_lifetime_ms: Int64


@message(api_key=38, versions="0-3", flexible="2+")
class CreateDelegationTokenResponse:
    error_code: Int16
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire("3+", default="")
    token_requester_principal_name: str = wire("3+", default="")
    issue_timestamp_ms: Int64
    expiry_timestamp_ms: Int64
    max_timestamp_ms: Int64
    token_id: str
    hmac: Bytes = wire(secret=True)
    throttle_time_ms: Int32
