"""The records of a fetch that a consumer hands over: neither control records nor, at read_committed, aborted ones.

With a read_committed fetch brokers send the transactions that were aborted, as (producer id, first offset). A
producer's batches are skipped from that offset on until its abort marker.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol_lib.client.errors import KafkaError, broker_error
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.messages.fetch import AbortedTransaction
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
from protocol_lib.records.record import Record, read_records


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """A record batch; or a message of format 0 or 1 with its contents, which has no header and no leader epoch."""

    header: BatchHeader | None
    data: memoryview
    last_offset: int
    leader_epoch: int = -1


def whole_batches(data: memoryview) -> list[FetchedBatch]:
    """Return the batches of a fetch, without a last one that its size limit cut off."""
    found = []
    position, end = 0, len(data)
    while end - position >= MESSAGE_SIZE_MIN:
        header = None
        if read_magic(data, position) < MAGIC:
            size = message_size(data, position)
        elif end - position < HEADER_SIZE:
            break
        else:
            header = read_batch_header(data, position)
            size = header.size
        if size > end - position:
            break
        piece = data[position : position + size]
        if header is None:
            found.append(FetchedBatch(None, piece, message_offset(piece)))
        else:
            found.append(FetchedBatch(header, piece, header.last_offset, header.partition_leader_epoch))
        position += size
    return found


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
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        if header is None:
            yield from _old_records(batch, from_offset, about)
            continue
        while upcoming and upcoming[0].first_offset <= header.last_offset:
            aborting.add(upcoming.popleft().producer_id)
        try:
            if check_crcs and not crc_matches(batch.data):
                raise broker_error(ErrorCode.CORRUPT_MESSAGE, f"{about}: offset {header.base_offset}")
            if header.is_control:
                if _is_abort(batch):
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                yield from (record for record in read_records(batch.data) if record.offset >= from_offset)
        except DecodeError as fault:
            raise KafkaError(f"{about}: offset {header.base_offset}: {fault}") from fault


def _old_records(batch: FetchedBatch, from_offset: int, about: str) -> Iterator[Record]:
    """Yield records of formats 0 and 1. Their CRC is always checked: it covers the sizes inside."""
    try:
        message, _ = read_message(batch.data)
        records = message_records(message)
    except CorruptMessage as fault:
        raise broker_error(ErrorCode.CORRUPT_MESSAGE, f"{about}: offset {batch.last_offset}: {fault}") from fault
    except DecodeError as fault:
        raise KafkaError(f"{about}: offset {batch.last_offset}: {fault}") from fault
    yield from (record for record in records if record.offset >= from_offset)


def _is_abort(batch: FetchedBatch) -> bool:
    for record in read_records(batch.data):
        marker = read_marker(record)
        return marker is not None and marker.type is ControlType.ABORT
    return False
