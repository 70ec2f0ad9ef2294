"""After any order of events, a connection is read if and only if no reason holds, and no request is lost."""

from __future__ import annotations

import math
import socket
import struct
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from gateway_svc.clients.connection import Connection
from gateway_svc.clients.connections import SHARED_BUFFER_BYTES, Connections
from gateway_svc.clients.entrance import Entrance
from gateway_svc.clients.frame_reader import SMALL_FRAME_BYTES
from gateway_svc.clients.pipeline import Kind, Pending, Pipeline
from gateway_svc.clients.plain_wire import PlainWire
from gateway_svc.clients.resources import Resources
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory
from gateway_svc.storage.append_window import NARROW_BYTES, AppendWindow
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

MEMORY = 1 << 20
KINDS = {b"a": Kind.APPEND, b"r": Kind.READ, b"c": Kind.CONTROL, b"!": Kind.CONTROL, b"q": Kind.CONTROL}


class Loop:
    """An event loop whose callbacks run when the test says so."""

    def __init__(self) -> None:
        self.callbacks: deque[Callable[[], object]] = deque()
        self.now = 0.0
        self.timers: list[tuple[float, Callable[[], object]]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], object]) -> Any:
        timer = when, callback
        self.timers.append(timer)
        return SimpleNamespace(cancel=lambda: self.timers.remove(timer))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for timer in [each for each in self.timers if each[0] <= self.now]:
            self.timers.remove(timer)
            timer[1]()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        self.callbacks.append(lambda: callback(*arguments))


class Transport:
    def __init__(self, ours: socket.socket) -> None:
        self.socket = ours
        self.reads = True
        self.is_closed = False
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return self.socket if name == "socket" else None

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def write(self, data: bytes) -> None:
        self.written += data

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def set_write_buffer_limits(self) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Others:
    """The parts of `Connections` that one of them uses."""

    def __init__(self) -> None:
        self.shared_buffer = bytearray(SHARED_BUFFER_BYTES)
        self.shared_view = memoryview(self.shared_buffer)
        self.prompt_from, self.prompt_until = float("-inf"), float("inf")

    def add(self, _: Connection) -> None: ...

    def relieve_soon(self) -> None: ...

    def remove(self, _: Connection) -> None: ...


class Room:
    def forget(self, _: int) -> None: ...


class Polling:
    def expect_more(self) -> None: ...


class Requests:
    frame_bytes_max, deadline_s, is_login = None, math.inf, False

    def __init__(self, connection: Connection, pipeline: Pipeline, memory: RequestMemory) -> None:
        self.connection = connection
        self.pipeline = pipeline
        self.memory = memory
        self.started: list[bytes] = []
        self.pending: dict[bytes, Pending] = {}

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:
        return KINDS[bytes(store[begin : begin + 1])]

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        assert len(start) == 8

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        assert frame_end <= end
        assert not self.connection._gate.is_muted
        frame = bytes(store[begin:frame_end])
        self.started.append(frame)
        pending = Pending(self.kind(store, begin), len(frame))
        self.memory.take(self.connection.share, pending.size)
        assert self.pipeline.admits(pending.kind)
        self.pipeline.open(pending)
        self.pending[frame] = pending
        if frame.startswith(b"q"):
            self.connection.mute(1)
        if frame.startswith((b"!", b"q")):
            self.answer(frame)
        return frame_end

    def answer(self, frame: bytes) -> None:
        self.connection.answered(self.pending.pop(frame), [frame[:9]])

    def client_left(self) -> None: ...

    def close(self) -> None: ...


class ConnectionModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        ours, self.client = socket.socketpair()
        for each in (ours, self.client):
            each.setblocking(False)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
        self.loop, self.transport, self.others = Loop(), Transport(ours), Others()
        self.memory, self.window = RequestMemory(MEMORY), AppendWindow()
        self.another = self.memory.enter("10.0.0.2")
        resources = Resources(
            request_bytes_max=1 << 20,
            requests=self.memory,
            answers=MemoryBudget(MEMORY),
            polling=cast(Any, Polling()),
            window=self.window,
            refusals=Refusals(GatewayMetrics()),
            loop=cast(Any, self.loop),
        )
        entrance = Entrance(resources.refusals, lambda: 0.0, most=1, most_per_address=1, rate=0)
        entry = entrance.enter("10.0.0.1", 1, "EXTERNAL")
        assert entry is not None
        self.connection = Connection("EXTERNAL", cast(Connections, self.others), resources, self.make_requests, entry)
        self.wire = PlainWire(self.connection, cast(Any, Room()))
        self.wire.connection_made(cast(Any, self.transport))
        self.sent: list[bytes] = []
        self.memory_used = self.window_used = False
        self.writes = True

    def make_requests(self, connection: Connection, pipeline: Pipeline) -> Requests:
        self.requests = Requests(connection, pipeline, self.memory)
        return self.requests

    # -- events ----------------------------------------------------------------------------------------------------

    @rule(frames=st.lists(st.tuples(st.sampled_from([*KINDS]), st.booleans()), min_size=1, max_size=4))
    def client_sends(self, frames: list[tuple[bytes, bool]]) -> None:
        for kind, is_long in frames:
            frame = kind + b"%08d" % len(self.sent) + bytes(SMALL_FRAME_BYTES if is_long else 0)
            self.sent.append(frame)
            self.client.sendall(struct.pack(">i", len(frame)) + frame)

    @rule(most=st.sampled_from([3, 20, SMALL_FRAME_BYTES, SHARED_BUFFER_BYTES]))
    def bytes_arrive(self, most: int) -> None:
        if self.transport.is_closed:
            return
        try:
            if self.transport.reads:
                room = self.wire.get_buffer(-1)
                self.wire.buffer_updated(self.transport.socket.recv_into(room[:most]))
        except BlockingIOError:
            return

    @precondition(lambda self: self.requests.pending)
    @rule(number=st.integers(0, 3))
    def request_is_answered(self, number: int) -> None:
        names = [*self.requests.pending]
        self.requests.answer(names[number % len(names)])

    @rule()
    def turn_ends(self) -> None:
        for _ in range(len(self.loop.callbacks)):
            self.loop.callbacks.popleft()()

    @rule()
    def memory_changes(self) -> None:
        """Take all memory for others, or return it."""
        self.memory_used = not self.memory_used
        (self.memory.take if self.memory_used else self.memory.give)(self.another, MEMORY)

    @rule()
    def window_changes(self) -> None:
        self.window_used = not self.window_used
        (self.window.begin if self.window_used else self.window.end)(4 * NARROW_BYTES)

    @rule()
    def socket_fills_or_drains(self) -> None:
        self.writes = not self.writes
        (self.wire.resume_writing if self.writes else self.wire.pause_writing)()

    @rule(milliseconds=st.sampled_from([1, 50]))
    def client_is_throttled(self, milliseconds: int) -> None:
        self.connection.mute(milliseconds)

    @rule(seconds=st.sampled_from([0.001, 0.03]))
    def time_passes(self, seconds: float) -> None:
        self.loop.pass_time(seconds)

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def reads_if_and_only_if_there_is_no_reason(self) -> None:
        assert self.transport.reads == (not self.connection._reading.reasons)
        self.connection.check_invariants()
        self.memory.check_invariants()
        others = MEMORY if self.memory_used else 0
        assert self.memory.used - others == self.connection.memory_held[0]

    @invariant()
    def requests_start_in_order(self) -> None:
        assert self.requests.started == self.sent[: len(self.requests.started)]

    def teardown(self) -> None:
        """Remove all obstacles; check that every request is answered, in order."""
        if self.memory_used:
            self.memory_changes()
        if self.window_used:
            self.window_changes()
        if not self.writes:
            self.socket_fills_or_drains()
        for _ in range(4 * len(self.sent) + 8):
            self.loop.pass_time(0.05)
            while self.requests.pending:
                self.request_is_answered(0)
            self.turn_ends()
            self.bytes_arrive(SHARED_BUFFER_BYTES)
        assert self.requests.started == self.sent
        assert self.transport.written == b"".join(frame[:9] for frame in self.sent)
        assert self.connection._reading.reasons == set()
        self.connection.finish()
        assert self.transport.is_closed
        self.wire.connection_lost(None)
        assert (self.memory.used, self.memory.long, self.memory.is_waited_for) == (0, 0, False)
        self.client.close()
        self.transport.socket.close()


TestConnection = ConnectionModel.TestCase
TestConnection.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
