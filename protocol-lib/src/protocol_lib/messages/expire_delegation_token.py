"""ExpireDelegationToken (40): set the expiry of a delegation token.

1 is the same as 0, 2 is flexible. Kafka 4 dropped 0.
"""

from protocol_lib.schema import Bytes, Int16, Int32, Int64, message, wire


@message(api_key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenRequest:
    hmac: Bytes = wire(secret=True)
    #: a negative period: now
    expiry_time_period_ms: Int64


@message(api_key=40, versions="0-2", flexible="2+")
class ExpireDelegationTokenResponse:
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
