"""The records of a fetch that a consumer hands over: neither control records nor, at read_committed, aborted ones.

With a read_committed fetch brokers send the transactions that were aborted, as (producer id, first offset). A
producer's batches are skipped from that offset on until its abort marker.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from protocol_lib.client.errors import KafkaError, broker_error
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.messages.fetch import AbortedTransaction
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_batch_header, read_magic
from protocol_lib.records.legacy import (
    MESSAGE_SIZE_MIN,
    CorruptMessage,
    message_offset,
    message_records,
    message_size,
    read_message,
)
from protocol_lib.records.record import Record, read_records, read_slices

#: Bytes that a control batch may decompress to. Its one record has less than a hundred.
_CONTROL_BYTES_MAX: Final = 4096
#: Records of a slice of a message's contents.
_SLICE: Final = 64


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A record batch; or a message of format 0 or 1 with its contents, which has no header and no leader epoch."""

    header: BatchHeader | None
    data: memoryview
    last_offset: int
    leader_epoch: int = -1

    @property
    def base_offset(self) -> int:
        """Offset of its first record; of a message of format 0 or 1 that of its last one."""
        return self.last_offset if self.header is None else self.header.base_offset

    @property
    def is_plain(self) -> bool:
        """Whether it is certainly not compressed."""
        return self.header is not None and not self.header.codec

    def records(self, *, limit: int = DECOMPRESSED_BYTES_MAX) -> Iterator[Record]:
        """Return its records, `limit` decompressed bytes at most. Raises DecodeError at once, or at a malformed one."""
        if self.header is not None:
            return read_records(self.data, limit=limit)
        message, _ = read_message(self.data)
        return iter(message_records(message, limit=limit))

    def slices(
        self, *, limit: int = DECOMPRESSED_BYTES_MAX, wanted: bytes = b"", skip: int = 0
    ) -> Iterator[tuple[int, list[Record]]]:
        """Return its records in slices: `read_slices`. Of a message of format 0 or 1 none is passed over."""
        if self.header is not None:
            return read_slices(self.data, limit=limit, wanted=wanted, skip=skip)
        message, _ = read_message(self.data)
        records = message_records(message, limit=limit)
        return ((0, records[start : start + _SLICE]) for start in range(0, len(records), _SLICE))


def whole_batches(data: memoryview) -> Iterator[FetchedBatch]:
    """Yield the batches of a fetch, without a last one that its size limit cut off; DecodeError at a malformed one."""
    position, end = 0, len(data)
    while end - position >= MESSAGE_SIZE_MIN:
        header = None
        if read_magic(data, position) < MAGIC:
            size = message_size(data, position)
        elif end - position < HEADER_SIZE:
            return
        else:
            header = read_batch_header(data, position)
            size = header.size
        if size > end - position:
            return
        piece = data[position : position + size]
        if header is None:
            yield FetchedBatch(None, piece, message_offset(piece))
        else:
            yield FetchedBatch(header, piece, header.last_offset, header.partition_leader_epoch)
        position += size


def with_visibility(
    batches: Iterable[FetchedBatch], aborted: Sequence[AbortedTransaction]
) -> Iterator[tuple[FetchedBatch, bool]]:
    """Yield each batch, and whether consumers see its records; DecodeError when a control batch is malformed."""
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        if header is None:
            yield batch, True
            continue
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            aborting.add(upcoming.popleft().producer_id)
        if header.is_control and _is_abort(batch):
            aborting.discard(header.producer_id)
        yield batch, not (header.is_control or (header.is_transactional and header.producer_id in aborting))


def readable_records(
    batches: Sequence[FetchedBatch],
    aborted: Sequence[AbortedTransaction],
    *,
    from_offset: int,
    check_crcs: bool,
    about: str,
) -> Iterator[Record]:
    """Yield the records from an offset on, in order, decoded one batch at a time. CorruptMessageError when a CRC is
    wrong, KafkaError when a batch is malformed. `aborted` is empty at read_uncommitted."""
    at = from_offset

    def checked() -> Iterator[FetchedBatch]:
        nonlocal at
        for batch in batches:
            at = batch.base_offset
            if check_crcs and batch.header is not None and not crc_matches(batch.data):
                raise broker_error(ErrorCode.CORRUPT_MESSAGE, f"{about}: offset {at}")
            yield batch

    try:
        for batch, is_visible in with_visibility(checked(), aborted):
            if is_visible:
                yield from (record for record in batch.records() if record.offset >= from_offset)
    except CorruptMessage as fault:  # of formats 0 and 1, whose CRC is always checked: it covers the sizes inside
        raise broker_error(ErrorCode.CORRUPT_MESSAGE, f"{about}: offset {at}: {fault}") from fault
    except DecodeError as fault:
        raise KafkaError(f"{about}: offset {at}: {fault}") from fault


def _is_abort(batch: FetchedBatch) -> bool:
    # Kafka does not compress control batches. A compressed one is read, and is no bomb.
    for record in read_records(batch.data, limit=_CONTROL_BYTES_MAX):  # mutant: control-batch-bounded
        marker = read_marker(record)
        return marker is not None and marker.type is ControlType.ABORT
    return False
