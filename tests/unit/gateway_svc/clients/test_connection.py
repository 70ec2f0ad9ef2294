"""A connection holds requests that may not start, and reads again when the last reason not to has ended."""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from gateway_svc.clients.connection import Connection
from gateway_svc.clients.connections import Connections
from gateway_svc.clients.departure import AFTERMATH_S, HELD_S, STANDSTILL_S, TICK_S
from gateway_svc.clients.entrance import Entrance
from gateway_svc.clients.frame_gate import LONG_BYTES
from gateway_svc.clients.idle_polling import IdlePolling
from gateway_svc.clients.pipeline import Kind, Pending, Pipeline
from gateway_svc.clients.plain_wire import PlainWire
from gateway_svc.clients.read_control import Pause
from gateway_svc.clients.relief import Relief
from gateway_svc.clients.resources import Resources
from gateway_svc.fetching.shown_answers import ShownAnswers
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.append_window import NARROW_BYTES, AppendWindow
from service_chassis.socket_room import SocketRoom

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")

KINDS = {b"append": Kind.APPEND, b"reads ": Kind.READ, b"alone ": Kind.CONTROL, b"at onc": Kind.CONTROL}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def stack_depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


class Requests:
    """Requests that are answered when the test says so; those "at once" are answered as they start."""

    frame_bytes_max, deadline_s, is_login = None, math.inf, False

    def __init__(self, connection: Connection, pipeline: Pipeline) -> None:
        self.connection = connection
        self.pipeline = pipeline
        self.started: list[bytes] = []
        self.pending: dict[bytes, Pending] = {}
        #: The depth of the stack at each start.
        self.depths: set[int] = set()
        #: Number of requests that were started before the client was found to have left; None if it was not.
        self.left_before: int | None = None

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:
        return KINDS[bytes(store[begin : begin + 6])]

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        assert len(start) == 8

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        name = bytes(store[begin:frame_end])
        self.depths.add(stack_depth())
        pending = Pending(self.kind(store, begin), len(name))
        self.connection._resources.requests.take(self.connection.share, pending.size)
        self.pipeline.open(pending)
        self.started.append(name)
        if name.startswith(b"at once"):
            if name.endswith(b"throttled"):
                self.connection.mute(30)
            self.connection.answered(pending, [name])
        else:
            self.pending[name] = pending
        return frame_end

    def answer(self, name: bytes) -> None:
        self.connection.answered(self.pending.pop(name), [name])

    def client_left(self) -> None:
        self.left_before = len(self.started)

    def close(self) -> None: ...


class CountedConnection(Connection):
    """Counts the reads of its socket."""

    arrived = 0

    def received(self, count: int) -> None:
        super().received(count)
        self.arrived += 1


class Gateway:
    """One connection with its client's end."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.refusals = Refusals(GatewayMetrics())
        settings = GatewaySettings(listeners="EXTERNAL://localhost:0", storage_address="unused")
        entrance = Entrance(self.refusals, loop.time, most=10, most_per_address=10, rate=0)
        requests, answers = RequestMemory(1 << 20), MemoryBudget(1 << 20)
        relief = Relief(requests, answers, ShownAnswers(asyncio.get_running_loop()))
        self.connections = Connections(settings, GatewayMetrics(), entrance, relief, None)
        self.window = AppendWindow()
        self.resources = Resources(
            request_bytes_max=1 << 20,
            requests=requests,
            answers=answers,
            polling=IdlePolling(loop, 0),
            window=self.window,
            refusals=self.refusals,
            loop=loop,
        )
        self.sockets = SocketRoom(loop)
        self.connection: CountedConnection
        self.requests: Requests
        self.client: socket.socket

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        ours, self.client = socket.socketpair()
        self.client.setblocking(False)
        ours.setblocking(False)

        def make_requests(*parts: Any) -> Requests:
            self.requests = Requests(*parts)
            return self.requests

        entry = self.connections.entrance.enter("10.0.0.1", 1, "EXTERNAL")
        assert entry is not None
        self.connection = CountedConnection("EXTERNAL", self.connections, self.resources, make_requests, entry)
        await loop.connect_accepted_socket(lambda: PlainWire(self.connection, self.sockets), ours)

    @property
    def reasons(self) -> set[Pause]:
        return self.connection._reading.reasons

    async def send(self, *names: bytes) -> None:
        """Send requests; return once they have arrived."""
        arrived = self.connection.arrived
        self.client.send(b"".join(struct.pack(">i", len(name)) + name for name in names))
        await until(lambda: self.connection.arrived != arrived)

    async def receive(self, data: bytes) -> None:
        async with asyncio.timeout(60):
            assert await asyncio.get_running_loop().sock_recv(self.client, len(data)) == data


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    await made.connect()
    yield made
    made.connection.check_invariants()
    made.client.close()
    made.connection.abort()
    await until(lambda: not len(made.connections))
    made.connections.check_invariants()
    assert made.resources.answers.used == 0
    made.sockets.close()


async def test_a_request_that_must_be_alone_waits_for_those_before_it(gateway: Gateway) -> None:
    await gateway.send(b"append 1", b"alone  1", b"append 2")
    assert (gateway.requests.started, gateway.reasons) == ([b"append 1"], {Pause.ORDER})
    gateway.requests.answer(b"append 1")
    assert (gateway.requests.started[1:], gateway.reasons) == ([b"alone  1"], {Pause.ORDER})
    gateway.requests.answer(b"alone  1")
    assert (gateway.requests.started[2:], gateway.reasons) == ([b"append 2"], set())
    gateway.requests.answer(b"append 2")
    await gateway.receive(b"append 1alone  1append 2")


async def test_an_append_waits_for_the_window(gateway: Gateway) -> None:
    gateway.window.begin(4 * NARROW_BYTES)
    await gateway.send(b"append 1", b"alone  1")
    assert (gateway.requests.started, gateway.reasons) == ([], {Pause.WINDOW})
    gateway.window.end(4 * NARROW_BYTES)
    assert (gateway.requests.started, gateway.reasons) == ([b"append 1"], {Pause.ORDER})


async def test_a_held_request_that_is_throttled_itself_keeps_the_connection_muted(gateway: Gateway) -> None:
    await gateway.send(b"append 1", b"at once throttled")
    gateway.connection.mute(10)
    gateway.requests.answer(b"append 1")
    assert (gateway.requests.started, gateway.reasons) == ([b"append 1"], {Pause.QUOTA})
    await until(lambda: len(gateway.requests.started) == 2)
    assert gateway.reasons == {Pause.QUOTA}
    gateway.connection.check_invariants()
    await until(lambda: not gateway.reasons)
    await gateway.receive(b"append 1at once throttled")


class Turns:
    """The turns of long requests: the next one comes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.is_free = False

    def admits(self) -> bool:
        free, self.is_free = self.is_free, False
        return free

    def start_soon(self, step: Callable[[], None]) -> None:
        self.waiting.append(step)

    def come(self) -> None:
        self.is_free = True
        self.waiting.pop(0)()


async def test_a_long_request_waits_for_its_turn(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    monkeypatch.setattr("gateway_svc.clients.frame_gate.shared_turns", lambda _: turns)
    short = b"reads  1".ljust(LONG_BYTES)
    append, long, alone = (start.ljust(LONG_BYTES + 1) for start in (b"append 1", b"reads  2", b"alone  3"))
    await gateway.send(short, append)
    await until(lambda: len(gateway.requests.started) == 2)
    assert (gateway.requests.started, turns.waiting) == ([short, append], [])
    gateway.requests.answer(short)
    gateway.requests.answer(append)
    await gateway.send(long, alone)
    await until(lambda: bool(turns.waiting))
    assert (gateway.requests.started[2:], gateway.reasons) == ([], {Pause.LONG})
    gateway.connection.start_held_frames()  # without a turn, and it waits for one only once
    assert (gateway.requests.started[2:], len(turns.waiting)) == ([], 1)
    turns.come()
    assert gateway.requests.started[2:] == [long]
    await until(lambda: gateway.reasons == {Pause.ORDER})
    gateway.requests.answer(long)
    assert (gateway.reasons, len(turns.waiting)) == ({Pause.LONG}, 1)
    turns.come()
    assert (gateway.requests.started[3:], gateway.reasons) == ([alone], set())


async def test_a_stranger_waits_for_its_turn_with_every_request(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = Turns()
    monkeypatch.setattr("gateway_svc.clients.frame_gate.stranger_turns", lambda _: turns)
    gateway.requests.is_login = True
    gateway.connection.serve(gateway.requests)
    await gateway.send(b"alone  1", b"alone  2")
    await until(lambda: bool(turns.waiting))
    assert (gateway.requests.started, gateway.reasons) == ([], {Pause.LONG})
    turns.come()
    assert gateway.requests.started == [b"alone  1"]
    gateway.requests.answer(b"alone  1")
    assert (gateway.requests.started, len(turns.waiting)) == ([b"alone  1"], 1)
    gateway.requests.is_login = False
    gateway.connection.serve(gateway.requests)
    turns.come()
    assert gateway.requests.started == [b"alone  1", b"alone  2"]


async def test_an_answer_does_not_end_a_wait_for_memory(gateway: Gateway) -> None:
    memory = gateway.resources.requests
    others = memory.enter("10.0.0.2")
    for _ in range(1 << 7):
        memory.take(others, 1 << 13)
    await gateway.send(b"reads  1")
    assert gateway.reasons == {Pause.MEMORY}
    memory.take(others, 8)
    gateway.requests.answer(b"reads  1")
    await gateway.receive(b"reads  1")
    assert gateway.reasons == {Pause.MEMORY}
    memory.give(others, 9)
    assert gateway.reasons == set()
    await gateway.send(b"at once!")


async def test_a_connection_that_finishes_starts_no_more_requests(gateway: Gateway) -> None:
    await gateway.send(b"append 1", b"append 2", b"alone  1")
    gateway.connection.finish()
    gateway.requests.answer(b"append 1")
    gateway.requests.answer(b"append 2")
    await gateway.receive(b"append 1append 2")
    assert gateway.reasons == {Pause.ORDER, Pause.FINISHING}
    assert gateway.requests.started == [b"append 1", b"append 2"]
    gateway.connection.finish()
    async with asyncio.timeout(60):
        assert await asyncio.get_running_loop().sock_recv(gateway.client, 1) == b""


async def test_requests_that_are_answered_at_once_are_not_nested(gateway: Gateway) -> None:
    """A client that sends a thousand control requests at once must not exhaust the stack."""
    names = [b"at once %4d" % number for number in range(1000)]
    await gateway.send(b"alone  1", *names)
    assert gateway.reasons == {Pause.ORDER}
    gateway.requests.depths.clear()
    answering = asyncio.get_running_loop().call_soon(gateway.requests.answer, b"alone  1")
    answers = b"".join([b"alone  1", *names])
    async with asyncio.timeout(60):
        while answers:
            received = await asyncio.get_running_loop().sock_recv(gateway.client, len(answers))
            assert answers.startswith(received)
            answers = answers[len(received) :]
    assert not answering.cancelled()
    assert (gateway.requests.started[1:], gateway.reasons) == (names, set())
    assert max(gateway.requests.depths) < min(gateway.requests.depths) + 20


async def test_a_client_that_does_not_read_waits_with_its_next_request(gateway: Gateway) -> None:
    await gateway.send(b"reads  1")
    gateway.connection.answered(gateway.requests.pending.pop(b"reads  1"), [bytes(8 << 20)])
    await gateway.send(b"append 1")
    assert (gateway.requests.started, gateway.reasons) == ([b"reads  1"], {Pause.ANSWERS})
    async with asyncio.timeout(60):
        left = 8 << 20
        while left:
            left -= len(await asyncio.get_running_loop().sock_recv(gateway.client, left))
    await until(lambda: not gateway.reasons)
    assert gateway.requests.started == [b"reads  1", b"append 1"]


async def test_a_request_held_for_answers_starts_when_the_socket_drains_first(gateway: Gateway) -> None:
    """The drained socket sends the answers by itself, before the turn in which they would have left."""
    await gateway.send(b"append 1", b"append 2", b"alone 33")
    assert gateway.reasons == {Pause.ORDER}
    gateway.connection.pause_writing()
    gateway.requests.answer(b"append 1")
    gateway.requests.answer(b"append 2")
    gateway.connection.resume_writing()
    await until(lambda: b"alone 33" in gateway.requests.started)
    gateway.requests.answer(b"alone 33")
    await gateway.receive(b"append 1append 2alone 33")
    assert gateway.reasons == set()


async def test_a_slow_reader_is_not_idle_and_a_parked_request_restarts_the_clock(gateway: Gateway) -> None:
    """The clock is played: `check_time` comes once a second."""
    connection, closed = gateway.connection, gateway.refusals._metrics.connections_closed
    await gateway.send(b"reads  1")
    now = connection.active_at
    connection.check_time(now + 500.0, 30.0, 2.0)  # the request is parked: the client waits for us
    gateway.requests.answer(b"reads  1")
    connection.check_time(now + 501.0, 30.0, 2.0)
    connection.check_time(now + 503.0, 30.0, 2.0)
    assert not connection._reading.closed
    await gateway.receive(b"reads  1")
    await gateway.send(b"reads  2")
    gateway.connection.answered(gateway.requests.pending.pop(b"reads  2"), [bytes(8 << 20)])
    now = connection.active_at
    for second in range(1, 10):
        moves = connection._writer.moves
        while connection._writer.moves == moves:
            gateway.client.setblocking(False)
            try:
                gateway.client.recv(1 << 16)
            except BlockingIOError:
                await asyncio.sleep(0)
        connection.check_time(now + 1.5 * second, 30.0, 2.0)
        assert not connection._reading.closed
    assert (connection._writer.busy, dict(closed)) == (True, {})
    connection.check_time(now + 20.0, 30.0, 2.0)
    connection.check_time(now + 20.0, 30.0, 2.0)
    assert dict(closed) == {"idle": 1}


@pytest.mark.parametrize("late", ["before the sweep", "after the sweep", None])
async def test_after_a_standstill_requests_whose_client_has_left_are_marked(gateway: Gateway, late: str | None) -> None:
    now = asyncio.get_running_loop().time()
    if late == "before the sweep":
        gateway.connections.prompt_until = now - 1
    elif late == "after the sweep":
        gateway.connections.prompt_from = now + 60
    arrived = gateway.connection.arrived
    gateway.client.send(struct.pack(">i", 8) + b"append 1")
    gateway.client.close()
    await until(lambda: gateway.connection.arrived != arrived)
    assert gateway.requests.left_before == (None if late is None else 0)
    assert gateway.requests.started == [b"append 1"]


async def test_after_a_standstill_the_requests_of_a_living_client_are_as_others(gateway: Gateway) -> None:
    gateway.connections.prompt_until = asyncio.get_running_loop().time() - 1
    await gateway.send(b"append 1")
    assert gateway.requests.left_before is None


@pytest.mark.parametrize(("held_s", "marked"), [(HELD_S + 0.1, 1), (0.0, None)])
async def test_requests_held_for_long_are_marked_when_their_client_has_left(
    gateway: Gateway, held_s: float, marked: int | None
) -> None:
    await gateway.send(b"append 1", b"alone  1")
    gateway.connection._gate.held_since = asyncio.get_running_loop().time() - held_s
    gateway.client.close()
    gateway.requests.answer(b"append 1")
    assert gateway.requests.left_before == marked
    assert gateway.requests.started == [b"append 1", b"alone  1"]


@pytest.mark.parametrize(
    ("can_be_lost", "leaves", "ends"), [(True, True, True), (True, False, False), (False, True, False)]
)
async def test_a_request_in_service_is_given_up_though_those_held_after_it_keep_the_socket_from_being_read(
    gateway: Gateway, can_be_lost: bool, leaves: bool, ends: bool
) -> None:
    await gateway.send(b"alone  1", b"append 1")
    given_up = []
    if can_be_lost:
        gateway.requests.pending[b"alone  1"].abandon = lambda: given_up.append(1)
    if leaves:
        gateway.client.close()
    now = asyncio.get_running_loop().time()
    gateway.connection.check_time(now, 30, 600)
    assert not gateway.connection._reading.closed, "it has not waited yet"
    gateway.connection.check_time(now + HELD_S + 0.1, 30, 600)
    assert gateway.connection._reading.closed == ends
    await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    assert given_up == [1] * ends


async def test_bytes_are_prompt_until_the_sweep_is_late(gateway: Gateway) -> None:
    connections, loop = gateway.connections, asyncio.get_running_loop()
    before = loop.time()
    sweeping = asyncio.create_task(connections.sweep())
    await asyncio.sleep(0)
    assert connections.prompt_from < before < connections.prompt_until <= loop.time() + TICK_S + STANDSTILL_S
    connections.prompt_until = loop.time() - 1  # as after a stop of the process for that long
    await until(lambda: connections.prompt_from > loop.time())
    assert connections.prompt_from <= loop.time() + AFTERMATH_S
    sweeping.cancel()
