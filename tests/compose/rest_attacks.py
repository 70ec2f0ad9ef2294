"""Clients that mean harm to the REST API: silent, slow, greedy. Each attack runs until it is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
from collections.abc import Awaitable, Callable

__all__ = ["ATTACKS", "Attack", "under_attack"]

#: More than the server keeps.
CLIENTS = 700
#: Enough to take all of the server's processor time, which is shared fairly.
BUSY_CLIENTS = 30
BODY_BYTES = 65_536
_BROKEN = (OSError, asyncio.IncompleteReadError)

Client = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


class Attack:
    """Many clients of one kind at one address. A client that the server cuts off comes again."""

    def __init__(self, client: Client, *, count: int = CLIENTS, receive_bytes: int = 0) -> None:
        self._client = client
        self._count = count
        self._receive_bytes = receive_bytes

    async def run(self, port: int) -> None:
        await asyncio.gather(*(self._again_and_again(port, number) for number in range(self._count)))

    async def _again_and_again(self, port: int, number: int) -> None:
        while True:
            with contextlib.suppress(*_BROKEN), socket.socket() as connection:
                if self._receive_bytes:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
                connection.setblocking(False)
                await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(sock=connection, limit=4096)
                try:
                    await self._client(reader, writer, number)
                finally:
                    writer.close()
            await asyncio.sleep(0.2)


def _head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *fields, "", ""]).encode()


def _topics_head(length: int) -> bytes:
    return _head("POST", "/v3/clusters/C/topics", "Content-Type: application/json", f"Content-Length: {length}")


async def _until_closed(reader: asyncio.StreamReader) -> None:
    while await reader.read(4096):
        pass


async def _silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter, _number: int) -> None:
    await _until_closed(reader)


async def _half_a_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    writer.write(b"GET / HTTP/1.1\r\nx: " + b"a" * 15_000)
    await _until_closed(reader)


async def _half_a_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    writer.write(_topics_head(BODY_BYTES) + b"[" * (BODY_BYTES - 1))
    await _until_closed(reader)


async def _small_chunks(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    writer.write(_head("POST", "/v3/clusters/C/topics", "Transfer-Encoding: chunked"))
    for _ in range(500):
        if writer.transport.is_closing():
            return
        writer.write(b"1\r\n \r\n" * 20)
        await asyncio.sleep(0.02)
    await _until_closed(reader)


async def _many_fields(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    writer.write(b"GET /v3/clusters HTTP/1.1\r\n" + b"a:\r\n" * 4000 + b"\r\n")
    await _until_closed(reader)


async def _worst_bodies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    value = (b"1", b"{}", b"[]", b'{"a":1}', b"null", b'""')[number % 6]
    count = (BODY_BYTES - 40) // (len(value) + 1) if number % 2 else 4000 // (1 + value.count(b"{") + value.count(b"["))
    body = b'{"topic_name":"x","configs":[' + b",".join([value] * min(count, 30_000)) + b"]}"
    while True:
        writer.write(_topics_head(len(body)) + body)
        await reader.readuntil(b"\r\n\r\n")
        await writer.drain()


async def _large_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    writer.write(_topics_head(1_040_000))
    with contextlib.suppress(*_BROKEN):
        for _ in range(104):
            writer.write(b"1," * 5000)
            await writer.drain()
    await _until_closed(reader)


async def _long_names(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    path = f"/v3/clusters/C/topics/{'%F0%9F%A6%80' * 1200}?{'&'.join(['a=1'] * (16 + number % 2))}"
    while True:
        writer.write(_head("GET", path, "Cookie: " + "a=b;" * 300))
        await reader.readuntil(b"\r\n\r\n")
        await writer.drain()


async def _slow_reader(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Request large answers again and again, and read a byte now and then."""
    path = ("/openapi.json", "/metrics", "/docs/swagger-ui-bundle.js", "/v3/clusters/-/topics")[number % 4]
    writer.write(_head("GET", path) * 20)
    while await reader.read(1):  # noqa: ASYNC110
        await asyncio.sleep(0.5)


ATTACKS = {
    "silent": Attack(_silent),
    "half a head": Attack(_half_a_head),
    "half a body": Attack(_half_a_body),
    "small chunks": Attack(_small_chunks, count=BUSY_CLIENTS),
    "many fields": Attack(_many_fields, count=BUSY_CLIENTS),
    "worst bodies": Attack(_worst_bodies, count=BUSY_CLIENTS),
    "large bodies": Attack(_large_body, count=BUSY_CLIENTS),
    "long names": Attack(_long_names, count=BUSY_CLIENTS),
    "slow readers": Attack(_slow_reader, receive_bytes=2048),
}


@contextlib.asynccontextmanager
async def under_attack(port: int, names: list[str]):
    """Run these attacks for the length of a block."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    running = [asyncio.create_task(ATTACKS[name].run(port), name=name) for name in names]
    try:
        yield
        for task in running:
            assert not task.done(), task.exception()
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
