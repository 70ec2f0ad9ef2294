"""Who is in the classic group of classic_model.py, and what they agree on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from storage_svc.coordinator.classic import events


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


class People(dict[str, Person]):
    """By their ids, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self.leader: str | None = None
        #: Ids that were given out and have not joined.
        self.pending: set[str] = set()
        #: Of this generation, who has not asked for its share.
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

    def put_in_place_of(self, was: Person, person: Person) -> None:
        everybody = [person if each is was else each for each in self.values()]
        self.clear()
        self.update((each.id, each) for each in everybody)
        self.leader = person.id if self.leader == was.id else self.leader
        if was.id in self.unsynced:
            self.unsynced = self.unsynced - {was.id} | {person.id}

    def patience_ms(self) -> int:
        return max((each.rebalance_ms for each in self.values()), default=0)

    def common(self) -> set[str]:
        """The protocols that all have; there is somebody."""
        return set.intersection(*({name for name, _ in each.protocols} for each in self.values()))

    def elected_protocol(self) -> str:
        """Each votes for the first it has of those that all have."""
        common = self.common()
        ballots = [next(name for name, _ in each.protocols if name in common) for each in self.values()]
        return Counter(ballots).most_common(1)[0][0]
