"""Millrace's files are Apache Kafka's: each reads, checks and continues what the other wrote.

Apache Kafka itself (kafka_broker) does the reading: its DumpLogSegments tool on every file of a Millrace data folder;
its server on a partition of ours, from which it also makes every index and producer snapshot anew, for comparison; and
the other way round Millrace on partitions and committed offsets that Kafka's server wrote.

Every topic written here has a partition 0 of records in every codec by idempotent producers, enough for segments to
roll, their timestamps out of order; and a small partition 1 with headers, null keys and tombstones.
"""

import base64
import json
import random
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_broker import ApacheKafka, java
from maven import need_java
from millrace.running import RunningUp

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PER_CODEC = 200
NOISE_BYTES = 2100
SEGMENT_BYTES = 1 << 20  # the least that Kafka accepts
GROUP = "readers"
COMMITTED = {0: 321, 1: 7}
OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 3
KILLED = "killed"  # a data folder as it was at some moment, idle, as a kill would have left it
CLEAN = ".kafka_cleanshutdown"
IDENTITY = "partition.metadata"
EPOCHS = "leader-epoch-checkpoint"

# What DumpLogSegments says of files that are not as they should be.
COMPLAINTS = re.compile(
    "mismatch|non-consecutive|non-secutive|not found|corrupt|out of order|isvalid: false|invalid|exception|error"
    "|unexpected|trailing|incomplete|fail|ignoring|could not|unknown",
    re.IGNORECASE,
)

NUMBER = re.compile(r"-?\d+")
RECORD = re.compile(
    r"\| offset: (\d+) (?:Create|LogAppend)Time: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: -?\d+"
    r" headerKeys: \[(\w*)\](?: key: (\w+))?(?: payload: (\S*))?"
)


class Row(NamedTuple):
    """One record; its place in a list is its offset."""

    timestamp: int
    key: str | None
    value: str | None
    header: str | None = None


def rows_of(seed: str) -> dict[int, list[Row]]:
    """The records of a topic's partitions, the same whenever they are asked for within an hour of a test run."""
    randomness = random.Random(seed)
    rows = []
    for number in range(PER_CODEC * len(CODECS)):
        noise = base64.b64encode(randomness.randbytes(NOISE_BYTES)).decode()
        rows.append(Row(EPOCH_MS + number * 7919 % 5000, f"k{number % 31}", f"{number}-{noise}{'-' * 1200}"))
    small = [Row(EPOCH_MS + number, f"s{number}", f"v{number}", "trace") for number in range(20)]
    small[3] = small[3]._replace(key=None)
    small[5] = small[5]._replace(value=None)
    small[6] = small[6]._replace(value="")
    return {0: rows, 1: small}


EPOCH_MS = int(time.time() // 3600 * 3600 - 7200) * 1000


# -- Apache Kafka -----------------------------------------------------------------------------------------------------


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    return java("org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))


def sound(output: str) -> str:
    """A dump without a word of complaint; what records hold does not count."""
    # Of every file whose first offset is not 0, Kafka's own ones included, the tool says: -1 is followed by it.
    said = re.sub(r"Non-consecutive offsets in \S*\n(?:  -1 is followed by \d+\n)(?!  )", "", output + "\n")
    lines = [re.sub(r" (key|payload): .*", "", line).replace("isvalid: true", "") for line in said.splitlines()]
    complaints = [line for line in lines if COMPLAINTS.search(line)]
    assert not complaints, "\n".join(complaints[:20])
    return output


def by_file(output: str) -> dict[str, list[str]]:
    """The lines of a dump by the name of the file they are about."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("Dumping "):
            found[Path(line.removeprefix("Dumping ")).name] = lines = []
        elif line:
            lines.append(line)
    return found


def batches(output: str) -> list[dict[str, Any]]:
    """The batches of a dump: the words in front of the colons and what follows, numbers as numbers."""
    found = []
    for line in output.splitlines():
        if line.startswith("baseOffset: "):
            fields = dict(re.findall(r"(\w+): (\S+)", line))
            found.append({name: int(value) if NUMBER.fullmatch(value) else value for name, value in fields.items()})
    return found


def dumped_rows(output: str) -> list[tuple[int, Row]]:
    """The records of a dump with their offsets, in its order."""
    found = []
    for line in output.splitlines():
        if match := RECORD.fullmatch(line):
            offset, timestamp, key_size, value_size, header, key, value = match.groups()
            row = Row(int(timestamp), key, value, header or None)
            sizes = tuple(-1 if text is None else len(text) for text in (row.key, row.value))
            assert sizes == (int(key_size), int(value_size)), line
            found.append((int(offset), row))
    return found


def producers(lines: list[str]) -> dict[int, tuple[int, ...]]:
    """A dumped snapshot: producer id -> epoch, and the first and last sequence, last offset and timestamp of its last
    batch."""
    names = ("producerEpoch", "firstSequence", "lastSequence", "lastOffset", "timestamp")
    fields = [dict(re.findall(r"(\w+): (-?\d+)", line)) for line in lines if line.startswith("producerId: ")]
    return {int(each["producerId"]): tuple(int(each[name]) for name in names) for each in fields}


def dumped_producers(folder: Path) -> dict[str, dict[int, tuple[int, ...]]]:
    """Every snapshot of a partition, by file name."""
    paths = files_of(folder, ".snapshot")
    dumped = by_file(sound(dump(*paths)))
    return {path.name: producers(dumped[path.name]) for path in paths}


def files_of(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def contents(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files_of(folder, suffix)}


def flip_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)


# -- writing and reading ----------------------------------------------------------------------------------------------


def produce(bootstrap: str, topic: str, partition: int, rows: list[Row], codec: str, *, idempotent: bool) -> None:
    """All rows, in order, in batches of a few records."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.codec": codec,
            "enable.idempotence": idempotent,
            "batch.num.messages": 7,
            "linger.ms": 50,
        }
    )
    failed: list[KafkaError] = []
    for row in rows:
        producer.produce(
            topic,
            row.value,
            row.key,
            partition,
            on_delivery=lambda error, _: failed.append(error) if error else None,
            timestamp=row.timestamp,
            headers=[(row.header, b"1")] if row.header else None,
        )
    assert producer.flush(60) == 0
    assert not failed, failed


def write_topic(bootstrap: str, topic: str, rows: dict[int, list[Row]]) -> None:
    """A codec after the other, each by a producer of its own."""
    for index, codec in enumerate(CODECS):
        part = rows[0][index * PER_CODEC : (index + 1) * PER_CODEC]
        produce(bootstrap, topic, 0, part, codec, idempotent=True)
    produce(bootstrap, topic, 1, rows[1], "none", idempotent=False)


def create(bootstrap: str, topic: str, **configs: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    named = {name.replace("_", "."): value for name, value in configs.items()}
    admin.create_topics([NewTopic(topic, 2, 1, config=named)])[topic].result(60)


def topics(bootstrap: str) -> set[str]:
    return set(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics)


def consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )


def read(bootstrap: str, topic: str, partition: int) -> list[Row]:
    """Every record of a partition; their offsets must be consecutive and the log must begin at 0."""
    client = consumer(bootstrap)
    found: list[Row] = []
    try:
        start, end = client.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        assert start == 0
        client.assign([TopicPartition(topic, partition, 0)])
        while len(found) < end:
            message = client.poll(30)
            assert message is not None, f"{topic}-{partition}: {len(found)} records, then nothing"
            assert message.error() is None, message.error()
            assert message.offset() == len(found)
            key, value, headers = message.key(), message.value(), message.headers()
            found.append(
                Row(
                    message.timestamp()[1],
                    None if key is None else key.decode(),
                    None if value is None else value.decode(),
                    headers[0][0] if headers else None,
                )
            )
    finally:
        client.close()
    return found


def assert_found_by_timestamp(bootstrap: str, topic: str, rows: list[Row]) -> None:
    """Partition 0 is searched for the first record that is not older."""
    stamps = sorted(row.timestamp for row in rows)
    wanted = [stamps[0] - 1, *stamps[:: len(stamps) // 12], stamps[-1]]
    client = consumer(bootstrap)
    try:
        for stamp in wanted:
            (found,) = client.offsets_for_times([TopicPartition(topic, 0, stamp)], timeout=30)
            assert found.offset == next(offset for offset, row in enumerate(rows) if row.timestamp >= stamp)
    finally:
        client.close()


def commit(bootstrap: str, topic: str) -> None:
    """The group's offsets, committed by a member of it."""
    client = consumer(bootstrap)
    assigned: list[bool] = []
    try:
        client.subscribe([topic], on_assign=lambda *_: assigned.append(True))
        deadline = time.monotonic() + 60
        while not assigned and time.monotonic() < deadline:
            client.poll(0.2)
        assert assigned, "the member got no assignment"
        offsets = [TopicPartition(topic, partition, offset) for partition, offset in COMMITTED.items()]
        client.commit(offsets=offsets, asynchronous=False)
    finally:
        client.close()


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    client = consumer(bootstrap)
    try:
        found = client.committed([TopicPartition(topic, partition) for partition in COMMITTED], timeout=30)
        return {each.partition: each.offset for each in found}
    finally:
        client.close()


def stop(up: RunningUp) -> None:
    assert up.stop() == 0, up.log()[-3000:]


def millrace(data: Path) -> RunningUp:
    arguments = ("--data-dir", str(data), "--kafka-port", "0", "--http-port", "0")
    environment = {
        "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "MILLRACE_OFFSETS_TOPIC_NUM_PARTITIONS": str(OFFSETS_PARTITIONS),
    }
    return RunningUp(*arguments, environment=environment)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder that Millrace wrote and closed in order: the topics `ours` and `stamped`, and a group's offsets."""
    need_java()
    data = tmp_path_factory.mktemp("millrace") / "data"
    with millrace(data) as up:
        create(up.kafka, "ours", segment_bytes=str(SEGMENT_BYTES))
        write_topic(up.kafka, "ours", rows_of("ours"))
        create(up.kafka, "stamped", message_timestamp_type="LogAppendTime", compression_type="zstd")
        produce(up.kafka, "stamped", 0, rows_of("stamped")[1], "gzip", idempotent=True)
        commit(up.kafka, "ours")
        shutil.copytree(data, data.with_name(KILLED))
        stop(up)
    assert (data / CLEAN).exists()
    return data


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> ApacheKafka:
    """A node, stopped in order, that wrote the topic `theirs` and a group's offsets, and has an empty topic `ours`."""
    need_java()
    node = ApacheKafka(tmp_path_factory.mktemp("kafka"), {"log.cleaner.enable": "false"})
    with node:
        create(node.bootstrap, "theirs", segment_bytes=str(SEGMENT_BYTES))
        create(node.bootstrap, "ours", segment_bytes=str(SEGMENT_BYTES))
        write_topic(node.bootstrap, "theirs", rows_of("theirs"))
        commit(node.bootstrap, "theirs")
        shutil.copytree(node.data, node.data.with_name(KILLED))
    return node


# -- tests ------------------------------------------------------------------------------------------------------------


def test_kafkas_tool_reads_every_file_and_finds_what_was_produced(ours: Path) -> None:
    for partition, rows in rows_of("ours").items():
        folder = ours / f"ours-{partition}"
        logs, indexes = files_of(folder, ".log"), files_of(folder, "index")
        assert len(logs) == (3 if partition == 0 else 1)
        assert len(indexes) == 2 * len(logs)
        dumped = sound(dump(*logs, *indexes, options=("--deep-iteration", "--print-data-log")))
        assert dumped_rows(dumped) == list(enumerate(rows))
        assert sum(batch["count"] for batch in batches(dumped)) == len(rows)
        sane = dump(*indexes, options=("--index-sanity-check",)).splitlines()
        said = {path: "passed sanity check." if path.stat().st_size else "is empty." for path in indexes}
        assert sane == [line for path in indexes for line in (f"Dumping {path}", f"{path} {said[path]}")]
        sound(dump(*indexes, options=("--verify-index-only",)))


def test_the_batches_are_as_their_producers_made_them(ours: Path) -> None:
    found = batches(dump(*files_of(ours / "ours-0", ".log")))

    assert all(batch["isvalid"] == "true" and batch["magic"] == 2 for batch in found)
    offsets = {codec: (index * PER_CODEC, (index + 1) * PER_CODEC - 1) for index, codec in enumerate(CODECS)}
    for codec, (first, last) in offsets.items():
        of_codec = [batch for batch in found if batch["compresscodec"] == codec]
        assert (of_codec[0]["baseOffset"], of_codec[-1]["lastOffset"]) == (first, last)
        assert len({batch["producerId"] for batch in of_codec}) == 1
        assert [batch["baseSequence"] for batch in of_codec] == [batch["baseOffset"] - first for batch in of_codec]
        assert {batch["partitionLeaderEpoch"] for batch in of_codec} == {0}
    assert (ours / "ours-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_producer_snapshots_are_named_by_offset_and_hold_each_producers_last_batch(ours: Path) -> None:
    folder = ours / "ours-0"
    bases = [int(path.stem) for path in files_of(folder, ".log")]
    assert [int(path.stem) for path in files_of(folder, ".snapshot")] == [*bases[1:], PER_CODEC * len(CODECS)]

    dumped = by_file(sound(dump(*files_of(folder, ".log"), *files_of(folder, ".snapshot"))))
    every = [batch for path in files_of(folder, ".log") for batch in batches("\n".join(dumped[path.name]))]
    for snapshot in files_of(folder, ".snapshot"):
        before = [batch for batch in every if batch["lastOffset"] < int(snapshot.stem)]
        assert producers(dumped[snapshot.name]) == {
            batch["producerId"]: (
                batch["producerEpoch"],
                batch["baseSequence"],
                batch["lastSequence"],
                batch["lastOffset"],
                batch["CreateTime"],
            )
            for batch in before
        }


def test_log_append_time_and_recompressed_batches_are_kafkas_too(ours: Path) -> None:
    folder = ours / "stamped-0"
    files = [*files_of(folder, ".log"), *files_of(folder, "index"), *files_of(folder, ".snapshot")]
    dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))

    rows = rows_of("stamped")[1]
    assert [row._replace(timestamp=0) for _, row in dumped_rows(dumped)] == [row._replace(timestamp=0) for row in rows]
    assert {batch["compresscodec"] for batch in batches(dumped)} == {"zstd"}
    stamps = [batch["LogAppendTime"] for batch in batches(dumped) for _ in range(batch["count"])]
    assert [row.timestamp for _, row in dumped_rows(dumped)] == stamps


def test_the_groups_records_are_what_kafkas_decoder_expects(ours: Path) -> None:
    folders = sorted(ours.glob(f"{OFFSETS}-*"))
    assert len(folders) == OFFSETS_PARTITIONS
    files = [path for folder in folders for suffix in (".log", "index") for path in files_of(folder, suffix)]
    dumped = sound(dump(*files, options=("--offsets-decoder",)))

    lines = re.findall(r" key: (\{.*\}) payload: (\{.*\})$", dumped, re.MULTILINE)
    decoded = [(json.loads(key), json.loads(value)) for key, value in lines]
    assert {
        (key["data"]["topic"], key["data"]["partition"]): value["data"]["offset"]
        for key, value in decoded
        if key["type"] == "1" and key["data"]["group"] == GROUP
    } == {("ours", partition): offset for partition, offset in COMMITTED.items()}
    groups = [value["data"] for key, value in decoded if key["type"] == "2" and key["data"]["group"] == GROUP]
    stable = [group for group in groups if group["members"]][-1]
    assert (stable["protocolType"], stable["protocol"]) == ("consumer", "range")
    (member,) = stable["members"]
    assert member["subscription"]["topics"] == ["ours"]
    assert member["assignment"]["assignedPartitions"] == [{"topic": "ours", "partitions": [0, 1]}]
    assert groups[-1]["members"] == []  # it left


def test_kafkas_tool_reads_every_file_of_a_killed_broker(ours: Path) -> None:
    for partition, rows in rows_of("ours").items():
        folder = ours.with_name(KILLED) / f"ours-{partition}"
        files = [path for suffix in (".log", "index", ".snapshot") for path in files_of(folder, suffix)]
        dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))
        assert dumped_rows(dumped) == list(enumerate(rows))


def test_kafkas_tool_complains_of_files_that_are_not_right(ours: Path, tmp_path: Path) -> None:
    """What the other tests rely on."""
    folder = shutil.copytree(ours / "ours-0", tmp_path / "ours-0")
    first = files_of(folder, ".log")[0]
    flip_byte(first, first.stat().st_size // 2)
    assert "isvalid: false" in dump(first)
    with pytest.raises(AssertionError, match="isvalid: false"):
        sound(dump(first))
    time_index = files_of(folder, ".timeindex")[1]
    flip_byte(time_index, 7)  # the last byte of the first timestamp
    with pytest.raises(AssertionError, match="mismatch"):
        sound(dump(time_index))
    snapshot = files_of(folder, ".snapshot")[0]
    flip_byte(snapshot, 30)
    with pytest.raises(AssertionError, match="corrupt"):
        sound(dump(snapshot))


def test_a_kafka_server_recovers_serves_and_continues_our_partitions(theirs: ApacheKafka, ours: Path) -> None:
    """Only the logs are handed over: Kafka makes every index and producer snapshot anew, and makes the same ones."""
    rows = rows_of("ours")
    for partition in rows:
        folder = theirs.data / f"ours-{partition}"
        for path in folder.iterdir():
            if path.name != IDENTITY:
                path.unlink()
        for path in (*files_of(ours / folder.name, ".log"), ours / folder.name / EPOCHS):
            shutil.copy(path, folder)
    (theirs.data / CLEAN).unlink()

    more = [Row(EPOCH_MS + 6000 + number, "more", str(number)) for number in range(10)]
    with theirs:
        assert read(theirs.bootstrap, "ours", 0) == rows[0]
        assert_found_by_timestamp(theirs.bootstrap, "ours", rows[0])
        produce(theirs.bootstrap, "ours", 1, more, "lz4", idempotent=True)
        assert read(theirs.bootstrap, "ours", 1) == [*rows[1], *more]

    made, wanted = theirs.data / "ours-0", ours / "ours-0"
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(made, suffix) == contents(wanted, suffix)
    assert dumped_producers(made) == dumped_producers(wanted)


@pytest.mark.parametrize("handed_over", ["all", "partitions", "killed"])
def test_millrace_serves_and_continues_partitions_that_a_kafka_server_wrote(
    theirs: ApacheKafka, tmp_path: Path, handed_over: str
) -> None:
    """Of the whole folder of a node that was stopped in order, the indexes are used as they are; from the partitions'
    folders alone, or the folder of a killed node, everything is recovered, and the indexes made anew are the same."""
    data = tmp_path / "data"
    source = theirs.data.with_name(KILLED) if handed_over == "killed" else theirs.data
    folders = [*source.glob("theirs-*"), *source.glob(f"{OFFSETS}-*")] if handed_over == "partitions" else []
    for folder in folders:
        shutil.copytree(folder, data / folder.name)
    if not folders:
        shutil.copytree(source, data)
    rows = rows_of("theirs")
    more = [Row(EPOCH_MS + 6000 + number, "more", str(number), "trace") for number in range(10)]

    with millrace(data) as up:
        assert "theirs" in topics(up.kafka)
        assert "__cluster_metadata" not in topics(up.kafka)
        assert read(up.kafka, "theirs", 0) == rows[0]
        assert_found_by_timestamp(up.kafka, "theirs", rows[0])
        assert committed(up.kafka, "theirs") == COMMITTED
        produce(up.kafka, "theirs", 1, more, "zstd", idempotent=True)
        assert read(up.kafka, "theirs", 1) == [*rows[1], *more]
        stop(up)
        said = up.log()

    assert "index rebuilt" not in said
    theirs_0, ours_0 = theirs.data / "theirs-0", data / "theirs-0"
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(ours_0, suffix) == contents(theirs_0, suffix)
    assert dumped_producers(ours_0) == dumped_producers(theirs_0)
    assert (ours_0 / IDENTITY).read_bytes() == (theirs_0 / IDENTITY).read_bytes()
    assert (ours_0 / EPOCHS).read_bytes() == (source / "theirs-0" / EPOCHS).read_bytes()
    continued = data / "theirs-1"
    files = [*files_of(continued, ".log"), *files_of(continued, "index"), *files_of(continued, ".snapshot")]
    dumped = sound(dump(*files, options=("--deep-iteration", "--print-data-log")))
    assert dumped_rows(dumped) == list(enumerate([*rows[1], *more]))
