"""Readers during a run without end, and `compact` and `backfill` in other processes: every read is whole batches.

Each reader notes the rows of every read: Spark, the Python package deltalake, and DuckDB with the files that deltalake
lists. At the end the log says which rows each batch has. A read must have the first batches and all their rows, each
row once. Of the range that a backfill exchanged it has the rows of before or the new ones, not some of both.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable, QueryBuilder
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1200)]

from pyspark.sql import SparkSession  # noqa: E402
from support.etl_kills import Drivers  # noqa: E402
from support.etl_runs import until  # noqa: E402

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
TRIGGER = "trigger: {processing_time: 1 second}\n"
BEFORE, AFTER = "derive: {twice: 2 * id}\n", "derive: {twice: 100000 + id}\n"
RANGE = 15  # offsets of each partition that the backfill exchanges
COLUMNS = ("_partition", "_offset", "twice", "id")
Row = tuple[int, int, int, int]


def by_spark(session: SparkSession, table: Path) -> list[Row]:
    return [tuple(row) for row in session.read.format("delta").load(str(table)).select(*COLUMNS).collect()]


def by_deltalake(table: Path) -> list[Row]:
    query = f"SELECT {', '.join(COLUMNS)} FROM t"
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(query).read_all()
    return list(zip(*(found.column(name).to_pylist() for name in COLUMNS), strict=True))


def by_duckdb(table: Path) -> list[Row]:
    files = [uri.removeprefix("file://") for uri in DeltaTable(str(table)).file_uris()]
    return duckdb.connect().read_parquet(files).select(", ".join(COLUMNS)).fetchall() if files else []


class Reader:
    """Reads of one kind, one after the other in a thread, until `stop`."""

    def __init__(self, read: Callable[[], list[Row]], stop: threading.Event) -> None:
        self.reads: list[list[Row]] = []
        self.error: Exception | None = None
        self._read, self._stop = read, stop
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.reads.append(self._read())
                time.sleep(0.1)
        except Exception as error:
            self.error = error


def commits(table: Path, operation: str) -> list[dict]:
    """Return the metadata of the commits of one kind, oldest first."""
    found = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        infos = [json.loads(line) for line in entry.read_text().splitlines() if "commitInfo" in line]
        metadata = json.loads(infos[0]["commitInfo"].get("userMetadata", "{}")) if infos else {}
        found += [metadata] if metadata.get("operation") == operation else []
    return found


def check(rows: list[Row], batches: list[dict], topic: str) -> tuple[int, bool]:
    """Return how many batches a read has, and whether it has the new rows of the range."""
    assert max(Counter(rows).values(), default=1) == 1
    places = Counter((partition, offset) for partition, offset, *_ in rows)
    assert max(places.values(), default=1) == 1
    whole = 0
    for number, batch in enumerate(batches):
        own = [
            (int(partition), offset)
            for partition, end in batch["end"][topic].items()
            for offset in range(batch["start"][topic][partition], end)
        ]
        present = sum(place in places for place in own)
        assert present in (0, len(own)), (number, present, len(own))
        if present:
            assert whole == number, "a batch before it is missing"
            whole += 1
    exchanged = {twice == 100000 + number for _, offset, twice, number in rows if offset < RANGE}
    assert len(exchanged) <= 1
    assert all(twice == 2 * number for _, offset, twice, number in rows if offset >= RANGE)
    return whole, exchanged == {True}


def test_every_read_is_whole_batches(tmp_path: Path, jars: Path, spark: SparkSession) -> None:
    stop = threading.Event()
    with Broker() as broker:
        drivers = Drivers(tmp_path, broker.bootstrap_servers, jars)
        table = drivers.table
        drivers.write(SCHEMA, [f"type: delta, path: {table}"], TRIGGER + BEFORE)
        produced = 0

        def produce() -> None:
            nonlocal produced
            drivers.produce((str(number), {"id": number}) for number in range(produced, produced + 10))
            produced += 10

        def grow(batches: int) -> None:
            """Produce until the pipeline has committed this number of further batches."""
            wanted = len(commits(table, "batch")) + batches
            while len(commits(table, "batch")) < wanted:
                assert process.poll() is None
                produce()
                time.sleep(0.3)

        with drivers.running() as process:
            produce()
            until(lambda: len(commits(table, "batch")) > 0)
            readers = [
                Reader(read, stop)
                for read in (lambda: by_spark(spark, table), lambda: by_deltalake(table), lambda: by_duckdb(table))
            ]
            growing = threading.Event()
            grower = threading.Thread(target=lambda: [grow(1) for _ in iter(lambda: growing.is_set(), True)])
            try:
                grow(8)
                grower.start()
                document = drivers.finish("compact", "--retention", "24")
                assert document["files_rewritten"] > 1
                drivers.write(SCHEMA, [f"type: delta, path: {table}"], TRIGGER + AFTER)
                exchanged = drivers.finish("backfill", "--from", "0", "--to", str(RANGE))
                assert (exchanged["rows_in"], exchanged["rows_out"]) == (2 * RANGE, 2 * RANGE)
                drivers.finish("compact", "--retention", "24")
                growing.set()
                grower.join()
                until(lambda: len(by_duckdb(table)) == produced)
            finally:
                growing.set()
                stop.set()
                for reader in readers:
                    reader.thread.join()
    batches = commits(table, "batch")
    assert len(commits(table, "backfill")) == 1
    assert len(commits(table, "compact")) > 1
    for reader in readers:
        assert reader.error is None
        states = [check(rows, batches, drivers.name) for rows in reader.reads]
        assert states == sorted(states)
        assert len(set(states)) > 3
        print(f"{len(states)} reads of {len(set(states))} states")
    rows = by_spark(spark, table)
    assert sorted(number for *_, number in rows) == list(range(produced))
    assert check(rows, batches, drivers.name) == (len(batches), True)
    for torn in (rows[1:], [*rows, rows[0]]):
        with pytest.raises(AssertionError):
            check(torn, batches, drivers.name)
    assert sorted(by_deltalake(table)) == sorted(by_duckdb(table)) == sorted(rows)
    print(f"{len(batches)} batches, {produced} records")
