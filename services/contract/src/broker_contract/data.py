"""Appends, reads and their answers, as gateway and storage exchange them.

The combined broker passes these objects from gateway to storage as they are. Separate services encode them in the
frames of the record stream (frames.py). Answers list partitions, or batches, in the request's order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple, Protocol, overload

Buffer = bytes | memoryview

NO_TOPIC_ID: Final = bytes(16)
#: An outcome without an error: base offset, append time, log start offset.
OUTCOME: Final = Struct(">qqq")
#: Key of the Exchange call's metadata that carries the gateway's name.
GATEWAY_METADATA: Final = "millrace-gateway-bin"
#: Key of the Exchange call's initial metadata from storage: the name of its Revisions.
REVISIONS_METADATA: Final = "millrace-revisions"
#: Key of the Exchange call's metadata: the name of the gateway's AppendArea. In the initial metadata from storage, the
#: same key with APPEND_AREA_SEEN states that storage sees the area.
APPEND_AREA_METADATA: Final = "millrace-append-area"
APPEND_AREA_SEEN: Final = "seen"
#: Key of the Records call's metadata: the caller's machine.
MACHINE_METADATA: Final = "millrace-machine"
#: Most slices of one Records call.
RECORDS_SLICES_MAX: Final = 512


class TopicIdPartition(NamedTuple):
    """One partition of a topic. The topic is named by `topic_id`, or by `topic` when the id is all zeros."""

    topic: str
    partition: int
    topic_id: bytes = NO_TOPIC_ID


@dataclass(slots=True)
class Append:
    """Record batches to append: of one Produce request, or of several that a connection sent one after the other.

    `batches[n]` goes to `partitions[n]`. When `partitions` names only one partition, all batches go to it in order.
    Batches are exactly as the producer sent them. The answer has one outcome for each batch.

    `correlation_id` is the one of the first request, `version` the Produce version. `timeout_ms` bounds the wait for
    durability with acks -1. Transactional batches need `transactional_id`; batches of others may come with it, too.
    """

    correlation_id: int
    client_id: str | None
    version: int
    acks: int
    timeout_ms: int
    partitions: Sequence[TopicIdPartition]
    batches: Sequence[Buffer]
    transactional_id: str | None = None


RecordErrors = Sequence[tuple[int, str | None]]


class AppendOutcome(Protocol):
    """The outcome of one batch. The offset is -1 after an error, `log_append_time_ms` is -1 for CreateTime topics.
    Without an error there are no message and no record errors: frames do not carry them."""

    @property
    def error_code(self) -> int: ...

    @property
    def base_offset(self) -> int: ...

    @property
    def log_append_time_ms(self) -> int: ...

    @property
    def log_start_offset(self) -> int: ...

    @property
    def error_message(self) -> str | None: ...

    @property
    def record_errors(self) -> RecordErrors: ...


@dataclass(slots=True)
class AppendedPartition:
    """An outcome as plain values: of a gateway's own making, or decoded from a frame. Storage has its own type."""

    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    error_message: str | None = None
    record_errors: RecordErrors = ()


class PackedOutcomes(Sequence[AppendOutcome]):
    """Outcomes without an error: `packed` holds one OUTCOME for each, back to back, as a frame does."""

    __slots__ = ("packed",)

    def __init__(self, packed: bytes) -> None:
        self.packed = packed

    def __len__(self) -> int:
        return len(self.packed) // OUTCOME.size

    @overload
    def __getitem__(self, index: int) -> AppendOutcome: ...

    @overload
    def __getitem__(self, index: slice) -> list[AppendOutcome]: ...

    def __getitem__(self, index: int | slice) -> AppendOutcome | list[AppendOutcome]:
        return list(self)[index]

    def __iter__(self) -> Iterator[AppendOutcome]:
        for fields in OUTCOME.iter_unpack(self.packed):
            yield AppendedPartition(0, *fields)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(slots=True)
class AppendResponse:
    """The outcome of each of an Append's batches, in their order."""

    outcomes: Sequence[AppendOutcome]

    def offsets(self) -> Iterable[tuple[int, ...]] | None:
        """Return base offset, append time and log start offset of each batch, or None if any batch was refused."""
        outcomes = self.outcomes
        if type(outcomes) is PackedOutcomes:
            return OUTCOME.iter_unpack(outcomes.packed)
        for outcome in outcomes:
            if outcome.error_code:
                return None
        return [(each.base_offset, each.log_append_time_ms, each.log_start_offset) for each in outcomes]


@dataclass(slots=True)
class ReadPartition:
    """One partition to read, from `fetch_offset` on. `leader_epoch` is -1 when the client names none."""

    topic_partition: TopicIdPartition
    fetch_offset: int
    max_bytes: int
    leader_epoch: int = -1


@dataclass(slots=True)
class ReadRequest:
    """One Fetch request: answered when `min_bytes` can be read, a partition has an error, or `max_wait_ms` is over."""

    correlation_id: int
    client_id: str | None
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    by_reference: bool
    partitions: list[ReadPartition]


@dataclass(slots=True)
class Slice:
    """`length` bytes at `position` of a segment file. `path` is relative to the data folder; `file_id` is its inode."""

    path: str
    file_id: int
    position: int
    length: int


@dataclass(slots=True)
class ReadResult:
    """One partition's records: `slices` if read by reference, else `records`. `aborted`: null for read_uncommitted."""

    error_code: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: list[tuple[int, int]] | None = None
    slices: list[Slice] = field(default_factory=list)
    records: Buffer = b""


@dataclass(slots=True)
class ReadResponse:
    partitions: list[ReadResult]


@dataclass(slots=True)
class AheadRequest:
    """A request for the reads that a consumer will send next, if it goes on as before.

    `read` is the last one that was answered: of one partition, by reference. `count` is the most reads to answer.
    """

    read: ReadRequest
    count: int


@dataclass(slots=True)
class AheadRead:
    """The result of one read ahead: the slices from `fetch_offset` on."""

    fetch_offset: int
    slices: list[Slice]


@dataclass(slots=True)
class AheadResponse:
    """Results of reads that the consumer has not sent yet; none of them has an aborted transaction.

    They are valid as long as `revision` is the number in `slot` of storage's Revisions.
    """

    slot: int = 0
    revision: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    reads: list[AheadRead] = field(default_factory=list)


@dataclass(slots=True)
class Cancel:
    """A notice that the read of this call id was given up."""


@dataclass(slots=True)
class FrameReceipt:
    """A request for a receipt of the frame that holds it, and the receipt itself, with the same call id.

    Storage sends it once it needs nothing more of the records that the frame refers to in the gateway's AppendArea.
    """


Item = Append | AppendResponse | ReadRequest | ReadResponse | Cancel | FrameReceipt | AheadRequest | AheadResponse
