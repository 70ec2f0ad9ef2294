"""EndTxn (26): commit or abort a transaction.

2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE, 5 raises the producer epoch with every
transaction and answers with the new one (KIP-890).
"""

from protocol_lib.schema import Boolean, Int16, Int32, Int64, message, wire


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    #: false aborts
    committed: Boolean


@message(api_key=26, versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = wire("5+", default=-1)
    producer_epoch: Int16 = wire("5+", default=-1)
