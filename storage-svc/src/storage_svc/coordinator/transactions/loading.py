"""The topic `__transaction_state` as the coordinator reads it at the start: the last state of each transactional id."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Final

from protocol_lib.errors import DecodeError
from protocol_lib.records.header import CONTROL
from protocol_lib.records.record import Record
from service_chassis import logs as service_logs

from storage_svc.coordinator.transactions.records import decode_key, decode_value
from storage_svc.coordinator.transactions.transaction import Transaction
from storage_svc.log.batch.header import Header, intact, records_of, whole_batches
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topics.names import TRANSACTIONS_TOPIC

log = service_logs.get(__name__)

#: Bytes of log decoded at a time.
_CHUNK_BYTES: Final = 1 << 20


@dataclass(slots=True)
class LoadedTransactions:
    """The records of one partition."""

    transactions: dict[str, Transaction] = field(default_factory=dict)
    #: Records that could not be understood.
    broken_count: int = 0

    def apply(self, record: Record) -> None:
        """Apply one record.

        Raises:
            DecodeError: it cannot be understood.
        """
        if record.key is None:
            raise DecodeError("no key")
        transactional_id = decode_key(bytes(record.key))
        if transactional_id is None:
            return
        if record.value is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = decode_value(transactional_id, bytes(record.value))


async def load(partition: PartitionLog) -> LoadedTransactions:
    """Load a whole partition: read on the event loop like every log, decoded in a thread. Nobody may append during
    that.

    Raises:
        LogError: the disk refused.
    """
    loaded = LoadedTransactions()
    position, end = partition.log_start_offset, partition.log_end_offset
    while position < end:
        data = partition.read_batches(position, _CHUNK_BYTES)
        if not data:
            loaded.broken_count += 1
            log.error("partition is not read to its end", log=partition.folder, offset=position, end_offset=end)
            break
        position = await asyncio.to_thread(_apply_batches, loaded, data)
    if loaded.broken_count:
        partition.suspect()
    return loaded


def _apply_batches(loaded: LoadedTransactions, data: bytes) -> int:
    """Apply the batches and return the offset that follows."""
    position = 0
    for header, batch in whole_batches(data):
        position = header.last_offset + 1
        if not header.attributes & CONTROL:
            _apply_batch(loaded, header, batch)
    return position


def _apply_batch(loaded: LoadedTransactions, header: Header, batch: memoryview) -> None:
    try:
        if not intact(batch):
            raise DecodeError("it does not match its CRC")
        for record in records_of(batch):
            _apply(loaded, record)
    except DecodeError as error:
        _skipped(loaded, "unreadable batch is skipped", header.base_offset, error)


def _apply(loaded: LoadedTransactions, record: Record) -> None:
    try:
        loaded.apply(record)
    except DecodeError as error:
        _skipped(loaded, "unreadable record is skipped", record.offset, error)


def _skipped(loaded: LoadedTransactions, message: str, offset: int, error: DecodeError) -> None:
    loaded.broken_count += 1
    log.error(message, topic=TRANSACTIONS_TOPIC, offset=offset, reason=str(error))
