"""The cluster as one thing to talk to: which broker to ask, a connection to it, and asking again when it was the
wrong one.

A node has up to one connection per purpose, so that a request that waits at the broker (a long poll, a rebalance) does
not hold up the rest: brokers answer each connection in order. A connection is opened when it is first needed, and again
after it has ended.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Collection, Iterable
from enum import Enum
from typing import Any, Final, TypeVar

from protocol_lib.client.backoff import Backoff
from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import (
    BrokerError,
    ClientClosedError,
    ConnectionFailedError,
    KafkaError,
    ResponseTimeoutError,
    broker_error,
    check,
)
from protocol_lib.client.metadata import Metadata, Topic, TopicPartition
from protocol_lib.client.settings import Address, ClientSettings
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse, KeyType
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Result = TypeVar("Result")


class Purpose(Enum):
    """Use of a connection."""

    REQUESTS = "requests"
    FETCH = "fetch"
    COORDINATOR = "coordinator"


_Key = tuple[Address, Purpose]
#: Topics of a Metadata request that will be written later, for those that are wanted then.
_NEWEST: Final = frozenset({""})

#: Codes that are final for an administrator: only producers and consumers wait for a topic to appear.
NOT_THERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})


def means_no_coordinator(fault: KafkaError) -> bool:
    """Return whether the client has to ask for the coordinator again."""
    if isinstance(fault, BrokerError):
        return fault.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return isinstance(fault, ConnectionFailedError | ResponseTimeoutError)


class Cluster:
    """Owns the connections and the metadata of one client. `start` before use, `close` after."""

    def __init__(self, settings: ClientSettings, *, auto_create_topics: bool = False) -> None:
        self.settings = settings
        self.metadata = Metadata()
        #: topics that Metadata requests ask for; None for all of them
        self._wanted: set[str] | None = set()
        self._auto_create_topics = auto_create_topics
        self._connections: dict[_Key, Connection] = {}
        self._opening: dict[_Key, asyncio.Task[Connection]] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None
        #: topics that the refresh under way asks for
        self._asked_for: frozenset[str] | None = _NEWEST
        self._coordinators: dict[tuple[str, KeyType], int] = {}
        self._aging: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[], None]] = []
        self._closed = False

    async def start(self) -> None:
        """Connect to the first bootstrap server that answers; KafkaError when none does in time."""
        await self.retrying(self._refresh_once)
        self._aging = asyncio.create_task(self._refresh_by_age())

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._opening.values(), *self._retiring]
        tasks += [task for task in (self._aging, self._refreshing) if task is not None]
        for task in tasks:
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- metadata

    def on_metadata(self, listener: Callable[[], None]) -> None:
        """Call back after each change of the metadata."""
        self._listeners.append(listener)

    def want(self, topics: Iterable[str] | None) -> bool:
        """Ask for these topics too from now on, for all of them with None. Returns whether any of them is new."""
        if topics is None:
            new, self._wanted = self._wanted is not None, None
            return new
        if self._wanted is None:
            return False
        before = len(self._wanted)
        self._wanted.update(topics)
        return len(self._wanted) > before

    def want_only(self, topics: Iterable[str] | None) -> None:
        """Ask for these topics and no other from now on."""
        self._wanted = None if topics is None else set(topics)

    async def refresh(self) -> None:
        """Ask for the metadata, once for all callers that want it now; KafkaError when no broker answers."""
        await self._outcome(self.refresh_soon())

    def refresh_soon(self) -> asyncio.Task[None]:
        if self._closed:
            raise ClientClosedError("closed")
        earlier = None if self._refreshing is None or self._refreshing.done() else self._refreshing
        # mutant: refresh-of-same-topics
        if self._refreshing is None or earlier is None or self._asked_for not in (_NEWEST, self._wanted):
            self._refreshing = asyncio.create_task(self._refresh_after(earlier))
            self._refreshing.add_done_callback(_retrieve)
            self._asked_for = _NEWEST
        return self._refreshing

    async def topic(self, name: str, *, timeout_ms: int | None = None) -> Topic:
        """Return a topic with its partitions, as soon as the cluster knows it; KafkaError when it does not in time."""
        self.want((name,))

        async def look() -> Topic:
            found = self.metadata.topics.get(name)
            if found is None or not found.partitions:
                await self.refresh()
                found = self.metadata.topics.get(name)
            if found is None:
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
            if not found.partitions:
                check(found.error_code or ErrorCode.LEADER_NOT_AVAILABLE, name)
            return found

        return await self.retrying(look, timeout_ms=timeout_ms)

    async def _refresh_after(self, earlier: asyncio.Task[None] | None) -> None:
        """Refresh after an earlier refresh, which asks for other topics."""
        if earlier is not None:
            try:
                await asyncio.wait({earlier})
            except asyncio.CancelledError:
                earlier.cancel()
                raise
        await self._refresh_once()

    async def _refresh_once(self) -> None:
        wanted = None if self._wanted is None else frozenset(self._wanted)
        self._asked_for = wanted
        topics = None if wanted is None else tuple(MetadataRequestTopic(name=name) for name in sorted(wanted))
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=self._auto_create_topics)
        connection = await self.any_connection()
        response: MetadataResponse = await connection.request(request)
        check(response.error_code, "Metadata")
        self.metadata.update(response, every_topic=topics is None)
        for listener in self._listeners:
            listener()

    async def _refresh_by_age(self) -> None:
        while True:
            await asyncio.sleep(self.settings.metadata_max_age_ms / 1000)
            with contextlib.suppress(KafkaError):
                await self.refresh()

    # -- connections

    async def connection(self, node_id: int, purpose: Purpose = Purpose.REQUESTS) -> Connection:
        """Return an open connection to a node."""
        node = self.metadata.nodes.get(node_id)
        if node is None:
            raise ConnectionFailedError(f"node {node_id} is not in the cluster")
        return await self._connect((node.address, purpose))

    def open_connection(self, node_id: int, purpose: Purpose = Purpose.REQUESTS) -> Connection | None:
        """Return the same without waiting, None when there is none yet."""
        node = self.metadata.nodes.get(node_id)
        return None if node is None else self._usable((node.address, purpose))

    async def any_connection(self) -> Connection:
        """Connect to a node of the cluster, else to a bootstrap server; raises the error of the last one that fails."""
        known = [node.address for node in self.metadata.nodes.values()]
        random.shuffle(known)
        candidates = list(dict.fromkeys([*known, *self.settings.addresses]))
        candidates.sort(key=lambda address: self._usable((address, Purpose.REQUESTS)) is None)
        fault: KafkaError | None = None
        for address in candidates:
            try:
                return await self._connect((address, Purpose.REQUESTS))
            except KafkaError as error:
                fault = error
        assert fault is not None
        raise fault

    async def _connect(self, key: _Key) -> Connection:
        connection = self._usable(key)
        if connection is not None:
            return connection
        if self._closed:
            raise ClientClosedError("closed")
        task = self._opening.get(key)
        if task is None:
            task = self._opening[key] = asyncio.create_task(self._open(key))
            task.add_done_callback(_retrieve)
        return await self._outcome(task)

    async def _outcome(self, shared: asyncio.Task[Result]) -> Result:
        """Return the outcome of a task for which others wait too; it goes on when one of them is cancelled."""
        try:
            return await asyncio.shield(shared)
        except asyncio.CancelledError:
            if shared.cancelled() and self._closed:
                raise ClientClosedError("closed while this waited") from None
            raise

    def _usable(self, key: _Key) -> Connection | None:
        connection = self._connections.get(key)
        if connection is None or not connection.is_open:
            return None
        if connection.should_be_renewed:
            del self._connections[key]
            task = asyncio.create_task(connection.retire())
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
            return None
        return connection

    async def _open(self, key: _Key) -> Connection:
        try:
            connection = await Connection.open(key[0], self.settings)
            self._connections[key] = connection
            return connection
        finally:
            del self._opening[key]

    # -- requests

    async def request(self, node_id: int, message: Any, purpose: Purpose = Purpose.REQUESTS, **options: Any) -> Any:
        """Return a node's answer."""
        return await (await self.connection(node_id, purpose)).request(message, **options)

    async def any_request(self, message: Any, **options: Any) -> Any:
        """Return the answer of any node."""
        return await (await self.any_connection()).request(message, **options)

    async def controller_request(self, message: Any, **options: Any) -> Any:
        """Return the controller's answer; in current clusters any broker passes the request on to it."""
        node_id = self.metadata.controller_id
        if node_id in self.metadata.nodes:
            return await self.request(node_id, message, **options)
        return await self.any_request(message, **options)

    async def coordinator(self, key: str, key_type: KeyType = KeyType.GROUP) -> int:
        """Return the node that coordinates a group or a transactional id; KafkaError when there is none.

        The cluster is asked once."""
        known = self._coordinators.get((key, key_type))
        if known is not None and known in self.metadata.nodes:
            return known
        request = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=(key,))
        response: FindCoordinatorResponse = await self.any_request(request)
        found = response.coordinators[0] if response.coordinators else response
        check(found.error_code, f"coordinator of {key}", found.error_message)
        if found.node_id not in self.metadata.nodes:
            await self.refresh()
        self._coordinators[key, key_type] = found.node_id
        return found.node_id

    def forget_coordinator(self, key: str, key_type: KeyType = KeyType.GROUP) -> None:
        self._coordinators.pop((key, key_type), None)

    async def at_coordinator(
        self, group_id: str, attempt: Callable[[int], Awaitable[Result]], *, timeout_ms: int | None = None
    ) -> Result:
        """Return the result of an attempt with a group's coordinator, tried again as `retrying` does."""

        async def ask() -> Result:
            node_id = await self.coordinator(group_id)
            try:
                return await attempt(node_id)
            except KafkaError as fault:
                if means_no_coordinator(fault):
                    self.forget_coordinator(group_id)
                raise

        return await self.retrying(ask, timeout_ms=timeout_ms)

    async def retrying(
        self,
        attempt: Callable[[], Awaitable[Result]],
        *,
        timeout_ms: int | None = None,
        but: Collection[ErrorCode] = (),
    ) -> Result:
        """Return the result of an attempt, tried again after retriable errors, `but` these, until the time is over
        (`api_timeout_ms`). An error that means that the cluster has changed refreshes the metadata first."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self.settings)
        timeout_s = (self.settings.api_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        deadline = loop.time() + timeout_s
        while True:
            try:
                return await attempt()
            except KafkaError as fault:
                delay = backoff.next_delay()
                final = isinstance(fault, BrokerError) and fault.code in but
                if final or not fault.retriable or self._closed or loop.time() + delay > deadline:
                    raise
                await asyncio.sleep(delay)
                await self._learn_from(fault)

    async def _learn_from(self, fault: KafkaError) -> None:
        stale = isinstance(fault, ConnectionFailedError) or (
            isinstance(fault, BrokerError)
            and (fault.code.means_stale_metadata or fault.code is ErrorCode.NOT_CONTROLLER)
        )
        if stale and self.metadata.nodes:
            with contextlib.suppress(KafkaError):
                await self.refresh()

    def leader(self, topic_partition: TopicPartition) -> int:
        """Return the node that leads a partition; raises a retriable error when no leader is known."""
        node_id = self.metadata.leader(topic_partition)
        if node_id is None:
            raise broker_error(ErrorCode.LEADER_NOT_AVAILABLE, str(topic_partition))
        return node_id


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark the exception as retrieved: every waiter has already received it."""
    if not task.cancelled():
        task.exception()
