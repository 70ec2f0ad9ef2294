"""AlterUserScramCredentials (51): set or remove SCRAM credentials of users (KIP-554)."""

from protocol_lib.schema import Bytes, Int8, Int16, Int32, message, struct, wire


@struct
class ScramCredentialDeletion:
    name: str
    #: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    mechanism: Int8


@struct
class ScramCredentialUpsertion:
    name: str
    #: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512
    mechanism: Int8
    iterations: Int32
    salt: Bytes = wire(secret=True)
    salted_password: Bytes = wire(secret=True)


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...]
    upsertions: tuple[ScramCredentialUpsertion, ...]


@struct
class AlterUserScramCredentialsResult:
    user: str
    error_code: Int16
    error_message: str | None


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: Int32
    results: tuple[AlterUserScramCredentialsResult, ...]
