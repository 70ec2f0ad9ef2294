"""Records of `__transaction_state`: a transactional id, and the state of its transaction (Kafka: TransactionLog).

Kafka writes values of version 1 with transaction.version 2, and this coordinator writes no others. It reads both.
"""

from __future__ import annotations

from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.internal import record
from protocol_lib.internal.transaction_log import (
    TransactionLogKey,
    TransactionLogValue,
    TransactionPartitions,
    TransactionState,
)

from storage_svc.coordinator.transactions.transaction import IDLE, Transaction
from storage_svc.topic_partition import TopicPartition

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_NEVER_WRITTEN: Final = (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)


def encode_key(transactional_id: str) -> bytes:
    return record.write(TransactionLogKey(transactional_id=transactional_id), _KEY_VERSION)


def encode_value(transaction: Transaction) -> bytes | None:
    """Return the value; None, a tombstone, for the state DEAD."""
    if transaction.state is TransactionState.DEAD:
        return None
    is_empty = transaction.state is TransactionState.EMPTY
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if is_empty else _by_topic(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return record.write(value, _VALUE_VERSION)


def by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """Return the partitions of each topic, in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found


def _by_topic(partitions: frozenset[TopicPartition]) -> tuple[TransactionPartitions, ...]:
    return tuple(
        TransactionPartitions(topic=topic, partition_ids=tuple(each)) for topic, each in by_topic(partitions).items()
    )


def decode_key(key: bytes) -> str | None:
    """Return the transactional id; None for a key of another kind, which is skipped.

    Raises:
        DecodeError: it cannot be understood.
    """
    found = record.read_key(record.TRANSACTIONS_TOPIC, key)
    return found.transactional_id if isinstance(found, TransactionLogKey) else None


def decode_value(transactional_id: str, data: bytes) -> Transaction:
    """Return the transaction that a value describes.

    Raises:
        DecodeError: it cannot be understood, or has a state that no coordinator writes.
    """
    value = record.read_value(TransactionLogValue, data)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise DecodeError(f"a transaction in state {value.transaction_status}") from None
    if state in _NEVER_WRITTEN or value.producer_id < 0 or value.producer_epoch < 0:
        raise DecodeError(f"a transaction {state.name} of producer {value.producer_id}, {value.producer_epoch}")
    listed = () if state in IDLE else value.transaction_partitions or ()
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        update_ms=value.transaction_last_update_timestamp_ms,
        partitions=frozenset((each.topic, index) for each in listed for index in each.partition_ids),
        start_ms=value.transaction_start_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
