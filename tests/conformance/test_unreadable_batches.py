"""A stored batch whose records clients cannot read: `verify` names it, and the ways out of docs/operations.md work."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import cramjam
import pytest
from conformance.log_folders import EPOCHS, millrace, stop
from conformance.log_rows import Row, produce, read
from crc32c import crc32c
from protocol_lib.records.batch import build_batch
from protocol_lib.records.header import HEADER, HEADER_SIZE, LOG_OVERHEAD
from protocol_lib.records.record import Record
from storage_svc.log.batch.header import Header, unpack_header
from support.kafka_broker import JVM, libraries
from support.kafka_tools import run_tool, tool
from support.maven import need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

MILLRACE = str(Path(sys.executable).with_name("millrace"))
TIME_MS = 1_700_000_000_000
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
CONFIGS = "kafka.admin.ConfigCommand"
#: The first offset after the batch that is not read.
AFTER = 4


def batch(offset: int, count: int) -> bytes:
    records = [Record(offset + n, TIME_MS, b"k%d" % (offset + n), b"%d" % (offset + n)) for n in range(count)]
    return build_batch(records, base_offset=offset)


def with_block(plain: bytes, codec: int, block: bytes) -> bytes:
    """Return a batch with other bytes for its records, and the right CRC."""
    fields = Header._make(unpack_header(plain))._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(block), attributes=codec
    )
    whole = bytearray(HEADER_SIZE) + block
    HEADER.pack_into(whole, 0, *fields)
    HEADER.pack_into(whole, 0, *fields._replace(crc=crc32c(memoryview(whole)[21:])))
    return bytes(whole)


def linked(plain: bytes) -> bytes:
    """Return the batch as an LZ4 frame of linked blocks, as three client libraries have sent it."""
    writer = cramjam.lz4.Compressor(block_linked=True)
    writer.compress(plain[HEADER_SIZE:])
    return with_block(plain, 3, bytes(writer.finish()))


def broken(plain: bytes) -> bytes:
    """Return the batch with three bytes more than its records have."""
    return with_block(plain, 0, plain[HEADER_SIZE:] + b"abc")


def log(folder: Path, unreadable: bytes) -> None:
    """Write a partition of nine records, of which 1 to 3 cannot be read."""
    folder.mkdir(parents=True)
    (folder / f"{0:020d}.log").write_bytes(batch(0, 1) + unreadable + batch(AFTER, 5))
    (folder / EPOCHS).write_text("0\n1\n0 0\n")


def consumed(bootstrap: str, *options: str) -> list[str]:
    """Return the values that a Java consumer prints, in another JVM, as the tool counts in a static field."""
    command = [*JVM, "-cp", libraries(), CONSUMER, "--bootstrap-server", bootstrap, "--timeout-ms", "6000", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return [line for line in done.stdout.splitlines() if line.isdigit()]


def delete_before(bootstrap: str, plan: Path, topic: str) -> str:
    plan.write_text(json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": AFTER}], "version": 1}))
    return run_tool(DELETE, "--bootstrap-server", bootstrap, "--offset-json-file", str(plan))[0]


def ours(*arguments: str, kafka: str) -> None:
    subprocess.run([MILLRACE, *arguments, "--kafka", kafka], check=True, capture_output=True, timeout=60)


def verified(data: Path) -> tuple[int, list[str]]:
    """Return the exit status of `millrace storage verify`, and its lines about unreadable batches."""
    done = subprocess.run([MILLRACE, "storage", "verify", str(data)], capture_output=True, text=True, timeout=60)
    return done.returncode, [line for line in done.stdout.splitlines() if "cannot read" in line]


def test_the_ways_out(tmp_path: Path) -> None:
    need_java()
    data = tmp_path / "data"
    log(data / "linked-0", linked(batch(1, 3)))
    log(data / "broken-0", broken(batch(1, 3)))
    with millrace(data) as up:
        stop(up)
    position = len(batch(0, 1))
    place = f"{0:020d}.log: clients cannot read the batch at position {position}, offsets 1 to 3"
    status, lines = verified(data)
    assert status == 1
    assert lines == [
        f"fault  broken-0/{place}: 3 bytes after the last record",
        f"fault  linked-0/{place}: an LZ4 frame of linked blocks, which Kafka's consumers do not read",
    ]

    with millrace(data) as up:
        assert consumed(up.kafka, "--topic", "linked", "--from-beginning") == ["0"]
        # Over the batch: a group that is set to the offset after it.
        group = ("--bootstrap-server", up.kafka, "--group", "g", "--topic", "linked:0")
        tool(GROUPS, *group, "--reset-offsets", "--to-offset", str(AFTER), "--execute")
        options = ("--topic", "linked", "--group", "g", "--max-messages", "5")
        assert consumed(up.kafka, *options) == ["4", "5", "6", "7", "8"]
        ours("group", "seek", "g", "--topic", "linked", "--to", "6", "--execute", kafka=up.kafka)
        assert consumed(up.kafka, *options[:-1], "3") == ["6", "7", "8"]
        # A copy: librdkafka reads linked blocks.
        rows = read(up.kafka, "linked", 0)
        assert [row.value for row in rows] == [str(n) for n in range(9)]
        produce(up.kafka, "copy", 0, [Row(*row) for row in rows], "lz4", idempotent=True)
        assert len(consumed(up.kafka, "--topic", "copy", "--from-beginning", "--max-messages", "9")) == 9
        # Deletion of everything up to the batch; a topic that is compacted only must allow it for a while.
        assert f"low_watermark: {AFTER}" in delete_before(up.kafka, tmp_path / "plan", "linked")
        options = ("--topic", "linked", "--from-beginning", "--max-messages", "5")
        assert consumed(up.kafka, *options) == ["4", "5", "6", "7", "8"]
        ours("topic", "trim-prefix", "copy", "--before", str(AFTER), "-p", "0", "--yes", kafka=up.kafka)
        options = ("--topic", "copy", "--from-beginning", "--max-messages", "5")
        assert consumed(up.kafka, *options) == ["4", "5", "6", "7", "8"]
        topic = ("--bootstrap-server", up.kafka, "--topic", "broken", "--alter")
        tool(CONFIGS, *topic, "--add-config", "cleanup.policy=compact")
        assert "PolicyViolationException" in delete_before(up.kafka, tmp_path / "plan", "broken")
        tool(CONFIGS, *topic, "--add-config", "cleanup.policy=[compact,delete],retention.ms=-1")
        assert f"low_watermark: {AFTER}" in delete_before(up.kafka, tmp_path / "plan", "broken")
        tool(CONFIGS, *topic, "--add-config", "cleanup.policy=compact", "--delete-config", "retention.ms")
        stop(up)
    assert verified(data) == (0, [])
