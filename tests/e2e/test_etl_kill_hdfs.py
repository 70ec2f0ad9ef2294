"""Drivers killed (-9) with checkpoint and table on HDFS: nothing is lost, and the table has nothing twice."""

from pathlib import Path

import duckdb
import pytest
from deltalake import DeltaTable
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1800)]

from support.etl_kills import BATCH, HALF, Drivers, Place  # noqa: E402
from support.hdfs import Hdfs, hdfs  # noqa: E402

__all__ = ["hdfs"]

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
GOOD, BROKEN = 40, 8  # of each place
FILES, COMMIT = "lake.delta.Transaction.write", "lake.delta.Transaction.commit"
LETTERS, MARKS = "sinks.dead_letters.DeadLetters.write", "checkpoint.batches.Batches"
PLACES = [
    Place("batch marked as begun", (BATCH, f"{MARKS}.begun"), "after", (0, 0)),
    Place("table: files in work, JVM lives", (BATCH, FILES), "during"),
    Place("table: files written", (BATCH, "batch.writer.BatchWriter._metadata"), "before", (0, 0)),
    Place("table: in the commit, JVM lives", (BATCH, COMMIT), "during"),
    Place("dead letters: some sent", (BATCH, LETTERS), "half", (GOOD, HALF)),
    Place("batch finished, begun mark there", (BATCH, f"{MARKS}.finished"), "before", (GOOD, BROKEN)),
]


def test_no_place_on_hdfs_loses_or_doubles_a_record(tmp_path: Path, hdfs: Hdfs, jars: Path) -> None:
    with Broker() as broker, hdfs.short_leases():  # of the drivers that died
        drivers = Drivers(tmp_path, broker.bootstrap_servers, jars)
        lake, checkpoint = hdfs.folder(f"{drivers.name}/table"), hdfs.folder(f"{drivers.name}/checkpoint")
        drivers.write(SCHEMA, [f"type: delta, path: {lake}"])
        drivers.file.write_text(drivers.file.read_text().replace(f"{drivers.checkpoint}\n", f"{checkpoint}\n"))

        def table(name: str) -> list[int]:
            copy = tmp_path / name
            hdfs.copy(lake, copy)
            files = [uri.removeprefix("file://") for uri in DeltaTable(str(copy)).file_uris()]
            return [number for (number,) in duckdb.read_parquet(files).select("id").fetchall()] if files else []

        def check(places: int, name: str) -> tuple[int, int]:
            """Return the rows and the letters of later places than the first ones, which are whole."""
            ids = [100 * place + number for place in range(places) for number in range(GOOD)]
            found = table(f"table{places}")
            assert len(found) == len(set(found)), name
            assert sorted(number for number in found if number < 100 * places) == ids, name
            letters = {each.key().decode() for each in drivers.messages("dlq")}
            assert {f"broken-{place}-{number}" for place in range(places) for number in range(BROKEN)} <= letters, name
            return len(found) - len(ids), len(letters) - BROKEN * places

        for number, place in enumerate(PLACES):
            drivers.produce([(f"{each}", {"id": each}) for each in range(100 * number, 100 * number + GOOD)])
            drivers.produce([(f"broken-{number}-{each}", "broken") for each in range(BROKEN)])
            planned = max((int(name) for name in hdfs.names(f"{checkpoint}/offsets") if name.isdecimal()), default=-1)
            done = drivers.call(place.death(planned + 1), "run")
            assert done.returncode == -9, (place.name, done.stderr[-3000:])
            left = check(number, place.name)
            print(f"| {place.name} | {left[0]} | {left[1]} |")
            assert place.outputs is None or left == place.outputs, place.name
        drivers.finish("run")
        assert check(len(PLACES), "the end") == (0, 0)
