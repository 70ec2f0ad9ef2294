"""Compaction of 1 GB with a million keys, each written twice, and its effect on a producer at the same time.

The log is filled while no broker runs. `millrace up` then compacts it at once, while 16 KB batches are produced to
another topic, acks=all, 200 a second. The producer continues for as long after the compaction, for comparison.
"""

from __future__ import annotations

import asyncio
import random
import shutil
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from raw import Connection, Figures
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.disk.checkpoints import CLEANED
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Origin
from table import Row
from up_process import RunningUp

TOPIC = "compacted"
VALUE_BYTES = 480
PER_BATCH = 32
PER_SECOND = 200
RATES = (0, 50_000_000)  # log.cleaner.io.max.bytes.per.second; a compaction reads its input twice


def _fill(folder: Path, keys: int) -> int:
    """Write two records for each key, in two random orders; return the bytes of the segments that can be compacted."""
    directory = DataFolder.open(folder, LogSettings())
    log = directory.logs[TOPIC, 0]
    log.configure(LogConfig(segment_bytes=100 << 20))
    chance = random.Random(1)
    value = chance.randbytes(VALUE_BYTES)
    now_ms = time.time_ns() // 1_000_000  # wall clock: timestamps of records
    order = list(range(keys))
    for _ in range(2):
        chance.shuffle(order)
        for start in range(0, keys, PER_BATCH):
            records = [
                Record(index, now_ms, b"key-%012d" % key, value)
                for index, key in enumerate(order[start : start + PER_BATCH])
            ]
            log.append(build_batch(records), origin=Origin.COORDINATOR)
    log.roll(now_ms)
    size = log.segments.size_bytes
    asyncio.run(directory.close())
    return size


def _produce(up: RunningUp, folder: Path) -> tuple[float, Figures, Figures]:
    """Return the seconds of the compaction, and the producer's figures during and after it."""
    connection = Connection(up.kafka, "busy")
    connection.produce(PER_SECOND, 16_000, acks=-1)
    checkpoint = folder / CLEANED
    began = time.time()  # wall clock: compared with the time of a file
    during = connection.paced(checkpoint.exists, 16_000, PER_SECOND)
    seconds = checkpoint.stat().st_mtime - began  # wall clock: when Kafka wrote a checkpoint: only its file says so
    time.sleep(2)
    end = time.perf_counter() + max(5.0, during.seconds)
    afterwards = connection.paced(lambda: time.perf_counter() > end, 16_000, PER_SECOND)
    connection.close()
    return seconds, during, afterwards


def _measure(folder: Path, keys: int, bytes_per_second: int) -> list[Row]:
    arguments = ("--data-dir", str(folder), "--kafka-port", "0", "--http-port", "0")
    environment = {
        "MILLRACE_TOPICS": "busy:1",
        "MILLRACE_LOG_CLEANER_IO_MAX_BYTES_PER_SECOND": str(bytes_per_second),
    }
    with RunningUp(*arguments, environment=environment) as up:
        configs = {"cleanup.policy": "compact", "segment.bytes": str(100 << 20)}
        admin = AdminClient({"bootstrap.servers": up.kafka, "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, config=configs)])[TOPIC].result()
    size = _fill(folder, keys)
    (folder / CLEANED).unlink(missing_ok=True)
    with RunningUp(*arguments, environment=environment) as up:
        seconds, during, afterwards = _produce(up, folder)
    ratio = during.percentile(0.99) / afterwards.percentile(0.99)
    limit = f", at most {bytes_per_second / 1e6:.0f} MB/s of reads and writes" if bytes_per_second else ""
    return [
        Row(
            f"compaction of {size / 1e9:.2f} GB, {keys:,} keys, half of it superseded{limit}",
            "" if limit else ">= 50 MB/s",
            f"{size / seconds / 1e6:.0f} MB/s",
        ),
        Row(
            f"produce p99 meanwhile, {PER_SECOND} requests/s of 16 KB, acks=all",
            "<= 2x",
            f"{during.percentile(0.99):.2f} ms against {afterwards.percentile(0.99):.2f} ms: {ratio:.1f}x",
        ),
        Row(
            "  the same, p50",
            "",
            f"{during.percentile(0.5):.2f} ms against {afterwards.percentile(0.5):.2f} ms",
        ),
    ]


def measure(folder: Path, scale: float) -> list[Row]:
    rows = []
    for rate in RATES:
        rows += _measure(folder / str(rate), int(1_000_000 * scale), rate)
        shutil.rmtree(folder / str(rate))
    return rows
