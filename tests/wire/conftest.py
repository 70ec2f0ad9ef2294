"""A real gateway over a real storage core in the test's own event loop, and a raw Kafka connection to it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from gateway_svc.app import Gateway, MakeAdmission
from gateway_svc.requests.login import SecurityProtocol
from millrace.broker import Broker
from millrace.direct import DirectSettings, direct_storage
from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from service_chassis import logs
from storage_svc.app import Storage

CLIENT_ID = "wire-test"


@dataclass
class Running:
    """A started broker."""

    gateway: Gateway
    core: Storage
    data_dir: Path

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.gateway.addresses["EXTERNAL"][1]

    @property
    def refused(self) -> dict[str, int]:
        return dict(self.gateway.metrics.refused)

    async def connect(self) -> Wire:
        reader, writer = await asyncio.open_connection(*self.address, limit=1 << 26)
        return Wire(reader, writer)


@dataclass
class Wire:
    """One connection: bytes as they are, or requests through the codec."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    last_correlation_id: int = 0
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)

    def send(self, api_key: int, version: int, request: Any) -> int:
        """Write a request; return its correlation id."""
        self.last_correlation_id += 1
        body = encode(request, version)
        self.send_frame(api_key, version, self.last_correlation_id, body)
        self.sent[self.last_correlation_id] = (api_key, version)
        return self.last_correlation_id

    def send_frame(self, api_key: int, version: int, correlation_id: int, body: bytes) -> None:
        frame = encode_request_header(RequestHeader(api_key, version, correlation_id, CLIENT_ID)) + body
        self.writer.write(struct.pack(">i", len(frame)) + frame)

    async def receive_frame(self) -> bytes:
        async with asyncio.timeout(60):
            (length,) = struct.unpack(">i", await self.reader.readexactly(4))
            return await self.reader.readexactly(length)

    async def receive(self) -> tuple[int, Any]:
        """Return (correlation id, response) of the next answer."""
        frame = await self.receive_frame()
        (correlation_id,) = struct.unpack_from(">i", frame)
        api_key, version = self.sent.pop(correlation_id)
        _, position = decode_response_header(api_key, version, frame)
        return correlation_id, decode(APIS[api_key].response, version, frame, position)

    async def call(self, api_key: int, version: int, request: Any) -> Any:
        expected = self.send(api_key, version, request)
        correlation_id, response = await self.receive()
        assert correlation_id == expected
        return response

    async def closed(self) -> bytes:
        """Wait until the gateway has closed the connection; return the bytes that it sent before."""
        async with asyncio.timeout(60):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()


def batch(*values: bytes, **options: Any) -> bytes:
    """Return a record batch with these values."""
    return build_batch(
        [Record(offset, 1_700_000_000_000, None, value) for offset, value in enumerate(values)], **options
    )


def produce_request(topic: str, records: bytes, *, partition: int = 0, acks: int = 1) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=5000, topic_data=(TopicProduceData(name=topic, partition_data=(data,)),)
    )


async def produce(wire: Wire, topic: str, records: bytes, **options: int) -> tuple[int, int]:
    """Return (error code, base offset) of one batch for one partition."""
    response: ProduceResponse = await wire.call(0, 7, produce_request(topic, records, **options))
    (topic_response,) = response.responses
    (partition,) = topic_response.partition_responses
    return partition.error_code, partition.base_offset


def fetch_request(topic: str, offset: int, *, max_bytes: int = 1 << 26, wait_ms: int = 0) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        topics=(FetchTopic(topic=topic, partitions=(partition,)),),
    )


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def stopped(gateway: Gateway) -> None:
    """Stop a gateway; its invariants hold before and after, and no memory is held for connections that are closed."""
    gateway.check_invariants()
    await gateway.stop()
    gateway.check_invariants()
    assert gateway.memory_held == 0


StartBroker = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start_broker(tmp_path: Path) -> AsyncIterator[StartBroker]:
    """A function that starts brokers, each on a new data folder, with settings of either service. All stop at the
    end.
    """
    async with contextlib.AsyncExitStack() as stop:
        started = 0

        async def start(
            *, admission: MakeAdmission | None = None, security: SecurityProtocol | None = None, **settings: Any
        ) -> Running:
            nonlocal started
            started += 1
            data_dir = tmp_path / f"data-{started}"
            chosen = DirectSettings(
                **{
                    "data_dir": data_dir,
                    "gateway_data_dir": str(data_dir),
                    "listeners": "EXTERNAL://localhost:0",
                    "topics": "orders:3,single:1",
                    "gateway_name": "test",
                    "stop_deadline_s": 3,
                    "group_initial_rebalance_delay_ms": 0,
                    "transaction_state_log_num_partitions": 3,
                    "offsets_topic_num_partitions": 3,  # instead of 50, which take longer to make than most tests
                    **settings,
                }
            )
            data_dir.mkdir()
            core = await Storage.start(chosen)
            stop.push_async_callback(core.stop)
            gateway = await Gateway.start(
                chosen,
                direct_storage(core),
                admission=admission,
                security={} if security is None else {"EXTERNAL": security},
            )
            stop.push_async_callback(stopped, gateway)
            return Running(gateway, core, data_dir)

        with logs.configured("test", "warning", "json"):
            yield start


@pytest.fixture
async def broker(start_broker: StartBroker) -> Running:
    return await start_broker()


@pytest.fixture
def log_lines(capsys: pytest.CaptureFixture[str]) -> Callable[[], list[dict[str, Any]]]:
    """The log lines written since it was last asked."""

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]

    return lines


@pytest.fixture
def raw_socket(broker: Running) -> Iterator[socket.socket]:
    with socket.create_connection(broker.address) as connection:
        connection.setblocking(False)
        yield connection


class SynchronousBroker:
    """A broker in a thread, for tests that cannot run in an event loop: hypothesis, blocking clients."""

    def __init__(self, bootstrap_servers: str, address: tuple[str, int]) -> None:
        self.bootstrap_servers = bootstrap_servers
        self.address = address

    def exchange(self, sent: bytes) -> bytes:
        """Return the answer to some bytes, after which the client stops sending."""
        with socket.create_connection(self.address, timeout=60) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            received = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    received += part
            return received


@pytest.fixture(scope="module")
def module_broker() -> Iterator[SynchronousBroker]:
    with Broker(topics="orders:3,single:1") as broker:
        yield SynchronousBroker(broker.bootstrap_servers, broker.kafka_address)
