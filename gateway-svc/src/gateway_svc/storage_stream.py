"""Appends and reads over one long-lived gRPC stream that all connections share.

What waits when the writer wakes leaves in one frame (up to FRAME_BYTES), answers come back in any order by call id.

Appends do not pile up on the way: a frame that holds many bytes asks storage to say when it has taken it, and only
FRAMES_AHEAD such frames are on their way. Connections look at `window`, the bytes of appends that storage has not
taken, before they start one, and wait for their turn there. So a client that sends megabytes flat out costs others
the time of a few, and the memory of a few.

When the stream breaks, every call is answered at once, as `storage_grpc` says, and the stream is opened again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc
from broker_contract.data import (
    GATEWAY_METADATA,
    REVISIONS_METADATA,
    AheadRequest,
    AheadResponse,
    AppendedPartition,
    AppendRequest,
    AppendResponse,
    AppendRun,
    Buffer,
    Cancel,
    FrameTaken,
    ReadRequest,
    ReadResponse,
    ReadResult,
)
from broker_contract.errors import FrameError
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from broker_contract.revisions import Revisions
from protocol_lib.errors import ErrorCode

from gateway_svc.append_window import LARGE_BYTES, AppendWindow
from gateway_svc.lasting_stream import LastingStream
from gateway_svc.metrics import GatewayMetrics

#: A frame takes no more calls once it is this long.
FRAME_BYTES: Final = 512 * 1024
#: So many frames of LARGE_BYTES and more may be on their way: one is received while the other is written to the log.
FRAMES_AHEAD: Final = 2
#: Connections wait with their appends while storage has not taken as many bytes. Of batches of a megabyte one is on its
#: way: with two they are hardly faster, and a lone request beside them takes six times as long.
WINDOW_BYTES: Final = FRAME_BYTES
#: Most calls without an answer; more are answered as if storage were away.
OUTSTANDING_MAX: Final = 100_000

_EXCHANGE: Final = "/millrace.v1.Data/Exchange"


_Request = AppendRequest | AppendRun | ReadRequest | AheadRequest


class _Outgoing:
    """A frame being filled; `appended` bytes of it are appends'."""

    __slots__ = ("appended", "call_ids", "parts", "size")

    def __init__(self) -> None:
        self.call_ids: list[int] = []
        self.parts: list[Buffer] = []
        self.size = 0
        self.appended = 0


class _Waiting:
    """A call without an answer."""

    __slots__ = ("done", "request")

    def __init__(self, request: _Request, done: Callable[[Any], None]) -> None:
        self.request = request
        self.done = done

    def fail(self, append_error: ErrorCode) -> None:
        self.done(_failure(self.request, append_error))


def _failure(
    request: _Request,
    append_error: ErrorCode,
    read_error: ErrorCode = ErrorCode.NOT_LEADER_OR_FOLLOWER,
) -> AppendResponse | ReadResponse | AheadResponse:
    if isinstance(request, AheadRequest):
        return AheadResponse()
    if isinstance(request, AppendRun):
        return AppendResponse([AppendedPartition(append_error) for _ in request.batches])
    if isinstance(request, AppendRequest):
        return AppendResponse([AppendedPartition(append_error) for _ in request.partitions])
    return ReadResponse([ReadResult(read_error) for _ in request.partitions])


class RecordStream:
    """Appends and reads of all connections over one stream, and the stream's life. Owned by its GrpcStorage."""

    def __init__(self, channel: grpc.aio.Channel, gateway_name: str, metrics: GatewayMetrics) -> None:
        self._counts = metrics.storage_frames
        self._metadata = ((GATEWAY_METADATA, gateway_name.encode()),)
        self._loop = asyncio.get_running_loop()
        # Without serializers: frames are bytes on both sides, and no parser copies records.
        self._exchange: Any = channel.stream_stream(_EXCHANGE)
        self._waiting: dict[int, _Waiting] = {}
        self._frames: deque[_Outgoing] = deque()
        self._wake = asyncio.Event()
        #: Bytes of appends that storage has not taken.
        self.window = AppendWindow(WINDOW_BYTES)
        #: Storage's, while the stream is up and they can be seen.
        self.revisions: Revisions | None = None
        #: How many of them are in each frame that it was asked about, by call id.
        self._ahead: dict[int, int] = {}
        self._last_call_id = 0
        self._stream = LastingStream(
            "stream",
            channel,
            lambda: self._exchange(metadata=self._metadata),
            read=self._read,
            write=self._write,
            lost=self._fail_all,
            metrics=metrics,
        )
        #: Set while the stream is up.
        self.connected = self._stream.connected

    # -- calls -----------------------------------------------------------------------------------------------------

    def append(self, request: AppendRequest | AppendRun, done: Callable[[AppendResponse], None]) -> None:
        self._send(request, done)

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        if not self.connected.is_set():
            answer = ReadResponse([ReadResult(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in request.partitions])
            return self._loop.call_later(request.max_wait_ms / 1000, done, answer).cancel
        call_id = self._send(request, done)
        return lambda: self._cancel(call_id)

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        self._send(request, done)

    def _send(self, request: _Request, done: Callable[[Any], None]) -> int:
        self._last_call_id = call_id = self._last_call_id + 1
        if not self.connected.is_set() or len(self._waiting) >= OUTSTANDING_MAX:
            done(_failure(request, ErrorCode.LEADER_NOT_AVAILABLE))
            return call_id
        frame = self._frame()
        mark = len(frame.parts)
        try:
            size = put_item(frame.parts, call_id, request)
        except FrameError:
            # A name too long to be forwarded is not the name of a topic.
            del frame.parts[mark:]
            done(_failure(request, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION))
            return call_id
        frame.size += size
        if type(request) is not ReadRequest and type(request) is not AheadRequest:
            frame.appended += size
            self.window.take(size)
        frame.call_ids.append(call_id)
        self._waiting[call_id] = _Waiting(request, done)
        self._wake.set()
        return call_id

    def _cancel(self, call_id: int) -> None:
        if self._waiting.pop(call_id, None) is not None and self.connected.is_set():
            frame = self._frame()
            frame.size += put_item(frame.parts, call_id, Cancel())
            self._wake.set()

    def _frame(self) -> _Outgoing:
        if not self._frames or self._frames[-1].size >= FRAME_BYTES:
            self._frames.append(_Outgoing())
        return self._frames[-1]

    # -- the stream ------------------------------------------------------------------------------------------------

    async def _write(self, stream: Any) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._frames and len(self._ahead) < FRAMES_AHEAD:
                frame = self._frames.popleft()
                self._counts["sent"] += 1
                asked = frame.size >= LARGE_BYTES
                if asked:
                    self._last_call_id += 1
                    put_item(frame.parts, self._last_call_id, FrameTaken())
                    self._ahead[self._last_call_id] = frame.appended
                await stream.write(frame_to_wire(frame.parts))
                if not asked:
                    self.window.give(frame.appended)
                del frame  # and the requests it was made of

    async def _read(self, stream: Any) -> None:
        for key, value in await stream.initial_metadata() or ():
            if key == REVISIONS_METADATA:
                self.revisions = Revisions.seen(value)
        while True:
            wire = await stream.read()
            if wire is grpc.aio.EOF:
                raise EOFError("storage ended the stream")
            self._counts["received"] += 1
            self._received(wire)
            del wire  # the next may be long in coming

    def _received(self, wire: Any) -> None:
        """Apart from `_read`, whose variables would keep the last call, and its client, until another answer comes."""
        waiting = self._waiting
        for call_id, item in read_items(frame_from_wire(wire)):
            if type(item) is FrameTaken:
                self._taken(call_id)
            elif (call := waiting.pop(call_id, None)) is not None:
                call.done(item)

    def _taken(self, call_id: int) -> None:
        """Frames that wait may leave, and connections that wait may go on."""
        if self._frames:
            self._wake.set()
        self.window.give(self._ahead.pop(call_id, 0))

    def _fail_all(self) -> None:
        self.revisions = None
        never_sent = {call_id for frame in self._frames for call_id in frame.call_ids}
        self._frames.clear()
        calls, self._waiting = self._waiting, {}
        for call_id, call in calls.items():
            call.fail(ErrorCode.LEADER_NOT_AVAILABLE if call_id in never_sent else ErrorCode.REQUEST_TIMED_OUT)
        self._ahead.clear()
        self.window.give(self.window.used)

    async def close(self) -> None:
        await self._stream.close()
