"""What an append comes to: who asked, the outcome of a batch, and a batch ready to be written.

`Appended` is handed out when a batch is staged and becomes true when the write that carries it has returned: a failed
write turns it into error 56. `prepare` is everything before offsets: checks, recompression, sequences.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from protocol_lib.errors import ErrorCode
from protocol_lib.records.header import CODEC_MASK

from storage_svc.log.admission import RawHeader, Refusal, Rules, admit, recompressed
from storage_svc.log.batches import unpack_header
from storage_svc.log.producer_state import ProducedBatch, ProducerState

_NONE: Final = int(ErrorCode.NONE)
_MESSAGE_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_REASONS: Final = {
    int(ErrorCode.INVALID_PRODUCER_EPOCH): "the producer's epoch is older than the newest one",
    int(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER): "the batch does not follow the producer's last one",
}


class Origin(Enum):
    """Who appends: a client, whose every field is checked, or a coordinator of ours."""

    CLIENT = 1
    COORDINATOR = 2


@dataclass(slots=True)
class Appended:
    """Outcome for one batch. `log_append_time_ms` is -1 for CreateTime topics."""

    error_code: int
    base_offset: int = -1
    last_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: list[tuple[int, str | None]] = field(default_factory=list)

    @classmethod
    def refused(cls, refusal: Refusal) -> Appended:
        return cls(refusal.error_code, error_message=refusal.message, record_errors=refusal.record_errors)


Prepared = tuple[memoryview, RawHeader]


def prepare(
    view: memoryview, rules: Rules, producers: ProducerState, origin: Origin, now_ms: int
) -> Prepared | ProducedBatch | Refusal:
    """The batch to write with its header, the batch it repeats, or why it is refused."""
    if origin is Origin.CLIENT:
        header = admit(view, rules, now_ms)
        if isinstance(header, Refusal):
            return header
        if rules.codec is not None and header[5] & CODEC_MASK != rules.codec:
            rebuilt = recompressed(view, header, rules.codec)
            if isinstance(rebuilt, Refusal):
                return rebuilt
            if len(rebuilt) > rules.bytes_max:
                return Refusal(_MESSAGE_TOO_LARGE, f"{len(rebuilt)} bytes after recompression")
            view = memoryview(rebuilt)
            header = unpack_header(view)
    else:
        header = unpack_header(view)
    if header[9] >= 0:
        known = producers.check(header[9], header[10], header[11], header[6])
        if known:
            return Refusal(known, _REASONS[known]) if isinstance(known, int) else known
    return view, header
