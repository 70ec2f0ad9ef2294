"""UnregisterBroker (64): take a broker that is gone off the cluster's list."""

from protocol_lib.schema import Int16, Int32, message


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerRequest:
    broker_id: Int32


@message(api_key=64, versions="0", flexible="0+")
class UnregisterBrokerResponse:
    throttle_time_ms: Int32
    error_code: Int16
    error_message: str | None
