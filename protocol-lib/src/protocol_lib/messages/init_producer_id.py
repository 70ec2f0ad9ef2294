"""InitProducerId (22): a producer id and epoch for an idempotent or transactional producer.

2 is flexible, 3 lets a producer go on with the id and epoch it has (KIP-360), 4 and 5 add error codes. Version 6
(two-phase commit) is not stable in Kafka and not declared.
"""

from protocol_lib.schema import Int16, Int32, Int64, message, wire


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdRequest:
    #: null for a producer that is idempotent only
    transactional_id: str | None
    #: time after which the coordinator aborts a transaction by itself
    transaction_timeout_ms: Int32
    #: -1 for a new one
    producer_id: Int64 = wire("3+", default=-1)
    producer_epoch: Int16 = wire("3+", default=-1)


@message(api_key=22, versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: Int32 = wire(default=0)
    error_code: Int16
    producer_id: Int64 = wire(default=-1)
    producer_epoch: Int16
