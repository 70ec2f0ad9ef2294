"""AddPartitionsToTxn (24): partitions a transaction is about to write to.

2 may answer PRODUCER_FENCED, 3 is flexible. From 4 brokers send it, for many transactions at once and also only to
verify (KIP-890); clients stay at 3. 5 may answer TRANSACTION_ABORTABLE.
"""

from protocol_lib.schema import Boolean, Int16, Int32, Int64, message, struct, wire


@struct
class AddPartitionsToTxnTopic:
    name: str
    partitions: tuple[Int32, ...]


@struct
class AddPartitionsToTxnTransaction:
    """A transaction of a broker's request, from version 4."""

    transactional_id: str
    producer_id: Int64
    producer_epoch: Int16
    #: true asks whether the partitions are in the transaction, and adds none
    verify_only: Boolean = wire(default=False)
    topics: tuple[AddPartitionsToTxnTopic, ...]


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire("4+", default=())
    v3_and_below_transactional_id: str = wire("0-3", default="")
    v3_and_below_producer_id: Int64 = wire("0-3", default=0)
    v3_and_below_producer_epoch: Int16 = wire("0-3", default=0)
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire("0-3", default=())


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: Int32
    partition_error_code: Int16


@struct
class AddPartitionsToTxnTopicResult:
    name: str
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...]


@struct
class AddPartitionsToTxnResult:
    transactional_id: str
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...]


@message(api_key=24, versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: Int32
    error_code: Int16 = wire("4+", default=0)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire("4+", default=())
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire("0-3", default=())
