"""Producers, gateways and health over gRPC, and that every method of the contract is served."""

from __future__ import annotations

from pathlib import Path

import pytest
from broker_contract import cluster_pb2 as cluster
from broker_contract import groups_pb2 as groups
from broker_contract import producers_pb2 as producers
from broker_contract import topics_pb2 as topics
from broker_contract.stubs import ClusterStub
from broker_contract.version import CONTRACT_VERSION
from grpc_health.v1 import health_pb2
from protocol_lib.errors import ErrorCode
from service_chassis import rpc
from service_chassis.grpc_status import RpcError, Status

from tests.unit.storage_svc.rpc.control_peer import Peer

E = ErrorCode


async def test_every_producer_gets_another_id(peer: Peer) -> None:
    async def init(producer_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        request = producers.InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        answer = await peer.producers.InitProducerId(request)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    assert [await init() for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
    assert await init(1, 0) == (0, 3, 0)
    assert await init(1, 32_766) == (0, 4, 0)
    assert await init(123_456, 0) == (0, 5, 0)
    assert await init(-2, -2) == (0, 6, 0)
    assert await init(1, -1) == (E.INVALID_REQUEST, -1, -1)
    assert await init(-1, 0) == (E.INVALID_REQUEST, -1, -1)


async def test_more_producer_ids_than_a_block(peer: Peer) -> None:
    service = peer.storage.producers
    request = producers.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
    given = [(await service.init_producer_id(request)).producer_id for _ in range(2500)]
    assert given == list(range(2500))


async def test_gateways_register_renew_and_leave(peer: Peer) -> None:
    listener = cluster.Listener(name="EXTERNAL", host="localhost", port=9092)
    request = cluster.RegisterGatewayRequest(name="gw", listeners=[listener], lease_ms=60_000, sent_bytes={"t": 7})
    first = await peer.cluster.RegisterGateway(request)
    again = await peer.cluster.RegisterGateway(request)
    assert (first.node_id, again.node_id) == (1, 1)
    assert len(first.cluster_id) == 22
    assert peer.storage.administration.samples._sent == {"t": 14}
    seen = await peer.cluster.DescribeCluster(cluster.DescribeClusterRequest())
    assert seen.cluster_id == first.cluster_id
    assert list(seen.gateways) == [cluster.Gateway(node_id=1, name="gw", listeners=[listener])]
    await peer.cluster.RemoveGateway(cluster.RemoveGatewayRequest(name="gw"))
    assert list((await peer.cluster.DescribeCluster(cluster.DescribeClusterRequest())).gateways) == []


async def test_a_registration_that_makes_no_sense_fails_the_call(peer: Peer) -> None:
    with pytest.raises(RpcError) as caught:
        await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="", lease_ms=3000))
    assert caught.value.status is Status.INTERNAL
    assert "LeaseRefusedError: a gateway name has 1 to 255 characters" in (caught.value.details)


async def test_health(peer: Peer) -> None:
    check = peer.channel.unary(
        "/grpc.health.v1.Health/Check",
        health_pb2.HealthCheckRequest.SerializeToString,
        health_pb2.HealthCheckResponse.FromString,
    )
    answer = await check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    peer.server.refuse()
    answer = await check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_every_method_of_the_contract_is_served(peer: Peer) -> None:
    """A method added to a proto and not to its service object fails here, not at a customer's."""
    for module, service in (
        (topics, peer.storage.topics),
        (groups, peer.storage.groups),
        (producers, peer.storage.producers),
        (cluster, peer.storage.cluster),
    ):
        ((_, descriptor),) = module.DESCRIPTOR.services_by_name.items()
        names = {name for name in dir(service) if not name.startswith("_")}
        served = {name.replace("_", "") for name in names}
        methods = {method.name.lower() for method in descriptor.methods}
        if "exchange" in methods:
            methods.remove("exchange")
            methods |= {name.replace("_", "") for name in groups.GroupCall.DESCRIPTOR.fields_by_name} - {"callid"}
        assert methods == served


async def test_a_caller_of_another_release_is_refused(peer: Peer, tmp_path: Path) -> None:
    request = cluster.DescribeClusterRequest()
    async with rpc.channel(f"unix:{tmp_path}/storage.sock", CONTRACT_VERSION + "0") as channel:
        with pytest.raises(RpcError) as caught:
            await ClusterStub(channel).DescribeCluster(request, timeout=60)
    assert caught.value.status is Status.FAILED_PRECONDITION
    assert f"with contract {CONTRACT_VERSION}, the caller" in (caught.value.details)
