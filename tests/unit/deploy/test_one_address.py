"""The Kubernetes layout without Kubernetes: two gateways with one address, records by value, storage over TCP.

A round-robin TCP relay stands where the Service is. Both gateways have the name and the advertised address of k8s/base,
so clients must see one broker whose node id stays when a gateway goes.
"""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from millrace.ports import Reservation
from service_chassis import probe
from support.late import confluent

RECORDS = 5_000
PARTITIONS = 4


class Relay:
    """Each new connection goes to the next target that accepts it."""

    def __init__(self, targets: list[int]) -> None:
        self.port = 0
        self.taken: list[int] = []
        self._targets = targets
        self._loop = asyncio.new_event_loop()
        self._listening = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._listening.wait(10)

    def _run(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._relay, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._listening.set()
        self._loop.run_forever()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in self._targets:
            self._targets.append(self._targets.pop(0))
            try:
                up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._targets[-1])
                break
            except OSError:
                continue
        else:
            writer.close()
            return
        self.taken.append(self._targets[-1])
        await asyncio.gather(self._pump(reader, up_writer), self._pump(up_reader, writer), return_exceptions=True)

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        finally:
            writer.close()


class Layout:
    """storage-svc and two gateway-svc as processes, and the relay before the gateways."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self._folder, self._cleanup = folder, cleanup
        self.storage = f"127.0.0.1:{self._free_port()}"
        storage_http = f"127.0.0.1:{self._free_port()}"
        self._start(
            "storage_svc",
            storage_http,
            MILLRACE_DATA_DIR=str(folder / "data"),
            MILLRACE_STORAGE_BIND=self.storage,
            MILLRACE_STORAGE_HTTP=storage_http,
            MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS="0",
        )
        ports = [self._free_port(), self._free_port()]
        self.relay = Relay(list(ports))
        cleanup.callback(self.relay.close)
        self.address = f"127.0.0.1:{self.relay.port}"
        self.gateways = {port: self._start_gateway(port) for port in ports}

    def _free_port(self) -> int:
        """Reserve a free port, so that no other process gets it."""
        return self._cleanup.enter_context(Reservation("127.0.0.1", 0)).address.port

    def _start_gateway(self, port: int) -> "subprocess.Popen[bytes]":
        http = f"127.0.0.1:{self._free_port()}"
        return self._start(
            "gateway_svc",
            http,
            MILLRACE_STORAGE_ADDRESS=self.storage,
            MILLRACE_LISTENERS=f"INTERNAL://127.0.0.1:{port}",
            MILLRACE_ADVERTISED_LISTENERS=f"INTERNAL://{self.address}",
            MILLRACE_GATEWAY_NAME="gateway-svc",
            MILLRACE_GATEWAY_HTTP=http,
        )

    def _start(self, module: str, http: str, **settings: str) -> "subprocess.Popen[bytes]":
        log = self._cleanup.enter_context((self._folder / f"{module}.log").open("ab"))
        process = subprocess.Popen([sys.executable, "-m", module], env=os.environ | settings, stderr=log)
        self._cleanup.callback(self._end, process)
        deadline = time.monotonic() + 60
        while (fault := probe.check(http)) is not None:
            assert time.monotonic() < deadline, f"{module}: {fault}"
            time.sleep(0.05)
        return process

    @staticmethod
    def _end(process: "subprocess.Popen[bytes]") -> None:
        if process.poll() is None:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Layout]:
    with ExitStack() as cleanup:
        yield Layout(tmp_path_factory.mktemp("layout"), cleanup)


def brokers(layout: Layout) -> dict[int, str]:
    metadata = confluent.admin.AdminClient({"bootstrap.servers": layout.address}).list_topics(timeout=20)
    return {broker.id: f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()}


def test_storage_answers_the_probe_of_kubernetes(layout: Layout) -> None:
    with grpc.insecure_channel(layout.storage) as channel:
        answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING


def test_clients_see_one_broker_and_lose_nothing_when_a_gateway_goes(layout: Layout) -> None:
    before = [brokers(layout) for _ in range(4)]
    assert before == [before[0]] * 4
    assert list(before[0].values()) == [layout.address]
    assert set(layout.relay.taken) == set(layout.gateways)

    admin = confluent.admin.AdminClient({"bootstrap.servers": layout.address})
    for created in admin.create_topics([confluent.admin.NewTopic("relayed", PARTITIONS, 1)]).values():
        created.result(20)
    producer = confluent.Producer({"bootstrap.servers": layout.address, "enable.idempotence": True, "linger.ms": 1})
    failed: list[str] = []
    doomed = layout.relay.taken[-1]
    for number in range(RECORDS):
        if number == RECORDS // 2:
            assert producer.flush(20) == 0
            layout.gateways[doomed].send_signal(signal.SIGKILL)
        producer.produce("relayed", key=str(number), on_delivery=lambda e, _: failed.append(str(e)) if e else None)
        producer.poll(0)
    assert producer.flush(30) == 0
    assert failed == []
    layout.gateways[doomed].wait(30)

    consumer = confluent.Consumer(
        {"bootstrap.servers": layout.address, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["relayed"])
    numbers: list[int] = []
    deadline = time.monotonic() + 60
    while len(numbers) < RECORDS and time.monotonic() < deadline:
        numbers += [int(message.key()) for message in consumer.consume(RECORDS, 0.5) if message.error() is None]
    consumer.close()
    assert sorted(numbers) == list(range(RECORDS))
    assert brokers(layout) == before[0]
