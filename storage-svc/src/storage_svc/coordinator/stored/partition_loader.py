"""A partition of a coordinator's topic as it is read at the start: each record once, in order, markers among them.

Only the last record of each key is decoded (latest_records.py). If that meets something unusual, every record is
applied in turn. A batch or a record that cannot be understood is then skipped, counted and logged, and the log's damage
is searched for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar, Final, Protocol, TypeVar

from protocol_lib.errors import DecodeError
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import CONTROL, TRANSACTIONAL
from protocol_lib.records.record import Record
from service_chassis import logs as service_logs

from storage_svc.coordinator.stored.latest_records import LatestRecords, UnusualRecordsError
from storage_svc.log.batch.header import Header, intact, records_of, whole_batches
from storage_svc.log.partition.partition_log import PartitionLog

log = service_logs.get(__name__)

#: Bytes of log walked at a time: some 20 ms.
_CHUNK_BYTES: Final = 1 << 20


class Loaded(Protocol):
    """The state that the records of a partition make."""

    #: Whether the offsets that a transaction commits do not count before its marker.
    holds_back: ClassVar[bool]
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


async def load(partition: PartitionLog, kind: Callable[[], LoadedT]) -> LoadedT:
    """Return the state of a whole partition. It is read on the event loop, and decoded in a thread.

    No caller may append during that.

    Raises:
        LogError: the disk refused.
    """
    loaded = kind()
    latest = LatestRecords(holds_back=loaded.holds_back)
    try:
        if await _read(partition, latest.add):
            # default threads: computes; nothing waits for a disk
            await asyncio.to_thread(latest.apply_to, loaded)
            return loaded
        reason = "it is not read to its end"
    except (UnusualRecordsError, DecodeError) as error:
        reason = str(error)
    log.warning("partition is loaded record by record", log=partition.folder, reason=reason)
    loaded = kind()
    if not await _read(partition, lambda data: _apply_batches(partition.topic, loaded, data)):
        loaded.broken_count += 1
    if loaded.broken_count:
        partition.suspect()
    return loaded


async def _read(partition: PartitionLog, take: Callable[[bytes], int]) -> bool:
    """Have `take` walk the batches in a thread; it returns the offset that follows. Return whether that reached the end
    of the log."""
    position, end = partition.log_start_offset, partition.log_end_offset
    while position < end:
        data = partition.read_batches(position, _CHUNK_BYTES)
        # default threads: computes; nothing waits for a disk
        following = await asyncio.to_thread(take, data) if data else position
        if following <= position:
            log.error("partition is not read to its end", log=partition.folder, offset=position, end_offset=end)
            return False
        position = following
    return True


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
