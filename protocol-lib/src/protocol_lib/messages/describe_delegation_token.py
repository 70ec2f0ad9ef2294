"""DescribeDelegationToken (41): the delegation tokens of owners.

1 is the same as 0, 2 is flexible, 3 names the requester of the token (KIP-373). Kafka 4 dropped 0.
"""

from protocol_lib.schema import Bytes, Int16, Int32, Int64, message, struct, wire


@struct
class DescribeDelegationTokenOwner:
    principal_type: str
    principal_name: str


@message(api_key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenRequest:
    #: null for all
    owners: tuple[DescribeDelegationTokenOwner, ...] | None


@struct
class DescribedDelegationTokenRenewer:
    principal_type: str
    principal_name: str


@struct
class DescribedDelegationToken:
    principal_type: str
    principal_name: str
    token_requester_principal_type: str = wire("3+", default="")
    token_requester_principal_name: str = wire("3+", default="")
    issue_timestamp: Int64
    expiry_timestamp: Int64
    max_timestamp: Int64
    token_id: str
    hmac: Bytes = wire(secret=True)
    renewers: tuple[DescribedDelegationTokenRenewer, ...]


@message(api_key=41, versions="0-3", flexible="2+")
class DescribeDelegationTokenResponse:
    error_code: Int16
    tokens: tuple[DescribedDelegationToken, ...]
    throttle_time_ms: Int32
