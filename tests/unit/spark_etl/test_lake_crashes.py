"""Crashes of a driver at every step of a commit: the table opens, has whole batches only, and goes on.

A folder's copy at a step is all that `kill -9` leaves. A power cut leaves less: of a file that was not synced since its
last change, some part; of a name whose folder was not synced, perhaps nothing. `Disk` takes such copies.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1200)]

from pyspark.sql import DataFrame, SparkSession  # noqa: E402
from spark_etl.config.sinks import DeltaSinkConfig  # noqa: E402
from spark_etl.lake import LakeTable, durable, maintenance  # noqa: E402

APP = "etl/orders/8f2c1d0a"
COLUMNS = "id BIGINT, name STRING, _key STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
CHECKPOINTS = "spark.databricks.delta.properties.defaults.checkpointInterval"
CUTS: dict[str, Callable[[bytes], bytes | None]] = {
    "absent": lambda _: None,
    "empty": lambda _: b"",
    "half": lambda content: content[: len(content) // 2],
}


class Disk:
    """A table's folder whose syncs are seen, and the copies of it after crashes."""

    def __init__(self, root: Path, copies: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.copies = copies
        self.taken: list[tuple[str, Path]] = []
        self.step = ""
        self._contents: dict[Path, bytes] = {}
        self._names: set[Path] = set()
        sync, files, log = durable._sync, durable.sync_files, durable.sync_log
        monkeypatch.setattr(durable, "_sync", lambda path: (sync(path), self._synced(path)))
        monkeypatch.setattr(durable, "sync_files", self._around("files", files))
        monkeypatch.setattr(durable, "sync_log", self._around("log", log))

    def _around(self, what: str, function: Callable[..., None]) -> Callable[..., None]:
        def crashing(*arguments: object) -> None:
            if self.step:
                self.copy(f"{self.step}: before the {what}")
            function(*arguments)
            if self.step:
                self.copy(f"{self.step}: after the {what}")

        return crashing

    def _synced(self, path: Path) -> None:
        if path.is_dir():
            self._names = {name for name in self._names if name.parent != path} | set(path.iterdir())
        else:
            self._contents[path] = path.read_bytes()

    def copy(self, step: str) -> None:
        """Copy the folder as a kill leaves it, and as each kind of power cut does."""
        for kind in ("kill", *CUTS):
            target = self.copies / f"{len(self.taken)}"
            for folder, _, names in os.walk(self.root):
                for name in names:
                    self._copy_one(Path(folder, name), target, kind)
            self.taken.append((f"{step}, {kind}", target))

    def _copy_one(self, path: Path, target: Path, kind: str) -> None:
        content: bytes | None = path.read_bytes()
        assert content is not None
        if kind != "kill" and (self._contents.get(path) != content or path not in self._names):
            content = CUTS[kind](content)
        if content is not None:
            copy = target / path.relative_to(self.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def rows(spark: SparkSession, first: int, names: str, later: int = 0) -> DataFrame:
    """Return rows with ids and offsets from `first`, the offsets higher by `later`."""
    values = [(first + n, name, str(first + n), "orders", 0, first + n + later, None) for n, name in enumerate(names)]
    return spark.createDataFrame(values, COLUMNS)


def content(path: Path) -> str:
    """Return the names in order of their ids, as deltalake lists the files and DuckDB reads them."""
    table = DeltaTable(str(path))
    files = [uri.removeprefix("file://") for uri in table.file_uris()]
    found = duckdb.read_parquet(files).order("id").fetchall() if files else []
    return "".join(row[1] for row in found)


def batch_of(path: Path) -> int:
    found = DeltaTable(str(path)).transaction_version(APP)
    return -1 if found is None else found


@pytest.fixture
def frequent_checkpoints(spark: SparkSession):
    spark.conf.set(CHECKPOINTS, "2")
    yield
    spark.conf.unset(CHECKPOINTS)


@pytest.mark.usefixtures("frequent_checkpoints")
def test_appends_backfill_and_compaction(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSinkConfig.model_validate({"type": "delta", "path": str(tmp_path / "table")})
    disk = Disk(tmp_path / "table", tmp_path / "copies", monkeypatch)
    with LakeTable.opened(spark, sink, rows(spark, 0, "").schema) as table:
        disk.step = "0"
        table.write(rows(spark, 0, "abc"), APP, 0, lambda _: {"batch": 0})
        disk.step = "1"
        table.write(rows(spark, 3, "de"), APP, 1, lambda _: {"batch": 1})
        disk.step = "backfill"
        maintenance.replace(table, rows(spark, 1, "XYZ"), "_offset >= 1 AND _offset < 4", {"operation": "backfill"})
        disk.step = "compact"
        maintenance.compact(spark, table)
        disk.step = ""
    states = [("", -1), ("abc", 0), ("abcde", 1), ("aXYZe", 1), ("aXYZe", 1)]
    check(disk, 6, ["0", "1", "backfill", "compact"], states)  # the removal of old files notes its begin and its end
    for step in ("1: before the log, half", "backfill: before the log, kill"):
        resumed(spark, dict(disk.taken)[step], "append")


def test_merges(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sink = DeltaSinkConfig.model_validate(
        {"type": "delta", "path": str(tmp_path / "table"), "mode": "upsert", "keys": ["id"]}
    )
    disk = Disk(tmp_path / "table", tmp_path / "copies", monkeypatch)
    with LakeTable.opened(spark, sink, rows(spark, 0, "").schema) as table:
        disk.step = "0"
        table.write(rows(spark, 0, "abc"), APP, 0, lambda _: {"batch": 0})
        disk.step = "1"
        table.write(rows(spark, 1, "BCD", later=9), APP, 1, lambda _: {"batch": 1})
        disk.step = ""
    check(disk, 2, ["0", "1"], [("", -1), ("abc", 0), ("aBCD", 1)])
    resumed(spark, dict(disk.taken)["1: before the log, half"], "upsert")


def check(disk: Disk, commits: int, steps: list[str], states: list[tuple[str, int]]) -> None:
    """Compare each copy with the states before and after its step; after the log's sync, only the latter is right."""
    assert len(disk.taken) == 4 * 4 * commits
    for step, copy in disk.taken:
        number = steps.index(step.partition(":")[0])
        durable.repair(copy)
        assert durable.repair(copy) == [], step
        found = (content(copy), batch_of(copy))
        if "after the log" in step:
            assert found == states[number + 1], step
        else:
            assert found in states[number : number + 2], step
        if "before the log, kill" in step:
            assert found == states[number + 1], step


def resumed(spark: SparkSession, copy: Path, mode: str) -> None:
    """Replay both batches on a copy, as the next driver would."""
    keys = ["id"] if mode == "upsert" else []
    sink = DeltaSinkConfig.model_validate({"type": "delta", "path": str(copy), "mode": mode, "keys": keys})
    later = rows(spark, 1, "BCD", later=9) if mode == "upsert" else rows(spark, 3, "de")
    with LakeTable.opened(spark, sink, later.schema) as table:
        before = content(copy)
        for number, batch in enumerate([rows(spark, 0, "abc"), later]):
            if not table.holds(APP, number):
                table.write(batch, APP, number, lambda _: {})
    expected = "aBCD" if mode == "upsert" else before if "X" in before else "abcde"
    assert content(copy) == expected
    found = spark.read.format("delta").load(str(copy)).orderBy("id").select("name").collect()
    assert "".join(row["name"] for row in found) == expected
    shutil.rmtree(copy)
