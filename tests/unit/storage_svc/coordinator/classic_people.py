"""The members of the classic group of classic_model.py, their common protocols, and their writes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from storage_svc.coordinator.classic import events

#: The time for which a new member's join may wait while its client may be dead.
NEW_JOIN_MS = 300_000
#: The longest life of an id whose caller has not joined.
PENDING_MS = 60_000


@dataclass
class Person:
    id: str
    name: str | None
    session_ms: int
    rebalance_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    share: bytes = b""
    #: Joined and not answered yet for the first time.
    is_new: bool = False
    #: Numbers of the calls that wait.
    join: int | None = None
    sync: int | None = None

    def metadata(self, protocol: str) -> bytes:
        return dict(reversed(self.protocols)).get(protocol, b"")

    def update(self, join: events.Join) -> None:
        self.session_ms, self.rebalance_ms = join.session_timeout_ms, join.rebalance_timeout_ms
        self.protocols, self.join = join.protocols, join.request


@dataclass
class Row:
    """Something on its way to the log."""

    generation: int
    #: Every member's share; None unless this is a leader's assignment.
    shares: dict[str, bytes] | None = None
    #: The member that came back under a new id; None unless this is that.
    returned: str | None = None
    was: Person | None = None
    led: str = ""
    may_skip: bool = False


class People(dict[str, Person]):
    """The members by their ids, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.leader: str | None = None
        #: The ids that were assigned and have not joined.
        self.pending: set[str] = set()
        #: The members that have not asked for their share in this generation.
        self.unsynced: set[str] = set()

    def named(self, name: str | None) -> Person | None:
        return next((each for each in self.values() if name is not None and each.name == name), None)

    def drop(self, member_id: str) -> Person | None:
        self.pending.discard(member_id)
        self.unsynced.discard(member_id)
        person = self.pop(member_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self), None)
        return person

    def replace(self, was: Person, person: Person) -> None:
        everybody = [person if each is was else each for each in self.values()]
        self.clear()
        self.update((each.id, each) for each in everybody)
        self.leader = person.id if self.leader == was.id else self.leader
        if was.id in self.unsynced:
            self.unsynced = self.unsynced - {was.id} | {person.id}

    def patience_ms(self) -> int:
        return max((each.rebalance_ms for each in self.values()), default=0)

    def common(self) -> set[str]:
        """Return the protocols that all have; there is at least one member."""
        return set.intersection(*({name for name, _ in each.protocols} for each in self.values()))

    def elected_protocol(self) -> str:
        """Return the protocol with most votes: each votes for the first it has of those that all have."""
        common = self.common()
        ballots = [next(name for name, _ in each.protocols if name in common) for each in self.values()]
        return Counter(ballots).most_common(1)[0][0]
