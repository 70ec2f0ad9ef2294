"""DescribeTransactions (65): the state of transactions (KIP-664)."""

from protocol_lib.schema import Int16, Int32, Int64, message, struct


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: tuple[str, ...]


@struct
class TopicData:
    topic: str
    partitions: tuple[Int32, ...]


@struct
class TransactionState:
    error_code: Int16
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: Int32
    #: -1 when none is open
    transaction_start_time_ms: Int64
    producer_id: Int64
    producer_epoch: Int16
    topics: tuple[TopicData, ...]


@message(api_key=65, versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: Int32
    transaction_states: tuple[TransactionState, ...]
