"""A partition of a coordinator's topic as it is read at the start: each record once, in order, markers among them.

A batch or a record that cannot be understood is skipped, counted and logged, and the log's damage is searched for.
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol, TypeVar

from protocol_lib.errors import DecodeError
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from protocol_lib.records.record import Record
from service_chassis import logs as service_logs

from storage_svc.log.batch.header import Header, intact, records_of, whole_batches
from storage_svc.log.partition.partition_log import PartitionLog

log = service_logs.get(__name__)

#: Bytes of log decoded at a time.
_CHUNK_BYTES: Final = 1 << 20


class Loaded(Protocol):
    """The state that the records of a partition make."""

    #: Records and batches that could not be understood.
    broken_count: int

    def apply(self, key: bytes, value: bytes | None, offset: int, producer_id: int, /) -> None:
        """Apply one record. `producer_id` is -1 unless the record is part of a transaction.

        Raises:
            DecodeError: it cannot be understood.
        """
        ...

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Apply a marker."""
        ...


LoadedT = TypeVar("LoadedT", bound=Loaded)


async def load(partition: PartitionLog, loaded: LoadedT) -> LoadedT:
    """Apply a whole partition, and return `loaded`. It is read on the event loop, and decoded in a thread.

    No caller may append during that.

    Raises:
        LogError: the disk refused.
    """
    position, end = partition.log_start_offset, partition.log_end_offset
    while position < end:
        data = partition.read_batches(position, _CHUNK_BYTES)
        if not data:
            loaded.broken_count += 1
            log.error("partition is not read to its end", log=partition.folder, offset=position, end_offset=end)
            break
        # default threads: computes; nothing waits for a disk
        position = await asyncio.to_thread(_apply_batches, partition.topic, loaded, data)
    if loaded.broken_count:
        partition.suspect()
    return loaded


def _apply_batches(topic: str, loaded: Loaded, data: bytes) -> int:
    """Apply the batches and return the offset that follows."""
    position = 0
    for header, batch in whole_batches(data):
        position = header.last_offset + 1
        try:
            _apply_batch(topic, loaded, header, batch)
        except DecodeError as error:
            _skipped(topic, loaded, "unreadable batch is skipped", header.base_offset, error)
    return position


def _apply_batch(topic: str, loaded: Loaded, header: Header, batch: memoryview) -> None:
    if not intact(batch):
        raise DecodeError("it does not match its CRC")
    producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
    for record in records_of(batch):
        if not header.attributes & CONTROL:
            _apply(topic, loaded, record, producer_id)
        elif (marker := read_marker(record)) is not None:
            loaded.end_transaction(header.producer_id, commit=marker.type is ControlType.COMMIT)


def _apply(topic: str, loaded: Loaded, record: Record, producer_id: int) -> None:
    try:
        if record.key is None:
            raise DecodeError("no key")
        value = None if record.value is None else bytes(record.value)
        loaded.apply(bytes(record.key), value, record.offset, producer_id)
    except DecodeError as error:
        _skipped(topic, loaded, "unreadable record is skipped", record.offset, error)


def _skipped(topic: str, loaded: Loaded, message: str, offset: int, error: DecodeError) -> None:
    loaded.broken_count += 1
    log.error(message, topic=topic, offset=offset, reason=str(error))
