"""The gRPC side of the data service: frames of many calls in, frames of many answers out, on one stream per gateway.

Frames are read and written as bytes (broker_contract/frames.py), not by protobuf, so that records are not copied. A
frame's appends are written before its reads look and before the next one is read, and what can be answered then leaves
in one frame at once, appends first: every frame costs more than what is in it. Later answers (syncs, parked reads)
gather until the turn of the event loop is over. Another frame is begun when `_FRAME_BYTES` are in one. A gateway that
does not read its answers is not read from either, once `_ANSWERS_BYTES_MAX` wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import grpc
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
    FrameTaken,
    ReadRequest,
    ReadResponse,
)
from broker_contract.errors import FrameError
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from service_chassis import logs as service_logs
from service_chassis.stream_writer import StreamWriter

from storage_svc.rpc.data import DataService
from storage_svc.topics.leases import Leases

_FRAME_BYTES: Final = 4 << 20
_ANSWERS_BYTES_MAX: Final = 128 << 20
_CALLS_MAX: Final = 100_000
_NAME_BYTES_MAX: Final = 1024

_log = service_logs.get(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class _Exchange:
    """One stream. Its calls' answers gather in frames until they are written."""

    def __init__(self, service: DataService, context: _Context, area: memoryview | None) -> None:
        self._service = service
        self._context = context
        self._area = area
        self._loop = asyncio.get_running_loop()
        self._frames: deque[list[Buffer]] = deque()
        self._frame_size = 0
        self._waiting_size = 0
        self._writer: StreamWriter[list[Buffer]] = StreamWriter(context.write, self._next_frame, self._failed)
        #: Whether the answers that wait are written once this frame is taken, or this turn is over.
        self._due = False
        #: Set unless answers that wait are too many or too long.
        self._room = asyncio.Event()
        self._room.set()
        #: Set when the last call is answered and its answer has left, or none can leave any more.
        self._done = asyncio.Event()
        self._reads: dict[int, Callable[[], None]] = {}
        self._open_calls = 0
        self._ended = self._broken = False

    async def run(self) -> None:
        try:
            while (frame := await self._context.read()) is not grpc.aio.EOF:
                self._due = True
                self._take(frame)
                self._write_on()
                if not self._room.is_set():
                    await self._room.wait()
                if self._broken:
                    return
            self._ended = True
            self._write_on()
            await self._done.wait()
        except FrameError as error:
            _log.warning("data stream broken", peer=self._context.peer(), reason=str(error))
            await self._context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        finally:
            self._writer.close()
            for give_up in list(self._reads.values()):
                give_up()
            self._reads.clear()

    def _take(self, frame: memoryview) -> None:
        appends: list[tuple[Append, Callable[[AppendResponse], None]]] = []
        reads: dict[int, ReadRequest] = {}
        taken: list[int] = []
        for call_id, item in read_items(frame, self._area):
            match item:
                case Append():
                    self._open_calls += 1
                    appends.append((item, partial(self._answer, call_id)))
                case FrameTaken():
                    taken.append(call_id)
                case ReadRequest():
                    self._open_calls += 1
                    reads[call_id] = item
                case Cancel():
                    if reads.pop(call_id, None) is not None:
                        self._open_calls -= 1
                    elif (give_up := self._reads.pop(call_id, None)) is not None:
                        self._open_calls -= 1
                        give_up()
                case AheadRequest():
                    self._open_calls += 1
                    self._service.read_ahead(item, partial(self._answer, call_id))
                case _:
                    raise FrameError(f"a {type(item).__name__} from a gateway")
        if appends:
            self._service.append_at_once(appends)
        for call_id, read in reads.items():
            self._read(call_id, read)
        for call_id in taken:
            self._open_calls += 1
            self._answer(call_id, FrameTaken())
        if self._open_calls > _CALLS_MAX:
            self._room.clear()

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

    def _answer(self, call_id: int, answer: AppendResponse | ReadResponse | AheadResponse | FrameTaken) -> None:
        self._open_calls -= 1
        if not self._frames or self._frame_size > _FRAME_BYTES:
            self._frames.append([])
            self._frame_size = 0
        size = put_item(self._frames[-1], call_id, answer)
        self._frame_size += size
        self._waiting_size += size
        if self._waiting_size > _ANSWERS_BYTES_MAX:
            self._room.clear()
        if not self._due:
            self._due = True
            self._loop.call_soon(self._write_on)

    def _write_on(self) -> None:
        self._due = False
        self._writer.write_on()

    def _next_frame(self) -> list[Buffer] | None:
        """The answers to write now that those before them have left."""
        if self._frames:
            frame = self._frames.popleft()
            self._waiting_size -= sum(map(len, frame))
            return frame
        if self._open_calls <= _CALLS_MAX:
            self._room.set()
        if self._ended and self._open_calls == 0:
            self._done.set()
        return None

    def _failed(self, error: BaseException) -> None:
        """Answers cannot be written any more."""
        _log.info("data stream lost", peer=self._context.peer(), reason=repr(error))
        self._broken = True
        self._room.set()
        self._done.set()


def _gateway_name(context: _Context) -> str | None:
    name = _metadata(context, GATEWAY_METADATA)
    return name.decode(errors="replace") if isinstance(name, bytes) and len(name) <= _NAME_BYTES_MAX else None


def _metadata(context: _Context, wanted: str) -> str | bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == wanted:
            return value
    return None


def add_data_service(
    service: DataService,
    unary: Mapping[str, grpc.RpcMethodHandler[Any, Any]],
    leases: Leases,
    server: grpc.aio.Server,
) -> None:
    """Serve millrace.v1.Data: its stream, and its unary methods as given. The leases hear which gateways are there."""

    async def exchange(_requests: Any, context: _Context) -> None:
        initial = [(REVISIONS_METADATA, service.revisions.share())]
        area = _metadata(context, APPEND_AREA_METADATA)
        seen = see_area(area) if isinstance(area, str) else None
        if seen is not None:
            initial.append((APPEND_AREA_METADATA, APPEND_AREA_SEEN))
        await context.send_initial_metadata(initial)
        name = _gateway_name(context)
        if name is None:
            await _Exchange(service, context, seen).run()
            return
        leases.stream_began(name)
        try:
            await _Exchange(service, context, seen).run()
        finally:
            leases.stream_ended(name)

    stream = grpc.stream_stream_rpc_method_handler(
        exchange, request_deserializer=frame_from_wire, response_serializer=frame_to_wire
    )
    full_name = data_pb2.DESCRIPTOR.services_by_name["Data"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(full_name, {"Exchange": stream, **unary}),))
