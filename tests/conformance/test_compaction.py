"""Kafka's cleaner and ours leave the same batches of the same log, and both find the same offsets by timestamp in them.

Kafka's tool finds no fault in ours. The log has several producers, every codec, tombstones, and transactions that were
committed and aborted. Both compact it. Then more records are appended to the rest, and both compact that: by now the
delete horizons are over.
"""

import asyncio
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from broker_contract import data_pb2 as pb
from confluent_kafka.admin import AdminClient, NewTopic
from conformance.log_dumps import batches, contents, dump, dumped_rows, files_of, sound
from conformance.log_folders import CLEAN, EPOCHS, IDENTITY
from conformance.raw_connection import Connection, until_led
from protocol_lib.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.partition.partition_log import Origin, PartitionLog
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.rpc.offsets import OffsetsService
from support.kafka_broker import ApacheKafka, need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

TOPIC = "compacted"
FOLDER = f"{TOPIC}-0"
CHECKPOINT = "cleaner-offset-checkpoint"
CONFIGS = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "0",
    "min.cleanable.dirty.ratio": "0.01",
    "segment.bytes": str(1 << 20),
}
EPOCH_MS = int(time.time() // 3600 * 3600 - 7200) * 1000  # wall clock: timestamps of records that Kafka must not expire
KEYS = 300
#: -3: the largest timestamp.
ASKED = (-3, *range(EPOCH_MS, EPOCH_MS + 30_000, 750))
DEEP = ("--deep-iteration", "--print-data-log")


class Writer:
    """Fills a log by itself, as no client is needed to."""

    def __init__(self, log: PartitionLog, seed: str) -> None:
        self._log = log
        self._chance = random.Random(seed)
        self._sequences: dict[int, int] = {}

    def superseded(self, producer_id: int, timestamp: int) -> None:
        """Append a producer's last batch. Its only record is gone after the next compaction; the batch and its
        timestamp stay.
        """
        for at, writer, sequence in ((timestamp, producer_id, 0), (EPOCH_MS, -1, -1)):
            epoch = 0 if writer >= 0 else -1
            batch = build_batch(
                [Record(0, at, b"superseded", b"v")], producer_id=writer, producer_epoch=epoch, base_sequence=sequence
            )
            assert self._log.append(batch, origin=Origin.COORDINATOR).error_code == 0

    def _append(self, count: int, *, producer_id: int = -1, transactional: bool = False) -> None:
        chance = self._chance
        records = []
        for index in range(count):
            value = None if chance.random() < 0.1 else chance.randbytes(chance.randint(0, 2000)).hex().encode()
            records.append(Record(index, EPOCH_MS + chance.randint(0, 9999), b"k%d" % chance.randint(0, KEYS), value))
        sequence = self._sequences.get(producer_id, 0) if producer_id >= 0 else -1
        self._sequences[producer_id] = sequence + count
        batch = build_batch(
            records,
            codec=chance.choice(list(Codec)),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=sequence,
            transactional=transactional,
        )
        appended = self._log.append(batch, origin=Origin.CLIENT if producer_id >= 0 else Origin.COORDINATOR)
        assert appended.error_code == 0, appended

    def write(self, batches: int, producers: range, transactional: range) -> None:
        for number in range(batches):
            self._append(self._chance.randint(1, 12), producer_id=self._chance.choice([-1, *producers]))
            if number % 9 == 0:
                self._transaction(self._chance.choice(transactional), commit=self._chance.random() < 0.5)

    def _transaction(self, producer_id: int, *, commit: bool) -> None:
        for _ in range(self._chance.randint(1, 3)):
            self._append(self._chance.randint(1, 4), producer_id=producer_id, transactional=True)
        ended = end_transaction(self._log, producer_id, 0, commit=commit, coordinator_epoch=1)
        assert ended.error_code == 0, ended


def opened(data: Path) -> tuple[DataFolder, PartitionLog]:
    directory = DataFolder.open(data, LogSettings())
    return directory, directory.create(TOPIC, 0, bytes(range(16)), LogConfig.from_properties(CONFIGS))


def closed(directory: DataFolder) -> None:
    """Sync the folder and leave it as a kill does, so that the next start rebuilds everything."""
    for log in directory.logs.values():
        log.request_sync()
    directory.flusher.sync_now()
    directory.check_invariants()
    directory.release()


def cleaned_by_us(data: Path) -> list[tuple[int, int, int, int]]:
    directory, log = opened(data)
    log.request_sync()
    directory.flusher.sync_now()
    statistics = Maintenance(directory).cleaner.clean_now(log)
    assert statistics.cleaned_to == log.segments.active.base_offset
    assert statistics.records_kept < statistics.records_read
    targets = [pb.ListOffsetsRequest.Target(topic=TOPIC, timestamp=at, current_leader_epoch=-1) for at in ASKED]
    answer = asyncio.run(OffsetsService(directory).list_offsets(pb.ListOffsetsRequest(targets=targets)))
    closed(directory)
    return [(each.error_code, each.timestamp, each.offset, each.leader_epoch) for each in answer.offsets]


def cleaned_by_kafka(node: ApacheKafka, source: Path, cleaned_to: int) -> list[tuple[int, int, int, int]]:
    """Clean the log with Kafka, which gets nothing but the log.

    Return ListOffsets' results after it: error, timestamp, offset, epoch.
    """
    folder = node.data / FOLDER
    for path in folder.iterdir():
        if path.name != IDENTITY:
            path.unlink()
    for path in (*files_of(source / FOLDER, ".log"), source / FOLDER / EPOCHS):
        shutil.copy(path, folder)
    (node.data / CLEAN).unlink()
    with node:
        deadline = time.monotonic() + 60
        while f"{TOPIC} 0 {cleaned_to}\n" not in (node.data / CHECKPOINT).read_text():
            assert time.monotonic() < deadline, node.output()
            time.sleep(0.1)
        connection = Connection(node.bootstrap)
        found = []
        for at in ASKED:
            partition = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=at)
            topics = (ListOffsetsTopic(name=TOPIC, partitions=(partition,)),)
            answer = connection.call(2, 7, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=topics))
            (answered,) = answer.topics[0].partitions
            found.append((answered.error_code, answered.timestamp, answered.offset, answered.leader_epoch))
        connection.close()
        return found


def described(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the headers of the batches of each segment, without their positions and the fields that depend on the
    time.
    """
    found = {}
    for path in files_of(folder, ".log"):
        found[path.name] = [
            {
                **{name: value for name, value in batch.items() if name not in ("position", "size", "crc")},
                "deleteHorizonMs": "deleteHorizonMs" in batch,
            }
            for batch in batches(sound(dump(path)))
        ]
    return found


def rows(folder: Path) -> list[Any]:
    """Return the records with their offsets, of which some must be missing."""
    outputs = [dump(path, options=DEEP).partition("Non-consecutive offsets")[0] for path in files_of(folder, ".log")]
    return [row for output in outputs for row in dumped_rows(sound(output))]


def aborted(folder: Path) -> dict[str, list[tuple[bytes, bytes]]]:
    """Return the transaction indexes without the first offsets. Ours are from before the first compaction.

    Kafka, which received nothing but the log, knows only the offsets that the compaction has left.
    """
    return {
        name: [(index[at : at + 10], index[at + 18 : at + 34]) for at in range(0, len(index), 34)]
        for name, index in contents(folder, ".txnindex").items()
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> ApacheKafka:
    """A node, stopped, that has the topic without records."""
    need_java()
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), {"log.cleaner.backoff.ms": "100"})
    with node:
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, config=CONFIGS)])[TOPIC].result()
        until_led(node.bootstrap, TOPIC)
    (node.data / CHECKPOINT).touch()
    return node


def test_both_leave_the_same(node: ApacheKafka, tmp_path: Path) -> None:
    data = tmp_path / "data"
    directory, log = opened(data)
    first = Writer(log, "first")
    first.superseded(50, EPOCH_MS + 20_000)
    first.write(400, range(1, 4), range(100, 104))
    written = log.log_end_offset
    assert len(log.segments) > 4
    closed(directory)
    for more in range(2):
        directory, log = opened(data)
        cleaned_to = log.segments.active.base_offset
        if more:
            # The producers of the first part are silent by now: their last batches stay, emptied or not.
            Writer(log, "second").write(400, range(10, 12), range(200, 204))
            cleaned_to = log.segments.active.base_offset
            assert cleaned_to > written
        closed(directory)
        theirs_by_time, ours_by_time = cleaned_by_kafka(node, data, cleaned_to), cleaned_by_us(data)
        assert ours_by_time == theirs_by_time
        theirs, ours = node.data / FOLDER, data / FOLDER
        assert described(ours) == described(theirs)
        assert rows(ours) == rows(theirs)
        assert aborted(ours) == aborted(theirs)
        indexes = [*files_of(ours, ".index"), *files_of(ours, ".timeindex")]
        assert len(indexes) == 2 * (len(files_of(ours, ".log")) - 1), "all but the active segment's"
        for option in ("--index-sanity-check", "--verify-index-only"):
            sound(dump(*indexes, options=(option,)))
