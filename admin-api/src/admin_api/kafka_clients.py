"""Clients of the gateway: a bounded pool of aiokafka's connections, through which admin-api reads and writes records.

Every gateway serves every partition. A client connects to the setting's addresses, and never to those that a gateway
advertises, which may be out of reach here. It asks for no metadata, which could create a topic, and joins no group.

    async with clients.borrow(BROWSE) as client:
        answer = await client.send(FetchRequest(...), repeatable=True)

A connection belongs to one borrower at a time and has one request on its way. Idle ones close after IDLE_S, and then
the pool costs nothing. Each use has a limit of clients and of the memory of their answers. An answer counts from
before it is read until the next request, or until the borrower calls `forget` or returns the client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service_chassis import logs
from service_chassis.address import Address

from admin_api import errors
from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerMemory, AnswerTooLargeError

if TYPE_CHECKING:
    from admin_api.kafka_connection import KafkaConnection

__all__ = [
    "BROWSE",
    "DOWNLOAD",
    "PRODUCE",
    "TAIL",
    "KafkaClient",
    "KafkaClients",
    "Use",
]

#: Seconds for which an idle connection is kept for the next borrower, and the number of those kept.
IDLE_S = 10.0
IDLE_MAX = 8
#: Seconds for which a gateway may hold a fetch back until there are records.
_WAIT_S = 1.0

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Use:
    """One purpose of clients, with its limits."""

    name: str
    #: Clients at once.
    clients_max: int
    #: Bytes of their answers at once; at least one answer of the largest size.
    bytes_max: int
    #: Borrowers that wait for a client, and for how many seconds; more are refused.
    waiting_max: int = 0
    wait_s: float = 0.0
    #: The answer to a borrower that is refused.
    status: int = 503
    retry_after_s: int = 1


BROWSE = Use("browse", 4, 4 * ANSWER_BYTES_MAX, waiting_max=64, wait_s=3.0)
PRODUCE = Use("produce", 4, 2 * ANSWER_BYTES_MAX, waiting_max=64, wait_s=3.0)
DOWNLOAD = Use("download", 3, 4 * ANSWER_BYTES_MAX, status=429, retry_after_s=10)
TAIL = Use("tail", 16, 2 * ANSWER_BYTES_MAX, status=429, retry_after_s=10)


class KafkaClients:
    """The pool. The event loop owns it; its owner calls `stop`, which ends every request, and `close`."""

    def __init__(self, addresses: Sequence[Address], *, timeout_s: float, idle_s: float = IDLE_S) -> None:
        self._addresses = tuple(addresses)
        self._timeout_s = timeout_s
        self._idle_s = idle_s
        #: Idle connections with the event loop's times of their return, the oldest first.
        self._idle: deque[tuple[KafkaConnection, float]] = deque()
        self._idle_timer: asyncio.TimerHandle | None = None
        self._borrowed: set[KafkaClient] = set()
        self._places: dict[str, _Places] = {}
        self._memories: dict[str, AnswerMemory] = {}
        #: Whether `stop` was called: nothing is lent any more.
        self.stopped = False

    @property
    def wait_ms(self) -> int:
        """The longest time for which a gateway may hold a request back, in milliseconds."""
        return int(min(_WAIT_S, self._timeout_s / 2) * 1000)

    @property
    def open(self) -> int:
        """The number of open connections, idle ones included."""
        return len(self._idle) + sum(client.is_connected for client in self._borrowed)

    def borrowed(self, use: Use) -> int:
        """Return the number of clients in use for a purpose."""
        return sum(client.use is use for client in self._borrowed)

    @contextlib.asynccontextmanager
    async def borrow(self, use: Use) -> AsyncIterator[KafkaClient]:
        """Lend a client for the length of a block. Raises ApiError with Retry-After if there are too many."""
        if self.stopped:
            raise _unreachable()
        places = self._places.setdefault(use.name, _Places(use))
        memory = self._memories.setdefault(use.name, AnswerMemory(use.bytes_max))
        await places.enter()
        client = KafkaClient(self, use, memory)
        self._borrowed.add(client)
        try:
            yield client
        finally:
            self._borrowed.discard(client)
            client.end()
            places.leave()

    def stop(self) -> None:
        """Close every connection and lend none any more. Requests on their way raise ApiError."""
        self.stopped = True
        for client in list(self._borrowed):
            client.cut()
        self._close_idle(float("inf"))

    async def close(self) -> None:
        """Stop, and let the transports close."""
        self.stop()
        await asyncio.sleep(0)

    async def connection(self, memory: AnswerMemory) -> tuple[KafkaConnection, bool]:
        """Return a connection, and whether it was used before. Raises ApiError if no gateway can be reached."""
        from admin_api.kafka_connection import KafkaConnection  # a server of no records does without aiokafka

        while self._idle:
            connection, _ = self._idle.pop()
            if connection.is_open:
                connection.use(memory)
                return connection, True
            connection.close()
        for address in self._addresses:
            connection = KafkaConnection(address, self._timeout_s, memory)
            try:
                await connection.open()
            except OSError as error:
                log.debug("gateway not reached", address=str(address), reason=str(error))
                continue
            if not self.stopped:
                return connection, False
            connection.close()
        raise _unreachable()

    def take_back(self, connection: KafkaConnection) -> None:
        """Keep a connection on which nothing is under way for the next borrower."""
        if self.stopped or not connection.is_open or len(self._idle) >= IDLE_MAX:
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((connection, loop.time()))
        if self._idle_timer is None:
            self._idle_timer = loop.call_later(self._idle_s, self._on_idle)

    def _on_idle(self) -> None:
        loop = asyncio.get_running_loop()
        self._idle_timer = None
        self._close_idle(loop.time() - self._idle_s)
        if self._idle:
            self._idle_timer = loop.call_at(self._idle[0][1] + self._idle_s, self._on_idle)

    def _close_idle(self, before: float) -> None:
        while self._idle and self._idle[0][1] <= before:
            self._idle.popleft()[0].close()
        if not self._idle and self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None


class KafkaClient:
    """One borrower's client. It connects with its first request, and again after a failure."""

    def __init__(self, clients: KafkaClients, use: Use, memory: AnswerMemory) -> None:
        self.use = use
        self._clients = clients
        self._memory = memory
        self._connection: KafkaConnection | None = None
        self._under_way = False

    @property
    def is_connected(self) -> bool:
        return self._connection is not None and self._connection.is_open

    @property
    def wait_ms(self) -> int:
        """The longest time for which a gateway may hold a request back, in milliseconds."""
        return self._clients.wait_ms

    @property
    def is_stopped(self) -> bool:
        """Whether the server stops, and no request can succeed any more."""
        return self._clients.stopped

    async def connect(self) -> None:
        """Connect, if there is no connection. Raises ApiError if no gateway can be reached."""
        if not self.is_connected:
            self.cut()
            self._connection, _ = await self._clients.connection(self._memory)

    async def send(self, request: Any, *, repeatable: bool) -> Any:
        """Send one of aiokafka's requests and return its answer; its error codes are values.

        A repeatable request is sent again if an idle connection turns out to be dead.

        Raises:
            ApiError: no gateway can be reached, or it does not answer in time.
            AnswerTooLargeError: the answer exceeds ANSWER_BYTES_MAX.
        """
        self.forget()
        was_used = False
        if not self.is_connected:
            self.cut()
            self._connection, was_used = await self._clients.connection(self._memory)
        try:
            return await self._exchange(request)
        except AnswerTooLargeError:
            self.cut()
            raise
        except TimeoutError:
            self.cut()
            raise errors.ApiError(503, 50003, "The gateway did not answer in time.") from None
        except ConnectionError as error:
            self.cut()
            if not (was_used and repeatable) or self._clients.stopped:
                raise _unreachable() from error
        return await self.send(request, repeatable=True)

    async def _exchange(self, request: Any) -> Any:
        assert self._connection is not None
        self._under_way = True
        answer = await self._connection.exchange(request)
        self._under_way = False
        return answer

    def forget(self) -> None:
        """Release the memory of the last answer, which the caller no longer uses."""
        if self._connection is not None:
            self._connection.release()

    def end(self) -> None:
        """Give the connection back, or close it if an answer is still to come on it."""
        connection = self._connection
        if self._under_way or connection is None:
            self.cut()
            return
        self.forget()
        self._connection = None
        self._clients.take_back(connection)

    def cut(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._under_way = False


class _Places:
    """The places of one use's clients, with a bounded queue of borrowers."""

    def __init__(self, use: Use) -> None:
        self._use = use
        self._free = asyncio.Semaphore(use.clients_max)
        self._waiting = 0

    async def enter(self) -> None:
        if not self._free.locked():
            await self._free.acquire()
            return
        if self._waiting >= self._use.waiting_max:
            raise _too_many(self._use)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._use.wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise _too_many(self._use) from None
        finally:
            self._waiting -= 1

    def leave(self) -> None:
        self._free.release()


def _unreachable() -> errors.ApiError:
    return errors.ApiError(503, 50302, "The gateway cannot be reached.")


def _too_many(use: Use) -> errors.ApiError:
    code = 42901 if use.status == 429 else 50003
    message = f"Too many requests of this kind at once ({use.name}: {use.clients_max})."
    return errors.ApiError(use.status, code, message, {"retry-after": str(use.retry_after_s)})
