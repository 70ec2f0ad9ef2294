"""CreateAcls (30): add access control entries.

1 adds the pattern type, 2 is flexible, 3 adds the user resource. Kafka 4 dropped 0.
"""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@struct
class AclCreation:
    #: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user
    resource_type: Int8
    resource_name: str
    #: 3 literal, 4 prefixed
    resource_pattern_type: Int8 = wire("1+", default=3)
    #: "User:alice"; "User:*" is everybody
    principal: str
    #: an address; "*" is every one
    host: str
    #: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter
    #: configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two-phase commit
    operation: Int8
    #: 2 deny, 3 allow
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
