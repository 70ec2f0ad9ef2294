"""The members of a classic group, in order of joining, with their static names, pending ids, and the leader.

Parked joins, and the members that support each protocol, are counted as they change: every join needs both numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, KeysView
from typing import Final

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Join
from storage_svc.coordinator.classic.member import Member, common_protocols, select_protocol

#: The most pending ids of a group: the oldest goes for another one. Its client gets UNKNOWN_MEMBER_ID, and a new id.
PENDING_MAX: Final = 10_000


class Membership:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        #: group instance id -> member id, for the static ones among the members.
        self._static: dict[str, str] = {}
        self._pending: dict[str, None] = {}
        self._joined = 0
        #: Protocol name -> the number of members that support it.
        self._supporters: Counter[str] = Counter()
        #: A member's id; None while there are none.
        self.leader_id: str | None = None

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, member_id: object) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def ids(self) -> list[str]:
        return list(self._members)

    def by_instance(self, instance_id: str) -> Member | None:
        member_id = self._static.get(instance_id)
        return None if member_id is None else self._members[member_id]

    @property
    def pending(self) -> KeysView[str]:
        """Ids handed out with MEMBER_ID_REQUIRED that have not joined yet, the oldest first; none is a member's."""
        return self._pending.keys()

    def expect(self, member_id: str) -> str | None:
        """Add a pending id. Return the oldest one if there are too many: the caller removes it."""
        self._pending[member_id] = None
        if len(self._pending) <= PENDING_MAX:
            return None
        return next(iter(self._pending))

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        self._count(member, 1)
        self._pending.pop(member.member_id, None)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        self._pending.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
        if member is not None and member.instance_id is not None:
            del self._static[member.instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def replace(self, previous: Member, member: Member) -> None:
        """Put `member`, of the same instance id, into the place of `previous`: in order, by name and as leader."""
        self._members = {
            (member.member_id if known is previous else known_id): (member if known is previous else known)
            for known_id, known in self._members.items()
        }
        self._count(previous, -1)
        self._count(member, 1)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id == previous.member_id:
            self.leader_id = member.member_id

    def _count(self, member: Member, change: int) -> None:
        self._joined += change * (member.join_request is not None)
        for name in {name for name, _ in member.protocols}:
            self._supporters[name] += change
            if not self._supporters[name]:
                del self._supporters[name]

    def update(self, member: Member, join: Join) -> None:
        """Replace everything that a member may change when it joins again."""
        self._count(member, -1)
        member.update(join)
        self._count(member, 1)

    def park(self, member: Member, request: int | None) -> None:
        """Let the member's JoinGroup wait under this request number; None ends the wait."""
        if self._members.get(member.member_id) is member:
            self._joined += (request is not None) - (member.join_request is not None)
        member.join_request = request

    def error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the reason why this caller is not a member; NONE when it is one."""
        if instance_id is not None:
            known = self._static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self._members else ErrorCode.UNKNOWN_MEMBER_ID

    def elect(self, member_id: str | None) -> None:
        """Make this member the leader, if it is one of the members."""
        if member_id in self._members:
            self.leader_id = member_id

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else choose the first member that has; False when none has."""
        if self.leader_id is not None and self._members[self.leader_id].join_request is not None:
            return True
        joined = next((member for member in self if member.join_request is not None), None)
        if joined is None:
            return False
        self.leader_id = joined.member_id
        return True

    def joined_count(self) -> int:
        return self._joined

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def support(self, protocol_name: str) -> bool:
        """Return whether all members support the protocol."""
        return self._supporters[protocol_name] == len(self._members)

    def select_protocol(self) -> str:
        return select_protocol(self)

    def check_invariants(self) -> None:
        assert all(key == member.member_id for key, member in self._members.items())
        static = {member.instance_id: member.member_id for member in self if member.instance_id is not None}
        assert self._static == static, (self._static, static)
        assert not self.pending & self._members.keys()
        assert self._joined == sum(member.join_request is not None for member in self)
        named = {name for member in self for name, _ in member.protocols}
        assert {name for name in named if self.support(name)} == common_protocols(self)
        assert (self.leader_id is None) == (not self._members)
        assert self.leader_id is None or self.leader_id in self._members
