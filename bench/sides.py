"""The brokers that are compared: each is started, asked and watched in the same way.

    side = start(Layout.COMBINED, Durability.PAGE_CACHE, folder)
    with side.topic("t") as topic, side.watch() as usage:
        ...                                               # drive side.address
    side.stop()

A side that is not measured stays up and idle. If it were stopped with a signal, its timers and sessions would expire
at once when it continues. Its use of the processor in that time is in the results.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path

from millrace.ports import Reservation
from processes import Usage, cpu_seconds, descendants, memory_bytes
from protocol_lib.client import Admin, BrokerError, TopicPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_offsets import SpecialTimestamp
from support.kafka_broker import KafkaNode

#: Options of the JVM in Kafka's start script (kafka-run-class.sh), with its default heap fixed to 1 GB.
JVM = (
    "java",
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
)
PROPERTIES = Path(__file__).with_name("apache_kafka.properties")
#: Settings of Millrace that match apache_kafka.properties, and as many connections as Kafka accepts. Millrace keeps the
#: bytecode that its first start compiles, as an installed package has it and Kafka its class files.
ALIKE = {
    "PYTHONDONTWRITEBYTECODE": "",
    "MILLRACE_AUTO_CREATE_TOPICS_ENABLE": "false",
    "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "MILLRACE_MAX_CONNECTIONS": "1000000",
    "MILLRACE_MAX_CONNECTIONS_PER_IP": "1000000",
}
START_TIMEOUT_S = 30
STOP_TIMEOUT_S = 30


class Layout(StrEnum):
    """The broker and the layout of a side."""

    KAFKA = "Apache Kafka"
    #: `millrace up`: gateway and storage share one process.
    COMBINED = "combined"
    #: `millrace up --processes`: each service has a process.
    SEPARATE = "separate"
    #: The same, and the gateway cannot read the files of storage: records travel over gRPC.
    BY_VALUE = "separate, no shared volume"


class Durability(StrEnum):
    """The time at which a record is acknowledged."""

    #: Kafka's default; Millrace: flush.policy=os.
    PAGE_CACHE = "page cache"
    #: Kafka: flush.messages=1; Millrace: flush.policy=group, its default.
    SYNCED = "synced"


class Side(ABC):
    """A running broker. `folder` is its own and goes with it."""

    def __init__(self, layout: Layout, durability: Durability, folder: Path) -> None:
        self.layout = layout
        self.durability = durability
        self.folder = folder
        self.address = ""
        #: Nothing was run on it yet.
        self.fresh = True
        self._topics: set[str] = set()

    @abstractmethod
    def processes(self) -> dict[str, int]:
        """Return the names and ids of its processes."""

    @abstractmethod
    def alive(self) -> bool: ...

    @abstractmethod
    def stop(self) -> None:
        """Stop at once; its folder is deleted."""

    @contextlib.contextmanager
    def watch(self) -> Iterator[Usage]:
        """Measure the cost of the side's processes from here to the end of the block; filled in there."""
        usage = Usage(0.0, {}, {}, {})
        processes = self.processes()
        before = {name: cpu_seconds([pid]) for name, pid in processes.items()}
        began = time.perf_counter()
        yield usage
        usage.seconds = time.perf_counter() - began
        usage.cpu_seconds = {name: cpu_seconds([pid]) - before[name] for name, pid in processes.items()}
        for name, pid in processes.items():
            usage.rss_bytes[name], usage.pss_bytes[name] = memory_bytes(pid)

    @contextlib.contextmanager
    def topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> Iterator[str]:
        """Create a topic that goes, with its files, at the end of the block."""
        self.create_topic(name, partitions, configs)
        try:
            yield name
        finally:
            self.delete_topic(name)

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic and return when every partition can be used."""
        chosen = {"file.delete.delay.ms": "0", **self._topic_configs(), **(configs or {})}

        async def create(admin: Admin) -> None:
            made = await admin.topics.create(name, partitions=partitions, replication_factor=1, configs=chosen)
            await _until_known(admin, name, made)

        self._topics.add(name)
        self._ask(create)
        self.end_offsets(name, partitions)

    def delete_topic(self, name: str) -> None:
        async def delete(admin: Admin) -> None:
            await admin.topics.delete(name)
            await _until_known(admin, name, None)

        self._ask(delete)
        self._topics.discard(name)

    def delete_topics(self) -> None:
        """Delete the topics that a failed workload has left."""
        for name in list(self._topics):
            self.delete_topic(name)

    def end_offsets(self, topic: str, partitions: int = 1) -> list[int]:
        """Return the end offset of each partition."""
        found: list[int] = []
        places = [TopicPartition(topic, index) for index in range(partitions)]

        async def look(admin: Admin) -> None:
            offsets = await admin.topics.offsets(dict.fromkeys(places, SpecialTimestamp.LATEST))
            found.extend(offsets[place].offset for place in places)

        self._ask(look)
        return found

    def _topic_configs(self) -> dict[str, str]:
        return {}

    def _ask(self, question: Callable[[Admin], Awaitable[None]]) -> None:
        async def ask() -> None:
            async with Admin(self.address) as admin:
                await question(admin)

        asyncio.run(ask())


async def _until_known(admin: Admin, name: str, topic_id: bytes | None) -> None:
    """Wait until a broker's metadata have the topic of this id, or none of the name.

    Kafka's controller answers before its broker knows. A topic of the name that was deleted a moment ago still answers
    for a while; then requests get UNKNOWN_TOPIC_OR_PARTITION.
    """
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            try:
                found = (await admin.topics.describe(name)).topic_id
            except BrokerError as error:
                if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                found = None
            if found == topic_id:
                return
            await asyncio.sleep(0.005)


class ApacheKafka(Side):
    def __init__(self, durability: Durability, folder: Path) -> None:
        super().__init__(Layout.KAFKA, durability, folder)
        self._node = KafkaNode(folder, PROPERTIES.read_text(), ["PLAINTEXT"], jvm=JVM)
        self._node.start()
        self.address = self._node.bootstrap

    def processes(self) -> dict[str, int]:
        return {"kafka": self._node.pid}

    def alive(self) -> bool:
        return self._node.running

    def stop(self) -> None:
        self._node.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _topic_configs(self) -> dict[str, str]:
        return {"flush.messages": "1"} if self.durability is Durability.SYNCED else {}


class Millrace(Side):
    """`millrace up` and its processes."""

    def __init__(self, layout: Layout, durability: Durability, folder: Path, programs: Path | None = None) -> None:
        """Start the broker; `programs` is the folder of the commands of another checkout, None this one's."""
        super().__init__(layout, durability, folder)
        self._programs = programs or Path(sys.executable).parent
        folder.mkdir(parents=True)
        self._processes: list[subprocess.Popen[str]] = []
        self._held = contextlib.ExitStack()
        try:
            if layout is Layout.BY_VALUE:
                self._start_by_value()
            else:
                self._start_up()
        except BaseException:
            self.stop()
            raise

    def _start_up(self) -> None:
        process = self._run(up_command(self.layout, self.folder / "data", programs=self._programs), {})
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"kafka=(\S+)", line)
        if found is None:
            raise RuntimeError(f"millrace up printed {line!r} and {self._log.read_text()[-2000:]}")
        self.address = found[1]

    def _start_by_value(self) -> None:
        """Start without `millrace up`, which has the gateway send from storage's files."""
        storage = {"MILLRACE_DATA_DIR": str(self.folder / "data"), "MILLRACE_STORAGE_HTTP": self._port()}
        storage["MILLRACE_STORAGE_BIND"] = f"unix:{self.folder / 'storage.sock'}"
        self.address = self._port()
        gateway = {
            "MILLRACE_STORAGE_ADDRESS": storage["MILLRACE_STORAGE_BIND"],
            "MILLRACE_LISTENERS": f"EXTERNAL://{self.address}",
            "MILLRACE_GATEWAY_HTTP": self._port(),
        }
        self._run([str(self._programs / "storage-svc")], storage)
        self._run([str(self._programs / "gateway-svc")], gateway)
        self._wait_until_served()

    def _wait_until_served(self) -> None:
        host, _, port = self.address.rpartition(":")
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with contextlib.suppress(OSError):
                return socket.create_connection((host, int(port)), 1).close()
            if not self.alive() or time.monotonic() > deadline:
                raise RuntimeError(f"the gateway does not serve: {self._log.read_text()[-2000:]}")
            time.sleep(0.02)

    def _port(self) -> str:
        return str(self._held.enter_context(Reservation("127.0.0.1", 0)).address)

    @property
    def _log(self) -> Path:
        return self.folder / "millrace.log"

    def _run(self, command: list[str], settings: Mapping[str, str]) -> subprocess.Popen[str]:
        policy = {Durability.PAGE_CACHE: "os", Durability.SYNCED: "group"}[self.durability]
        environment = {**os.environ, **ALIKE, "MILLRACE_FLUSH_POLICY": policy, **settings}
        with self._log.open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        self._processes.append(process)
        return process

    def processes(self) -> dict[str, int]:
        roots = [process.pid for process in self._processes]
        return {_name(pid): pid for root in roots for pid in (root, *descendants(root))}

    def alive(self) -> bool:
        return all(process.poll() is None for process in self._processes)

    def stop(self) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                for pid in (*descendants(process.pid), process.pid):
                    os.kill(pid, signal.SIGKILL)
                process.wait()
        self._held.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def up_command(layout: Layout, data_dir: Path, kafka_port: int = 0, programs: Path | None = None) -> list[str]:
    flags = ["--processes"] if layout is Layout.SEPARATE else []
    ports = ["--host", "127.0.0.1", "--kafka-port", str(kafka_port), "--http-port", "0"]
    program = (programs or Path(sys.executable).parent) / "millrace"
    return [str(program), "up", "--data-dir", str(data_dir), *ports, *flags]


def _name(pid: int) -> str:
    """Return the service that a process is, by its command line."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
    last = Path(words[-1].decode()).name
    return last if last in ("broker", "storage-svc", "gateway-svc", "admin-api") else "launcher"


def start(layout: Layout, durability: Durability, folder: Path) -> Side:
    """Start a broker in a folder that does not exist yet."""
    if layout is Layout.KAFKA:
        return ApacheKafka(durability, folder)
    return Millrace(layout, durability, folder)
