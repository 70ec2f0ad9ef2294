"""All connections of one gateway: their number, the buffer they share, and the clock that ends stuck ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Protocol

from service_chassis import logs

from gateway_svc.clients.departure import AFTERMATH_S, FIRST_S, STANDSTILL_S, TICK_S
from gateway_svc.clients.entrance import Entrance
from gateway_svc.clients.relief import Holder, Relief
from gateway_svc.clients.slices import SliceFiles
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.settings import GatewaySettings

#: Size of the buffer that all connections read into: most bytes of one read.
SHARED_BUFFER_BYTES = 256 * 1024
#: Seconds between two searches for stuck connections.
SWEEP_S = 1.0
#: Seconds for which one turn of the event loop checks connections, some of which it closes.
SWEEP_TURN_S = 0.002

_log = logs.get(__name__)


class Connected(Holder, Protocol):
    """A connection, as far as it is used here."""

    #: The address that it counts under.
    address: str
    peer: str
    listener: str

    @property
    def idle(self) -> bool: ...

    @property
    def requests_in_service(self) -> int: ...

    @property
    def memory_held(self) -> tuple[int, int]: ...

    def check_invariants(self) -> None: ...

    def check_time(self, now: float, frame_timeout_s: float, idle_max_s: float) -> None: ...

    def finish(self) -> None: ...

    def abort(self) -> None: ...


class Connections:
    """The set of open connections; the gateway owns it."""

    def __init__(
        self,
        settings: GatewaySettings,
        metrics: GatewayMetrics,
        entrance: Entrance,
        relief: Relief,
        files: SliceFiles | None,
    ) -> None:
        self._settings = settings
        self._metrics = metrics
        self.entrance = entrance
        self._relief = relief
        self._files = files
        #: Whether memory for answers is to be freed before other callbacks.
        self._relief_due = False
        self._open: dict[Connected, None] = {}
        #: Filled and emptied within one callback of one connection.
        self.shared_buffer = bytearray(SHARED_BUFFER_BYTES)
        self.shared_view = memoryview(self.shared_buffer)
        #: The time in which bytes are read as they arrive. Outside it the event loop has stood still, and bytes may
        #: have waited in a socket.
        self.prompt_from = float("-inf")
        self.prompt_until = float("inf")
        #: Set while there is a connection for the sweep.
        self._occupied = asyncio.Event()

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Connected) -> None:
        """Add a new connection, which the entrance has let in."""
        self._open[connection] = None
        self._occupied.set()
        self._metrics.connections_opened[connection.listener] += 1
        self._metrics.connections = len(self._open)

    def remove(self, connection: Connected) -> None:
        self._open.pop(connection, None)
        self._metrics.connections = len(self._open)

    def check_invariants(self) -> None:
        """Assert that the counts are those of the open connections, and each connection's own invariants."""
        opened = Counter(connection.address for connection in self._open)
        assert opened <= self.entrance.by_address
        assert len(self.entrance) == self.entrance.by_address.total()
        assert self._metrics.connections == len(self._open)
        for connection in self._open:
            connection.check_invariants()

    @property
    def requests_in_service(self) -> int:
        """Number of requests of all connections whose answers have not left. A scrape asks, in its thread."""
        return sum(connection.requests_in_service for connection in list(self._open))

    @property
    def memory_held(self) -> tuple[int, int]:
        """Bytes of the budgets for requests and for answers that open connections hold."""
        held = [connection.memory_held for connection in self._open]
        return sum(requests for requests, _ in held), sum(answers for _, answers in held)

    async def sweep(self) -> None:
        """Close stuck connections and unused files for as long as the gateway runs."""
        loop = asyncio.get_running_loop()
        frame_timeout_s = self._settings.frame_timeout_ms / 1000
        idle_max_s = self._settings.connections_max_idle_ms / 1000
        interval_s = min(SWEEP_S, frame_timeout_s / 2)
        while True:
            if not self._open and not self._files:  # mutant: no-idle-tick
                await self._first_connection()
            due = loop.time() + interval_s
            while (now := loop.time()) < due:
                await self._tick(min(TICK_S, due - now))
            every = list(self._open)
            while every:
                # They close before the next sweep would find them late.
                self._check(every, now, frame_timeout_s - interval_s, idle_max_s)
                await asyncio.sleep(0)
            try:
                self._relief.relieve(self._open, now)
                if self._files is not None:
                    self._files.sweep(now)
            except Exception:
                _log.exception("memory or files not swept")

    def relieve_soon(self) -> None:
        """Close connections whose clients do not read, in the next turn: answers use more than their memory."""
        if not self._relief_due:
            self._relief_due = True
            asyncio.get_running_loop().call_soon(self._relieve)

    def _relieve(self) -> None:
        self._relief_due = False
        self._relief.relieve_answers(self._open, asyncio.get_running_loop().time())

    async def _first_connection(self) -> None:
        """Wait, without a timer, for a connection. No tick has measured the loop: its first bytes may have waited."""
        self._occupied.clear()
        self.prompt_from = float("inf")
        await self._occupied.wait()
        self.prompt_from = asyncio.get_running_loop().time() + FIRST_S  # mutant: first-bytes-distrusted

    async def _tick(self, length_s: float) -> None:
        """Wait, and note a standstill of the event loop."""
        loop = asyncio.get_running_loop()
        due = loop.time() + length_s
        self.prompt_until = due + STANDSTILL_S
        await asyncio.sleep(length_s)
        now = loop.time()
        if now > self.prompt_until:
            self.prompt_from = now + AFTERMATH_S  # mutant: distrust-after-standstill

    def _check(self, connections: list[Connected], now: float, frame_timeout_s: float, idle_max_s: float) -> None:
        """Check some connections and remove them from the list.

        This is no part of `sweep`, whose variables would keep the last connection until the next sweep.
        """
        clock = asyncio.get_running_loop().time
        until = clock() + SWEEP_TURN_S
        while connections and clock() < until:
            connection = connections.pop()
            try:
                connection.check_time(now, frame_timeout_s, idle_max_s)
            except Exception:  # mutant: sweep-continues
                _log.exception("connection not checked", peer=connection.peer)
                connection.abort()

    async def close(self, deadline_s: float) -> int:
        """Let requests in service end, then close all; return how many connections were cut in the middle of one."""
        loop = asyncio.get_running_loop()
        until = loop.time() + deadline_s
        while True:
            for connection in list(self._open):
                connection.finish()
            if not any(not connection.idle for connection in self._open) or loop.time() >= until:
                break
            await asyncio.sleep(0.01)
        cut = sum(not connection.idle for connection in self._open)
        for connection in list(self._open):
            connection.abort()
        # Closing is a callback of the loop, which needs its turn.
        while self._open and loop.time() < until + 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        return cut
