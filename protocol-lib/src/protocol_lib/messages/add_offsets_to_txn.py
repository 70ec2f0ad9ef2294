"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a group.

2 may answer PRODUCER_FENCED, 3 is flexible, 4 may answer TRANSACTION_ABORTABLE (KIP-890).
"""

from protocol_lib.schema import Int16, Int32, Int64, message


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    group_id: str


@message(api_key=25, versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16
