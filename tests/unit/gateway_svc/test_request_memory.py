"""The memory for requests has owners, strangers have little of it, and small requests wait for no long ones."""

from __future__ import annotations

from gateway_svc.request_memory import OWN_BYTES, SMALL_BYTES, RequestMemory, Share
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

KIB = 1024


class Memory(RequestMemory):
    """One megabyte, and the shares of three addresses."""

    def __init__(self) -> None:
        super().__init__(1024 * KIB)
        self.a, self.b, self.c = (self.enter(address) for address in "abc")


def test_one_address_may_use_all_that_long_requests_may_have() -> None:
    memory = Memory()
    assert memory.try_grow("one", memory.a, 0, 896 * KIB)
    assert memory.try_grow("beyond", memory.b, 0, 20 * KIB)  # one at a time
    assert not memory.try_grow("another", memory.a, 0, 20 * KIB)


def test_an_address_has_half_while_another_waits() -> None:
    memory = Memory()
    assert memory.try_grow("first of a", memory.a, 0, 700 * KIB)
    memory.take(memory.a, 250 * KIB)
    assert memory.try_grow("beyond", memory.c, 0, 1)
    granted: list[tuple[str, int]] = []
    for name, share in (("a", memory.a), ("b", memory.b)):
        assert not memory.try_grow(name, share, 0, 100 * KIB)
        memory.wait_to_grow(name, share, 100 * KIB, lambda count, name=name: granted.append((name, count)))
    memory.give(memory.a, 100 * KIB)
    assert granted == []  # 100 KB more would be beyond seven eighths
    memory.give(memory.a, 150 * KIB)
    assert granted == [("b", 100 * KIB), ("a", 100 * KIB)]  # a has more than half, and nobody else waits any more
    assert not memory.is_waited_for


def test_strangers_share_an_eighth_even_if_there_is_room() -> None:
    memory = Memory()
    assert memory.try_grow("a stranger", memory.new_connections, 0, 128 * KIB)
    assert memory.try_grow("beyond", memory.new_connections, 0, 1)
    assert not memory.try_grow("another", memory.new_connections, 0, 20 * KIB)
    assert memory.try_grow("known", memory.a, 0, 700 * KIB)
    granted: list[int] = []
    memory.wait_to_grow("another", memory.new_connections, 20 * KIB, granted.append)
    assert memory.starved_shares == {memory.new_connections}
    memory.end("a stranger", memory.new_connections, 128 * KIB)
    assert granted == [20 * KIB]


def test_small_requests_wait_for_no_long_ones() -> None:
    memory = Memory()
    assert memory.try_grow("known", memory.a, 0, 896 * KIB)
    assert memory.try_grow("beyond", memory.a, 0, 2048 * KIB)
    assert [memory.must_wait(own) for own in (0, OWN_BYTES, OWN_BYTES + 1)] == [False, False, True]
    for _ in range(7):
        memory.take(memory.b, SMALL_BYTES)
    assert not memory.must_wait(SMALL_BYTES)
    memory.take(memory.b, SMALL_BYTES)
    assert memory.must_wait(SMALL_BYTES)  # seven eighths are long ones, and one eighth small ones
    resumed: list[str] = []
    memory.wait("small", 1, lambda: resumed.append("small"))
    memory.wait("large", OWN_BYTES + 1, lambda: resumed.append("large"))
    memory.give(memory.b, SMALL_BYTES)
    assert resumed == ["small"]
    memory.end("known", memory.a, 896 * KIB)
    assert resumed == ["small", "large"]


def test_one_request_at_a_time_goes_beyond_until_it_is_answered() -> None:
    memory = Memory()
    assert memory.try_grow("first", memory.a, 0, 890 * KIB)
    memory.begin(memory.a, 20 * KIB)
    assert memory.try_grow("one", memory.a, 20 * KIB, 2048 * KIB)
    granted: list[int] = []
    assert not memory.try_grow("two", memory.b, 0, 20 * KIB)
    memory.wait_to_grow("two", memory.b, 20 * KIB, granted.append)
    memory.take(memory.a, 2068 * KIB)  # it is in service
    memory.end("one", memory.a, 2068 * KIB)
    assert granted == []
    memory.give(memory.a, 2068 * KIB)
    assert granted == [20 * KIB]


def test_a_request_goes_beyond_although_bytes_that_arrived_have() -> None:
    memory = Memory()
    memory.begin(memory.a, 1000 * KIB)  # a read is counted without asking
    assert memory.try_grow("one", memory.a, 1000 * KIB, 1)
    memory.end("one", memory.a, 1000 * KIB + 1)
    assert memory.used == 0


def test_a_connection_that_raises_loses_no_other_its_turn() -> None:
    memory = Memory()
    assert memory.try_grow("beyond", memory.c, 0, 2048 * KIB)
    memory.take(memory.a, 1024 * KIB)
    resumed: list[str] = []

    def fail(*_: int) -> None:
        raise RuntimeError("a fault")

    memory.wait("broken", 1, fail)
    memory.wait("whole", 1, lambda: resumed.append("whole"))
    memory.wait_to_grow("broken", memory.b, 100, fail)
    memory.wait_to_grow("whole", memory.b, 100, lambda _: resumed.append("granted"))
    memory.give(memory.a, 1024 * KIB)
    assert resumed == ["whole", "granted"]
    assert not memory.is_waited_for


class MemoryModel(RuleBasedStateMachine):
    """Requests grow, wait, are served and go, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = RequestMemory(1024 * KIB)
        self.shares = [self.memory.new_connections, self.memory.enter("a"), self.memory.enter("b")]
        #: Bytes of each request that is received, by name, and whether it waits.
        self.received: dict[int, tuple[Share, int]] = {}
        self.waiting: set[int] = set()
        self.served: list[tuple[Share, int]] = []
        self.names = 0

    @rule(share=st.sampled_from([0, 1, 2]), size=st.sampled_from([1, SMALL_BYTES, 100 * KIB]))
    def begins(self, share: int, size: int) -> None:
        self.names += 1
        self.received[self.names] = self.shares[share], size
        self.memory.begin(self.shares[share], size)

    @precondition(lambda self: len(self.received) > len(self.waiting))
    @rule(number=st.integers(0, 9), count=st.sampled_from([1, 50 * KIB, 600 * KIB]))
    def grows(self, number: int, count: int) -> None:
        names = sorted(set(self.received) - self.waiting)
        name = names[number % len(names)]
        share, size = self.received[name]
        if self.memory.try_grow(name, share, size, count):
            self.received[name] = share, size + count
        else:
            self.waiting.add(name)
            self.memory.wait_to_grow(name, share, count, lambda granted: self.granted(name, granted))

    def granted(self, name: int, count: int) -> None:
        self.waiting.remove(name)
        share, size = self.received[name]
        self.received[name] = share, size + count
        self.memory.resize(share, size, size + count)

    @precondition(lambda self: len(self.received) > len(self.waiting))
    @rule(number=st.integers(0, 9), is_served=st.booleans())
    def ends(self, number: int, is_served: bool) -> None:
        names = sorted(set(self.received) - self.waiting)
        name = names[number % len(names)]
        share, size = self.received.pop(name)
        if is_served:
            self.memory.take(self.shares[1], size)
            self.served.append((self.shares[1], size))
        self.memory.end(name, share, size)

    @precondition(lambda self: self.served)
    @rule()
    def is_answered(self) -> None:
        self.memory.give(*self.served.pop())

    @invariant()
    def counts_are_right(self) -> None:
        self.memory.check_invariants()
        blocks = [*self.received.values(), *self.served]
        assert self.memory.used == sum(size for _, size in blocks)
        assert self.memory.long == sum(size for _, size in blocks if size > SMALL_BYTES)

    @invariant()
    def somebody_may_go_on(self) -> None:
        """Check that not all requests wait, unless those in service hold the memory."""
        assert not self.waiting or self.served or len(self.waiting) < len(self.received)

    def teardown(self) -> None:
        """Answer and end all; nobody waits for ever."""
        while self.served:
            self.is_answered()
        while self.received:
            assert len(self.received) > len(self.waiting)
            self.ends(0, False)
        assert (self.memory.used, self.memory.is_waited_for) == (0, False)


TestMemory = MemoryModel.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
