"""DescribeUserScramCredentials (50): which SCRAM credentials users have; never the credentials (KIP-554)."""

from protocol_lib.schema import Int8, Int16, Int32, message, struct


@struct
class UserName:
    name: str


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    #: null or empty for all
    users: tuple[UserName, ...] | None


@struct
class CredentialInfo:
    #: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    mechanism: Int8
    iterations: Int32


@struct
class DescribeUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None
    credential_infos: tuple[CredentialInfo, ...]


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    results: tuple[DescribeUserScramCredentialsResult, ...]
