"""Records of a storage whose files this gateway cannot see: from storage's socket to the client's, not through Python.

Storage answers a read with slices. A lane (service_chassis/http2/lane.py) is a connection to storage of its own, over
which the call `Data.Records` brings their bytes. The system moves them: sendfile in storage, splice here.

    read ─ slices ─ Data.Records ┬ the first HEADERS: storage will send all bytes; the client's answer begins
                                 └ a status, no lane that is free, no answer in time: the records are read by value

A lane serves one answer at a time, and there are few: its pipe is memory, and storage keeps the files open. Once the
head of the client's answer has left, nothing can be taken back. So if the lane breaks, the client's connection is
closed. A client that leaves, or is closed because it does not read, closes its lane.

**Whoever is told to wait is woken.** `read` calls `done` once, unless it is given up: when storage has answered, or
the lane is closed. `_check` closes a lane whose storage does not answer for HEAD_MAX_S, or sends nothing for
SILENCE_MAX_S to a reader that waits. Its timer runs while there is a lane, an idle one included.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker_contract import data_pb2
from broker_contract.data import MACHINE_METADATA, RECORDS_SLICES_MAX, Slice
from broker_contract.frames import frame_prefix
from service_chassis import logs
from service_chassis.grpc_channel import CONNECT_TIMEOUT_S, Channel
from service_chassis.grpc_status import Status
from service_chassis.http2.lane import REQUEST_BYTES_MAX, UNWANTED, Lane, Reader, State
from service_chassis.http2.lane_frames import LaneError
from service_chassis.http2.pipes import Pipe, open_pipe
from service_chassis.machine import machine_id
from service_chassis.socket_room import TO_READ, SocketRoom

from gateway_svc.metrics import GatewayMetrics

#: Bytes of an answer's slices from which on a lane is used, and of its slices on average: each takes system calls.
LANE_BYTES_MIN: Final = 64 << 10
SLICE_BYTES_MIN: Final = 16 << 10
#: Seconds in which storage has to promise the records, and for which it may send none of them.
HEAD_MAX_S: Final = 3.0
SILENCE_MAX_S: Final = 25.0
#: Seconds after which a lane that nobody uses is closed.
UNUSED_MAX_S: Final = 15.0
#: Seconds without lanes after one could not be connected, or broke before storage had answered.
PAUSE_S: Final = 1.0
_CHECK_S: Final = 0.5
_RECORDS: Final = "/millrace.v1.Data/Records"
_UNUSED, _STOPPED, _LEFT = "unused", "the gateway stops", "the client has left"

_log = logs.get(__name__)


class LaneAnswer:
    """The bytes of one answer's slices, in their order."""

    __slots__ = ("_lane", "users")

    def __init__(self, lane: Lane) -> None:
        self._lane: Lane | None = lane
        #: The parts of the client's answer that hold these bytes and were not sent.
        self.users = 0

    def move(self, to: int, most: int) -> int:
        """Move at most `most` of the bytes to a socket, and return how many.

        Raises:
            OSError: the lane or the socket has failed.
        """
        if self._lane is None:
            raise LaneError("the answer was released")
        return self._lane.move(to, most)

    def receive(self, into: memoryview) -> int:
        """Copy the next bytes, and return how many: 0 if none has come.

        Raises:
            OSError: the lane has failed.
        """
        if self._lane is None:
            raise LaneError("the answer was released")
        return self._lane.receive(into)

    @property
    def is_dry(self) -> bool:
        """Whether the next bytes have not come, for which the caller may `wait`."""
        return self._lane is not None and self._lane.is_dry

    def wait(self, reader: Reader) -> None:
        """Have the reader called when bytes have come, or the lane is closed."""
        if self._lane is not None:
            self._lane.wait(reader)

    def release(self) -> None:
        """Give the lane back: all bytes were moved, or nobody wants them any more. Idempotent."""
        lane, self._lane = self._lane, None
        if lane is not None:
            lane.release()

    def __del__(self) -> None:
        """Give the lane back although no part of the answer did: it could not be built."""
        self.release()


LaneDone = Callable[[LaneAnswer | None], None]


class _Request:
    """One read until storage has answered. `done` is None once it was called, or given up."""

    __slots__ = ("done", "lane", "message", "size")

    def __init__(self, message: bytes, size: int, done: LaneDone) -> None:
        self.message = message
        self.size = size
        self.done: LaneDone | None = done
        self.lane: Lane | None = None

    def answer(self, answer: LaneAnswer | None) -> None:
        done, self.done = self.done, None
        if done is not None:
            done(answer)
        elif answer is not None:
            answer.release()

    def give_up(self) -> None:
        """End the read without calling `done`; no effect once it was called."""
        if self.done is not None:
            self.done = None
            if self.lane is not None:
                self.lane.close(_LEFT)


class Lanes:
    """The lanes of one gateway. Its GrpcStorage owns it."""

    def __init__(
        self, channel: Channel, most: int, metrics: GatewayMetrics, *, new_pipe: Callable[[], Pipe] = open_pipe
    ) -> None:
        self._channel = channel
        self._most = most
        self._new_pipe = new_pipe
        self._outcomes = metrics.lane_reads
        self._loop = asyncio.get_running_loop()
        self._room = SocketRoom(self._loop, TO_READ)
        self._block = channel.block(_RECORDS, [(MACHINE_METADATA, machine_id())])
        self._lanes: set[Lane] = set()
        #: Idle lanes, the one that was used last at the end.
        self._free: list[Lane] = []
        self._connecting: set[asyncio.Task[None]] = set()
        self._pause_until = float("-inf")
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.clock = self._loop.time

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def is_usable(self) -> bool:
        """Whether a read would get a lane now."""
        return bool(self._free) or (
            len(self._lanes) + len(self._connecting) < self._most
            and self.clock() >= self._pause_until
            and not self._is_closed
        )

    def read(self, slices: Sequence[Slice], done: LaneDone) -> Callable[[], None]:
        """Ask for the bytes of slices; return a function that gives the read up.

        `done` is called once, now or later, with None if they must be read by value.
        """
        size = sum([piece.length for piece in slices])
        if size < LANE_BYTES_MIN or size < SLICE_BYTES_MIN * len(slices) or len(slices) > RECORDS_SLICES_MAX:
            return self._not_sent("small", done)
        message = _encoded(slices)
        if len(message) > REQUEST_BYTES_MAX:
            return self._not_sent("small", done)
        if not self.is_usable:
            return self._not_sent("busy", done)
        request = _Request(message, size, done)
        if self._free:
            self._ask(self._free.pop(), request)
        else:
            task = self._loop.create_task(self._connect(request), name="record lane")
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)
        return request.give_up

    def _not_sent(self, outcome: str, done: LaneDone) -> Callable[[], None]:
        self._outcomes[outcome] += 1
        done(None)
        return _nothing

    def _ask(self, lane: Lane, request: _Request) -> None:
        request.lane = lane
        try:
            lane.ask(
                self._block,
                request.message,
                request.size,
                partial(self._begun, request),
                partial(self._refused, request),
            )
        except LaneError as error:
            self._refused(request, None, str(error))

    def _begun(self, request: _Request) -> None:
        assert request.lane is not None
        self._outcomes["sent"] += 1
        request.answer(LaneAnswer(request.lane))

    def _refused(self, request: _Request, status: Status | None, details: str) -> None:
        """Have the records read by value."""
        if request.done is None:
            return
        if status is Status.NOT_FOUND:
            self._outcomes["gone"] += 1
        elif status is Status.RESOURCE_EXHAUSTED:
            self._outcomes["busy"] += 1
        else:
            self._outcomes["failed"] += 1
            self._pause_until = self.clock() + PAUSE_S
            _log.warning("no record lane", reason=f"{status.name}: {details}" if status else details)
        request.answer(None)

    async def _connect(self, request: _Request) -> None:
        lane = None
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                connected = await self._connected()
            lane = self._new_lane(connected)
        except (TimeoutError, OSError) as error:
            self._refused(request, None, f"not connected: {(isinstance(error, OSError) and error.strerror) or error!r}")
        except asyncio.CancelledError:
            self._refused(request, None, _STOPPED)
            raise
        if lane is not None:
            if request.done is None:
                lane.close(_LEFT)
            else:
                self._ask(lane, request)

    async def _connected(self) -> socket.socket:
        path = self._channel.address.removeprefix("unix:")
        if path != self._channel.address:
            return await self._connected_to(socket.AF_UNIX, path)
        host, _, port = path.rpartition(":")
        found = await self._loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        for family, _, _, _, address in found[:-1]:
            try:
                return await self._connected_to(family, address)
            except OSError:
                continue
        return await self._connected_to(found[-1][0], found[-1][4])

    async def _connected_to(self, family: int, address: object) -> socket.socket:
        connected = socket.socket(family)
        try:
            connected.setblocking(False)
            if family != socket.AF_UNIX:
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await self._loop.sock_connect(connected, address)  # type: ignore[arg-type]
        except BaseException:
            connected.close()
            raise
        return connected

    def _new_lane(self, connected: socket.socket) -> Lane:
        try:
            lane = Lane(connected, self._new_pipe(), self._room, self._channel.counts, self, frame_prefix)
        except OSError:
            connected.close()
            raise
        self._lanes.add(lane)
        if self._timer is None:
            self._timer = self._loop.call_later(_CHECK_S, self._check)
        return lane

    # -- events of the lanes -----------------------------------------------------------------------------------------

    def on_free(self, lane: Lane) -> None:
        self._free.append(lane)

    def on_closed(self, lane: Lane) -> None:
        self._lanes.discard(lane)
        if lane in self._free:
            self._free.remove(lane)
        elif lane.end_reason not in (_UNUSED, _STOPPED, _LEFT, UNWANTED):
            _log.info("record lane closed", reason=lane.end_reason)

    def _check(self) -> None:
        """Close the lanes of a storage that is silent, and those that nobody uses."""
        now = self.clock()
        for lane in list(self._lanes):
            age_s = now - lane.waits_since
            if lane.is_waiting:
                if age_s > (SILENCE_MAX_S if lane.state is State.SENDING else HEAD_MAX_S):  # mutant: silent-lane-closed
                    lane.close(f"storage sends nothing for {age_s:.1f} s")
            elif lane.state is State.IDLE and age_s > UNUSED_MAX_S:
                lane.close(_UNUSED)
        self._timer = self._loop.call_later(_CHECK_S, self._check) if self._lanes else None

    def check_invariants(self) -> None:
        """Assert that lanes are bounded and watched, and that the free ones are idle."""
        assert len(self._lanes) <= self._most
        assert self._lanes.issuperset(self._free)
        assert len(set(self._free)) == len(self._free)
        assert bool(self._lanes) <= (self._timer is not None)
        for lane in self._lanes:
            lane.check_invariants()
            assert (lane in self._free) == (lane.state is State.IDLE)

    async def close(self) -> None:
        """Close all lanes."""
        self._is_closed = True
        for task in list(self._connecting):
            task.cancel()
            await asyncio.wait({task})
        for lane in list(self._lanes):
            lane.close(_STOPPED)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._room.close()


def _encoded(slices: Sequence[Slice]) -> bytes:
    request = data_pb2.RecordsRequest(
        slices=[
            data_pb2.RecordsRequest.Slice(
                path=piece.path, file_id=piece.file_id, position=piece.position, length=piece.length
            )
            for piece in slices
        ]
    )
    return request.SerializeToString()


def _nothing() -> None:
    """Give nothing up: `done` was called."""
