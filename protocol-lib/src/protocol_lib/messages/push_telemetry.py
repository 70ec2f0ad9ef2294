"""PushTelemetry (72): metrics of the client itself (KIP-714)."""

from protocol_lib.schema import Boolean, Bytes, Int8, Int16, Int32, Uuid, message


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Boolean
    compression_type: Int8
    #: metrics as OpenTelemetry's MetricsData, version 1, in protobuf
    metrics: Bytes


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: Int32
    error_code: Int16
