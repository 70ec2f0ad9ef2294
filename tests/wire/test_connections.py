"""Order of answers, back-pressure, and the cost of hostile or slow clients."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import struct

import pytest
from gateway_svc.clients import relief
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.fetch import FetchResponse
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.metadata import MetadataRequest, MetadataResponse
from protocol_lib.messages.produce import ProduceResponse

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until

MIB = 1024 * 1024


def resident_bytes() -> int:
    gc.collect()
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def only_offset(response: ProduceResponse) -> tuple[int, int]:
    (topic,) = response.responses
    (partition,) = topic.partition_responses
    return partition.error_code, partition.base_offset


async def test_answers_leave_in_request_order(broker: Running) -> None:
    """Appends with every acks, on three partitions, answered at different times, with control requests between them."""
    wire = await broker.connect()
    expected = []
    offsets = [0, 0, 0]
    for number in range(120):
        partition, acks = number % 3, (1, -1, 0, -1)[number % 4]
        correlation_id = wire.send(
            0, 7, produce_request("orders", batch(b"%d" % number), partition=partition, acks=acks)
        )
        if acks:
            expected.append((correlation_id, offsets[partition]))
        offsets[partition] += 1
        if number % 10 == 0:
            heartbeat = HeartbeatRequest(group_id="none", generation_id=0, member_id="m")
            expected.append((wire.send(12, 1, heartbeat), None))
    for correlation_id, offset in expected:
        received_id, response = await wire.receive()
        assert received_id == correlation_id
        if offset is None:
            assert isinstance(response, HeartbeatResponse)
        else:
            assert only_offset(response) == (0, offset)


@pytest.mark.parametrize("version", [7, 9])
async def test_alike_requests_to_several_partitions_are_answered_each_for_itself(broker: Running, version: int) -> None:
    """Sent as one piece, so that they are served as a run; there is no partition 3."""
    wire = await broker.connect()
    assert only_offset(await wire.call(0, version, produce_request("orders", batch(b"first"), acks=-1))) == (0, 0)
    offsets, expected = [1, 0, 0], []
    for number in range(200):
        partition = number % 4
        sent = wire.send(0, version, produce_request("orders", batch(b"%d" % number), partition=partition, acks=-1))
        if partition == 3:
            expected.append((sent, (3, -1)))
        else:
            expected.append((sent, (0, offsets[partition])))
            offsets[partition] += 1
    for correlation_id, outcome in expected:
        received_id, response = await wire.receive()
        assert (received_id, only_offset(response)) == (correlation_id, outcome)
    assert [broker.core.logs.logs["orders", partition].high_watermark for partition in range(3)] == offsets
    assert broker.gateway.memory_held == 0


async def test_a_pipelined_request_sees_what_those_before_it_did(broker: Running) -> None:
    wire = await broker.connect()
    new = CreatableTopic(name="fresh", num_partitions=1, replication_factor=1, assignments=(), configs=())
    wire.send(19, 4, CreateTopicsRequest(topics=(new,)))
    wire.send(0, 7, produce_request("fresh", batch(b"a", b"b"), acks=-1))
    wire.send(1, 4, fetch_request("fresh", 0))
    _, created = await wire.receive()
    assert [topic.error_code for topic in created.topics] == [0]
    _, produced = await wire.receive()
    assert only_offset(produced) == (0, 0)


async def test_a_parked_fetch_is_answered_when_records_come(broker: Running) -> None:
    consumer, producer = await broker.connect(), await broker.connect()
    consumer.send(1, 11, fetch_request("single", 0, wait_ms=600_000))
    await asyncio.sleep(0.05)
    records = batch(b"late")
    assert await produce(producer, "single", records) == (0, 0)
    _, response = await consumer.receive()
    (partition,) = response.responses[0].partitions
    assert bytes(partition.records)[16:] == records[16:]
    assert partition.high_watermark == 1


async def test_a_parked_fetch_ends_with_its_client(broker: Running) -> None:
    wire = await broker.connect()
    wire.send(1, 11, fetch_request("single", 0, wait_ms=60_000))
    await until(lambda: broker.gateway.memory_held > 0)
    await wire.close()
    await until(lambda: broker.gateway.memory_held == 0)


@pytest.mark.event_loops("asyncio", "uvloop")
@pytest.mark.parametrize("by_reference", [True, False])
async def test_large_batches_arrive_as_sent(start_broker: StartBroker, by_reference: bool) -> None:
    """Records longer than every buffer on their way, in requests larger than one read."""
    broker = await start_broker(**({} if by_reference else {"gateway_data_dir": ""}))
    wire = await broker.connect()
    sent = [batch(os.urandom(900_000 + number)) for number in range(6)]
    for records in sent:
        wire.send(0, 7, produce_request("single", records, acks=-1))
    for number in range(6):
        _, response = await wire.receive()
        assert only_offset(response) == (0, number)
    received = await wire.call(1, 11, fetch_request("single", 0))
    data = bytes(received.responses[0].partitions[0].records)
    position = 0
    for number, records in enumerate(sent):
        stored = data[position : position + len(records)]
        assert struct.unpack_from(">q", stored)[0] == number
        assert stored[16:] == records[16:]
        position += len(records)
    assert position == len(data)


async def test_many_large_fetches_in_a_row(broker: Running) -> None:
    """Pipelined, each longer than a socket accepts at once: sendfile and reading take turns on one connection."""
    wire = await broker.connect()
    sent = [batch(os.urandom(1_000_000 + number)) for number in range(5)]
    for records in sent:
        assert (await produce(wire, "single", records, acks=-1))[0] == 0
    for number in range(40):
        wire.send(1, 11, fetch_request("single", number % 5))
        wire.send(18, 0, ApiVersionsRequest())
    for number in range(40):
        _, response = await wire.receive()
        expected = sent[number % 5 :]
        data = bytes(response.responses[0].partitions[0].records)
        assert len(data) == sum(map(len, expected))
        assert data[16 : len(expected[0])] == expected[0][16:]
        assert data.endswith(sent[-1][16:])
        _, versions = await wire.receive()
        assert versions.error_code == 0
    assert broker.gateway.memory_held == 0


async def test_a_slice_whose_file_is_gone_is_read_by_value(broker: Running) -> None:
    wire = await broker.connect()
    records = batch(os.urandom(200_000))
    assert await produce(wire, "single", records, acks=-1) == (0, 0)
    (segment,) = (broker.data_dir / "single-0").glob("*.log")
    segment.rename(segment.with_suffix(".moved"))
    response = await wire.call(1, 11, fetch_request("single", 0))
    assert bytes(response.responses[0].partitions[0].records)[16:] == records[16:]


@pytest.mark.event_loops("asyncio", "uvloop")
@pytest.mark.parametrize("by_reference", [True, False])
async def test_a_client_that_does_not_read_costs_little(start_broker: StartBroker, by_reference: bool) -> None:
    broker = await start_broker(**({} if by_reference else {"gateway_data_dir": ""}))
    filler = await broker.connect()
    for _ in range(40):
        filler.send(0, 7, produce_request("single", batch(os.urandom(MIB - 1000)), acks=-1))
    for _ in range(40):
        await filler.receive()
    before = resident_bytes()
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(slow, broker.address)
        reader = Wire(asyncio.StreamReader(), _Sink())  # type: ignore[arg-type]
        for _ in range(20):
            reader.send(1, 11, fetch_request("single", 0))
        await loop.sock_sendall(slow, reader.writer.data)  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)
        assert broker.gateway.memory_held < 9 * MIB
        assert resident_bytes() - before < 24 * MIB
        # All other clients are served in the meantime.
        assert await produce(filler, "orders", batch(b"x")) == (0, 0)
    await until(lambda: broker.gateway.memory_held == 0)


class _Sink:
    """A collector of the bytes that would be written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data


async def test_a_thousand_connections_that_announce_100_mib(start_broker: StartBroker) -> None:
    broker = await start_broker(max_connections_per_ip=2000)
    before = resident_bytes()
    loop = asyncio.get_running_loop()
    sockets = []
    try:
        for _ in range(1000):
            each = socket.socket()
            each.setblocking(False)
            await loop.sock_connect(each, broker.address)
            await loop.sock_sendall(each, struct.pack(">i", 100 * MIB) + bytes(2000))
            sockets.append(each)
        await asyncio.sleep(0.3)
        assert broker.gateway.memory_held <= 1000 * 8192
        assert resident_bytes() - before < 64 * MIB
        wire = await broker.connect()
        response: MetadataResponse = await wire.call(3, 5, MetadataRequest(topics=None))
        assert [topic.name for topic in response.topics] == ["orders", "single"]
    finally:
        for each in sockets:
            each.close()
    await until(lambda: broker.gateway.memory_held == 0)


@pytest.mark.event_loops("asyncio", "uvloop")
async def test_a_client_that_sends_without_end_gets_one_long_request_served_in_a_turn(broker: Running) -> None:
    """uvloop reads a socket again and again for as long as there is something."""
    sink = _Sink()
    for number in range(60):
        Wire(asyncio.StreamReader(), sink).send(0, 7, produce_request("single", batch(bytes(500_000 + number))))  # type: ignore[arg-type]
    log = broker.core.logs.logs["single", 0]
    with socket.create_connection(broker.address) as flood:
        sending = asyncio.create_task(asyncio.to_thread(flood.sendall, sink.data))
        ends = [0]
        while ends[-1] < 60:
            await asyncio.sleep(0)
            ends.append(log.log_end_offset)
        await sending
    assert max(after - before for before, after in itertools.pairwise(ends)) == 1


@pytest.mark.event_loops("asyncio", "uvloop")
async def test_a_full_memory_budget_drains(start_broker: StartBroker) -> None:
    """Requests received in part fill the budget together; all are served all the same, one after the other."""
    broker = await start_broker(gateway_memory_bytes=1_048_576)
    frames = []
    for number in range(4):
        wire = Wire(asyncio.StreamReader(), _Sink())  # type: ignore[arg-type]
        wire.send(0, 7, produce_request("single", batch(os.urandom(1_000_000 + number))))
        frames.append(wire.writer.data)  # type: ignore[attr-defined]
    wires = [await broker.connect() for _ in frames]
    half = 500_000
    for wire, frame in zip(wires, frames, strict=True):
        wire.writer.write(frame[:half])
    await asyncio.sleep(0.2)
    for wire, frame in zip(wires, frames, strict=True):
        wire.writer.write(frame[half:])
        wire.sent[1] = (0, 7)
    responses = [await wire.receive() for wire in wires]
    assert sorted(only_offset(response) for _, response in responses) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert broker.gateway.memory_held == 0


@pytest.mark.event_loops("asyncio", "uvloop")
async def test_requests_that_fill_the_memory_and_stall_are_ended(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small requests do not wait for them at all, and a long one not for their timeout."""
    monkeypatch.setattr(relief, "STALL_S", 0.5)
    broker = await start_broker(gateway_memory_bytes=1_048_576)
    hostile = [await broker.connect() for _ in range(2)]
    for wire in hostile:
        await wire.call(18, 0, ApiVersionsRequest())
        wire.writer.write(struct.pack(">ihhi", 50 * MIB, 0, 7, 1) + bytes(900_000))
    await until(lambda: broker.gateway.memory_held >= MIB)
    honest = await broker.connect()
    assert await produce(honest, "single", batch(b"x")) == (0, 0)
    assert broker.refused == {}
    assert await produce(honest, "single", batch(bytes(900_000))) == (0, 1)
    assert set(broker.refused) == {"memory_stalled"}
    for wire in hostile:
        await wire.close()
    await until(lambda: broker.gateway.memory_held == 0)


async def test_localhost_is_served_over_ipv4_and_ipv6(broker: Running) -> None:
    _, port = broker.address
    for host in ("127.0.0.1", "::1"):
        reader, writer = await asyncio.open_connection(host, port)
        wire = Wire(reader, writer)
        metadata: MetadataResponse = await wire.call(3, 1, MetadataRequest(topics=()))
        assert [(each.host, each.port) for each in metadata.brokers] == [("localhost", port)]
        await wire.close()


async def test_each_listener_tells_its_own_address(start_broker: StartBroker) -> None:
    broker = await start_broker(
        listeners="INTERNAL://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
        advertised_listeners="INTERNAL://gateway:29092,EXTERNAL://kafka.example.org:9092",
    )
    advertised = {}
    for name, address in broker.gateway.addresses.items():
        reader, writer = await asyncio.open_connection(*address)
        wire = Wire(reader, writer)
        metadata: MetadataResponse = await wire.call(3, 1, MetadataRequest(topics=()))
        advertised[name] = [(each.host, each.port) for each in metadata.brokers]
        await wire.close()
    assert advertised == {"INTERNAL": [("gateway", 29092)], "EXTERNAL": [("kafka.example.org", 9092)]}


async def test_requests_in_service_are_answered_at_the_stop(start_broker: StartBroker) -> None:
    broker = await start_broker(stop_deadline_s=25)  # a disk may take its time to sync
    wire, parked = await broker.connect(), await broker.connect()
    parked.send(1, 11, fetch_request("orders", 0, wait_ms=60_000))
    for _ in range(20):
        wire.send(0, 7, produce_request("single", batch(b"x" * 1000), acks=-1))
    async with asyncio.timeout(60):
        while broker.core.logs.logs["single", 0].log_end_offset < 20:  # noqa: ASYNC110
            await asyncio.sleep(0)  # and no longer: they are not on disk yet
    stopping = asyncio.create_task(broker.gateway.stop())
    answers = [only_offset((await wire.receive())[1]) for _ in range(20)]
    assert answers == [(0, offset) for offset in range(20)]
    await asyncio.wait_for(stopping, 60)
    assert await wire.closed() == b""
    assert await parked.closed() == b""


async def test_fetch_responses_count_the_bytes_they_hold(broker: Running) -> None:
    wire = await broker.connect()
    await produce(wire, "single", batch(b"a", b"b", b"c"), acks=-1)
    response: FetchResponse = await wire.call(1, 11, fetch_request("single", 0))
    size = len(response.responses[0].partitions[0].records or b"")
    counts = broker.gateway.metrics.topics["single"]
    assert (counts.records_in, counts.bytes_in, counts.bytes_out) == (3, size, size)


@pytest.mark.parametrize(("version", "acks"), [(7, 1), (7, -1), (9, 1), (9, -1)])
async def test_requests_sent_at_once_are_each_told_what_became_of_them(
    broker: Running, version: int, acks: int
) -> None:
    """Alike but for their records, so that they are served together; one is broken, and one has another acks."""
    wire = await broker.connect()
    good, broken = batch(b"a", b"b"), batch(b"a")[:-1] + b"?"
    await produce(wire, "single", good)
    sent = [good, good, broken, good, good]
    ids = [wire.send(0, version, produce_request("single", records, acks=acks)) for records in sent]
    wire.send(0, version, produce_request("single", good, acks=0))
    ids.append(wire.send(3, 9, MetadataRequest(topics=())))
    answers = [await wire.receive() for _ in ids]
    assert [correlation_id for correlation_id, _ in answers] == ids
    partitions = [response.responses[0].partition_responses[0] for _, response in answers[:-1]]
    assert [(each.error_code, each.base_offset) for each in partitions] == [(0, 2), (0, 4), (2, -1), (0, 6), (0, 8)]
    assert broker.refused == {"CORRUPT_MESSAGE": 1}
    assert await produce(wire, "single", good) == (0, 12)
    await wire.close()


async def test_a_refused_run_with_acks_0_closes_the_connection(broker: Running) -> None:
    wire = await broker.connect()
    wire.send(0, 7, produce_request("single", batch(b"a"), acks=0))
    for _ in range(3):
        wire.send(0, 7, produce_request("single", batch(b"a")[:-1] + b"?", acks=0))
    assert await wire.closed() == b""
