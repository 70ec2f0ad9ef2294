"""Durations and deadlines are measured by monotonic clocks: a wall clock may be set back or forward at any moment.

Every place that reads a wall clock is listed, with its reason; so is every module of storage that is handed one. A new
place needs a line. Reasons that hold: a time for people, a time in Kafka's formats, a time that outlives the process.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TOP = Path(__file__).parents[2]
FOLDERS = (
    "admin-api",
    "assembly",
    "bench",
    "build",
    "gateway-svc",
    "protocol-lib",
    "services",
    "spark",
    "storage-svc",
    "tests",
)
#: Functions of wall clocks, by the module or class that has them. A file's own times come from the same clock.
WALL_CLOCKS = {
    "time": {"time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime", "clock_gettime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
FILE_TIMES = {"st_mtime", "st_mtime_ns", "st_ctime", "st_ctime_ns", "st_atime", "st_atime_ns"}

READS = {
    (
        "admin-api/src/admin_api/routers/group_offsets.py",
        "time.time_ns",
    ): "a duration before now, as record timestamps are",
    ("admin-api/src/admin_api/samples.py", "time.time"): "times of samples, for people",
    ("assembly/launcher/src/millrace/cli/storage.py", "st_mtime"): "the age of a segment, for people",
    ("admin-api/src/admin_api/new_records.py", "time.time"): "the timestamp of a record",
    ("assembly/launcher/src/millrace/folders.py", "st_mtime"): "the age of a folder, which outlives the process",
    ("assembly/launcher/src/millrace/folders.py", "time.time"): "the age of a folder, which outlives the process",
    ("gateway-svc/src/gateway_svc/handlers/describe_quorum.py", "time.time_ns"): "the time of an answer, for people",
    ("protocol-lib/src/protocol_lib/client/producer.py", "time.time"): "the timestamp of a record",
    ("services/chassis/src/service_chassis/logs.py", "datetime.now"): "the time of a log line",
    ("spark/src/spark_etl/lake/durable.py", "st_mtime"): "times of files, compared with each other",
    ("spark/src/spark_etl/batches.py", "datetime.now"): "the begin of a batch, compared with timestamps of records",
    ("spark/src/spark_etl/identity.py", "datetime.now"): "a version that is higher than those of an earlier query",
    ("spark/src/spark_etl/commands/replay_dlq.py", "datetime.now"): "the begin of a replay, compared in the same way",
    ("storage-svc/src/storage_svc/catalog_rebuild.py", "time.time"): "the name of a file that is put aside",
    ("storage-svc/src/storage_svc/coordinator/group_coordinator.py", "time.time_ns"): "handed to CLOCK_USERS",
    (
        "storage-svc/src/storage_svc/coordinator/transactions/coordinator.py",
        "time.time_ns",
    ): "the begin and the last change of a transaction, which are stored",
    ("storage-svc/src/storage_svc/log/folder/data_folder.py", "time.time_ns"): "handed to CLOCK_USERS",
    (
        "storage-svc/src/storage_svc/log/disk/files.py",
        "st_mtime_ns",
    ): "the age of a segment, which outlives the process",
    ("tests/conformance/log_rows.py", "time.time"): "timestamps of records that Kafka must not expire",
    ("tests/conformance/test_append_pipeline.py", "time.time_ns"): "timestamps of records",
    ("tests/conformance/test_compaction.py", "time.time"): "timestamps of records that Kafka must not expire",
    ("tests/conformance/test_group_command.py", "time.time"): "timestamps to reset offsets to",
    ("tests/conformance/test_transactions_command.py", "time.time"): "the timestamp of an old record",
    ("tests/faults/lossy_filesystem.py", "time.time_ns"): "times of files",
    ("bench/flights_topic.py", "time.time"): "timestamps of records",
    ("bench/log_compaction.py", "st_mtime"): "when Kafka wrote a checkpoint: only its file says so",
    ("bench/log_compaction.py", "time.time"): "compared with the time of a file",
    ("bench/log_compaction.py", "time.time_ns"): "timestamps of records",
    ("bench/raw.py", "time.time"): "timestamps of records",
    ("bench/results.py", "time.gmtime"): "the time of a result, for people",
    ("bench/results.py", "time.strftime"): "the time of a result, for people",
}

#: Names under which storage's parts call the wall clock that they are handed.
HANDED = {"wall_clock_ms", "_wall_clock_ms", "_now_ms", "_clock", "now_ms", "clock"}
CLOCK_USERS = {
    "coordinator/group_offsets.py": "commit and expiry times of offsets, which are stored",
    "coordinator/repeatable_commits.py": "commit times of offsets, which are stored",
    "coordinator/hosting/classic_host.py": "the time of a group's state, which is stored",
    "coordinator/hosting/consumer_host.py": "the time of the last assignment, which is stored; a clock set back is due",
    "coordinator/hosting/deleted_topics.py": "timestamps of tombstones",
    "coordinator/hosting/hosted_groups.py": "the time of a group's state, which is stored; timestamps of tombstones",
    "coordinator/hosting/performer.py": "timestamps of records",
    "coordinator/transactional_offsets.py": "timestamps of commits, which are stored",
    "coordinator/transactions/coordinator.py": "the begin and the last change of a transaction, which are stored",
    "log/cleaner/cleaner.py": "ages of records, and horizons of tombstones, which are stored",
    "log/folder/data_folder.py": "the age of a segment, which outlives the process",
    "log/folder/maintenance.py": "retention by timestamps of records; the age of a producer's state, which is stored",
    "log/partition/partition_log.py": "timestamps of batches, checked or set",
    "log/partition/transactions.py": "timestamps of markers",
    "log/recovery/recovery.py": "the age of a segment and of a producer's state, which outlive the process",
    "log/scrub/scrubber.py": "the time of the last scrub, which outlives the process; a clock set back is due",
    "rpc/data.py": "timestamps of batches, checked or set",
    "rpc/offsets.py": "the timestamp of the end of a log",
    "rpc/slow_appends.py": "timestamps of batches, checked or set",
    "rpc/transactions.py": "the age of a transaction, whose begin is stored",
}


def sources(*folders: str) -> Iterator[tuple[str, ast.Module]]:
    for folder in folders:
        for path in sorted((TOP / folder).rglob("*.py")):
            if ".venv" not in path.parts and "node_modules" not in path.parts:
                yield str(path.relative_to(TOP)), ast.parse(path.read_bytes())


def wall_clock(node: ast.AST) -> str | None:
    """Return the name of the wall clock that a node refers to."""
    if isinstance(node, ast.ImportFrom) and node.module == "time":
        found = [each.name for each in node.names if each.name in WALL_CLOCKS["time"]]
        return f"time.{found[0]}" if found else None
    if not isinstance(node, ast.Attribute):
        return None
    if node.attr in FILE_TIMES:
        return node.attr
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
    return f"{name}.{node.attr}" if node.attr in WALL_CLOCKS.get(name.removeprefix("_"), ()) else None


def test_each_read_of_a_wall_clock_has_a_reason() -> None:
    found = {
        (path, clock)
        for path, tree in sources(*FOLDERS)
        for node in ast.walk(tree)
        if (clock := wall_clock(node)) is not None
    }
    assert found == READS.keys()


def test_each_module_of_storage_that_is_handed_a_wall_clock_has_a_reason() -> None:
    source = "storage-svc/src/storage_svc/"
    found = {
        path.removeprefix(source)
        for path, tree in sources(source)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and not node.args
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in HANDED
    }
    assert found == CLOCK_USERS.keys()
