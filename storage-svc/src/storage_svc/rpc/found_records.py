"""The outcome of the look-up of one partition for a read, and the errors of reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from broker_contract.data import ReadResult, Slice
from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.log.errors import StorageFailure
from storage_svc.log.partition.log_reader import Span
from storage_svc.log.partition.partition_log import PartitionLog

#: The outcome of one partition: the result without its records, the place of the records, and their size. A plain
#: tuple, as a class with names costs each read a tenth.
Found = tuple[ReadResult, list[Span], int]

#: Bytes of an answer's limit that each aborted transaction in it stands for: gateway and client keep an object of it,
#: and the event loop encodes it.
ABORTED_BYTES: Final = 8 << 10
#: Aborted transactions of a partition that fit any limit, so that readers with a small limit make progress.
ABORTED_MIN: Final = 500

_log = service_logs.get(__name__)


def epoch_error(asked: int, current: int) -> int:
    """Return the error for a client that knows another leader epoch than ours, else 0; -1 means that it knows none."""
    if asked < 0 or asked == current:
        return 0
    return ErrorCode.FENCED_LEADER_EPOCH if asked < current else ErrorCode.UNKNOWN_LEADER_EPOCH


def offset_error(log: PartitionLog, offset: int) -> int:
    """Return the error for a read from `offset`: out of the log's range, or of a log that cannot be read; else 0."""
    if offset < log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE if offset < log.log_start_offset else 0
    if log.withheld:  # the end of such a log is unknown
        return ErrorCode.KAFKA_STORAGE_ERROR
    if offset > log.log_end_offset:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return 0 if log.offline is None else ErrorCode.KAFKA_STORAGE_ERROR


def aborted_max(left: int) -> int:
    """Return how many aborted transactions a partition may list, when so many bytes of the answer's limit are left."""
    return max(ABORTED_MIN, left // ABORTED_BYTES)  # mutant: aborted-list-bounded


def spent(found: Found) -> int:
    """Return the bytes of an answer's limit that a partition has used up."""
    return found[2] + ABORTED_BYTES * len(found[0].aborted or ())


def find(
    log: PartitionLog, offset: int, most: int, *, is_committed: bool
) -> tuple[list[Span], Sequence[tuple[int, int]]]:
    """Return the batches of one partition that a read gets, at most `most` bytes, and the aborted transactions there.

    Raises:
        StorageFailure: the disk did not answer.
    """
    if is_committed:
        return log.transactions.read(offset, most, aborted_max(most), min_one=True)
    return log.spans(offset, most, min_one=True), ()


def note_failure(found: Found, error: StorageFailure) -> None:
    """Give the result of a partition an error: its records could not be read."""
    result, spans, _ = found
    _log.error("read failed", segment=spans[0].segment.relative_path, reason=str(error))
    result.error_code = ErrorCode.KAFKA_STORAGE_ERROR


def slices_of(spans: list[Span]) -> list[Slice]:
    return [Slice(segment.relative_path, segment.file_id, position, length) for segment, position, length in spans]


def size_of(spans: list[Span]) -> int:
    return sum(length for _, _, length in spans)


def first_of(found: list[Found], segments_max: int) -> list[Found]:
    """Return the first outcomes with records, of at most `segments_max` segments; one in any case."""
    first: list[Found] = []
    left = segments_max
    for each in found:
        if not each[2]:
            continue
        left -= len(each[1])
        if left < 0 and first:
            break
        first.append(each)
    return first
