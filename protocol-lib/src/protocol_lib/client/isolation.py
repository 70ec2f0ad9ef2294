"""The records of a fetch that a consumer is given: neither control records nor, at read_committed, aborted ones.

With a read_committed fetch brokers send the transactions that were aborted, as (producer id, first offset). A
producer's batches are skipped from that offset on until its abort marker.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from protocol_lib.client.errors import KafkaError, broker_error
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.messages.fetch import AbortedTransaction
from protocol_lib.records.batch import HEADER_SIZE, BatchHeader, crc_matches, read_batch_header
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.record import Record, read_records


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    header: BatchHeader
    data: memoryview


def whole_batches(data: memoryview) -> list[FetchedBatch]:
    """The batches of a fetch; the last one may have been cut off by its size limit, and is left out then."""
    found = []
    position, end = 0, len(data)
    while end - position >= HEADER_SIZE:
        header = read_batch_header(data, position)
        if header.size > end - position:
            break
        found.append(FetchedBatch(header, data[position : position + header.size]))
        position += header.size
    return found


def readable_records(
    batches: Sequence[FetchedBatch],
    aborted: Sequence[AbortedTransaction],
    *,
    from_offset: int,
    check_crcs: bool,
    about: str,
) -> Iterator[Record]:
    """From an offset on, in order; decoded one batch at a time, as they are asked for. CorruptMessageError when a CRC
    is wrong, KafkaError when a batch is malformed. `aborted` is empty at read_uncommitted."""
    upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
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


def _is_abort(batch: FetchedBatch) -> bool:
    for record in read_records(batch.data):
        marker = read_marker(record)
        return marker is not None and marker.type is ControlType.ABORT
    return False
