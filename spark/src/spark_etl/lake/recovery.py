r"""The files of a Spark checkpoint, made from a commit's metadata: {"query", "batch", "start", "end", …}.

    metadata      {"id":"8f2c1d0a-…"}                                the query
    sources/0/0   \0v1\n{"orders":{"0":40}}                         where the source began
    offsets/6     v1\n{…}\n{"orders":{"0":40}}                      the end of each planned batch
    commits/6     v1\n{"nextBatchWatermarkMs":0}                     each finished batch
    offsets/7     v1\n{…}\n{"orders":{"0":55}}                      planned, not finished: Spark runs it again

The formats are those of Spark 4.0 (OffsetSeqLog, CommitLog, StreamMetadata, KafkaSourceInitialOffsetWriter).
"""

import json
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from spark_etl.checkpoint import notes
from spark_etl.errors import OutputError
from spark_etl.lake import durable

_COMMIT = '{"nextBatchWatermarkMs":0}'


def before_last_batch(last: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the checkpoint of the moment before Spark committed the last batch.

    The batch keeps its time, by which far event times are refused. Commits of older versions have only their own time.
    """
    batch = int(last["batch"])
    planned_ms = int(last.get("planned_ms", last["committed_ms"]))  # mutant: recovered-time
    files = {
        "metadata": _text(json.dumps({"id": last["query"]}, separators=(",", ":"))),
        "sources/0/0": _initial(last["start"]),
        f"offsets/{batch}": _planned(last["end"], planned_ms),
    }
    if batch > 0:
        files[f"offsets/{batch - 1}"] = _planned(last["start"], planned_ms, int(last.get("late_before", 0)))
        files[f"commits/{batch - 1}"] = _text(f"v1\n{_COMMIT}")
    return files


def check_absent(session: SparkSession, checkpoint: str, files: Mapping[str, bytes]) -> None:
    """Raise OutputError if a checkpoint is there, or more of one than these files."""
    location = notes.absolute(checkpoint)
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path
    system = path(location).getFileSystem(session._jsc.hadoopConfiguration())
    if system.exists(path(f"{location}/metadata")):
        raise OutputError(f"{location}: there is a checkpoint; move it away first")
    for folder in ("offsets", "commits", "state"):
        present = system.listStatus(path(f"{location}/{folder}")) if system.exists(path(f"{location}/{folder}")) else []
        if any(f"{folder}/{entry.getPath().getName()}" not in files for entry in present):
            raise OutputError(f"{location}: there are parts of a checkpoint; move them away first")


def written(session: SparkSession, checkpoint: str, files: Mapping[str, bytes]) -> None:
    """Write the files by Hadoop, as Spark does."""
    location = notes.absolute(checkpoint)
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path
    system = path(location).getFileSystem(session._jsc.hadoopConfiguration())
    # `metadata` last: without it, a recovery that was interrupted can be repeated
    for name in sorted(files, key=lambda name: name == "metadata"):
        stream = system.create(path(f"{location}/{name}"), True)
        try:
            stream.write(bytearray(files[name]))
        finally:
            stream.close()
    root = notes.local_path(checkpoint)
    if root is not None:
        durable.sync_files(root, files)


def _initial(offsets: Mapping[str, Mapping[str, int]]) -> bytes:
    return b"\0" + _text(f"v1\n{_json(offsets)}")


def _planned(offsets: Mapping[str, Mapping[str, int]], planned_ms: int, watermark_ms: int = 0) -> bytes:
    plan = {"batchWatermarkMs": watermark_ms, "batchTimestampMs": planned_ms, "conf": {}}
    return _text(f"v1\n{_json(plan)}\n{_json(offsets)}")


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"))


def _text(text: str) -> bytes:
    return text.encode()
