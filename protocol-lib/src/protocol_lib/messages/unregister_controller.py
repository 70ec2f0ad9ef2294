"""UnregisterController (94): take a controller that is gone off the cluster's list."""

from protocol_lib.schema import Int16, Int32, message


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerRequest:
    controller_id: Int32


@message(api_key=94, versions="0", flexible="0+")
class UnregisterControllerResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
