"""Clients of the gateway: a bounded pool of connections of protocol_lib, for reading and writing records.

Every gateway serves every partition. A connection goes to the setting's addresses, and never to those that a gateway
advertises. It asks for no metadata, which could create a topic, and joins no group.

    async with clients.borrow(BROWSE) as client:
        fetched = await client.fetch("orders", {0: 15}, bytes_max=1 << 20)

A connection belongs to one borrower at a time and has one request on its way. Idle ones close after IDLE_S, and then
the pool costs nothing. Each use has a limit of clients and of the memory of their answers. A large answer counts from
before it is read until the next request, or until the borrower calls `forget` or returns the client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from service_chassis import logs
from service_chassis.address import Address, is_loopback
from service_chassis.tls import TlsError, TlsFiles, client_context

from admin_api import errors
from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerMemory, AnswerTooLargeError
from admin_api.idle import Idle

if TYPE_CHECKING:
    from protocol_lib.client import Connection, FetchedPartition, ProducedPartition, SaslMechanism
    from protocol_lib.records.header import BatchHeader

CLIENT_ID = "admin-api"
#: Seconds for which an idle connection is kept for the next borrower, and the number of those kept.
IDLE_S = 10.0
IDLE_MAX = 8
#: Seconds for which a gateway may hold a fetch back until there are records.
_WAIT_S = 1.0

log = logs.get(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GatewayLogin:
    """The user of this service at the gateways."""

    mechanism: str
    user: str
    password: str = field(repr=False)

    def sasl(self) -> SaslMechanism:
        from protocol_lib.client import SaslPlain, SaslScram, ScramMechanism

        scram = {each.mechanism_name: each for each in ScramMechanism}
        if self.mechanism in scram:
            return SaslScram(self.user, self.password, scram[self.mechanism])
        return SaslPlain(self.user, self.password)


@dataclass(frozen=True, slots=True)
class Use:
    """One purpose of clients, with its limits."""

    name: str
    #: Clients at once.
    clients_max: int
    #: Bytes of their answers at once; at least one answer of the largest size.
    bytes_max: int = ANSWER_BYTES_MAX
    #: Borrowers that wait for a client, and for how many seconds; more are refused.
    waiting_max: int = 0
    wait_s: float = 0.0
    #: The answer to a borrower that is refused.
    status: int = 503
    retry_after_s: int = 1


BROWSE = Use("browse", 4, 4 * ANSWER_BYTES_MAX, waiting_max=64, wait_s=3.0)
PRODUCE = Use("produce", 4, waiting_max=64, wait_s=3.0)
#: Answers of one large record, each until its client has received it; they connect to no gateway.
LARGE_RECORD = Use("large record", 3, waiting_max=4, wait_s=3.0)
DOWNLOAD = Use("download", 3, 4 * ANSWER_BYTES_MAX, status=429, retry_after_s=10)
TAIL = Use("tail", 16, 2 * ANSWER_BYTES_MAX, status=429, retry_after_s=10)


class KafkaClients:
    """The pool. The event loop owns it; its owner calls `stop`, which ends every request, and `close`."""

    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        timeout_s: float,
        idle_s: float = IDLE_S,
        login: GatewayLogin | None = None,
        tls: TlsFiles | None = None,
    ) -> None:
        """Connect nothing yet. `login`: the user of the gateways' listener, if that asks for one. `tls`: its files."""
        self._login = login
        self.addresses = tuple(addresses)
        self._tls = tls
        self._timeout_s = timeout_s
        #: Whether `stop` was called: nothing is lent any more.
        self.stopped = False
        self._idle: Idle[_Line] = Idle(_Line.close, count_max=IDLE_MAX, idle_s=idle_s)
        self._borrowed: set[KafkaClient] = set()
        #: Functions that end a stream of records.
        self._ends: set[Callable[[], None]] = set()
        self._places: dict[str, _Places] = {}
        self._memories: dict[str, AnswerMemory] = {}

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
            raise unreachable()
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

    @contextlib.contextmanager
    def at_stop(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` if the server stops within a block."""
        self._ends.add(end)
        try:
            yield
        finally:
            self._ends.discard(end)

    def stop(self) -> None:
        """Close every connection and lend none any more. Requests on their way raise ApiError."""
        self.stopped = True
        for end in list(self._ends):
            end()
        for client in list(self._borrowed):
            client.cut()
        self._idle.close()

    async def close(self) -> None:
        """Stop, and let the transports close."""
        self.stop()
        await asyncio.sleep(0)

    async def line(self, memory: AnswerMemory) -> tuple[_Line, bool]:
        """Return a connection, and whether it was used before. Raises ApiError if no gateway can be reached."""
        while (idle := self._idle.take()) is not None:
            if idle.is_open:
                idle.memory = memory
                return idle, True
            idle.close()
        from protocol_lib.client import ClientSettings, Connection, KafkaError  # no reader, no memory for a client

        timeout_ms = max(1, int(self._timeout_s * 1000))
        try:
            tls = None if self._tls is None else client_context(self._tls)  # the files may have changed
        except TlsError as error:
            log.error("no connection to a gateway", reason=str(error))
            raise unreachable() from error
        if tls is not None and all(is_loopback(address.host) for address in self.addresses):
            tls.check_hostname = False
        settings = ClientSettings(
            bootstrap_servers=[str(address) for address in self.addresses],
            tls=tls,
            client_id=CLIENT_ID,
            connect_timeout_ms=timeout_ms,
            request_timeout_ms=timeout_ms,
            response_bytes_max=ANSWER_BYTES_MAX,
            sasl=None if self._login is None else self._login.sasl(),
        )
        for address in settings.addresses:
            line = _Line(memory)
            try:
                line.connection = await Connection.open(address, settings, room=line.reserve)
            except KafkaError as error:
                log.debug("gateway not reached", address=str(address), reason=str(error))
                continue
            if not self.stopped:
                return line, False
            line.close()
        raise unreachable()

    def take_back(self, line: _Line) -> None:
        """Keep a connection on which nothing is under way for the next borrower."""
        if self.stopped or not line.is_open:
            line.close()
        else:
            self._idle.put(line)


class _Line:
    """A connection, and the memory of its last answer."""

    connection: Connection

    def __init__(self, memory: AnswerMemory) -> None:
        self.memory = memory
        self._reserved = 0

    @property
    def is_open(self) -> bool:
        return self.connection.is_open

    async def reserve(self, size: int) -> None:
        await self.memory.reserve(size)  # mutant: answer-memory-reserved
        self._reserved += size

    def release(self) -> None:
        """Release the memory of the last answer."""
        size, self._reserved = self._reserved, 0
        self.memory.release(size)

    def close(self) -> None:
        self.connection.close()
        self.release()


class KafkaClient:
    """One borrower's client. It connects with its first request, and again after a failure."""

    def __init__(self, clients: KafkaClients, use: Use, memory: AnswerMemory) -> None:
        self.use = use
        self._clients = clients
        self._memory = memory
        self._line: _Line | None = None
        #: A function that raises ApiError once the borrower may not read any more: called before an answer is used.
        self.may_read: Callable[[], Awaitable[None]] | None = None

    @property
    def is_connected(self) -> bool:
        return self._line is not None and self._line.is_open

    @property
    def wait_ms(self) -> int:
        """The longest time for which a gateway may hold a request back, in milliseconds."""
        return self._clients.wait_ms

    @property
    def is_stopped(self) -> bool:
        """Whether the server stops, and no request can succeed any more."""
        return self._clients.stopped

    async def connect(self) -> bool:
        """Connect if need be. Return whether the connection was used before. Raises ApiError if none can be made."""
        if self.is_connected:
            return True
        self.cut()
        self._line, was_used = await self._clients.line(self._memory)
        return was_used

    async def fetch(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        bytes_max: int,
        read_committed: bool = False,
        wait_ms: int = 0,
    ) -> list[FetchedPartition]:
        """Return the answer about each partition from its offset on; error codes in it are values.

        `bytes_max` bounds all records together, but for the first batch, which comes whole.

        Raises:
            ApiError: no gateway can be reached, it does not answer in time, or the borrower may not read.
            AnswerTooLargeError: the answer exceeds ANSWER_BYTES_MAX.
        """
        from protocol_lib.client import fetch

        answers = await self._ask(
            lambda connection: fetch(
                connection, topic, positions, bytes_max=bytes_max, read_committed=read_committed, wait_ms=wait_ms
            )
        )
        if self.may_read is not None:
            await self.may_read()  # mutant: rest-stream-rights
        return answers

    async def find_large_batch(self, topic: str, partition: int, offset: int) -> BatchHeader | None:
        """Return the header of the batch that holds an offset if it exceeds ANSWER_BYTES_MAX, else None.

        Raises:
            ApiError: no gateway can be reached, or it does not answer in time.
        """
        from protocol_lib.client import find_large_batch

        found = await self._ask(lambda connection: find_large_batch(connection, topic, partition, offset))
        if found is not None:
            self.cut()
        return found

    async def new_producer_id(self) -> tuple[int, int]:
        """Return a producer id and its epoch. Raises ApiError if a gateway cannot be reached or gives none."""
        from protocol_lib.client import new_producer_id

        return await self._ask(new_producer_id)

    async def produce(self, topic: str, batches: Mapping[int, bytes], *, timeout_ms: int) -> list[ProducedPartition]:
        """Append a batch to each partition; error codes in the answers are values.

        Batches have a producer's sequences: they are sent again if an idle connection turns out to be dead.

        Raises:
            ApiError: no gateway can be reached, or it does not answer in time. Batches may be stored.
        """
        from protocol_lib.client import produce

        return await self._ask(lambda connection: produce(connection, topic, batches, timeout_ms=timeout_ms))

    async def _ask(self, request: Callable[[Connection], Awaitable[T]]) -> T:
        """Make a request, once more if an idle connection turns out to be dead."""
        from protocol_lib.client import BrokerError, KafkaError, ResponseTimeoutError, ResponseTooLargeError

        self.forget()
        while True:
            was_used = await self.connect()
            assert self._line is not None
            try:
                return await request(self._line.connection)
            except BrokerError as error:
                errors.check(error.code)
                raise
            except BaseException as error:
                self.cut()  # an answer may still come
                if isinstance(error, ResponseTooLargeError):
                    raise AnswerTooLargeError(f"an answer of more than {ANSWER_BYTES_MAX} bytes") from error
                if isinstance(error, ResponseTimeoutError):
                    raise errors.ApiError(503, 50003, "The gateway did not answer in time.") from error
                if not isinstance(error, KafkaError):
                    raise
                if not was_used or self._clients.stopped:
                    raise unreachable() from error
                # Else it was idle, and may have been dead.

    def forget(self) -> None:
        """Release the memory of the last answer, which the caller no longer uses."""
        if self._line is not None:
            self._line.release()

    def end(self) -> None:
        """Give the connection back."""
        line, self._line = self._line, None
        if line is not None:
            line.release()
            self._clients.take_back(line)

    def cut(self) -> None:
        """Close the connection."""
        if self._line is not None:
            self._line.close()
        self._line = None


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


def unreachable() -> errors.ApiError:
    return errors.ApiError(503, 50302, "The gateway cannot be reached.")


def _too_many(use: Use) -> errors.ApiError:
    code = 42901 if use.status == 429 else 50003
    message = f"Too many requests of this kind at once ({use.name}: {use.clients_max})."
    return errors.ApiError(use.status, code, message, {"retry-after": str(use.retry_after_s)})
