"""admin-api as it runs: the storage core with gRPC on a Unix socket, admin-api in front on a TCP port, no doubles.

Both live in one event loop on a separate thread, so that tests are plain functions that use a plain HTTP client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.rules import RULES
from admin_api.settings import AdminSettings
from admin_api.storage import Storage as StorageClient
from broker_contract import cluster_pb2, groups_pb2
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from gateway_svc.app import Gateway
from gateway_svc.settings import GatewaySettings
from millrace.direct import direct_storage
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import address
from service_chassis.http.connections import Connections
from service_chassis.http.server import serving
from service_chassis.listeners import listen
from storage_svc.app import Storage, serve
from storage_svc.settings import StorageSettings
from support.group_calls import answered
from support.loop_thread import LoopThread
from support.schema_server import SchemaServer

#: The clients and the connections of each admin-api of this process, by its URL.
PARTS: dict[str, tuple[KafkaClients, Connections]] = {}
GOLDEN = Path(__file__).parent / "golden"
#: int16 version 1, one topic "flights" with the partitions 0 and 1, no user data.
FLIGHTS_0_AND_1 = bytes.fromhex("0001 00000001 0007 666c6967687473 00000002 00000000 00000001 ffffffff")


def append_batch(loop: LoopThread, core: Storage, topic: str, partition: int, batch: bytes) -> None:
    request = Append(
        correlation_id=1,
        client_id="test",
        version=9,
        acks=-1,
        timeout_ms=10_000,
        partitions=[TopicIdPartition(topic, partition)],
        batches=[batch],
    )

    async def append() -> AppendResponse:
        done: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
        core.data.append(request, done.set_result)
        return await done

    answer = loop.run(append())
    assert [each.error_code for each in answer.outcomes] == [0]


@dataclass
class Stack:
    """Storage and admin-api, and the actions of tests outside of HTTP."""

    loop: LoopThread
    core: Storage
    storage_address: str
    #: The gateway's address, `host:port`.
    kafka: str
    http: httpx.Client
    base_url: str
    #: The parts of admin-api.
    clients: KafkaClients
    connections: Connections
    #: Text of this run -> text in golden files.
    names: dict[str, str] = field(default_factory=dict)

    @functools.cached_property
    def cluster(self) -> str:
        """The path of the cluster."""
        answer = self.http.get("/v3/clusters")
        assert answer.status_code == 200, answer.text
        cluster_id: str = answer.json()["data"][0]["cluster_id"]
        return f"/v3/clusters/{cluster_id}"

    def get(self, path: str, **query: str | int) -> Any:
        """Return the JSON below the cluster's URL; the request must succeed."""
        answer = self.http.get(self.cluster + path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def golden(self, answer: httpx.Response | dict[str, Any]) -> Any:
        """Return an answer with names, as in golden files, in place of the values that differ from run to run."""
        text = json.dumps(answer if isinstance(answer, dict) else answer.json())
        for here, there in ((self.base_url, "http://localhost:8082"), *self.names.items()):
            text = text.replace(here, there)
        return json.loads(text)

    def create_topic(self, name: str, partitions: int = 1, **configs: str) -> None:
        entries = [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()]
        body = {"topic_name": name, "partitions_count": partitions, "configs": entries}
        answer = self.http.post(f"{self.cluster}/topics", json=body)
        assert answer.status_code == 201, answer.text

    def append(self, topic: str, partition: int, count: int) -> None:
        records = [Record(offset, 1_700_000_000_000, None, b"value", ()) for offset in range(count)]
        self.append_batch(topic, partition, build_batch(records))

    def append_batch(self, topic: str, partition: int, batch: bytes) -> None:
        append_batch(self.loop, self.core, topic, partition, batch)

    def register_gateway(self, name: str, *listeners: tuple[str, str, int]) -> int:
        request = cluster_pb2.RegisterGatewayRequest(
            name=name,
            lease_ms=600_000,
            listeners=[cluster_pb2.Listener(name=each, host=host, port=port) for each, host, port in listeners],
        )
        return self.loop.run(self.core.cluster.register_gateway(request)).node_id

    def remove_gateway(self, name: str) -> None:
        self.loop.run(self.core.cluster.remove_gateway(cluster_pb2.RemoveGatewayRequest(name=name)))

    def join(self, group_id: str, client_id: str, assignment: bytes, *, instance_id: str | None = None) -> str:
        """Make a group of one member with these bytes as its assignment; return its member id."""
        joined = self.loop.run(
            self.core.groups.join_group(
                groups_pb2.JoinGroupRequest(
                    group_id=group_id,
                    group_instance_id=instance_id,
                    client_id=client_id,
                    client_host="/127.0.0.1",
                    session_timeout_ms=600_000,
                    rebalance_timeout_ms=600_000,
                    protocol_type="consumer",
                    protocols=[groups_pb2.GroupProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
                )
            )
        )
        assert joined.error_code == 0
        synced = self.loop.run(
            self.core.groups.sync_group(
                groups_pb2.SyncGroupRequest(
                    group_id=group_id,
                    generation_id=joined.generation_id,
                    member_id=joined.member_id,
                    group_instance_id=instance_id,
                    assignments=[
                        groups_pb2.SyncGroupRequest.MemberAssignment(member_id=joined.member_id, assignment=assignment)
                    ],
                )
            )
        )
        assert synced.error_code == 0
        self._generation = joined.generation_id
        return joined.member_id

    def enter(self, group_id: str, client_id: str, topic: str) -> str:
        """Make a group of KIP-848 of one member; return its member id."""
        request = groups_pb2.ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            client_id=client_id,
            client_host="/127.0.0.1",
            rebalance_timeout_ms=600_000,
            subscribed_topic_names=groups_pb2.ConsumerGroupHeartbeatRequest.TopicNames(names=[topic]),
            owned=groups_pb2.ConsumerGroupHeartbeatRequest.Partitions(),
        )
        answer = self.loop.run(answered(self.core.groups.consumer_group_heartbeat, request))
        assert answer.error_code == 0
        return answer.member_id

    def commit(self, group_id: str, offsets: dict[tuple[str, int], int], member_id: str = "") -> None:
        request = groups_pb2.CommitOffsetsRequest(
            group_id=group_id,
            generation_id=self._generation if member_id else -1,
            member_id=member_id,
            retention_time_ms=-1,
            offsets=[
                groups_pb2.CommitOffsetsRequest.Offset(topic=topic, partition=partition, offset=offset, leader_epoch=-1)
                for (topic, partition), offset in offsets.items()
            ],
        )
        answer = self.loop.run(answered(self.core.groups.commit_offsets, request))
        assert set(answer.error_codes) == {0}


@contextlib.asynccontextmanager
async def serving_storage(data_dir: Path, storage_address: str) -> AsyncIterator[Storage]:
    settings = StorageSettings(
        data_dir=data_dir, offsets_topic_num_partitions=3, group_initial_rebalance_delay_ms=0, num_partitions=2
    )
    core = await Storage.start(settings)
    server = await serve(core, storage_address)
    try:
        yield core
    finally:
        await server.stop(1)
        await core.stop()


class _Unlisted:
    """The cluster of a gateway that is listed as a broker nowhere but in its own answers."""

    async def register_gateway(self, _request: cluster_pb2.RegisterGatewayRequest) -> Any:
        return cluster_pb2.RegisterGatewayResponse(node_id=1, cluster_id="unlisted")

    async def remove_gateway(self, _request: cluster_pb2.RemoveGatewayRequest) -> Any:
        return cluster_pb2.RemoveGatewayResponse()

    async def describe_cluster(self, _request: cluster_pb2.DescribeClusterRequest) -> Any:
        return cluster_pb2.DescribeClusterResponse(cluster_id="unlisted")


@contextlib.asynccontextmanager
async def serving_kafka(core: Storage, *, port: int = 0) -> AsyncIterator[str]:
    """Run a gateway that is not listed as a broker; yield its address."""
    settings = GatewaySettings(listeners=f"EXTERNAL://127.0.0.1:{port}", gateway_http="")
    gateway = await Gateway.start(settings, replace(direct_storage(core), cluster=_Unlisted()))
    try:
        yield str(address.Address(*gateway.addresses["EXTERNAL"]))
    finally:
        await gateway.stop()


@contextlib.asynccontextmanager
async def serving_admin(storage_address: str, **settings: Any) -> AsyncIterator[str]:
    """Run admin-api on a free port; yield its URL."""
    # One client makes all requests of a test run.
    given = AdminSettings(storage_address=storage_address, **{"admin_rate_limit": 0, **settings})
    client = StorageClient(given.storage_address, timeout_s=given.admin_storage_timeout_s)
    clients = KafkaClients(given.gateways, timeout_s=given.admin_gateway_timeout_s)
    connections = Connections(RULES)
    sockets = listen(address.parse("127.0.0.1:0"))
    try:
        app = create_app(given, client, clients)
        async with serving(app, sockets, connections, stop_deadline_s=2):
            base_url = f"http://127.0.0.1:{sockets[0].getsockname()[1]}"
            PARTS[base_url] = clients, connections
            yield base_url
            clients.stop()
        app.state.logins.close()
        await app.state.schemas.close()
    finally:
        await clients.close()
        await client.close()


@pytest.fixture(scope="session")
def loop() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def stack(loop: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One stack for all tests: each uses its topics and groups."""
    with running_stack(loop, tmp_path_factory.mktemp("admin")) as found:
        yield found


@contextlib.contextmanager
def running_stack(loop: LoopThread, folder: Path) -> Iterator[Stack]:
    """Run a stack, for tests that change what all others see."""
    opened = contextlib.AsyncExitStack()

    storage_address = f"unix:{folder}/storage.sock"

    async def start() -> tuple[Storage, str, str]:
        core = await opened.enter_async_context(serving_storage(folder / "data", storage_address))
        gateway = await opened.enter_async_context(serving_kafka(core))
        return core, gateway, await opened.enter_async_context(serving_admin(storage_address, admin_gateways=gateway))

    core, kafka, base_url = loop.run(start())
    with httpx.Client(base_url=base_url, timeout=60) as client:
        yield Stack(loop, core, storage_address, kafka, client, base_url, *PARTS[base_url])
    loop.run(opened.aclose())


def until_ready(ready: Callable[[], bool]) -> None:
    """Ask until a probe finds admin-api ready. A busy storage may not answer within the 0.9 s of a probe."""
    deadline = time.monotonic() + 60
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class OwnStorage:
    """A storage of one test, to stop and start again on the same data."""

    def __init__(self, loop: LoopThread, folder: Path) -> None:
        self.address = f"unix:{folder}/storage.sock"
        self._loop = loop
        self._folder = folder
        self._opened = contextlib.AsyncExitStack()

    def start(self) -> None:
        serving = serving_storage(self._folder / "data", self.address)
        self.core = self._loop.run(self._opened.enter_async_context(serving))

    def append(self, topic: str, count: int) -> None:
        records = [Record(offset, 1, None, b"value") for offset in range(count)]
        append_batch(self._loop, self.core, topic, 0, build_batch(records))

    def stop(self) -> None:
        self._loop.run(self._opened.aclose())


@pytest.fixture
def own_storage(loop: LoopThread, tmp_path: Path) -> Iterator[OwnStorage]:
    storage = OwnStorage(loop, tmp_path)
    storage.start()
    yield storage
    storage.stop()


@pytest.fixture
def admin(loop: LoopThread) -> Iterator[Callable[..., httpx.Client]]:
    """Starts further admin-apis: admin(storage_address, **settings) gives a client of one."""
    opened = contextlib.AsyncExitStack()
    clients = contextlib.ExitStack()

    def start(storage_address: str, **settings: Any) -> httpx.Client:
        base_url = loop.run(opened.enter_async_context(serving_admin(storage_address, **settings)))
        return clients.enter_context(httpx.Client(base_url=base_url, timeout=20))

    yield start
    clients.close()
    loop.run(opened.aclose())


@pytest.fixture
def schema_server() -> Iterator[SchemaServer]:
    with SchemaServer() as found:
        yield found


@pytest.fixture
def with_registry(
    stack: Stack, schema_server: SchemaServer, admin: Callable[..., httpx.Client]
) -> Callable[..., httpx.Client]:
    """Starts an admin-api with the registry and further settings."""

    def start(**settings: Any) -> httpx.Client:
        given = {"schema_registry": schema_server.url, "schema_registry_timeout_s": 30.0, **settings}
        return admin(stack.storage_address, admin_gateways=stack.kafka, **given)

    return start
