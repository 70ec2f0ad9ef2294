"""ListConfigResources (74): the names of resources that have configurations.

Version 0 lists those of client metrics (KIP-714), 1 those of the types asked for (KIP-1142).
"""

from protocol_lib.schema import Int8, Int16, Int32, message, struct, wire


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    #: empty for all
    resource_types: tuple[Int8, ...] = wire("1+", default=())


@struct
class ConfigResource:
    resource_name: str
    resource_type: Int8 = wire("1+", default=16)


@message(api_key=74, versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: Int32
    error_code: Int16
    config_resources: tuple[ConfigResource, ...]
