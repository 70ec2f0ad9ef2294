"""One member of a classic consumer group. Changed only by the group's machine (`machine.py`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from protocol_lib.internal.group_metadata import MemberMetadata

from storage_svc.coordinator.classic.events import Join


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    #: Set for static members.
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    #: (protocol name, metadata) in order of preference; never empty.
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    #: True while its first join is parked: its session is bounded all the same.
    is_new: bool = False
    #: The parked JoinGroup's request number, if one is parked.
    join_request: int | None = None
    #: The parked SyncGroup's request number, if one is parked.
    sync_request: int | None = None

    @classmethod
    def joining(cls, member_id: str, join: Join) -> Member:
        return cls(
            member_id=member_id,
            instance_id=join.instance_id,
            client_id=join.client_id,
            client_host=join.client_host,
            session_timeout_ms=join.session_timeout_ms,
            rebalance_timeout_ms=join.rebalance_timeout_ms,
            protocols=join.protocols,
            is_new=True,
            join_request=join.request,
        )

    @classmethod
    def restored(cls, stored: MemberMetadata, protocol_name: str) -> Member:
        return cls(
            member_id=stored.member_id,
            instance_id=stored.group_instance_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            session_timeout_ms=stored.session_timeout,
            rebalance_timeout_ms=stored.session_timeout if stored.rebalance_timeout < 0 else stored.rebalance_timeout,
            protocols=((protocol_name, stored.subscription),),
            assignment=stored.assignment,
        )

    def stored(self, protocol_name: str, assignment: bytes) -> MemberMetadata:
        return MemberMetadata(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout=self.rebalance_timeout_ms,
            session_timeout=self.session_timeout_ms,
            subscription=self.metadata(protocol_name),
            assignment=assignment,
        )

    def metadata(self, protocol_name: str) -> bytes:
        """Return this member's metadata for a protocol; empty when it does not support it."""
        return next((metadata for name, metadata in self.protocols if name == protocol_name), b"")

    def renamed(self, member_id: str) -> Member:
        """Return the same member under a new id, with nothing parked."""
        return replace(self, member_id=member_id, is_new=False, join_request=None, sync_request=None)

    def update(self, join: Join) -> None:
        """Replace everything that a member may change when it joins again."""
        self.client_id, self.client_host = join.client_id, join.client_host
        self.session_timeout_ms, self.rebalance_timeout_ms = join.session_timeout_ms, join.rebalance_timeout_ms
        self.protocols = join.protocols


def common_protocols(members: Iterable[Member]) -> set[str]:
    """Return the protocol names that every member supports."""
    sets = [{name for name, _ in member.protocols} for member in members]
    return set.intersection(*sets) if sets else set()


def select_protocol(members: Iterable[Member]) -> str:
    """Return the protocol with most votes; the earliest vote breaks ties.

    Each member votes for the first of its protocols that all members support.

    Raises:
        ValueError: there is no protocol in common.
    """
    voters = list(members)
    candidates = common_protocols(voters)
    if not candidates:
        raise ValueError("the members have no protocol in common")
    votes = Counter(next(name for name, _ in member.protocols if name in candidates) for member in voters)
    return max(votes, key=lambda name: votes[name])
