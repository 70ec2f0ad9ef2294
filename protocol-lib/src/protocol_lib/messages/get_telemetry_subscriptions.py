"""GetTelemetrySubscriptions (71): which metrics of itself the client should push, and how often (KIP-714)."""

from protocol_lib.schema import Boolean, Int8, Int16, Int32, Uuid, message


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    #: zero in the first request
    client_instance_id: Uuid


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: Int32
    error_code: Int16
    #: a new id for a client that had none
    client_instance_id: Uuid
    subscription_id: Int32
    accepted_compression_types: tuple[Int8, ...]
    push_interval_ms: Int32
    telemetry_max_bytes: Int32
    #: counters are pushed as differences
    delta_temporality: Boolean
    #: prefixes of names; nothing for none, one empty string for all
    requested_metrics: tuple[str, ...]
