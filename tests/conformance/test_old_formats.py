"""Segment files of message formats 0 and 1: Apache Kafka 4.3.0 and Millrace make the same of them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from conformance.log_dumps import contents, dump, sound
from conformance.log_folders import EPOCHS, hand_logs_over, millrace, stop
from conformance.log_rows import EPOCH_MS, Row, consumer, create, produce, read
from protocol_lib.records.compression import Codec
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record
from support.kafka_broker import ApacheKafka
from support.maven import need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

COUNT = 2000
FORMAT_1_FROM = 1000
#: librdkafka's timestamp type of a record of format 0.
NO_TIMESTAMP = 0
LATER = [Row(EPOCH_MS + 900_000 + number, "later", str(number), "trace") for number in range(5)]


def old_log(folder: Path) -> list[Row]:
    """Write a log of both formats, alternately compressed and not; return the records in it."""
    records = [Record(n, EPOCH_MS + 7 * (n % 300), b"key-%d" % n, b"value-%d" % (n * n)) for n in range(COUNT)]
    pieces = []
    for number, start in enumerate(range(0, COUNT, 20)):
        codec = (Codec.NONE, Codec.GZIP, Codec.NONE, Codec.SNAPPY, Codec.LZ4)[number % 5]
        pieces.append(build_message_set(records[start : start + 20], magic=int(start >= FORMAT_1_FROM), codec=codec))
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(b"".join(pieces))
    (folder / EPOCHS).write_text("0\n0\n")
    return [
        Row(NO_TIMESTAMP if n < FORMAT_1_FROM else record.timestamp, f"key-{n}", f"value-{n * n}", None)
        for n, record in enumerate(records)
    ]


def found_at(bootstrap: str, stamps: range) -> list[int]:
    client = consumer(bootstrap)
    wanted = [TopicPartition("old", 0, stamp) for stamp in stamps]
    try:
        return [client.offsets_for_times([each], timeout=30)[0].offset for each in wanted]
    finally:
        client.close()


def test_the_same_records_offsets_and_indexes(tmp_path: Path) -> None:
    need_java()
    rows = old_log(tmp_path / "made" / "old-0")
    sound(dump(tmp_path / "made" / "old-0" / f"{0:020d}.log", options=("--deep-iteration",)))
    stamps = range(EPOCH_MS - 1, EPOCH_MS + 2200, 100)

    node = ApacheKafka(tmp_path / "kafka", {"log.cleaner.enable": "false"})
    with node:
        create(node.bootstrap, "old")
    hand_logs_over(tmp_path / "made" / "old-0", node)
    with node:
        assert read(node.bootstrap, "old", 0) == rows
        theirs = found_at(node.bootstrap, stamps)

    data = tmp_path / "millrace"
    shutil.copytree(tmp_path / "made", data)
    with millrace(data) as up:
        assert read(up.kafka, "old", 0) == rows
        assert found_at(up.kafka, stamps) == theirs
        stop(up)
    for suffix in (".log", ".index", ".timeindex"):
        assert contents(data / "old-0", suffix) == contents(node.data / "old-0", suffix)

    with millrace(data) as up:
        produce(up.kafka, "old", 0, LATER, "zstd", idempotent=True)
        assert read(up.kafka, "old", 0) == [*rows, *LATER]
        stop(up)
    sound(dump(data / "old-0" / f"{0:020d}.log", options=("--deep-iteration",)))
