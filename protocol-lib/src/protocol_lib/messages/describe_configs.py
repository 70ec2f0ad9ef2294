"""DescribeConfigs (32): the settings of topics and brokers.

Version 0 marks defaults, 1 names each value's source and synonyms, 3 adds types and documentation, 4 is flexible.
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, message, struct, wire


@struct
class DescribeConfigsResource:
    #: 2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group
    resource_type: Int8
    #: a topic's or group's name, a broker's id; empty for the default of all brokers
    resource_name: str
    #: null or empty for all of them
    configuration_keys: tuple[str, ...] | None


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: tuple[DescribeConfigsResource, ...]
    include_synonyms: Boolean = wire("1+", default=False)
    include_documentation: Boolean = wire("3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str
    value: str | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    name: str
    #: null when it is sensitive, or not set
    value: str | None
    read_only: Boolean
    #: 1 topic, 2 broker, 3 default of all brokers, 4 the file a broker started with, 5 built-in default, 6 logger of a
    #: broker, 7 client metrics, 8 group
    config_source: Int8 = wire("1+", default=-1)
    is_default: Boolean = wire("0", default=False)
    is_sensitive: Boolean
    #: sources of the value, in the order of the search; the first that is set counts
    synonyms: tuple[DescribeConfigsSynonym, ...] = wire("1+", default=())
    #: 1 boolean, 2 string, 3 int, 4 short, 5 long, 6 double, 7 list, 8 class, 9 password
    config_type: Int8 = wire("3+", default=0)
    documentation: str | None = wire("3+", default="")


@struct
class DescribeConfigsResult:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str
    configs: tuple[DescribeConfigsResourceResult, ...]


@message(api_key=32, versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: Int32
    results: tuple[DescribeConfigsResult, ...]
