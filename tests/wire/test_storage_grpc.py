"""The gateway over gRPC: the same service as in combined mode, and the answers to clients when storage goes and
comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_contract import cluster_pb2, groups_pb2
from broker_contract.data import (
    Append,
    AppendResponse,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    TopicIdPartition,
)
from gateway_svc.app import Gateway, MakeAdmission
from gateway_svc.clients.entrance import lanes_max
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.login import SecurityProtocol
from gateway_svc.settings import GatewaySettings
from gateway_svc.storage.gateway_lease import LIST_AGE_MAX_S
from gateway_svc.storage.grpc import GrpcStorage
from protocol_lib.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from storage_svc.app import Storage, serve
from storage_svc.settings import StorageSettings

from tests.wire.conftest import Running, Wire, batch, produce, produce_request, stopped, until

pytestmark = pytest.mark.event_loops("uvloop")


class RemoteStorage:
    """A storage core with a Unix socket, in this event loop; it goes and comes back on the same data folder."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.address = f"unix:{folder / 'storage.sock'}"
        self.settings = StorageSettings(
            data_dir=folder / "data",
            topics="orders:3,single:1",
            offsets_topic_num_partitions=3,
            stop_deadline_s=1,
            **settings,
        )
        self.core: Storage | None = None

    async def start(self) -> None:
        self.core = await Storage.start(self.settings)
        self.server = await serve(self.core, self.address)

    async def stop(self) -> None:
        if self.core is not None:
            await self.server.stop(0)
            await self.core.stop()
            self.core = None


@pytest.fixture
async def storage(tmp_path: Path) -> AsyncIterator[RemoteStorage]:
    remote = RemoteStorage(tmp_path)
    await remote.start()
    yield remote
    await remote.stop()


@contextlib.asynccontextmanager
async def gateway_of(
    storage: RemoteStorage,
    name: str,
    *,
    admission: MakeAdmission | None = None,
    security: SecurityProtocol | None = None,
    **settings: object,
) -> AsyncIterator[Running]:
    counts = GatewayMetrics()
    chosen = GatewaySettings(
        **{"gateway_name": name, "listeners": "EXTERNAL://localhost:0", "stop_deadline_s": 1, **settings}
    )
    record_lanes = lanes_max(chosen.gateway_record_lanes, sees_files=bool(chosen.gateway_data_dir))
    connection = GrpcStorage.connect(storage.address, name, counts, record_lanes=record_lanes)
    gateway = None
    try:
        given = {} if security is None else {"EXTERNAL": security}
        gateway = await Gateway.start(chosen, connection.storage, counts, admission=admission, security=given)
        await until(lambda: connection.fault() is None)
        assert storage.core is not None
        yield Running(gateway, storage.core, storage.settings.data_dir)
    finally:
        if gateway is not None:
            await stopped(gateway)
        await connection.close()


def fetch_request(topic: str, *, wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 25)
    return FetchRequest(
        max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 25, topics=(FetchTopic(topic=topic, partitions=(partition,)),)
    )


@pytest.mark.parametrize("by_reference", [True, False])
async def test_records_there_and_back(storage: RemoteStorage, by_reference: bool) -> None:
    data_dir = str(storage.settings.data_dir) if by_reference else ""
    async with gateway_of(storage, "one", gateway_data_dir=data_dir) as broker:
        wire = await broker.connect()
        sent = [batch(os.urandom(300_000 + number)) for number in range(10)]
        for records in sent:
            wire.send(0, 7, produce_request("single", records, acks=-1))
        for number in range(10):
            _, response = await wire.receive()
            assert response.responses[0].partition_responses[0].base_offset == number
        fetched = await wire.call(1, 11, fetch_request("single"))
        data = bytes(fetched.responses[0].partitions[0].records)
        assert len(data) == sum(map(len, sent))
        assert data.endswith(sent[-1][16:])
        assert broker.gateway.memory_held == 0


async def test_large_and_small_appends_keep_their_order_whatever_waits(storage: RemoteStorage) -> None:
    async with gateway_of(storage, "one") as broker:

        async def produces(partition: int, sizes: list[int]) -> list[int]:
            wire = await broker.connect()
            for size in sizes:
                wire.send(0, 7, produce_request("orders", batch(os.urandom(size)), partition=partition, acks=1))
            answers = [(await wire.receive())[1] for _ in sizes]
            return [answer.responses[0].partition_responses[0].base_offset for answer in answers]

        large, mixed, small = [900_000] * 12, [900_000, 100, 70_000, 100] * 4, [100] * 12
        offsets = await asyncio.gather(produces(0, large), produces(1, mixed), produces(2, small))
        assert offsets == [[*range(12)], [*range(16)], [*range(12)]]
        assert broker.gateway.memory_held == 0


async def test_offsets_by_timestamp_and_epoch_and_deleting_records(storage: RemoteStorage) -> None:
    async with gateway_of(storage, "one") as broker:
        wire = await broker.connect()
        for value in (b"a", b"b", b"c"):
            await produce(wire, "single", batch(value), acks=-1)
        deletion = DeleteRecordsTopic(name="single", partitions=(DeleteRecordsPartition(partition_index=0, offset=2),))
        deleted = await wire.call(21, 2, DeleteRecordsRequest(topics=(deletion,), timeout_ms=0))
        assert [(each.error_code, each.low_watermark) for each in deleted.topics[0].partitions] == [(0, 2)]
        for timestamp, offset in ((-2, 2), (-1, 3), (0, 2)):
            asked = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            topic = ListOffsetsTopic(name="single", partitions=(asked,))
            listed = await wire.call(2, 7, ListOffsetsRequest(replica_id=-1, topics=(topic,)))
            assert [each.offset for each in listed.topics[0].partitions] == [offset]
        epochs = OffsetForLeaderTopic(
            topic="single", partitions=(OffsetForLeaderPartition(partition=0, leader_epoch=0),)
        )
        ended = await wire.call(23, 3, OffsetForLeaderEpochRequest(topics=(epochs,)))
        assert [(each.leader_epoch, each.end_offset) for each in ended.topics[0].partitions] == [(0, 3)]


async def test_storage_goes_and_comes_back(storage: RemoteStorage) -> None:
    async with gateway_of(storage, "one") as broker:
        wire, parked = await broker.connect(), await broker.connect()
        assert await produce(wire, "single", batch(b"a"), acks=-1) == (0, 0)
        await storage.stop()
        await until(lambda: broker.gateway.metrics.storage_errors["stream"] > 0)
        await asyncio.sleep(0.1)  # the first try to open another stream is over
        # Never sent: clients may simply try again.
        assert await produce(wire, "single", batch(b"b"), acks=-1) == (5, -1)
        # A read waits its time out, so that clients do not spin.
        began = time.monotonic()
        response = await parked.call(1, 11, fetch_request("single", wait_ms=200))
        assert time.monotonic() - began >= 0.199  # uvloop's clock counts whole milliseconds
        assert response.responses[0].partitions[0].error_code == 6
        await storage.start()
        for _ in range(3000):
            error, offset = await produce(wire, "single", batch(b"b"), acks=-1)
            if not error:
                break
            await asyncio.sleep(0.02)
        assert (error, offset) == (0, 1)
        response = await parked.call(1, 11, fetch_request("single", wait_ms=200))
        assert response.responses[0].partitions[0].high_watermark == 2


async def test_control_calls_wait_for_storage(storage: RemoteStorage) -> None:
    async with gateway_of(storage, "one") as broker:
        wire = await broker.connect()
        await storage.stop()
        wire.send(3, 5, MetadataRequest(topics=(MetadataRequestTopic(name="orders"),)))
        wire.send(12, 1, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        await asyncio.sleep(0.2)
        await storage.start()
        _, metadata = await wire.receive()
        assert [(topic.error_code, len(topic.partitions)) for topic in metadata.topics] == [(0, 3)]
        _, heartbeat = await wire.receive()
        assert heartbeat.error_code == 25


async def test_members_outlive_a_restart_of_storage(storage: RemoteStorage) -> None:
    """Every heartbeat and commit gets an answer that a member survives, and the member stays."""
    async with gateway_of(storage, "one") as broker:
        wire = await broker.connect()
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"r")
        joining = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=30_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        joined = await wire.call(11, 3, joining)
        who = {"group_id": "g", "generation_id": joined.generation_id, "member_id": joined.member_id}
        share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")
        assert (await wire.call(14, 3, SyncGroupRequest(assignments=(share,), **who))).error_code == 0
        codes = set()
        committed = 0

        async def live() -> None:
            nonlocal committed
            while True:
                codes.add((await wire.call(12, 3, HeartbeatRequest(**who))).error_code)
                partition = OffsetCommitRequestPartition(
                    partition_index=0, committed_offset=committed + 1, committed_metadata=""
                )
                topic = OffsetCommitRequestTopic(name="orders", partitions=(partition,))
                request = OffsetCommitRequest(
                    group_id="g",
                    generation_id_or_member_epoch=joined.generation_id,
                    member_id=joined.member_id,
                    topics=(topic,),
                )
                error = (await wire.call(8, 7, request)).topics[0].partitions[0].error_code
                codes.add(error)
                committed += not error

        living = asyncio.create_task(live())
        await asyncio.sleep(0.1)
        for _ in range(2):
            await storage.stop()
            await asyncio.sleep(0.1)
            await storage.start()
            before = committed
            for _ in range(6000):
                if committed >= before + 10:
                    break
                await asyncio.sleep(0.01)
            assert committed >= before + 10
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)
        # NONE, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
        assert codes <= {0, 14, 15, 16}
        assert storage.core is not None
        wanted = groups_pb2.FetchOffsetsRequest(groups=[groups_pb2.FetchOffsetsRequest.Group(group_id="g", all=True)])
        (group,) = (await storage.core.groups.fetch_offsets(wanted)).groups
        assert group.offsets[0].offset in (committed, committed + 1)


async def test_what_is_in_flight_when_storage_dies_is_answered(
    storage: RemoteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert storage.core is not None
    monkeypatch.setattr(storage.core.data, "append_at_once", lambda calls: None)  # or it might be done before
    counts = GatewayMetrics()
    connection = GrpcStorage.connect(storage.address, "one", counts)
    records = connection.storage.records
    appended: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
    read: asyncio.Future[ReadResponse] = asyncio.get_running_loop().create_future()
    try:
        await until(lambda: connection.fault() is None)
        parked = ReadRequest(1, "c", 60_000, 1, 1000, 0, False, [ReadPartition(TopicIdPartition("single", 0), 0, 1000)])
        records.read(parked, read.set_result)
        await asyncio.sleep(0.1)
        stopping = asyncio.create_task(storage.server.stop(0))
        append = Append(2, "c", 7, -1, 5000, [TopicIdPartition("single", 0)], [batch(b"x")])
        records.append(append, appended.set_result)
        async with asyncio.timeout(60):
            assert [result.error_code for result in (await read).partitions] == [6]
            assert (await appended).outcomes[0].error_code in (5, 7)
            await stopping
        assert counts.storage_errors["stream"] == 1
    finally:
        await connection.close()


class LeaseClock:
    """The clock by which storage's leases end; it stands still until `go_on`."""

    def __init__(self, storage: RemoteStorage) -> None:
        assert storage.core is not None
        self._leases = storage.core.leases
        self.now_ms = 1000
        storage.core.cluster._clock_ms = lambda: self.now_ms

    async def go_on(self, by_ms: int, lease_ms: int) -> None:
        """Advance the clock, and wait until every gateway has renewed its lease."""
        self.now_ms += by_ms
        await until(lambda: {end for _, end in self._leases._leases.values()} == {self.now_ms + lease_ms})


async def until_listed(wire: Wire, *node_ids: int) -> MetadataResponse:
    """Return the metadata once it names these brokers."""
    async with asyncio.timeout(60):
        while True:
            metadata: MetadataResponse = await wire.call(3, 5, MetadataRequest(topics=None))
            if [each.node_id for each in metadata.brokers] == [*node_ids]:
                return metadata


async def test_metadata_lists_the_live_gateways(storage: RemoteStorage) -> None:
    clock = LeaseClock(storage)
    async with gateway_of(storage, "one", gateway_lease_ms=300) as first:
        wire = await first.connect()
        async with gateway_of(storage, "two", gateway_lease_ms=300) as second:
            ports = {first.address[1], second.address[1]}
            for _ in range(3):
                await clock.go_on(200, lease_ms=300)
            metadata = await until_listed(wire, 1, 2)
            assert {each.port for each in metadata.brokers} == ports
            assert metadata.controller_id == 1
            other_reader, other_writer = await asyncio.open_connection(*second.address)
            other = Wire(other_reader, other_writer)
            same: MetadataResponse = await other.call(3, 5, MetadataRequest(topics=None))
            assert same.topics == metadata.topics
            for key in ("group-a", "group-b", "group-c"):
                found = [await each.call(10, 1, FindCoordinatorRequest(key=key)) for each in (wire, other)]
                assert found[0].node_id == found[1].node_id
                assert found[0].port in ports
            await other.close()
        # An orderly stop ends the lease at once.
        await until_listed(wire, 1)


async def test_a_silent_gateway_vanishes_with_its_lease(storage: RemoteStorage) -> None:
    clock = LeaseClock(storage)
    async with gateway_of(storage, "one") as broker:
        wire = await broker.connect()
        silent = cluster_pb2.RegisterGatewayRequest(
            name="silent", lease_ms=700, listeners=[cluster_pb2.Listener(name="EXTERNAL", host="gone", port=9092)]
        )
        await broker.core.cluster.register_gateway(silent)
        clock.now_ms += 699
        await asyncio.sleep(2 * LIST_AGE_MAX_S)
        metadata = await until_listed(wire, 1, 2)
        assert [each.host for each in metadata.brokers] == ["localhost", "gone"]
        assert {p.leader_id for topic in metadata.topics for p in topic.partitions} == {1, 2}
        clock.now_ms += 1
        metadata = await until_listed(wire, 1)
        assert {p.leader_id for topic in metadata.topics for p in topic.partitions} == {1}


async def test_gateways_of_one_address_are_one_broker(storage: RemoteStorage) -> None:
    advertised = "EXTERNAL://kafka.example.org:9092"
    async with (
        gateway_of(storage, "one", advertised_listeners=advertised),
        gateway_of(storage, "two", advertised_listeners=advertised) as second,
    ):
        wire = await second.connect()
        metadata = await wire.call(3, 5, MetadataRequest(topics=None))
        assert [(each.node_id, each.host, each.port) for each in metadata.brokers] == [(1, "kafka.example.org", 9092)]
        assert {p.leader_id for topic in metadata.topics for p in topic.partitions} == {1}
