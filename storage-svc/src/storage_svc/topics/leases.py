"""The gateways that are alive: leases in memory, names and node ids in the catalog.

A gateway renews its lease by registering again. After a restart no gateway holds one until it has registered. A gateway
in a separate process also keeps a stream open for records. When the last stream of a name ends, its process is gone or
cut off: its lease ends at once, and clients that ask again learn of the others only. Gateways that advertise the same
addresses (a load balancer, a Kubernetes Service, several processes on one port) are one broker to clients: the one with
the lowest node id is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from storage_svc.topics.catalog import Catalog
from storage_svc.topics.change_order import ChangeOrder

#: The longest name of a registration.
NAME_LENGTH_MAX: Final = 255
LISTENERS_MAX: Final = 16
LEASE_MS_MIN: Final = 100
LEASE_MS_MAX: Final = 600_000
#: Names are kept for ever, so that a node id never changes hands; this many is far beyond any real number of gateways.
GATEWAYS_MAX: Final = 10_000


class LeasedListener(NamedTuple):
    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LeasedGateway:
    node_id: int
    name: str
    listeners: tuple[LeasedListener, ...]


class LeaseRefusedError(Exception):
    """The registration is not acceptable, and why."""


class Leases:
    """Owner: the storage service's event loop. Times are of one monotonic clock, in milliseconds.

    A lease is counted from before its node id was stored.
    """

    def __init__(self, catalog: Catalog, node_ids: Mapping[str, int]) -> None:
        """Begin with the node ids that the catalog has, by gateway name."""
        self._catalog = catalog
        self._order = ChangeOrder()
        self._node_ids = dict(node_ids)
        #: name -> (gateway, when its lease ends)
        self._leases: dict[str, tuple[LeasedGateway, int]] = {}
        #: name -> how many streams it has open; several processes of one port share a name
        self._streams: Counter[str] = Counter()

    async def register(
        self, name: str, listeners: tuple[LeasedListener, ...], lease_ms: int, now_ms: int
    ) -> LeasedGateway:
        """Register a gateway, or renew its lease.

        Raises:
            LeaseRefusedError: the registration cannot be accepted.
            CatalogError: a new name cannot be stored.
        """
        if not 0 < len(name) <= NAME_LENGTH_MAX:
            raise LeaseRefusedError(f"a gateway name has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}")
        if len(listeners) > LISTENERS_MAX:
            raise LeaseRefusedError(f"{len(listeners)} listeners are more than {LISTENERS_MAX}")
        if not LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX:
            raise LeaseRefusedError(f"a lease of {lease_ms} ms is not in {LEASE_MS_MIN}..{LEASE_MS_MAX}")
        node_id = self._node_ids.get(name)
        if node_id is None:
            node_id = await self._order.run(("node ids",), partial(self._add, name))
        gateway = LeasedGateway(node_id, name, listeners)
        self._leases[name] = (gateway, now_ms + lease_ms)
        return gateway

    async def _add(self, name: str) -> int:
        """Return the node id of a new name, once it is stored; another process of the name may have asked, too."""
        if (node_id := self._node_ids.get(name)) is not None:
            return node_id
        if len(self._node_ids) >= GATEWAYS_MAX:
            raise LeaseRefusedError(f"{GATEWAYS_MAX} gateway names are in use")
        node_id = self._node_ids[name] = await self._catalog.add_gateway(name)
        return node_id

    def remove(self, name: str) -> None:
        """End the lease of a gateway that stops, unless another process of its name is alive: it has a stream, too."""
        if self._streams[name] <= 1:  # mutant: lease-of-last-stream
            self._leases.pop(name, None)

    def stream_began(self, name: str) -> None:
        self._streams[name] += 1

    def stream_ended(self, name: str) -> None:
        self._streams[name] -= 1
        if self._streams[name] <= 0:
            del self._streams[name]
            self.remove(name)

    def is_known(self, node_id: int) -> bool:
        """Return whether the id belongs to a gateway name, alive or not."""
        return node_id in self._node_ids.values()

    def live(self, now_ms: int) -> list[LeasedGateway]:
        """Return the gateways whose lease runs, by node id, one for each set of advertised addresses."""
        for name in [name for name, (_, end_ms) in self._leases.items() if end_ms <= now_ms]:
            del self._leases[name]
        listed: dict[object, LeasedGateway] = {}
        for gateway, _ in sorted(self._leases.values(), key=lambda lease: lease[0].node_id):
            addresses = frozenset(gateway.listeners) or gateway.node_id
            listed.setdefault(addresses, gateway)
        return list(listed.values())
