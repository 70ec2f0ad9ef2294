"""Transactions in the log: Kafka's files served by Millrace, ours by Kafka, and both the same, byte for byte.

Two transactional producers of Apache Kafka take turns in one partition. Their transactions overlap, and every third one
is aborted. An idempotent producer writes between them. The same batches and markers are appended to a log of ours.
Each is looked at when everything is decided, and as it was with one transaction open.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from conformance.log_dumps import contents, dump, dumped_producers, files_of, sound
from conformance.log_folders import EPOCHS, KILLED, copy_as_killed, hand_logs_over, millrace, stop
from conformance.log_rows import EPOCH_MS, SEGMENT_BYTES, Row, create, read_with_offsets
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import CONTROL
from protocol_lib.records.record import read_records
from storage_svc.log.batch.header import Header, headers
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.log.inspection.verification import Totals, verify
from storage_svc.log.partition.transaction_end import end_transaction
from support.kafka_broker import ApacheKafka
from support.maven import need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

TOPIC = "transactions"
FOLDER = f"{TOPIC}-0"
ROUNDS = 18
LEVELS = ("read_committed", "read_uncommitted")
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")

Reading = dict[str, tuple[int, dict[int, Row]]]


class Theirs(NamedTuple):
    node: ApacheKafka
    #: The records that Kafka's consumers received at the end, and while the last transaction was open.
    whole: Reading
    undecided: Reading


def _send(producer: Producer, name: str, count: int) -> None:
    for number in range(count):
        producer.produce(TOPIC, f"{name}-{number}-{'=' * 5000}", f"k{number}", 0, timestamp=EPOCH_MS + number)
    assert producer.flush(60) == 0


def _write(bootstrap: str) -> Iterator[None]:
    """Write the log; yield when one transaction is open and everything else is over."""
    first, second = (Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) for name in ("one", "two"))
    plain = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "compression.codec": "lz4"})
    for producer in (first, second):
        producer.init_transactions(60)
    for number in range(ROUNDS):
        for producer, name in ((first, "one"), (second, "two")):
            producer.begin_transaction()
            _send(producer, f"{name}-{number}", 9)
        _send(plain, f"plain-{number}", 3)
        for index, producer in enumerate((second, first)):
            if (number + index) % 3:
                producer.commit_transaction(60)
            else:
                producer.abort_transaction(60)
    first.begin_transaction()
    _send(first, "open", 3)
    _send(plain, "behind", 3)
    yield
    first.abort_transaction(60)


def _readings(bootstrap: str) -> Reading:
    return {level: read_with_offsets(bootstrap, TOPIC, level) for level in LEVELS}


def _readings_when_marked(bootstrap: str, first_open: str = "") -> Reading:
    """Wait for Kafka's markers, which it writes after it has answered the producer. Then return the reading.

    `first_open` is the beginning of the first value of the one transaction that is still open.
    """
    deadline = time.monotonic() + 60
    while True:
        readings = _readings(bootstrap)
        end, found = readings["read_uncommitted"]
        if first_open:
            (end,) = (offset for offset, row in found.items() if (row.value or "").startswith(first_open))
        if readings["read_committed"][0] == end:
            return readings
        assert time.monotonic() < deadline, f"committed up to {readings['read_committed'][0]}, not {end}"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Theirs:
    """A node that wrote the topic and was stopped in order; a copy of its folder from when a transaction was open."""
    need_java()
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), {"log.cleaner.enable": "false"})
    with node:
        create(node.bootstrap, TOPIC, segment_bytes=str(SEGMENT_BYTES))
        writing = _write(node.bootstrap)
        next(writing)
        undecided = _readings_when_marked(node.bootstrap, "open-0-")
        copy_as_killed(node.data)
        next(writing, None)
        whole = _readings_when_marked(node.bootstrap)
    return Theirs(node, whole, undecided)


def _batches(folder: Path) -> Iterator[tuple[Header, bytes]]:
    files = Files()
    for path in files_of(folder, ".log"):
        descriptor = files.open(str(path), create=False)
        for position, header in headers(files, descriptor, 0, files.size(str(path))):
            yield header, files.read(descriptor, header.size, position)
        files.close(descriptor)


def _appended_again(source: Path, data: Path) -> Path:
    """Return a data folder of ours with the batches and markers of Kafka's log, appended one by one at their
    timestamps.
    """
    now_ms = [0]
    directory = DataFolder.open(data, LogSettings(), clock=lambda: now_ms[0])
    log = directory.create(TOPIC, 0, bytes(range(16)), LogConfig(segment_bytes=SEGMENT_BYTES))
    for header, batch in _batches(source / FOLDER):
        now_ms[0] = header.max_timestamp
        producer = header.producer_id, header.producer_epoch
        if header.attributes & CONTROL:
            (record,) = read_records(batch)
            marker = read_marker(record)
            commit = marker.type is ControlType.COMMIT
            appended = end_transaction(log, *producer, commit=commit, coordinator_epoch=marker.coordinator_epoch)
        else:
            appended = log.append(bytes(8) + batch[8:])
        assert (appended.error_code, appended.base_offset) == (0, header.base_offset)
    asyncio.run(directory.close())
    return data


@pytest.fixture(scope="module")
def ours(theirs: Theirs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of Kafka's log, in a data folder of ours."""
    return _appended_again(theirs.node.data, tmp_path_factory.mktemp("millrace"))


@pytest.fixture(scope="module")
def compacted(ours: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, all of it compacted."""
    data = tmp_path_factory.mktemp("compacted") / "data"
    shutil.copytree(ours, data)
    directory = DataFolder.open(data, LogSettings())
    config = LogConfig(segment_bytes=SEGMENT_BYTES, cleanup_policy=frozenset(("compact",)))
    log = directory.create(TOPIC, 0, bytes(range(16)), config)
    log.roll(directory.clock())
    directory.flusher.sync_now()
    assert Maintenance(directory).cleaner.clean_now(log).cleaned_to == log.log_end_offset
    asyncio.run(directory.close())
    return data


def test_the_topic_holds_what_the_tests_need(theirs: Theirs) -> None:
    folder = theirs.node.data / FOLDER
    assert len(files_of(folder, ".log")) == 2
    assert [path.stat().st_size > 0 for path in files_of(folder, ".txnindex")] == [True, True]
    end, committed = theirs.whole["read_committed"]
    stable_end, undecided = theirs.undecided["read_committed"]
    assert stable_end < theirs.undecided["read_uncommitted"][0] < end
    assert set(undecided) < set(committed) < set(theirs.whole["read_uncommitted"][1])


def test_the_same_appends_make_the_same_files(theirs: Theirs, ours: Path) -> None:
    made, wanted = ours / FOLDER, theirs.node.data / FOLDER
    for suffix in SUFFIXES:
        assert contents(made, suffix) == contents(wanted, suffix), suffix
    assert _entries(made) == _entries(wanted)


def _entries(folder: Path) -> dict[str, list[bytes]]:
    """Return the entries of each producer snapshot, in the order of their bytes: Kafka's is that of a hash map."""
    return {
        name: sorted(data[start : start + 46] for start in range(10, len(data), 46))
        for name, data in contents(folder, ".snapshot").items()
    }


@pytest.mark.parametrize("of", ["ours", "compacted"])
def test_kafkas_tool_finds_no_fault_in_our_transactions(of: str, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(of) / FOLDER
    files = [path for suffix in (*SUFFIXES, ".snapshot") for path in files_of(folder, suffix)]
    sound(dump(*files, options=("--deep-iteration", "--print-data-log")), gaps=of == "compacted")
    indexes = [*files_of(folder, ".index"), *files_of(folder, ".timeindex")]
    sound(dump(*indexes, options=("--verify-index-only",)))
    sane = dump(*indexes, options=("--index-sanity-check",))
    assert sane.count("passed sanity check.") + sane.count("is empty.") == len(indexes)


@pytest.mark.parametrize(
    ("handed_over", "layout"),
    [("all", ()), ("all", ("--processes",)), ("logs", ()), ("killed", ()), ("killed", ("--processes",))],
)
def test_millrace_serves_kafkas_transactions(
    theirs: Theirs, tmp_path: Path, handed_over: str, layout: tuple[str, ...]
) -> None:
    """The files are used as they are, or rebuilt from the logs alone; in one case a transaction is open."""
    source = theirs.node.data.with_name(KILLED) if handed_over == "killed" else theirs.node.data
    expected = theirs.undecided if handed_over == "killed" else theirs.whole
    data = tmp_path / "data"
    if handed_over == "logs":
        (data / FOLDER).mkdir(parents=True)
        for path in (*files_of(source / FOLDER, ".log"), source / FOLDER / EPOCHS):
            shutil.copy(path, data / FOLDER)
    else:
        shutil.copytree(source, data)
    with millrace(data, *layout) as up:
        assert {level: read_with_offsets(up.kafka, TOPIC, level) for level in LEVELS} == expected
        stop(up)
        assert "rebuilt" not in up.log()
    made, wanted = data / FOLDER, theirs.node.data / FOLDER
    if handed_over != "killed":
        for suffix in SUFFIXES:
            assert contents(made, suffix) == contents(wanted, suffix), suffix
        assert dumped_producers(made) == dumped_producers(wanted)


@pytest.mark.parametrize("folder", ["data", KILLED])
def test_kafkas_volume_verifies(theirs: Theirs, folder: str) -> None:
    totals = Totals()
    findings = [str(finding) for finding in verify(str(theirs.node.data.with_name(folder)), totals)]
    assert totals.faults == 0, findings
    assert totals.batches > 100


def test_a_kafka_server_serves_our_transactions(theirs: Theirs, ours: Path) -> None:
    """It recovers them from our logs alone and makes the same indexes."""
    hand_logs_over(ours / FOLDER, theirs.node)
    with theirs.node as node:
        assert _readings(node.bootstrap) == theirs.whole
    for suffix in SUFFIXES:
        assert contents(theirs.node.data / FOLDER, suffix) == contents(ours / FOLDER, suffix), suffix


def test_a_kafka_server_goes_on_with_our_open_transaction(theirs: Theirs, tmp_path: Path) -> None:
    ours = _appended_again(theirs.node.data.with_name(KILLED), tmp_path)
    hand_logs_over(ours / FOLDER, theirs.node)
    with theirs.node as node:
        assert _readings(node.bootstrap) == theirs.undecided


def test_a_kafka_server_serves_what_we_compacted(theirs: Theirs, ours: Path, compacted: Path) -> None:
    """The newest committed record of every key is there, at its offset."""
    newest = {row.key: offset for offset, row in theirs.whole["read_committed"][1].items()}
    expected = {offset: row for offset, row in theirs.whole["read_committed"][1].items() if newest[row.key] == offset}
    size, before = (sum(path.stat().st_size for path in files_of(data / FOLDER, ".log")) for data in (compacted, ours))
    assert (len(expected), size * 10 < before) == (9, True)
    hand_logs_over(compacted / FOLDER, theirs.node)
    with theirs.node as node:
        assert read_with_offsets(node.bootstrap, TOPIC, "read_committed")[1] == expected
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(theirs.node.data / FOLDER, suffix) == contents(compacted / FOLDER, suffix), suffix
