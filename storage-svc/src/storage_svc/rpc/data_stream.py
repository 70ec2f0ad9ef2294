"""The gRPC side of the data service: frames of many calls in, frames of many answers out, on one stream per gateway.

Frames are read and written as bytes (broker_contract/frames.py), not by protobuf, so that records are not copied. A
frame's appends are written before its reads look for records, and before the next frame is read. After STEP_BATCHES
the rest of a frame waits for the next turn of the event loop, and the frames behind it wait too. Answers that are ready
then leave in one frame at once, appends first: every frame costs more than its contents. Later answers (syncs,
parked reads) gather until the turn of the event loop is over. A new frame begins after `_FRAME_BYTES`. Storage stops
reading from a gateway that does not read its answers, once `_ANSWERS_BYTES_MAX` wait for it. The rest of the gateway's
window of 16 MB still comes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from broker_contract import data_pb2
from broker_contract.append_area import see_area
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
    Item,
    ReadRequest,
    ReadResponse,
)
from broker_contract.errors import FrameError
from broker_contract.frames import FRAME_BYTES_MAX, frame_from_wire, frame_prefix, put_item, read_items
from service_chassis import logs as service_logs
from service_chassis.grpc_server import Method, Server, ServerCall, answers, stream
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2.reader import READ_BYTES
from service_chassis.http2.stream import Message

from storage_svc.rpc.data import STEP_BATCHES, DataService
from storage_svc.rpc.slice_sender import RECORDS_REQUEST_BYTES_MAX, SliceSender
from storage_svc.topics.leases import Leases

_FRAME_BYTES: Final = 4 << 20
_ANSWERS_BYTES_MAX: Final = 128 << 20
_CALLS_MAX: Final = 100_000
_NAME_BYTES_MAX: Final = 1024

_log = service_logs.get(__name__)

_AppendCall = tuple[Append, Callable[[AppendResponse], None]]


class _Exchange:
    """One gateway's stream. Answers gather in frames until they are written."""

    def __init__(self, service: DataService, call: ServerCall, area: memoryview | None) -> None:
        self._service = service
        self._call = call
        call.on_room = partial(call.send_from, self._next_frame)
        self._area = area
        self._loop = asyncio.get_running_loop()
        #: Items of frames that wait for a turn of the loop, the oldest first. Nothing overtakes them.
        self._later: deque[Iterator[tuple[int, Item]]] = deque()
        #: Receipts asked for by the frame that is read. The gateway then uses the memory of its records again.
        self._receipts: list[int] = []
        self._frames: deque[list[Buffer]] = deque()
        self._frame_size = 0
        self._waiting_size = 0
        #: Set when the last call is answered and its answer has left.
        self._done = asyncio.Event()
        self._reads: dict[int, Callable[[], None]] = {}
        self._open_calls = 0
        self._ended = False

    async def run(self) -> None:
        """Serve until the gateway has sent its last frame and has its answers. It is cancelled when the stream is lost.

        Raises:
            RpcError: the gateway sent a broken frame.
        """
        try:
            self._call.receive(self._take)
            await self._call.last_message()
            self._ended = True
            self._call.send_now()
            await self._done.wait()
        except FrameError as error:
            _log.warning("data stream broken", peer=self._call.peer(), reason=str(error))
            raise RpcError(Status.INVALID_ARGUMENT, str(error)) from error
        finally:
            self._call.on_room = _nothing
            for give_up in list(self._reads.values()):
                give_up()
            self._reads.clear()
            self._later.clear()

    def _take(self, wire: memoryview) -> None:
        """Start the calls of a frame, and write the answers that are ready."""
        self._call.is_due = True
        # Appends that wait keep views: of memory that the connection does not use again.
        items = read_items(frame_from_wire(wire if len(wire) > READ_BYTES else wire.tobytes()), self._area)
        if self._later:
            self._later.append(items)
        elif not self._receive(items):
            self._later.append(items)
            self._call.pause()
            self._loop.call_soon(self._go_on)
        self._call.send_now()

    def _go_on(self) -> None:
        """Start more calls of the frames that wait. After a broken frame, those behind it are never read."""
        if not self._later:  # the stream is lost
            return
        try:
            if self._receive(self._later[0]):
                self._later.popleft()
        except Exception as error:
            self._call.on_callback_error(error)
            return
        if self._later:
            self._loop.call_soon(self._go_on)
        self._call.send_soon()

    def _receive(self, items: Iterator[tuple[int, Item]]) -> bool:
        """Start the calls of a frame; return whether all: after STEP_BATCHES the rest stays in `items`."""
        appends: list[_AppendCall] = []
        reads: dict[int, ReadRequest] = {}
        batches = 0
        for call_id, item in items:
            match item:
                case Append():
                    appends.append((item, partial(self._answer, call_id)))
                    batches += len(item.batches)
                    if batches >= STEP_BATCHES:  # mutant: frame-in-steps
                        break
                case FrameReceipt():
                    self._receipts.append(call_id)
                    self._open_calls += 1
                case ReadRequest():
                    reads[call_id] = item
                case Cancel():
                    self._cancel(call_id, reads)
                case AheadRequest():
                    self._open_calls += 1
                    self._service.read_ahead(item, partial(self._answer, call_id))
                case _:
                    raise FrameError(f"a {type(item).__name__} from a gateway")
        self._open_calls += len(appends) + len(reads)
        self._start(appends, reads)
        is_read = batches < STEP_BATCHES
        if is_read and self._receipts:  # mutant: receipt-after-last-step
            self._give_receipts()
        if self._open_calls > _CALLS_MAX:
            self._call.pause()
        return is_read

    def _give_receipts(self) -> None:
        """Give the receipts of a frame whose appends are all written."""
        receipts, self._receipts = self._receipts, []
        for call_id in receipts:
            self._answer(call_id, FrameReceipt())

    def _start(self, appends: list[_AppendCall], reads: dict[int, ReadRequest]) -> None:
        """Start appends, and then reads, which find the records of the appends."""
        if appends:
            self._service.append_at_once(appends)
        for call_id, read in reads.items():
            self._read(call_id, read)

    def _cancel(self, call_id: int, reads: dict[int, ReadRequest]) -> None:
        """Give up a parked read, or one of the same frame's `reads`, which have not started."""
        if reads.pop(call_id, None) is None and (give_up := self._reads.pop(call_id, None)) is not None:
            self._open_calls -= 1
            give_up()

    def _read(self, call_id: int, request: ReadRequest) -> None:
        answered = False

        def done(answer: ReadResponse) -> None:
            nonlocal answered
            answered = True
            self._reads.pop(call_id, None)
            self._answer(call_id, answer)

        give_up = self._service.read(request, done)
        if not answered:
            self._reads[call_id] = give_up

    def _answer(self, call_id: int, answer: AppendResponse | ReadResponse | AheadResponse | FrameReceipt) -> None:
        self._open_calls -= 1
        if not self._frames or self._frame_size > _FRAME_BYTES:
            self._frames.append([])
            self._frame_size = 0
        size = put_item(self._frames[-1], call_id, answer)
        self._frame_size += size
        self._waiting_size += size
        if self._waiting_size > _ANSWERS_BYTES_MAX:
            self._call.pause()
        self._call.send_soon()

    def _next_frame(self) -> Message | None:
        """Return the next answers to write; None if there are none."""
        if self._frames:
            frame = self._frames.popleft()
            size = sum(map(len, frame))
            self._waiting_size -= size
            return frame, size, frame_prefix(size)
        if self._later:
            return None
        if self._call.is_paused and self._open_calls <= _CALLS_MAX:
            self._call.resume()
        if self._ended and self._open_calls == 0:
            self._done.set()
        return None


def _nothing() -> None:
    """Write nothing, as the `on_room` of a stream that has ended."""


def _gateway_name(call: ServerCall) -> str | None:
    name = _metadata(call, GATEWAY_METADATA)
    return name.decode(errors="replace") if isinstance(name, bytes) and len(name) <= _NAME_BYTES_MAX else None


def _metadata(call: ServerCall, wanted: str) -> str | bytes | None:
    return next((value for key, value in call.metadata if key == wanted), None)


def add_data_service(service: DataService, unary: Mapping[str, Method], leases: Leases, server: Server) -> None:
    """Serve millrace.v1.Data: its streams, and these unary methods. Notify `leases` of gateways that come and go."""

    async def exchange(call: ServerCall) -> None:
        initial: list[tuple[str, str | bytes]] = [(REVISIONS_METADATA, service.revisions.share())]
        area = _metadata(call, APPEND_AREA_METADATA)
        seen = see_area(area) if isinstance(area, str) else None
        if seen is not None:
            initial.append((APPEND_AREA_METADATA, APPEND_AREA_SEEN))
        call.begin(initial)
        name = _gateway_name(call)
        if name is None:
            await _Exchange(service, call, seen).run()
            return
        leases.stream_began(name)
        try:
            await _Exchange(service, call, seen).run()
        finally:
            leases.stream_ended(name)

    full_name = data_pb2.DESCRIPTOR.services_by_name["Data"].full_name
    sender = SliceSender(service.logs, service.cold_reads)
    records = answers(sender.records, data_pb2.RecordsRequest.FromString, request_bytes_max=RECORDS_REQUEST_BYTES_MAX)
    server.add(
        full_name, {"Exchange": stream(exchange, request_bytes_max=FRAME_BYTES_MAX), "Records": records, **unary}
    )
