"""This gateway's lease in the cluster, and the live gateways as Kafka clients see them: as brokers.

Storage assigns each gateway name a permanent node id, and lists the gateways with a live lease. A gateway renews its
lease three times in its length and reads the list each time. So a gateway that died leaves Metadata soon after its
lease ends. This gateway itself is always listed. Gateways that advertise the same address on a listener (a load
balancer, a Kubernetes Service, processes of one port) are one broker there, with the lowest of their node ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker_contract import cluster_pb2
from service_chassis import logs
from service_chassis.address import Listener

from gateway_svc.errors import StorageUnavailable
from gateway_svc.storage.protocols import ClusterCalls

#: Greatest age in seconds of the list in Metadata's answers. A client that has just lost a gateway asks within
#: milliseconds; an older list would send it back to that gateway for a second.
LIST_AGE_MAX_S = 0.01
#: Seconds between two tries of a gateway to register, or to renew.
RETRY_S = 0.2

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Broker:
    """A live gateway as clients of one listener see it."""

    node_id: int
    host: str
    port: int


class SentBytes(Protocol):
    """The bytes of records that this gateway has sent to clients, by topic."""

    def take_sent(self) -> Mapping[str, int]:
        """Return those since the last call."""
        ...

    def give_back_sent(self, taken: Mapping[str, int]) -> None:
        """Return them again at a later call."""
        ...


class GatewayLease:
    """The gateway's lease. Its app owns it; handlers read `brokers`, `cluster_id` and `node_id`."""

    def __init__(
        self,
        cluster: ClusterCalls,
        name: str,
        lease_ms: int,
        configs: Sequence[cluster_pb2.GatewayConfig] = (),
        on_altered: Callable[[Mapping[str, str]], None] = lambda _: None,
        on_deletions: Callable[[int], None] = lambda _: None,
        sent: SentBytes | None = None,
    ) -> None:
        """Prepare the lease. `on_altered` gets the altered configs of this gateway, which registers `configs`.

        `on_deletions` gets the number of topics that storage has deleted, at each renewal, which sends `sent`.
        """
        self._sent = sent
        self._cluster = cluster
        self._configs = configs
        self._on_altered = on_altered
        self._on_deletions = on_deletions
        self._name = name
        self._lease_ms = lease_ms
        self._listeners: tuple[Listener, ...] = ()
        self._by_listener: dict[str, tuple[Broker, ...]] = {}
        self._listed_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None
        self.node_id = -1
        self.cluster_id = ""
        #: Whether the last renewal reached storage.
        self.registered = False

    async def start(self, listeners: Sequence[Listener]) -> None:
        """Wait for storage, register, and renew the lease until `stop`."""
        self._listeners = tuple(listeners)
        while not await self._renew():  # noqa: ASYNC110 (no event says that storage is there)
            await asyncio.sleep(RETRY_S)
        self._renewing = asyncio.create_task(self._keep(), name="lease")

    async def stop(self) -> None:
        """End the lease at once, so that no client is sent here any more."""
        for task in (self._renewing, self._reading):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})
        if self.registered:
            self.registered = False
            try:
                await self._cluster.remove_gateway(cluster_pb2.RemoveGatewayRequest(name=self._name))
            except StorageUnavailable as error:
                log.warning("lease not removed", reason=str(error))

    async def brokers(self, listener: str) -> tuple[Broker, ...]:
        """Return the live brokers by node id, as advertised on a listener; never none."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._listed_at > LIST_AGE_MAX_S:
            if self._reading is None or self._reading.done():
                self._reading = loop.create_task(self._read(), name="cluster description")
            await asyncio.wait({self._reading})
        return self._by_listener[listener]

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._lease_ms / 3000)
            if not await self._renew():
                await asyncio.sleep(RETRY_S)

    async def _renew(self) -> bool:
        advertised = [
            cluster_pb2.Listener(name=each.name, host=each.address.host, port=each.address.port)
            for each in self._listeners
        ]
        request = cluster_pb2.RegisterGatewayRequest(
            name=self._name, listeners=advertised, lease_ms=self._lease_ms, configs=self._configs
        )
        if self._sent is not None:
            request.sent_bytes.update(self._sent.take_sent())
        try:
            answer = await self._cluster.register_gateway(request)
        except StorageUnavailable as error:
            if self._sent is not None:
                self._sent.give_back_sent(request.sent_bytes)
            if self.registered or self.node_id < 0:
                log.warning("lease not renewed", reason=str(error))
            self.registered = False
            return False
        if self.node_id != answer.node_id:
            log.info("registered", name=self._name, node_id=answer.node_id, cluster_id=answer.cluster_id)
        self.registered = True
        self.node_id, self.cluster_id = answer.node_id, answer.cluster_id
        self._on_altered(dict(answer.altered_configs))
        self._on_deletions(answer.topic_deletions)
        self._list(answer.gateways)
        return True

    async def refresh(self) -> None:
        """Get the alterations of configs that storage has just made."""
        await self._renew()

    async def _read(self) -> None:
        """Read the list of live gateways; without storage the last list stays."""
        try:
            answer = await self._cluster.describe_cluster(cluster_pb2.DescribeClusterRequest())
        except StorageUnavailable:
            if self._by_listener:
                return
            answer = cluster_pb2.DescribeClusterResponse()
        self._list(answer.gateways)

    def _list(self, gateways: Sequence[cluster_pb2.Gateway]) -> None:
        self._listed_at = asyncio.get_running_loop().time()
        self._by_listener = {own.name: self._listed(own, gateways) for own in self._listeners}

    def _listed(self, own: Listener, gateways: Sequence[cluster_pb2.Gateway]) -> tuple[Broker, ...]:
        by_address = {(own.address.host, own.address.port): self.node_id}
        for gateway in gateways:
            for listener in gateway.listeners:
                if listener.name == own.name:
                    address = (listener.host, listener.port)
                    by_address[address] = min(gateway.node_id, by_address.get(address, gateway.node_id))
        found = [Broker(node_id, host, port) for (host, port), node_id in by_address.items()]
        return tuple(sorted(found, key=lambda broker: broker.node_id))
