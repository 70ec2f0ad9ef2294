"""The terms of an append: the origin of a batch, its outcome, and the reason to stage it again.

`Appended` is returned when a batch is staged. It is final when the write that carries it has returned: a failed write
turns it into error 56. `prepare` does everything that needs no offset: checks, rewriting, sequences.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, final

from protocol_lib.errors import NO_ERROR, ErrorCode
from protocol_lib.records.header import CONTROL, TRANSACTIONAL

from storage_svc.log.batch.admission import admit
from storage_svc.log.batch.header import RawHeader, unpack_header
from storage_svc.log.batch.room import Room
from storage_svc.log.batch.rules import Refusal, Rules
from storage_svc.log.producers.state import UNVERIFIED, ProducedBatch, ProducerState

_REASONS: Final[dict[int, str]] = {
    ErrorCode.INVALID_PRODUCER_EPOCH: "the producer's epoch is older than the newest one",
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: "the batch does not follow the producer's last one",
    ErrorCode.INVALID_TXN_STATE: "the batch and its producer's transaction in this partition do not go together",
}


class Origin(Enum):
    """The source of a batch: a client, whose every field is checked, or a coordinator of ours."""

    CLIENT = 1
    COORDINATOR = 2


# An attribute of an Enum class costs as much as a call: it is looked up once.
_CLIENT: Final = Origin.CLIENT


@final
@dataclass(slots=True)
class Appended:
    """Outcome for one batch. `log_append_time_ms` is -1 for CreateTime topics."""

    error_code: int
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()

    def become(self, other: Appended) -> None:
        """Copy another's fields."""
        self.error_code = other.error_code
        self.base_offset, self.last_offset = other.base_offset, other.last_offset
        self.log_append_time_ms, self.log_start_offset = other.log_append_time_ms, other.log_start_offset
        self.error_message, self.record_errors = other.error_message, other.record_errors

    @classmethod
    def refused(cls, refusal: Refusal) -> Appended:
        """Return the outcome of a refused batch."""
        return cls(refusal.error_code, error_message=refusal.message, record_errors=refusal.record_errors)


class Retry(Enum):
    """The reason why a batch was not staged yet. The log is unchanged, and the caller stages the batch again."""

    #: The batch begins a segment, and older batches are not durable yet: stage it again after the next sync.
    AFTER_SYNC = "after sync"
    #: The records take long to check: stage the batch again with the result of `BatchWriter.admit` from a thread.
    AFTER_CHECK = "after check"
    #: The producer's last batches are not in memory: stage the batch again after `BatchWriter.look_back`.
    AFTER_LOOK_BACK = "after look-back"
    #: The batch begins a transaction: stage it again, `verified`, once the transaction coordinator confirms that the
    #: transaction has this partition.
    AFTER_VERIFY = "after verify"


#: The refusal of a batch that would begin a transaction that its caller has not verified.
NOT_VERIFIED: Final = Refusal(ErrorCode.INVALID_TXN_STATE, "the producer has no open transaction in this partition")

Prepared = tuple[memoryview, RawHeader]
#: The result of admission.py for a client's batch.
Admitted = Prepared | Refusal


def prepare(
    view: memoryview,
    rules: Rules,
    producers: ProducerState,
    origin: Origin,
    now_ms: int,
    admitted: Admitted | None = None,
    *,
    room: Room | None = None,
    verified: bool = False,
) -> Prepared | ProducedBatch | Refusal:
    """Return the batch to write with its header, the batch that it repeats, or its refusal.

    A coordinator's batches are of two kinds. Records carry a producer's id and epoch, but their sequences mean nothing.
    Markers are checked by the caller.

    Args:
        admitted: the result of `admit`, if the caller has it already.
        room: the records that may be checked on the event loop; others are refused as TOO_SLOW. None: all may.
        verified: without it, a batch that would begin a transaction is refused as NOT_VERIFIED.
    """
    if origin is _CLIENT:
        if admitted is None:
            admitted = admit(view, rules, now_ms, room=room)
        if type(admitted) is Refusal:
            return admitted
        header = admitted[1]
        known: int | ProducedBatch = NO_ERROR
        if header[9] >= 0:
            transactional = bool(header[5] & TRANSACTIONAL)
            known = producers.check(header[9], header[10], header[11], header[6], transactional, verified)
        elif header[5] & TRANSACTIONAL:
            known = ErrorCode.INVALID_TXN_STATE
        if known:
            if known == UNVERIFIED:
                return NOT_VERIFIED
            return Refusal(known, _REASONS[known]) if isinstance(known, int) else known
        return admitted
    header = unpack_header(view)
    if header[9] >= 0 and not header[5] & CONTROL and (error := producers.check_epoch(header[9], header[10])):
        return Refusal(error, _REASONS[error])
    return view, header
