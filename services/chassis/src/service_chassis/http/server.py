"""The HTTP server around an application: our sockets (listeners.py), uvicorn's protocol, stopped by its starter.

Stopping: accept no more, let open requests finish, cut them at the deadline.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
from collections.abc import AsyncIterator, Iterator

import uvicorn
from starlette.types import ASGIApp

from service_chassis import shared_wakes
from service_chassis.http.connections import Connection, Connections
from service_chassis.listeners import BACKLOG

#: Connections accepted in one turn of the event loop. Each is read before many others can take its place.
_ACCEPTED = 16
#: An idle connection is kept this long; nginx keeps it 75 s.
_KEEP_ALIVE_S = 75
#: Largest age of the time in an answer's head, which counts seconds.
_DATE_S = 1.0


@contextlib.asynccontextmanager
async def serving(
    app: ASGIApp, sockets: list[socket.socket], connections: Connections, *, stop_deadline_s: float
) -> AsyncIterator[None]:
    """Serve for the length of a block."""
    config = uvicorn.Config(
        app,
        loop="none",
        interface="asgi3",
        http=functools.partial(Connection, connections=connections),  # type: ignore[arg-type]  # called like a class
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_ACCEPTED,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, int(stop_deadline_s)),
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets), name="http")
    try:
        await server.accepting.wait()
        yield
    finally:
        server.stop()
        await running
        for each in sockets:
            each.close()


class _Server(uvicorn.Server):
    """uvicorn's, without its signal handlers: the lifecycle has them."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = asyncio.Event()
        self._stopping = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for each in sockets or ():  # asyncio has set the queue's length to the number it accepts in one turn
            each.listen(BACKLOG)
        self.accepting.set()

    def stop(self) -> None:
        self.should_exit = True
        self._stopping.set()

    async def main_loop(self) -> None:
        """Wait for the stop event, and renew the date header each second. uvicorn's loop polls ten times a second."""
        loop = asyncio.get_running_loop()
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(shared_wakes.next_at(loop, _DATE_S)):
                    await self._stopping.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield
