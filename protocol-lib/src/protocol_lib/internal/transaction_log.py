"""A transactional id and the state of its transaction: key 0 of __transaction_state.

Kafka writes value 0, or 1 with transaction.version 2 (KIP-890). Value 1 is flexible; it adds tagged fields.
"""

from enum import IntEnum

from protocol_lib.schema import Int8, Int16, Int32, Int64, message, struct, wire


class TransactionState(IntEnum):
    """Values of `transaction_status` (Kafka's TransactionState)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


@message(api_key=None, versions="0", flexible=None)
class TransactionLogKey:
    transactional_id: str


@struct
class TransactionPartitions:
    topic: str
    partition_ids: tuple[Int32, ...]


@message(api_key=None, versions="0-1", flexible="1+")
class TransactionLogValue:
    """Times are in milliseconds, `last_update` and `start` since 1970, -1 for none."""

    producer_id: Int64
    previous_producer_id: Int64 = wire("1+", tag=0, default=-1)
    next_producer_id: Int64 = wire("1+", tag=1, default=-1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = wire("1+", tag=3, default=-1)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: tuple[TransactionPartitions, ...] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = wire("1+", tag=2, default=0)
