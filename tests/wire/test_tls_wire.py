"""A wire that encrypts carries all that a plain one does: large fetches by bytes, back pressure, clients that leave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from gateway_svc.clients.answer_writer import WRITE_BYTES
from gateway_svc.clients.connection import Connection
from gateway_svc.clients.read_control import Pause
from gateway_svc.clients.tls_wire import TlsWire
from protocol_lib.messages.api_versions import ApiVersionsRequest
from support.certificates import Authority
from support.late import aiokafka

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

MIB = 1 << 20
#: Records of the topic "single": more than the sockets between gateway and client hold.
COUNT = 24
Start = Callable[..., contextlib.AbstractAsyncContextManager[Running]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def encrypted(authority: Authority) -> dict[str, str]:
    """The settings of a listener with TLS."""
    return authority.settings(authority.issue("server"))


@pytest.fixture
def trust(authority: Authority) -> ssl.SSLContext:
    return authority.trust()


@pytest.fixture(params=["combined", "files", "lanes"])
async def broker(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path, encrypted: dict[str, str]
) -> AsyncIterator[Running]:
    """A broker with TLS: in one process, as two services that share files, or as two with lanes."""
    if request.param == "combined":
        yield await start_broker(**encrypted)
        return
    storage = RemoteStorage(tmp_path)
    await storage.start()
    data_dir = str(storage.settings.data_dir) if request.param == "files" else ""
    async with gateway_of(storage, "one", gateway_data_dir=data_dir, **encrypted) as running:
        yield running
    await storage.stop()


async def connect(broker: Running, trust: ssl.SSLContext) -> Wire:
    host, port = broker.address
    return Wire(*await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost", limit=1 << 26))


async def filled(broker: Running, trust: ssl.SSLContext) -> bytes:
    """Append COUNT records of a MiB; return them as a fetch returns them."""
    wire = await connect(broker, trust)
    records = batch(os.urandom(MIB - 1000))
    for number in range(COUNT):
        acks = -1 if number == COUNT - 1 else 1
        assert await produce(wire, "single", records, acks=acks) == (0, number)
    await wire.close()
    log = broker.core.logs.logs["single", 0].segments.active.relative_path
    return (broker.data_dir / log).read_bytes()


def connection_of(broker: Running, wire: Wire) -> Connection:
    port = wire.writer.get_extra_info("sockname")[1]
    (found,) = (each for each in broker.gateway._connections._open if each.peer.endswith(f":{port}"))
    assert isinstance(found, Connection)
    return found


async def fetched(wire: Wire) -> bytes:
    _, answer = await wire.receive()
    return bytes(answer.responses[0].partitions[0].records)


async def test_a_client_that_does_not_read_costs_one_write_and_goes_on(broker: Running, trust: ssl.SSLContext) -> None:
    records = await filled(broker, trust)
    wire = await connect(broker, trust)
    wire.writer.transport.pause_reading()
    for _ in range(2):
        wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
    connection = connection_of(broker, wire)
    await until(lambda: connection._writer.busy)
    await asyncio.sleep(0.05)
    connection._writer.count_buffered()
    assert 0 < connection._writer.memory_held <= WRITE_BYTES + (128 << 10)
    assert connection._gate.held_for is Pause.ANSWERS, "the second fetch waits until the first answer was read"
    wire.writer.transport.resume_reading()
    assert [await fetched(wire) == records, await fetched(wire) == records] == [True, True]
    await wire.close()
    await until(lambda: broker.gateway.memory_held == 0)
    by_lane = 0 if broker.gateway._parts.files is not None else 2
    assert broker.gateway.metrics.lane_reads["sent"] == by_lane


@pytest.mark.parametrize("reads", [True, False], ids=["half closed", "gone"])
async def test_a_client_that_leaves_in_the_middle_of_an_answer_costs_nothing(
    broker: Running, trust: ssl.SSLContext, reads: bool
) -> None:
    records = await filled(broker, trust)
    wire = await connect(broker, trust)
    wire.writer.transport.pause_reading()
    wire.send(1, 11, fetch_request("single", 0, wait_ms=500))
    connection = connection_of(broker, wire)
    await until(lambda: connection._writer.busy)
    assert connection.peer_is_open()
    if reads:
        wire.writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        await until(lambda: not connection.peer_is_open())
        wire.writer.transport.resume_reading()
        received = await wire.closed()
        assert received.endswith(records), "the whole answer that was due"
    wire.writer.transport.abort()
    await until(lambda: broker.gateway.metrics.connections == 0 and broker.gateway.memory_held == 0)


async def test_requests_that_arrive_in_any_pieces_are_answered_in_order(broker: Running, trust: ssl.SSLContext) -> None:
    """Many small ones in one record of TLS, a long one over several, and those that wait for their turn."""
    wire = await connect(broker, trust)
    sent = [batch(os.urandom(size)) for size in (10, 40_000, 10, 700_000, 10, 10)]
    for number, records in enumerate(sent, 1):
        wire.send(18, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
        wire.send(0, 7, produce_request("single", records, acks=-1 if number == len(sent) else 1))
    offsets = []
    for _ in sent:
        _, versions = await wire.receive()
        assert versions.error_code == 0
        _, produced = await wire.receive()
        offsets.append(produced.responses[0].partition_responses[0].base_offset)
    assert offsets == [*range(len(sent))]
    wire.send(1, 11, fetch_request("single", 0))
    assert len(await fetched(wire)) == sum(map(len, sent))
    await wire.close()


async def test_a_stock_client_writes_and_reads(broker: Running, trust: ssl.SSLContext) -> None:
    port = broker.address[1]
    options = {"bootstrap_servers": f"localhost:{port}", "security_protocol": "SSL", "ssl_context": trust}
    producer = aiokafka.AIOKafkaProducer(**options, acks="all", max_request_size=2 * MIB)
    await producer.start()
    values = [os.urandom(900_000) for _ in range(8)]
    for value in values:
        await producer.send_and_wait("single", value)
    await producer.stop()
    consumer = aiokafka.AIOKafkaConsumer(
        "single", **options, auto_offset_reset="earliest", fetch_max_bytes=16 * MIB, max_partition_fetch_bytes=16 * MIB
    )
    await consumer.start()
    async with asyncio.timeout(60):
        assert [(await consumer.getone()).value for _ in values] == values
    await consumer.stop()


async def test_no_tls_is_closed_and_silence_as_well(
    start_broker: StartBroker, encrypted: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TlsWire, "ready_within_s", 0.1)
    broker = await start_broker(**encrypted)
    plain, silent = await broker.connect(), await broker.connect()
    plain.send(18, 3, ApiVersionsRequest(client_software_name="test", client_software_version="1"))
    assert [await plain.closed(), await silent.closed()] == [b"", b""]
    assert broker.refused == {"tls_plaintext": 1, "handshake_timeout": 1}
