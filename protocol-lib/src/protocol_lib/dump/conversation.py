"""Frames as requests and the responses to them.

A response does not name its API: it is known by the request with its correlation id. A dump may say which side sent the
bytes. Otherwise bytes that answer a waiting request are a response, and bytes that read as a request to the last one
are a request.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode
from protocol_lib.dump.stream import Connection, Piece, Side
from protocol_lib.errors import DecodeError
from protocol_lib.framing import FrameError, FrameSplitter
from protocol_lib.headers import RequestHeader, decode_request, decode_request_header, decode_response_header
from protocol_lib.messages.produce import ProduceRequest


@dataclass(slots=True)
class Request:
    header: RequestHeader
    body: Any
    size: int


@dataclass(slots=True)
class Response:
    """A response, with the header of the request that it answers."""

    request: RequestHeader
    version: int
    body: Any
    size: int


@dataclass(slots=True)
class Unknown:
    """Bytes that are neither, and why."""

    data: bytes
    reason: str


Said = Request | Response | Unknown


@dataclass(slots=True)
class _Exchange:
    """The requests of one connection that wait for their responses, by correlation id."""

    waiting: dict[int, RequestHeader] = field(default_factory=dict)

    def understand(self, frame: bytes, side: Side) -> Said:
        reasons = []
        if side is not Side.CLIENT:
            try:
                return self._response(frame)
            except DecodeError as fault:
                reasons.append(str(fault))
        if side is not Side.BROKER:
            try:
                return self._request(frame)
            except DecodeError as fault:
                reasons.append(str(fault))
        return Unknown(frame, "; ".join(reasons))

    def _request(self, frame: bytes) -> Request:
        header, position = decode_request_header(frame)
        body = decode_request(header, frame, position)
        if not (isinstance(body, ProduceRequest) and body.acks == 0):
            self.waiting[header.correlation_id] = header
        return Request(header, body, len(frame))

    def _response(self, frame: bytes) -> Response:
        correlation_id, _ = decode_response_header(ApiKey.API_VERSIONS, 0, frame)
        request = self.waiting.get(correlation_id)
        if request is None:
            raise DecodeError(f"no request with correlation id {correlation_id} waits for it")
        api = APIS[request.api_key]
        _, position = decode_response_header(request.api_key, request.api_version, frame)
        version = request.api_version
        try:
            body = decode(api.response, version, frame, position)
        except DecodeError:
            if request.api_key != ApiKey.API_VERSIONS:
                raise
            version = 0  # a broker answers a version that it does not know in this one
            body = decode(api.response, version, frame, position)
        del self.waiting[correlation_id]
        return Response(request, version, body, len(frame))


def understand(connection: Connection) -> Iterator[Said]:
    """Return the messages of a connection, in the order in which they were recorded."""
    exchange = _Exchange()
    splitters: dict[str, FrameSplitter] = {}
    lost: set[str] = set()
    for piece in connection.pieces:
        if piece.source in lost:
            continue
        if connection.whole:
            yield from _whole(exchange, piece)
            continue
        try:
            frames = splitters.setdefault(piece.source, FrameSplitter()).feed(piece.data)
        except FrameError as fault:
            lost.add(piece.source)
            yield Unknown(piece.data, f"{fault}: the rest of what {piece.source} sent is left out")
            continue
        for frame in frames:
            yield exchange.understand(frame, piece.side)
    for source, splitter in splitters.items():
        if splitter.buffered and source not in lost:
            yield Unknown(b"", f"{source} sent {splitter.buffered} bytes of a frame, the rest was not recorded")


def _whole(exchange: _Exchange, piece: Piece) -> list[Said]:
    """Return the frame, without its length, that a piece is, or the frames that fill it."""
    alone = exchange.understand(piece.data, piece.side)
    if isinstance(alone, Unknown):
        splitter = FrameSplitter()
        with suppress(FrameError):
            frames = splitter.feed(piece.data)
            if frames and not splitter.buffered:
                return [exchange.understand(frame, piece.side) for frame in frames]
    return [alone]
