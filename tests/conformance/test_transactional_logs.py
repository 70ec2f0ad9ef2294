"""Logs with transactions: what Apache Kafka wrote is served as Kafka serves it, what we wrote Kafka reads as its own.

The transactions of the topic `theirs` overlap, over several segments; every third one is aborted, one is open to the
end. Kafka makes its own transaction indexes and snapshots anew from our log, and we make them from its; they are the
same.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka_broker import ApacheKafka, java
from maven import need_java
from millrace.running import RunningUp
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.log_directory import LogDirectory
from storage_svc.log.partition_log import PartitionLog
from storage_svc.log.verification import Totals, verify

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

SEGMENT_BYTES = 1 << 20  # the least that Kafka accepts
VALUE = "x" * 20_000
ROUNDS = 30
PRODUCERS = 5
KILLED = "killed"  # the folder as a kill would have left it, with a transaction open
CLEAN = ".kafka_cleanshutdown"

Rows = list[tuple[int, str]]


def consume(bootstrap: str, topic: str, isolation: str) -> Rows:
    """(offset, key) of everything that a consumer of this isolation level gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    rows: Rows = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{len(rows)} records, then nothing"
            if message.error() is not None:
                assert message.error().name() == "_PARTITION_EOF", message.error()
                return rows
            rows.append((message.offset(), message.key().decode()))
    finally:
        consumer.close()


def latest(bootstrap: str, topic: str, isolation: IsolationLevel) -> int:
    partition = TopicPartition(topic, 0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=30)
    return int(found[partition].result(30).offset)


def told(bootstrap: str, topic: str) -> dict[str, object]:
    """All that a consumer can find out about a log."""
    levels = {"read_committed": IsolationLevel.READ_COMMITTED, "read_uncommitted": IsolationLevel.READ_UNCOMMITTED}
    return {name: (latest(bootstrap, topic, level), consume(bootstrap, topic, name)) for name, level in levels.items()}


def files(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.glob(f"*{suffix}"))}


def dumped(folder: Path) -> dict[str, set[str]]:
    """The producers in each snapshot, as Kafka's tool prints them."""
    paths = sorted(folder.glob("*.snapshot"))
    output = java("org.apache.kafka.tools.DumpLogSegments", "--files", ",".join(map(str, paths)))
    found: dict[str, set[str]] = {}
    for line in output.splitlines():
        if line.startswith("Dumping "):
            found[Path(line.removeprefix("Dumping ")).name] = lines = set()
        elif line.startswith("producerId"):
            lines.add(line)
    return found


def create(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topics = admin.create_topics([NewTopic(topic, 1, 1, config={"segment.bytes": str(SEGMENT_BYTES)})])
    topics[topic].result(60)


class Theirs:
    def __init__(self, folder: Path) -> None:
        self.node = ApacheKafka(folder)
        self.told: dict[str, object] = {}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Theirs]:
    need_java()
    made = Theirs(tmp_path_factory.mktemp("kafka"))
    node = made.node
    with node:
        create(node.bootstrap, "ours")
        create(node.bootstrap, "theirs")
        plain = Producer({"bootstrap.servers": node.bootstrap})
        producers = [
            Producer({"bootstrap.servers": node.bootstrap, "transactional.id": f"t{n}"}) for n in range(PRODUCERS)
        ]
        for producer in producers:
            producer.init_transactions(30)
        for number in range(ROUNDS):
            for producer in producers[number % 2 :: 2]:
                producer.begin_transaction()
                producer.produce("theirs", VALUE, f"{number}", 0)
                assert producer.flush(30) == 0
                plain.produce("theirs", "plain", f"plain {number}", 0)
                assert plain.flush(30) == 0
            for at, producer in enumerate(producers[number % 2 :: 2]):
                producer.produce("theirs", VALUE, f"{number} end", 0)
                if (number + at) % 3:
                    producer.commit_transaction(30)
                else:
                    assert producer.flush(30) == 0
                    producer.abort_transaction(30)
        producers[0].begin_transaction()
        producers[0].produce("theirs", "open", "open", 0)
        plain.produce("theirs", "plain", "plain at the end", 0)
        assert producers[0].flush(30) == plain.flush(30) == 0
        made.told = told(node.bootstrap, "theirs")
        shutil.copytree(node.data, folder := node.data.with_name(KILLED))
        assert not (folder / CLEAN).exists()
    yield made
    node.kill()


def test_the_topic_is_worth_reading(theirs: Theirs) -> None:
    committed, everything = theirs.told["read_committed"], theirs.told["read_uncommitted"]
    assert committed[0] == everything[0] - 2
    assert 100 < len(committed[1]) < len(everything[1]) - 50
    assert len(files(theirs.node.data / "theirs-0", ".log")) > 2
    assert len(files(theirs.node.data / "theirs-0", ".txnindex")) > 1


@pytest.mark.parametrize("processes", [(), ("--processes",)])
@pytest.mark.parametrize("handed_over", ["stopped", "killed", "logs only"])
def test_what_kafka_wrote_is_served_as_kafka_serves_it(
    theirs: Theirs, tmp_path: Path, handed_over: str, processes: tuple[str, ...]
) -> None:
    if handed_over == "logs only" and processes:
        pytest.skip("the folder is the same whichever way it is served")
    source = theirs.node.data.with_name(KILLED) if handed_over == "killed" else theirs.node.data
    data = Path(shutil.copytree(source, tmp_path / "data"))
    folder = data / "theirs-0"
    if handed_over == "logs only":
        (data / CLEAN).unlink()
        for path in (*folder.glob("*index"), *folder.glob("*.snapshot"), folder / "leader-epoch-checkpoint"):
            path.unlink()
        (data / "recovery-point-offset-checkpoint").unlink()
    with RunningUp("--data-dir", str(data), "--kafka-port", "0", "--http-port", "0", *processes) as up:
        assert told(up.kafka, "theirs") == theirs.told
        assert up.stop() == 0
    wanted = theirs.node.data / "theirs-0"
    for suffix in (".log", ".txnindex"):
        assert files(folder, suffix) == files(wanted, suffix)
    assert dumped(folder) == dumped(wanted)


@pytest.mark.parametrize("folder", ["data", KILLED])
def test_a_volume_of_kafkas_verifies(theirs: Theirs, folder: str) -> None:
    totals = Totals()
    findings = [str(finding) for finding in verify(str(theirs.node.data.with_name(folder)), totals)]
    assert totals.faults == 0, findings
    assert totals.batches > 200


def test_our_transactions_are_kafkas(theirs: Theirs, tmp_path: Path) -> None:
    """Kafka is given our log alone: it serves it, and makes the indexes and snapshots that we made."""
    directory = LogDirectory.open(tmp_path / "data", LogSettings(flush_policy=FlushPolicy.OS))
    log = directory.create("ours", 0, bytes(16), LogConfig(segment_bytes=SEGMENT_BYTES))
    committed, everything = write(log, directory.clock)
    directory.flusher.sync_now()
    log.close()
    ours = tmp_path / "data" / "ours-0"
    assert len(files(ours, ".log")) > 2
    assert len(files(ours, ".txnindex")) > 1
    assert_sound(ours)

    node = theirs.node
    given = node.data / "ours-0"
    for path in given.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    for path in (*ours.glob("*.log"), ours / "leader-epoch-checkpoint"):
        shutil.copy(path, given)
    (node.data / CLEAN).unlink()
    with node:
        assert consume(node.bootstrap, "ours", "read_uncommitted") == everything
        assert consume(node.bootstrap, "ours", "read_committed") == committed
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        assert files(given, suffix) == files(ours, suffix)
    assert dumped(given) == dumped(ours)
    directory.release()


def write(log: PartitionLog, clock: Callable[[], int]) -> tuple[Rows, Rows]:
    """Overlapping transactions of three producers, every third aborted; (offset, key) of what committed and of all
    readers get."""
    aborted: set[int] = set()
    everything: Rows = []
    sequences = [0, 0, 0]
    for number in range(60):
        producer = number % 3
        log.transactions.begin(producer, 0)
        for _ in range(2):
            key = f"{number} {sequences[producer]}"
            batch = build_batch(
                [Record(0, clock(), key.encode(), VALUE.encode())],
                producer_id=producer,
                producer_epoch=0,
                base_sequence=sequences[producer],
                transactional=True,
            )
            sequences[producer] += 1
            appended = log.append(batch)
            assert appended.error_code == 0
            everything.append((appended.base_offset, key))
        if number >= 2:  # the one that was begun two rounds ago
            ends = (number - 2) % 3
            rows = [offset for offset, key in everything if int(key.split()[0]) == number - 2]
            if (number - 2) % 4 == 0:
                aborted.update(rows)
            assert log.transactions.end(ends, 0, commit=(number - 2) % 4 != 0, coordinator_epoch=7).error_code == 0
    stable = log.last_stable_offset
    assert stable < log.log_end_offset
    return [row for row in everything if row[0] not in aborted and row[0] < stable], everything


def assert_sound(folder: Path) -> None:
    paths = [
        path for suffix in ("log", "index", "timeindex", "txnindex", "snapshot") for path in folder.glob(f"*.{suffix}")
    ]
    options = ("--deep-iteration", "--print-data-log", "--files", ",".join(map(str, paths)))
    output = java("org.apache.kafka.tools.DumpLogSegments", *options)
    words = [line for line in output.splitlines() if "isvalid: false" in line or "mismatch" in line.lower()]
    assert words == []
    assert output.count("version: 0 producerId:") == sum(
        len(each) // 34 for each in files(folder, ".txnindex").values()
    )
