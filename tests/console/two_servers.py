"""One address for two servers, as a load balancer has it: each connection goes to the next server."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.loop_thread import LoopThread
from support.waiting import until
from up_process import RunningUp

_PIECE = 1 << 16


class Balancer:
    """Relays connections of one port of this machine in turns."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._turns = itertools.cycle(ports)
        self._count = len(ports)
        #: The port without connections, and the tasks of each one.
        self._closed = 0
        self._tasks: dict[int, set[asyncio.Task[None]]] = {port: set() for port in ports}
        self._loop = LoopThread()
        self._server = self._loop.run(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        async def close() -> None:
            self._server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        self._loop.run(close())
        self._loop.close()

    @contextmanager
    def without(self, port: int) -> Iterator[None]:
        """Cut the connections to a server, and make no others for the length of a block: as if it had died."""

        async def cut() -> None:
            self._closed = port
            for task in self._tasks[port]:
                task.cancel()

        self._loop.run(cut())
        try:
            yield
        finally:
            self._closed = 0

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own: asyncio.Task[None] = asyncio.current_task()  # type: ignore[assignment]  # a task runs it
        port = next(each for each in itertools.islice(self._turns, self._count) if each != self._closed)
        self._tasks[port].add(own)
        try:
            there, back = await asyncio.open_connection("127.0.0.1", port)
            try:
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
            finally:
                back.close()
        except (OSError, asyncio.CancelledError):
            pass  # the page sees it
        finally:
            self._tasks[port].discard(own)
            writer.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while piece := await source.read(_PIECE):
            target.write(piece)
            await target.drain()
    target.close()


@contextmanager
def another_admin(up: RunningUp, port: int, **settings: str) -> Iterator[None]:
    """Run another admin-api of the broker, which is listening when the block begins."""
    (first,) = up.services()["admin-api"]
    pairs = (each.partition("=") for each in Path(f"/proc/{first}/environ").read_text().split("\0"))
    places = ("MILLRACE_STORAGE_ADDRESS", "MILLRACE_ADMIN_GATEWAYS")
    environment = {name: value for name, _, value in pairs if name in places}
    environment |= {
        "MILLRACE_ADMIN_HTTP": f"127.0.0.1:{port}",
        "MILLRACE_ADMIN_HEALTH_HTTP": "127.0.0.1:0",
        "MILLRACE_STOP_ON_STDIN": "true",
        **settings,
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "admin_api"], env={**os.environ, **environment}, stdin=subprocess.PIPE
    )
    try:
        until(lambda: _listens(port), timeout_s=30)
        yield
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    """Return a port of this machine that nothing listens on."""
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port: int = reserved.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
