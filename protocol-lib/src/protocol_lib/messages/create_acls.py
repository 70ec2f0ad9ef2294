"""CreateAcls (30): add access control entries.

1 adds the pattern type, 2 is flexible, 3 adds the user resource. Kafka 4 dropped 0.
"""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@struct
class AclCreation:
    resource_type: Int8
    resource_name: str
    resource_pattern_type: Int8 = wire("1+", default=3)
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@message(api_key=30, versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: tuple[AclCreation, ...]


@struct
class AclCreationResult:
    error_code: Int16
    error_message: str | None


@message(api_key=30, versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: Int32
    results: tuple[AclCreationResult, ...]
