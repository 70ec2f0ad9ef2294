"""Data folders: the names in them, and Millrace and Apache Kafka that write and serve them."""

from __future__ import annotations

import shutil
from pathlib import Path

from conformance.log_dumps import files_of
from support.kafka_broker import ApacheKafka
from up_process import RunningUp

OFFSETS = "__consumer_offsets"
OFFSETS_PARTITIONS = 3
KILLED = "killed"  # a data folder as it was at some moment, idle, as a kill would have left it
CLEAN = ".kafka_cleanshutdown"
IDENTITY = "partition.metadata"
EPOCHS = "leader-epoch-checkpoint"


def millrace(data: Path, *layout: str) -> RunningUp:
    arguments = ("--data-dir", str(data), "--kafka-port", "0", "--http-port", "0", *layout)
    environment = {
        "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
        "MILLRACE_OFFSETS_TOPIC_NUM_PARTITIONS": str(OFFSETS_PARTITIONS),
    }
    return RunningUp(*arguments, environment=environment)


def copy_as_killed(data: Path) -> None:
    """Copy the folder to a new one next to it, as a kill leaves it.

    Temporary files that will replace another file are left out: they may be gone before the copy.
    """
    shutil.copytree(data, data.with_name(KILLED), ignore=shutil.ignore_patterns("*.tmp"))


def stop(up: RunningUp) -> None:
    assert up.stop() == 0, up.log()[-3000:]


def hand_logs_over(source: Path, node: ApacheKafka) -> None:
    """Put the segments of a partition into that of the same name of a stopped node, which must recover them.

    The node gets nothing but the logs and the leader epochs.
    """
    folder = node.data / source.name
    for path in folder.iterdir():
        if path.name != IDENTITY:
            path.unlink()
    for path in (*files_of(source, ".log"), source / EPOCHS):
        shutil.copy(path, folder)
    (node.data / CLEAN).unlink(missing_ok=True)
