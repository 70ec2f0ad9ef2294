"""IncrementalAlterConfigs (44): set, delete, append to or subtract from dynamic configurations (KIP-339).

1 is flexible.
"""

from enum import IntEnum

from protocol_lib.schema import Boolean, Int8, Int16, Int32, message, struct


class ConfigOperation(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@struct
class AlterableConfig:
    name: str
    #: see ConfigOperation
    config_operation: Int8
    value: str | None


@struct
class AlterConfigsResource:
    #: 2 topic, 4 broker, 8 loggers of a broker, 16 client metrics, 32 group
    resource_type: Int8
    resource_name: str
    configs: tuple[AlterableConfig, ...]


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: tuple[AlterConfigsResource, ...]
    #: true only reports the outcome and changes nothing
    validate_only: Boolean


@struct
class AlterConfigsResourceResponse:
    error_code: Int16
    error_message: str | None
    resource_type: Int8
    resource_name: str


@message(api_key=44, versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: Int32
    responses: tuple[AlterConfigsResourceResponse, ...]
