"""One member of a consumer group (KIP-848), and its partitions. Immutable: a change makes a new one.

    epoch  0        it joins, or joins again
    epoch  > 0      the target assignment it has reached
    epoch -2        a static member that left for a while; its partitions wait for it until its session ends

`assigned` maps topic id -> partition -> the epoch the partition was assigned in: a commit that names an older epoch is
refused (KIP-1251). `revoking` holds the partitions that the member has to give up and has not confirmed yet. Kafka:
ConsumerGroupMember.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final, NamedTuple

from protocol_lib.internal.consumer_group import ClassicMemberMetadata

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2

#: topic id -> partitions.
Partitions = Mapping[bytes, Set[int]]
#: topic id -> partition -> epoch in which it was assigned.
Held = Mapping[bytes, Mapping[int, int]]


class MemberState(IntEnum):
    """A member's state, as stored in key 8."""

    #: The member has everything its epoch's target gives it.
    STABLE = 0
    #: The member has to give partitions up and stays on its epoch until it has.
    UNREVOKED_PARTITIONS = 1
    #: The member is on the target's epoch and waits for partitions that others still hold.
    UNRELEASED_PARTITIONS = 2
    #: A state that a later version wrote: the member has to begin again.
    UNKNOWN = 127

    @classmethod
    def _missing_(cls, _value: object) -> MemberState:
        return cls.UNKNOWN


class ResolvedPattern(NamedTuple):
    """The topics a pattern matched, in which version of the topics and when (wall clock, milliseconds)."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    #: Set for static members.
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    #: A subscription by pattern; "" for none.
    pattern: str = ""
    assignor: str | None = None
    assigned: Held
    revoking: Held
    #: The join of a member that speaks the classic protocol; None for the others.
    classic: ClassicMemberMetadata | None = None

    @classmethod
    def new(cls, member_id: str) -> ConsumerMember:
        return cls(member_id=member_id, assigned={}, revoking={})

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def moved(self, state: MemberState, epoch: int, assigned: Held, revoking: Held) -> ConsumerMember:
        """Return the member after the next step of a reconciliation; its epoch becomes the previous one."""
        return replace(self, state=state, epoch=epoch, previous_epoch=self.epoch, assigned=assigned, revoking=revoking)

    def away(self) -> ConsumerMember:
        """Return a static member that leaves for a while: commits under its old id are refused from now on."""
        assigned = {topic_id: dict.fromkeys(held, 0) for topic_id, held in self.assigned.items()}
        return replace(self, epoch=STATIC_LEAVE_EPOCH, revoking={}, assigned=assigned)

    def holds(self) -> Iterable[tuple[bytes, int]]:
        """Yield everything that no other member may have yet."""
        for held in (self.assigned, self.revoking):
            for topic_id, partitions in held.items():
                for partition in partitions:
                    yield topic_id, partition

    def subscription(self, patterns: Mapping[str, ResolvedPattern]) -> frozenset[str]:
        """Return the topics it wants by name and by pattern; a pattern that is not resolved yet matches none."""
        resolved = patterns.get(self.pattern) if self.pattern else None
        return self.topics if resolved is None else self.topics | resolved.topics
