"""When memory is full, the connections are closed that hold the most for longest without progress; no other."""

from __future__ import annotations

from gateway_svc.clients.relief import Relief
from gateway_svc.errors import RequestRefused
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.request_memory import RequestMemory, Share

KIB = 1024


class Holder:
    """A connection that holds bytes of a request, and of an answer, for some time."""

    def __init__(self, relief: Rig, name: str, held: int, seconds: float, share: Share, unread: int = 0) -> None:
        self.rig, self.name, self.held, self.seconds, self.share = relief, name, held, seconds, share
        self.unread_bytes = unread
        relief.requests.take(share, held)
        relief.answers.take(unread)

    def stalled(self, now: float) -> tuple[int, float, Share]:
        return self.held, max(0.0, now - 100.0 + self.seconds), self.share

    def unread(self, now: float) -> tuple[int, float]:
        return self.unread_bytes, now - 100.0 + self.seconds

    def close_refused(self, refusal: RequestRefused) -> None:
        self.rig.closed.append((self.name, refusal.reason))
        self.rig.requests.give(self.share, self.held)
        self.rig.answers.give(self.unread_bytes)
        self.held = self.unread_bytes = 0


class OldAnswers:
    """The answers of old clients, of which some bytes are missing for others."""

    def __init__(self) -> None:
        self.missing, self.readers = 0, set[Holder]()


class Rig:
    def __init__(self) -> None:
        self.requests, self.answers = RequestMemory(1024 * KIB), MemoryBudget(1024 * KIB)
        self.old_answers = OldAnswers()
        self.relief = Relief(self.requests, self.answers, self.old_answers)
        self.closed: list[tuple[str, str]] = []
        self.share = self.requests.enter("a")
        self.holders: list[Holder] = []
        self.granted: list[int] = []

    def add(self, name: str, held: int, seconds: float, share: Share | None = None, unread: int = 0) -> None:
        self.holders.append(Holder(self, name, held, seconds, share or self.share, unread))

    def starve(self, share: Share | None = None) -> None:
        assert self.requests.try_grow("beyond", self.requests.new_connections, 0, 1 << 30)
        self.requests.wait_to_grow("starved", share or self.share, 100 * KIB, self.granted.append)


def test_nobody_is_closed_while_nobody_waits() -> None:
    rig = Rig()
    rig.add("stalled", 900 * KIB, 1000.0)
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == []


def test_the_most_for_longest_is_closed_until_a_sixteenth_is_free() -> None:
    rig = Rig()
    rig.add("short", 400 * KIB, 1.9)
    rig.add("small", 20 * KIB, 10.0)
    rig.add("large", 60 * KIB, 9.0)
    rig.add("larger", 450 * KIB, 0.0)
    rig.starve()
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == [("large", "memory_stalled"), ("small", "memory_stalled")]
    rig.relief.relieve(rig.holders, 100.2)
    assert rig.closed[2:] == [("short", "memory_stalled")]
    assert rig.granted == [100 * KIB]


def test_strangers_that_starve_close_only_strangers() -> None:
    rig = Rig()
    rig.add("known", 500 * KIB, 50.0)
    rig.add("stranger", 128 * KIB, 5.0, rig.requests.new_connections)
    rig.starve(rig.requests.new_connections)
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == [("stranger", "memory_stalled")]


def test_if_all_wait_and_nothing_comes_back_the_largest_is_closed() -> None:
    rig = Rig()
    for number in range(70):
        rig.add(f"waits {number}", 16 * KIB, -1e9)
    rig.add("largest", 64 * KIB, -1e9)
    rig.requests.wait("waits 1", 1, lambda: None)
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == []  # bytes may have come back since the last time
    rig.relief.relieve(rig.holders, 101.0)
    assert rig.closed == [("largest", "memory_stalled")]


def test_clients_that_do_not_read_are_closed_when_three_quarters_are_used() -> None:
    rig = Rig()
    rig.add("reads", 0, 1.0, unread=300 * KIB)
    rig.add("stands", 0, 3.0, unread=300 * KIB)
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == []
    rig.add("stands less", 0, 2.5, unread=300 * KIB)
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == [("stands", "memory_unread")]


def test_more_than_all_closes_readers_too_but_one_answer_may_go_beyond() -> None:
    rig = Rig()
    rig.add("alone", 0, 1.0, unread=5000 * KIB)
    rig.add("small", 0, 1.0, unread=900 * KIB)
    rig.relief.relieve_answers(rig.holders, 100.0)
    assert rig.closed == []
    rig.add("one more", 0, 0.5, unread=200 * KIB)
    rig.relief.relieve_answers(rig.holders, 100.0)
    assert rig.closed == [("alone", "memory_unread"), ("small", "memory_unread")]  # until a quarter is free


def test_old_clients_that_do_not_read_are_closed_while_others_wait_for_their_room() -> None:
    rig = Rig()
    for name, seconds in (("reads", 1.9), ("stands", 2.0), ("stands longer", 9.0), ("new", 50.0)):
        rig.add(name, 0, seconds, unread=100 * KIB)
    rig.old_answers.readers = set(rig.holders[:3])
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == []  # nobody waits
    rig.old_answers.missing = 100 * KIB
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed == [("stands longer", "memory_unread")]
    rig.old_answers.missing = 1000 * KIB
    rig.relief.relieve(rig.holders, 100.0)
    assert rig.closed[1:] == [("stands", "memory_unread")]
