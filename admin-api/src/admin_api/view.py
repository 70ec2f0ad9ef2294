"""The input of an endpoint under /v3/clusters/{cluster_id}: the cluster as it is now, calls to storage, links.

Gateways are the brokers. Gateways that advertise one address (processes that share a port, a load balancer) are one
broker, under the lowest of their node ids. A setting chooses the listener whose address is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated
from urllib.parse import unquote

from broker_contract import cluster_pb2
from broker_contract.leadership import NO_NODE, group_coordinator, partition_leaders
from fastapi import Depends, Path, Request
from pydantic import AfterValidator

from admin_api import errors
from admin_api.links import Links
from admin_api.needs import Calls, calls_of
from admin_api.schemas.resources import Relationship
from admin_api.settings import AdminSettings
from admin_api.storage import StorageCalls

#: Names the one cluster in a path. Ids of clusters have 22 characters.
ONLY_CLUSTER = "-"
#: The largest of Kafka's ids: int32.
_ID_MAX = 2**31 - 1

# The middleware leaves %2F and %25 in a path, so that an id with a slash is one segment; here they are decoded.
# A name may be as long as a URL: h11 takes 64 KiB.
_Text = AfterValidator(unquote)
TopicName = Annotated[str, Path(), _Text]
ConfigName = Annotated[str, Path(), _Text]
GroupId = Annotated[str, Path(), _Text]
ConsumerId = Annotated[str, Path(), _Text]
UserName = Annotated[str, Path(), _Text]
SubjectName = Annotated[str, Path(), _Text]
TransactionalId = Annotated[str, Path(), _Text]
ResourceName = Annotated[str, Path(description="A broker's is its node id, or - for all brokers."), _Text]
PartitionId = Annotated[int, Path(ge=0, le=_ID_MAX)]
BrokerId = Annotated[int, Path(ge=0, le=_ID_MAX)]


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A broker as clients know it."""

    broker_id: int
    host: str
    port: int


def brokers_of(gateways: Iterable[cluster_pb2.Gateway], listener_name: str) -> tuple[BrokerAddress, ...]:
    """Return the live brokers by id, as the named listener (empty: each gateway's first) advertises them."""
    by_address: dict[tuple[str, int], BrokerAddress] = {}
    for gateway in sorted(gateways, key=lambda gateway: gateway.node_id):
        for listener in gateway.listeners:
            if not listener_name or listener.name.upper() == listener_name.upper():
                broker = BrokerAddress(gateway.node_id, listener.host, listener.port)
                by_address.setdefault((listener.host, listener.port), broker)
                break
    return tuple(by_address.values())


class View:
    """The cluster named in the URL, as it was when the request began."""

    __slots__ = ("_node_ids", "brokers", "cluster_id", "links", "storage")

    def __init__(
        self, cluster_id: str, brokers: tuple[BrokerAddress, ...], storage: StorageCalls, links: Links
    ) -> None:
        self.cluster_id = cluster_id
        self.brokers = brokers
        self.storage = storage
        self.links = links
        self._node_ids = [broker.broker_id for broker in brokers]

    def broker(self, broker_id: int) -> BrokerAddress:
        for broker in self.brokers:
            if broker.broker_id == broker_id:
                return broker
        raise errors.not_found(f"Broker {broker_id} cannot be found.")

    def controller(self) -> int:
        """Return the lowest id of the live gateways, NO_NODE if there is none. Any gateway answers admin requests."""
        return min(self._node_ids, default=NO_NODE)

    def leaders(self, topic: str, partition_count: int) -> Sequence[int]:
        """Return the leader of each partition of a topic."""
        return partition_leaders(self._node_ids, topic, partition_count)

    def coordinator(self, group_id: str) -> int:
        return group_coordinator(self._node_ids, group_id)

    def broker_link(self, broker_id: int) -> Relationship | None:
        return None if broker_id == NO_NODE else self.links.related("brokers", broker_id)


def base_url(request: Request) -> str:
    """Return the URL, without a slash at its end, that the paths of links are added to."""
    settings: AdminSettings = request.app.state.settings
    public = settings.admin_public_url.rstrip("/")
    return public + request.scope.get("root_path", "") if public else str(request.base_url).rstrip("/")


async def _current_view(request: Request, calls: Calls) -> View:
    settings: AdminSettings = request.app.state.settings
    cluster = await calls.cluster()
    links = Links(base_url(request), cluster.cluster_id)
    return View(cluster.cluster_id, brokers_of(cluster.gateways, settings.admin_listener), calls, links)


#: The view of an endpoint above a cluster id: the only cluster.
CurrentView = Annotated[View, Depends(_current_view)]


async def _view_of(
    request: Request,
    cluster_id: Annotated[
        str,
        Path(
            description=f"As GET /v3/clusters says, or {ONLY_CLUSTER} for the one cluster of this server.",
            openapi_examples={"the one cluster": {"value": ONLY_CLUSTER}},
        ),
    ],
) -> View:
    view = await _current_view(request, calls_of(request))
    if cluster_id not in (view.cluster_id, ONLY_CLUSTER):
        raise errors.not_found(f"Cluster {cluster_id[:255]} cannot be found.")
    return view


#: The view of an endpoint below a cluster id, which must be the cluster's.
ClusterView = Annotated[View, Depends(_view_of)]
