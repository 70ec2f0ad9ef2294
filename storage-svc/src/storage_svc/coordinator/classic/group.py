"""A classic consumer group: its state, its generation, its members and its unfinished writes.

The group changes only in its machine: `step.py` has the steps, `machine.py`, `join_phase.py` and `sync.py` choose among
them. Other modules read. Kafka: ClassicGroup.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from protocol_lib import consumer_protocol
from protocol_lib.errors import ErrorCode, ProtocolError
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue

from storage_svc.coordinator.classic.events import VALID_PREVIOUS, GroupState
from storage_svc.coordinator.classic.initial_delay import InitialDelay
from storage_svc.coordinator.classic.member import Member
from storage_svc.coordinator.classic.membership import Membership
from storage_svc.coordinator.classic.pending_writes import PendingWrites
from storage_svc.coordinator.machine.outcome import Record

_HISTORY_LENGTH: Final = 16

_EMPTY, _PREPARING, _COMPLETING, _STABLE, _DEAD = GroupState


class InvalidTransitionError(Exception):
    """A bug: a state was to be entered from one that `VALID_PREVIOUS` does not list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    initial_rebalance_delay_ms: int = 3000
    size_max: int = 2**31 - 1


class Group:
    #: Kafka's name of the kind.
    type_name: ClassVar[str] = "classic"

    def __init__(self, group_id: str, limits: GroupLimits, now_ms: int) -> None:
        self.group_id = group_id
        self.limits = limits
        self.state = GroupState.EMPTY
        #: Wall clock time of the last change of state; offsets of an empty group expire from here.
        self.state_timestamp_ms = now_ms
        #: Completed rebalances.
        self.generation_id = 0
        #: The type the first member named; "" until there was one.
        self.protocol_type = ""
        #: The chosen protocol of the current generation; None while the group is empty.
        self.protocol_name: str | None = None
        self.members = Membership()
        #: Members that have not sent SyncGroup in this generation.
        self.pending_syncs: set[str] = set()
        self.initial_delay = InitialDelay(limits.initial_rebalance_delay_ms)
        self.writes = PendingWrites()
        self._history: deque[str] = deque(maxlen=_HISTORY_LENGTH)

    @classmethod
    def restore(cls, group_id: str, stored: GroupMetadataValue, limits: GroupLimits, now_ms: int) -> Group:
        """Return the group as the log holds it."""
        group = cls(group_id, limits, now_ms)
        group.protocol_type = stored.protocol_type
        group.generation_id = stored.generation
        if stored.current_state_timestamp >= 0:
            group.state_timestamp_ms = stored.current_state_timestamp
        if stored.members:
            group.state = GroupState.STABLE
            group.protocol_name = stored.protocol or ""
            for stored_member in stored.members:
                group.members.add(Member.restored(stored_member, group.protocol_name))
            group.members.elect(stored.leader)
        return group

    @classmethod
    def migrated(
        cls, group_id: str, members: Iterable[Member], generation_id: int, limits: GroupLimits, now_ms: int
    ) -> Group:
        """Return the stable group that a consumer group (KIP-848) turns into, with members that have assignments."""
        group = cls(group_id, limits, now_ms)
        group.state = GroupState.STABLE
        group.generation_id = generation_id
        group.protocol_type = consumer_protocol.PROTOCOL_TYPE
        for member in members:
            group.members.add(member)
        group.protocol_name = group.members.select_protocol()
        return group

    @property
    def is_stored(self) -> bool:
        """Whether the log may hold a record of the group: its first rebalance writes one."""
        return self.generation_id > 0

    def tombstones(self) -> list[Record]:
        """Return the record that deletes the group from the log."""
        return [(GroupMetadataKey(group=self.group_id), None)] if self.is_stored else []

    def topics_in_use(self) -> set[str] | None:
        """Return the topics of which committed offsets do not expire; None stands for all topics."""
        if self.state is _EMPTY:
            return set()
        is_consumer = self.state is _STABLE and self.protocol_type == consumer_protocol.PROTOCOL_TYPE
        return self.subscribed_topics() if is_consumer else None

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that the members of a consumer group subscribe to; None when nothing may be concluded,
        because a member's metadata cannot be read, or the protocol is not chosen yet.
        """
        topics: set[str] = set()
        if self.members and self.protocol_name is None:
            return None
        for member in self.members:
            try:
                subscription = consumer_protocol.decode_subscription(member.metadata(self.protocol_name or ""))
            except ProtocolError:
                return None
            topics.update(subscription.topics)
        return topics

    def subscribed_patterns(self) -> set[str]:
        """Return no pattern: members of the classic protocol match theirs."""
        return set()

    def deletion_fault(self) -> ErrorCode:
        """Return why a client may delete no committed offset: topics of members that are no consumers are unknown."""
        is_consumer = self.protocol_type == consumer_protocol.PROTOCOL_TYPE
        return ErrorCode.NONE if self.state is _EMPTY or is_consumer else ErrorCode.NON_EMPTY_GROUP

    @property
    def empty_since_ms(self) -> int | None:
        """The time since when the group has no members; None if it has some, or never had any."""
        return self.state_timestamp_ms if self.state is _EMPTY and self.protocol_type else None

    def is_idle(self) -> bool:
        """Return whether forgetting the group would lose nothing but its committed offsets."""
        return self.state is _EMPTY and not self.members.pending and not self.writes

    def enter(self, state: GroupState, now_ms: int) -> None:
        """Change the state.

        Raises:
            InvalidTransitionError: the state may not be entered from the present one.
        """
        self._history.append(f"{self.state.value}->{state.value}@{self.generation_id}")
        if self.state not in VALID_PREVIOUS[state]:
            raise InvalidTransitionError(f"group {self.group_id!r}: {', '.join(self._history)}")
        self.state = state
        self.state_timestamp_ms = now_ms

    def call_error(self, member_id: str, instance_id: str | None, generation_id: int) -> ErrorCode:
        """Return the reason to refuse a sync, heartbeat or commit of a member, in any state."""
        if self.state is _DEAD:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if error := self.members.error(member_id, instance_id):
            return error
        return ErrorCode.NONE if generation_id == self.generation_id else ErrorCode.ILLEGAL_GENERATION

    def stored(self, assignments: Mapping[str, bytes]) -> GroupMetadataValue:
        """Return the group as it is now, with these assignments, as it is written to the log."""
        name = self.protocol_name
        return GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation_id,
            protocol=name,
            leader=self.members.leader_id,
            current_state_timestamp=self.state_timestamp_ms,
            members=tuple(member.stored(name or "", assignments.get(member.member_id, b"")) for member in self.members),
        )

    def check_invariants(self) -> None:
        """Check the facts that hold between events. For tests."""
        self.members.check_invariants()
        joins = [member for member in self.members if member.join_request is not None]
        syncs = [member for member in self.members if member.sync_request is not None]
        assert (len(self.members) == 0) >= (self.state in (_EMPTY, _DEAD)), self.state
        assert self.pending_syncs <= set(self.members.ids())
        assert not self.pending_syncs or self.state in (_COMPLETING, _STABLE)
        assert not self.initial_delay.is_running or self.state is _PREPARING
        assert not syncs or self.state is _COMPLETING
        assert all(member.member_id not in self.pending_syncs for member in syncs)
        if self.state in (_COMPLETING, _STABLE):
            assert self.protocol_name is not None
            assert self.members.support(self.protocol_name)
            assert not any(member.is_new for member in self.members)
            assert {member.member_id for member in joins} <= self.writes.replacing()
        if self.state is _PREPARING and not self.initial_delay.is_running and not self.members.pending:
            assert len(joins) < len(self.members), "all members have joined, and the rebalance has not ended"
