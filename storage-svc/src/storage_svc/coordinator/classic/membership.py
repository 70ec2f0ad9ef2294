"""The members of a classic group, in order of joining, with their static names, pending ids, and the leader."""

from __future__ import annotations

from collections.abc import Iterator

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.member import Member, common_protocols, select_protocol


class Membership:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        #: group instance id -> member id, for the static ones among the members.
        self._static: dict[str, str] = {}
        #: Ids handed out with MEMBER_ID_REQUIRED that have not joined yet; disjoint from the members.
        self.pending: set[str] = set()
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

    def add(self, member: Member) -> None:
        self._members[member.member_id] = member
        self.pending.discard(member.member_id)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        self.pending.discard(member_id)
        member = self._members.pop(member_id, None)
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
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader_id == previous.member_id:
            self.leader_id = member.member_id

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
        return sum(member.join_request is not None for member in self)

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def common_protocols(self) -> set[str]:
        return common_protocols(self)

    def select_protocol(self) -> str:
        return select_protocol(self)

    def check_invariants(self) -> None:
        assert all(key == member.member_id for key, member in self._members.items())
        static = {member.instance_id: member.member_id for member in self if member.instance_id is not None}
        assert self._static == static, (self._static, static)
        assert not self.pending & self._members.keys()
        assert (self.leader_id is None) == (not self._members)
        assert self.leader_id is None or self.leader_id in self._members
