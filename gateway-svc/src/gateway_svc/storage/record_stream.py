"""Appends and reads over one long-lived gRPC stream that all connections share.

The calls of one turn of the event loop leave in one frame (up to FRAME_BYTES), at the end of the turn or when the
frame before has left. Answers come back in any order, by call id. If storage sees this process's memory, record
batches of LAID_BYTES_MIN and more are copied into it (AppendArea), and the frame holds their position.

Appends do not pile up on the way. A large frame asks storage for a receipt, and at most FRAMES_AHEAD frames may wait
for one. `window` counts the bytes of appends without a receipt. A connection starts no append while the window is full.
So a client that sends megabytes without pause delays others by a few frames, and uses the memory of a few.

A call that storage does not answer in time is answered here (call_deadlines.py). When the stream is lost, every call is
answered at once, as `gateway_svc.storage.protocols` states, and the stream is opened again.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from broker_contract.append_area import SLOT_BYTES, AppendArea
from broker_contract.append_items import put_append
from broker_contract.data import (
    APPEND_AREA_METADATA,
    APPEND_AREA_SEEN,
    GATEWAY_METADATA,
    REVISIONS_METADATA,
    AheadRequest,
    AheadResponse,
    Append,
    AppendResponse,
    Buffer,
    Cancel,
    FrameReceipt,
    ReadRequest,
    ReadResponse,
    ReadResult,
)
from broker_contract.errors import FrameError
from broker_contract.frames import FRAME_BYTES_MAX, frame_from_wire, frame_prefix, put_item, read_items
from broker_contract.revisions import Revisions
from protocol_lib.errors import ErrorCode
from service_chassis import logs
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_channel import Channel
from service_chassis.http2.headers import Metadata
from service_chassis.http2.reader import READ_BYTES
from service_chassis.http2.stream import COPIED_BYTES_MAX, Message

from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.append_window import LARGE_BYTES, AppendWindow
from gateway_svc.storage.call_deadlines import CallDeadlines, Calls, Request, failure
from gateway_svc.storage.lasting_stream import LastingStream

#: Length from which on no more calls are added to a frame.
FRAME_BYTES: Final = 512 * 1024
#: Most frames without a receipt: storage receives one while it writes the other to the log.
FRAMES_AHEAD: Final = 2
#: Appends of fewer bytes of record batches are sent in the frame. A single one of 16 KB gains nothing from the area,
#: and pays for the receipt; one of 64 KB gains.
LAID_BYTES_MIN: Final = 32 * 1024
#: Most calls without an answer. More are answered as if there were no storage.
OUTSTANDING_MAX: Final = 100_000

_EXCHANGE: Final = "/millrace.v1.Data/Exchange"

_log = logs.get(__name__)


class _Outgoing:
    """A frame being filled. `size` counts its bytes and the `laid` ones in its slot of the area, `appended` those of
    appends."""

    __slots__ = ("appended", "calls", "laid", "parts", "size", "slot")

    def __init__(self) -> None:
        #: (id, index of its first part, bytes of appends) of each call.
        self.calls: list[tuple[int, int, int]] = []
        self.parts: list[Buffer] = []
        self.size = 0
        self.appended = 0
        self.slot = -1
        self.laid = 0

    def drop(self, call_ids: Collection[int]) -> dict[int, int]:
        """Remove those of the calls that are in this frame; return the bytes of appends of each."""
        dropped = {}
        ends = [first for _, first, _ in self.calls[1:]] + [len(self.parts)]
        for (call_id, first, appended), end in zip(self.calls, ends, strict=True):
            if call_id in call_ids:
                self.parts[first:end] = [b""] * (end - first)  # mutant: late-append-blanked
                self.appended -= appended
                dropped[call_id] = appended
        return dropped


class RecordStream:
    """Appends and reads of all connections over one stream, and the stream's life. Owned by its GrpcStorage."""

    def __init__(self, channel: Channel, gateway_name: str, metrics: GatewayMetrics) -> None:
        self._counts = metrics.storage_frames
        self._durations = metrics.storage_calls["Append"]
        #: The append that is being measured, by call id, and the time at which its frame left.
        self._timed, self._timed_at = 0, 0.0
        self._gateway_name = gateway_name.encode()
        self._loop = asyncio.get_running_loop()
        self._channel = channel
        #: Calls without an answer, and the function that gets it.
        self._waiting: Calls = {}
        self._deadlines = CallDeadlines(self._loop, lambda: self._waiting, self._give_up)
        self._frames: deque[_Outgoing] = deque()
        #: The latest stream; one that has ended sends nothing.
        self._call: ClientCall | None = None
        #: The frame that was written last, if it asked for no receipt.
        self._without_receipt: _Outgoing | None = None
        #: Bytes of appends that storage has not received.
        self.window = AppendWindow()
        #: Storage's numbers, while the stream is up and this process sees them.
        self.revisions: Revisions | None = None
        #: The area whose name the stream was opened with, and the same area once storage sees it.
        self._offered: AppendArea | None = None
        self._area: AppendArea | None = None
        #: Frames that wait for their receipt, by call id.
        self._awaiting_receipt: dict[int, _Outgoing] = {}
        self._last_call_id = 0
        self._stream = LastingStream("stream", self._begin, opened=self._opened, lost=self._fail_all, metrics=metrics)
        #: Set while the stream is up.
        self.connected = self._stream.connected

    @property
    def refusal(self) -> str | None:
        """The reason of a storage that is of another release; None if it is not."""
        return self._stream.refusal

    # -- calls -----------------------------------------------------------------------------------------------------

    def append(self, request: Append, done: Callable[[AppendResponse], None]) -> None:
        self._send(request, done)

    def read(self, request: ReadRequest, done: Callable[[ReadResponse], None]) -> Callable[[], None]:
        if not self.connected.is_set():
            answer = ReadResponse([ReadResult(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in request.partitions])
            return self._loop.call_later(request.max_wait_ms / 1000, done, answer).cancel
        call_id = self._send(request, done)
        return lambda: self._cancel(call_id)

    def read_ahead(self, request: AheadRequest, done: Callable[[AheadResponse], None]) -> None:
        self._send(request, done)

    def _send(self, request: Request, done: Callable[[Any], None]) -> int:
        self._last_call_id = call_id = self._last_call_id + 1
        if not self.connected.is_set() or len(self._waiting) >= OUTSTANDING_MAX:
            done(failure(request, ErrorCode.LEADER_NOT_AVAILABLE))
            return call_id
        frame = self._filling()
        mark = len(frame.parts)
        appended = 0
        try:
            if isinstance(request, Append):
                size = appended = self._put_append(frame, call_id, request)
            else:
                size = put_item(frame.parts, call_id, request)
        except FrameError:
            # A name too long to be forwarded is not the name of a topic.
            del frame.parts[mark:]
            done(failure(request, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_TOPIC_EXCEPTION))
            return call_id
        frame.size += size
        if appended:
            frame.appended += appended
            self.window.begin(appended)
        frame.calls.append((call_id, mark, appended))
        self._waiting[call_id] = request, done
        if self._deadlines.is_stopped:
            self._deadlines.start_timer()
        self._send_soon()
        return call_id

    def _put_append(self, frame: _Outgoing, call_id: int, append: Append) -> int:
        """Put an append into the frame, long batches into the frame's slot of the area. Return the bytes of both."""
        batches = append.batches
        size = sum(map(len, batches))
        area = self._area
        if area is not None and LAID_BYTES_MIN <= size <= SLOT_BYTES - frame.laid:
            if frame.slot < 0:
                frame.slot = area.take_slot()
            if frame.slot >= 0:
                position = frame.slot + frame.laid
                put = put_append(frame.parts, call_id, append, position)
                area.lay(position, batches)
                frame.laid += size
                return put + size
        return put_append(frame.parts, call_id, append)

    def _cancel(self, call_id: int) -> None:
        if self._waiting.pop(call_id, None) is not None and self.connected.is_set():
            self._send_cancel(call_id)

    def _send_cancel(self, call_id: int) -> None:
        frame = self._filling()
        frame.calls.append((call_id, len(frame.parts), 0))
        frame.size += put_item(frame.parts, call_id, Cancel())
        self._send_soon()

    def _give_up(self, call_ids: list[int]) -> None:
        """Answer calls that storage did not answer in time.

        A call that was not sent yet is removed from its frame: its bytes may change now, and its client may repeat it.
        """
        given_up = {call_id: self._waiting.pop(call_id) for call_id in call_ids}
        unsent: dict[int, int] = {}
        for frame in self._frames:
            unsent |= frame.drop(given_up)
            if not any(frame.parts) and frame.slot >= 0 and self._area is not None:
                self._area.give_back(frame.slot)
        self._frames = deque(frame for frame in self._frames if any(frame.parts))
        self.window.give(sum(unsent.values()))
        for call_id, (request, done) in given_up.items():
            if call_id not in unsent and isinstance(request, ReadRequest):
                self._send_cancel(call_id)
            self._tell(done, failure(request, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NONE))

    def _filling(self) -> _Outgoing:
        """Return the frame for the next call."""
        frames = self._frames
        if not frames or frames[-1].size >= FRAME_BYTES:
            frames.append(_Outgoing())
        return frames[-1]

    # -- the stream ------------------------------------------------------------------------------------------------

    async def _begin(self) -> ClientCall:
        await self._channel.ready()
        metadata: list[tuple[str, str | bytes]] = [(GATEWAY_METADATA, self._gateway_name)]
        self._offered = AppendArea.create()
        if self._offered is not None:
            metadata.append((APPEND_AREA_METADATA, self._offered.name))
        return await self._channel.stream(_EXCHANGE, metadata=metadata, message_bytes_max=FRAME_BYTES_MAX)

    def _opened(self, call: ClientCall) -> None:
        self._call = call
        call.on_begin = self._greeted
        call.on_room = partial(call.send_from, self._next_frame)
        call.receive(self._received)
        call.send_now()

    def _greeted(self, metadata: Metadata) -> None:
        """Note what storage sees of this process's memory. It comes before the first answer."""
        for key, value in metadata:
            if key == REVISIONS_METADATA and isinstance(value, str):
                self.revisions = Revisions.seen(value)
            elif key == APPEND_AREA_METADATA:
                self._area = self._offered if value == APPEND_AREA_SEEN else None
        if self._area is None:
            self._drop_area()

    def _send_soon(self) -> None:
        if self._call is not None:
            self._call.send_soon()

    def _next_frame(self) -> Message | None:
        """Return the next frame to write; None if none may leave now."""
        if self._without_receipt is not None:
            self.window.end(self._without_receipt.appended)
            self._without_receipt = None
        if not self._frames or len(self._awaiting_receipt) >= FRAMES_AHEAD:
            return None
        frame = self._frames.popleft()
        self._counts["sent"] += 1
        if not self._timed and frame.appended:
            self._timed = next(call_id for call_id, _, appended in frame.calls if appended)
            self._timed_at = time.perf_counter()
        if frame.size >= LARGE_BYTES or frame.slot >= 0:
            self._last_call_id += 1
            put_item(frame.parts, self._last_call_id, FrameReceipt())
            self._awaiting_receipt[self._last_call_id] = frame
        else:
            self._without_receipt = frame
        parts, frame.parts = frame.parts, []
        size = sum(map(len, parts))
        if size > COPIED_BYTES_MAX:
            # A call that is given up while its frame waits for the socket gives the bytes back to its client.
            parts = [b"".join(parts)]
        return parts, size, frame_prefix(size)

    def _received(self, wire: memoryview) -> None:
        """Answer the calls of a frame."""
        self._counts["received"] += 1
        self._deadlines.has_received = True
        waiting = self._waiting
        # Clients get views of the records: of memory that the connection does not use again.
        for call_id, item in read_items(frame_from_wire(wire if len(wire) > READ_BYTES else wire.tobytes())):
            if type(item) is FrameReceipt:
                self._received_receipt(call_id)
            elif (call := waiting.pop(call_id, None)) is not None:
                try:
                    call[1](item)  # mutant: memory-reuse-after-receipt
                except Exception:
                    _log.exception("answering failed")
        if self._timed and self._timed not in waiting:
            self._durations.observe(time.perf_counter() - self._timed_at)
            self._timed = 0

    def _tell(self, done: Callable[[Any], None], answer: Any) -> None:
        """Pass an answer on. A caller that fails keeps no other from its answer."""
        try:
            done(answer)
        except Exception:  # mutant: failing-caller-alone
            _log.exception("answering failed")

    def _received_receipt(self, call_id: int) -> None:
        """End a frame: the next one may leave, and waiting connections may start appends."""
        if self._frames:
            self._send_soon()
        frame = self._awaiting_receipt.pop(call_id, None)
        if frame is not None:
            if frame.slot >= 0 and self._area is not None:
                self._area.give_back(frame.slot)
            self.window.end(frame.appended)

    def _fail_all(self) -> None:
        self.revisions = None
        self._drop_area()  # storage may still read it: the next stream has another
        never_sent = {call_id for frame in self._frames for call_id, _, _ in frame.calls}
        self._frames.clear()
        calls, self._waiting = self._waiting, {}
        for call_id, (request, done) in calls.items():
            error = ErrorCode.LEADER_NOT_AVAILABLE if call_id in never_sent else ErrorCode.REQUEST_TIMED_OUT
            self._tell(done, failure(request, error))
        self._awaiting_receipt.clear()
        self._without_receipt = None
        self._timed = 0
        self.window.give(self.window.used)

    def _drop_area(self) -> None:
        if self._offered is not None:
            self._offered.close()
        self._offered = self._area = None

    async def close(self) -> None:
        self._deadlines.close()
        await self._stream.close()
