"""DescribeAcls (29): the access control entries that match a filter.

1 adds the pattern type, 2 is flexible, 3 adds the user resource. Kafka 4 dropped 0.
"""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@message(api_key=29, versions="0-3", flexible="2+")
class DescribeAclsRequest:
    #: 2 topic, 3 group, 4 cluster, 5 transactional id, 6 delegation token, 7 user; in filters 1 is any
    resource_type_filter: Int8
    #: null matches anything, in this and the other filters
    resource_name_filter: str | None
    #: 3 literal, 4 prefixed; in filters also 1 any, 2 all that apply to the name
    pattern_type_filter: Int8 = wire("1+", default=3)
    principal_filter: str | None
    host_filter: str | None
    #: 2 all, 3 read, 4 write, 5 create, 6 delete, 7 alter, 8 describe, 9 cluster action, 10 describe configs, 11 alter
    #: configs, 12 idempotent write, 13 create tokens, 14 describe tokens, 15 two-phase commit; in filters 1 is any
    operation: Int8
    #: 2 deny, 3 allow; in filters 1 is any
    permission_type: Int8


@struct
class AclDescription:
    principal: str
    host: str
    operation: Int8
    permission_type: Int8


@struct
class DescribeAclsResource:
    resource_type: Int8
    resource_name: str
    pattern_type: Int8 = wire("1+", default=3)
    acls: tuple[AclDescription, ...]


@message(api_key=29, versions="0-3", flexible="2+")
class DescribeAclsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
    resources: tuple[DescribeAclsResource, ...]
