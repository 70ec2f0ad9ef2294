"""A model of a storage engine's users, their batches and the answers; power_cuts.py compares the log with it."""

from __future__ import annotations

from dataclasses import dataclass, field

PRODUCERS = 3


@dataclass(eq=False)
class Sent:
    """One batch, and the answer that its producer received."""

    records: bytes
    count: int
    producer: int | None = None
    base_offset: int = -1
    acknowledged: bool = False
    #: Whether the batch belongs to a transaction. `commits` is None for records, else it tells which marker this is.
    transactional: bool = False
    commits: bool | None = None

    @property
    def end_offset(self) -> int:
        return self.base_offset + self.count


@dataclass
class Producer:
    """An idempotent producer of one partition: the number its next record gets, and its newest batches."""

    sequence: int = 0
    sent: list[Sent] = field(default_factory=list)

    @property
    def in_flight(self) -> list[Sent]:
        return [each for each in self.sent if not each.acknowledged]


class Partition:
    """A partition as its producers and readers know it."""

    def __init__(self) -> None:
        #: All batches in the log, in the order of their offsets; a cut removes those that it lost.
        self.batches: list[Sent] = []
        self.producers = [Producer() for _ in range(PRODUCERS)]
        #: The offset up to which somebody may have read.
        self.readable_end = 0
        #: The offset below which records were deleted, and the user has the answer.
        self.deleted_end = 0
        #: The number of records that the transactional producer sent; then whether the open transaction commits.
        self.transactional_sequence = 0
        self.undecided: bool | None = None

    @property
    def acknowledged_end(self) -> int:
        return max((each.end_offset for each in self.batches if each.acknowledged), default=0)

    @property
    def in_flight(self) -> list[Sent]:
        return [each for each in self.batches if not each.acknowledged]
