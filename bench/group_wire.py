"""A cheap connection for members of groups: thousands of them share one process and one core with the broker."""

from __future__ import annotations

import asyncio
import struct
from typing import Any, cast

from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header


class Wire(asyncio.Protocol):
    """A connection on which one request waits at a time."""

    def __init__(self) -> None:
        self._transport = cast(asyncio.Transport, None)
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""

    @classmethod
    async def connect(cls, address: str) -> Wire:
        host, _, port = address.rpartition(":")
        _, wire = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error or EOFError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        received = self._received + data if self._received else data
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            self._received = received
            return
        self._received = b""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(received)

    async def exchange(self, frame: bytes) -> bytes:
        """Return the answer to a framed request, without its length."""
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return (await self._answer)[4:]

    async def call(self, api_key: int, version: int, request: Any) -> Any:
        answer = await self.exchange(framed(api_key, version, request))
        _, position = decode_response_header(api_key, version, answer)
        return decode(APIS[api_key].response, version, answer, position)

    def close(self) -> None:
        self._transport.abort()


def framed(api_key: int, version: int, request: Any) -> bytes:
    frame = encode_request_header(RequestHeader(api_key, version, 1, "bench")) + encode(request, version)
    return struct.pack(">i", len(frame)) + frame
