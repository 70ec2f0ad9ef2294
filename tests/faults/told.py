"""What a storage engine's users have sent and were told: the model beside which power_cuts.py holds the log."""

from __future__ import annotations

from dataclasses import dataclass, field

PRODUCERS = 3


@dataclass(eq=False)
class Sent:
    """One batch, and what its producer was told of it."""

    records: bytes
    count: int
    producer: int | None = None
    base_offset: int = -1
    acknowledged: bool = False
    #: Of a transaction: whether this is its marker, and which one.
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
    """What its producers sent, and what anybody was told of it."""

    def __init__(self) -> None:
        #: In the order of offsets: all that was written and, but for what a cut took, is there.
        self.batches: list[Sent] = []
        self.producers = [Producer() for _ in range(PRODUCERS)]
        #: How far somebody may have read.
        self.readable_end = 0
        #: Below this offset everything was deleted, which the user was told.
        self.deleted_end = 0
        #: How many records the transactional producer sent, and how the transaction without an answer is to end.
        self.transactional_sequence = 0
        self.undecided: bool | None = None

    @property
    def acknowledged_end(self) -> int:
        return max((each.end_offset for each in self.batches if each.acknowledged), default=0)

    @property
    def in_flight(self) -> list[Sent]:
        return [each for each in self.batches if not each.acknowledged]
