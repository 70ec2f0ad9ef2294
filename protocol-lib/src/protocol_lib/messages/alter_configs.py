"""AlterConfigs (33): replace all dynamic configurations of resources; superseded by IncrementalAlterConfigs.

1 is the same as 0, 2 is flexible.
"""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, message, struct


@struct
class AlterableConfig:
    name: str
    value: str | None


@struct
class AlterConfigsResource:
    #: 2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group
    resource_type: Int8
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...]
    #: true only reports the outcome and changes nothing
    validate_only: Boolean


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@message(api_key=33, versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: Int32
    responses: tuple[AlterConfigsResourceResponse, ...]
