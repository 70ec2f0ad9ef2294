"""Two connections joined in memory, whose bytes move when a test says so, and a peer that writes frames itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_server import Server
from service_chassis.http2 import frames, headers
from service_chassis.http2.connection import Connection
from service_chassis.http2.frames import HEAD, PREFACE
from service_chassis.http2.limits import Limits, TransportCounts
from service_chassis.http2.stream import Stream


class MemoryTransport:
    """The part of a transport that connections use. It is full above `high` bytes, and drained below a quarter."""

    def __init__(self, high: int = 1 << 40) -> None:
        self._high = high
        self._protocol: Any = None
        self.buffer = bytearray()
        self._is_closing = self.is_aborted = False
        self.is_reading = True

    def attach(self, protocol: Connection) -> None:
        self._protocol = protocol
        protocol.connection_made(self)

    def write(self, data: bytes) -> None:
        self.writelines((data,))

    def writelines(self, parts: Sequence[Any]) -> None:
        if self._is_closing:
            return
        for part in parts:
            self.buffer += part
        if len(self.buffer) > self._high and not self._protocol.is_full:
            self._protocol.pause_writing()

    def taken(self, count: int) -> bytes:
        """Return and remove up to `count` bytes."""
        data = bytes(self.buffer[:count])
        del self.buffer[:count]
        if self._protocol.is_full and len(self.buffer) <= self._high // 4:
            self._protocol.resume_writing()
        return data

    def close(self) -> None:
        self._is_closing = True

    def abort(self) -> None:
        self._is_closing = self.is_aborted = True

    def get_write_buffer_size(self) -> int:
        return len(self.buffer)

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.is_reading = False

    def resume_reading(self) -> None:
        self.is_reading = True

    def set_write_buffer_limits(self, **_: int) -> None: ...

    def get_extra_info(self, _name: str) -> None:
        return None


def feed(connection: Connection, data: bytes, *, stays_paused: bool = False) -> None:
    """Pass bytes to a connection as a transport does. `stays_paused`: leave the turns to the event loop."""
    view = memoryview(data)
    while view:
        buffer = connection.get_buffer(-1)
        count = min(len(buffer), len(view))
        buffer[:count] = view[:count]
        view = view[count:]
        connection.buffer_updated(count)
        while not (connection.transport.is_reading or stays_paused):
            connection._reader.go_on()


class Pair:
    """A client and a server; `move` moves bytes from one to the other."""

    def __init__(self, server: Server, *, high: int = 1 << 40, limits: Limits | None = None) -> None:
        self.client = Connection(is_client=True, limits=limits or Limits(), counts=TransportCounts())
        self.server = server._connect()
        self.out, self.back = MemoryTransport(high), MemoryTransport(high)
        self.out.attach(self.client)
        self.back.attach(self.server)

    def move(self, forth: int, back: int) -> None:
        """Move up to this many bytes in each direction."""
        feed(self.server, self.out.taken(forth))
        feed(self.client, self.back.taken(back))

    def call(self, path: str) -> ClientCall:
        """Begin a call, without a word of when its HEADERS arrive."""
        self.client.last_id += 2
        call = ClientCall(self.client, self.client.last_id, None, None, 1 << 30)
        self.client.add(call)
        self.client.write(frames.frame(frames.HEADERS, frames.END_HEADERS, call.id, request(path)))
        return call

    def check_invariants(self) -> None:
        self.client.check_invariants()
        self.server.check_invariants()


def request(path: str, *more: tuple[str, str]) -> bytes:
    """Return the block of a gRPC request."""
    fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "localhost"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
        *more,
    ]
    return headers.block(fields)


def head(stream_id: int, path: str = "/x/Chat", *more: tuple[str, str], flags: int = frames.END_HEADERS) -> bytes:
    """Return the HEADERS frame of a call."""
    return frames.frame(frames.HEADERS, flags, stream_id, request(path, *more))


def message(stream_id: int, body: bytes, flags: int = 0) -> bytes:
    """Return a DATA frame that is one message."""
    return frames.frame(frames.DATA, flags, stream_id, b"\0" + len(body).to_bytes(4, "big") + body)


class RawPeer:
    """A client that sends any bytes to a server's connection, and reads frames."""

    def __init__(self, server: Server, *, high: int = 1 << 40, stays_paused: bool = False) -> None:
        self._stays_paused = stays_paused
        self.connection = server._connect()
        self.transport = MemoryTransport(high)
        self.transport.attach(self.connection)

    def greet(self) -> RawPeer:
        self.send(PREFACE + frames.settings())
        self.frames()
        return self

    def send(self, *data: bytes) -> None:
        feed(self.connection, b"".join(data), stays_paused=self._stays_paused)

    def frames(self) -> list[tuple[int, int, int, bytes]]:
        """Return (kind, flags, stream id, payload) of the frames that the server has sent since the last call."""
        data, found, position = self.transport.taken(1 << 40), [], 0
        while position < len(data):
            word, flags, stream_id = HEAD.unpack_from(data, position)
            end = position + 9 + (word >> 8)
            found.append((word & 255, flags, stream_id, data[position + 9 : end]))
            position = end
        return found

    def trailers(self, stream_id: int) -> bytes:
        """Return the block that has ended a call since the last call of `frames`."""
        (found,) = [
            payload
            for kind, flags, number, payload in self.frames()
            if (kind, number) == (frames.HEADERS, stream_id) and flags & frames.END_STREAM
        ]
        return found

    def end(self) -> tuple[frames.ErrorCode, str] | None:
        """Return the code and the text of the GOAWAY, if the connection has ended."""
        for kind, _, _, payload in self.frames():
            if kind == frames.GOAWAY and self.transport.is_closing():
                return frames.ErrorCode(int.from_bytes(payload[4:8], "big")), payload[8:].decode()
        return None


def is_waiting(stream: Stream) -> bool:
    return stream._wants_room or bool(stream._queue)
