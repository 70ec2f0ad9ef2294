"""The Cluster service: the cluster's id, and the gateways that hold a live lease."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from broker_contract import cluster_pb2 as pb
from service_chassis import logs as service_logs

from storage_svc.topics.broker_settings import StaticValue
from storage_svc.topics.leases import LeasedListener, Leases

log = service_logs.get(__name__)


class ClusterService:
    def __init__(
        self,
        cluster_id: str,
        leases: Leases,
        register_configs: Callable[[int, Mapping[str, StaticValue]], Mapping[str, str]],
        topic_deletions: Callable[[], int],
        add_sent: Callable[[Mapping[str, int]], None],
        clock_ms: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._cluster_id = cluster_id
        self._leases = leases
        self._register_configs = register_configs
        self._topic_deletions = topic_deletions
        self._add_sent = add_sent
        self._clock_ms = clock_ms

    async def register_gateway(self, request: pb.RegisterGatewayRequest) -> pb.RegisterGatewayResponse:
        """Register a gateway, or renew its lease.

        Raises:
            LeaseRefusedError: the request is wrong, which is a bug of the gateway.
            CatalogError: the catalog cannot be written, as on a full disk.
        """
        listeners = tuple(LeasedListener(each.name, each.host, each.port) for each in request.listeners)
        gateway = await self._leases.register(request.name, listeners, request.lease_ms, self._clock_ms())
        self._add_sent(request.sent_bytes)
        altered = self._register_configs(gateway.node_id, {each.name: _static(each) for each in request.configs})
        return pb.RegisterGatewayResponse(
            node_id=gateway.node_id,
            cluster_id=self._cluster_id,
            gateways=self._live_gateways(),
            altered_configs=altered,
            topic_deletions=self._topic_deletions(),
        )

    async def remove_gateway(self, request: pb.RemoveGatewayRequest) -> pb.RemoveGatewayResponse:
        self._leases.remove(request.name)
        log.info("gateway left", gateway=request.name)
        return pb.RemoveGatewayResponse()

    async def describe_cluster(self, request: pb.DescribeClusterRequest) -> pb.DescribeClusterResponse:  # noqa: ARG002
        return pb.DescribeClusterResponse(cluster_id=self._cluster_id, gateways=self._live_gateways())

    def _live_gateways(self) -> list[pb.Gateway]:
        return [
            pb.Gateway(
                node_id=gateway.node_id,
                name=gateway.name,
                listeners=[pb.Listener(name=each.name, host=each.host, port=each.port) for each in gateway.listeners],
            )
            for gateway in self._leases.live(self._clock_ms())
        ]


def _static(config: pb.GatewayConfig) -> StaticValue:
    return StaticValue(
        config.value if config.HasField("value") else None,
        config.default_value if config.HasField("default_value") else None,
        config.is_set,
        config.documentation,
    )
