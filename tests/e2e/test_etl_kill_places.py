"""Drivers killed (-9) at every place of a batch with all kinds of sinks: nothing is lost, and nothing is there twice.

Each place has other records. A driver reads them and dies there, and the next one ends that batch before it
dies at its place. A row of the printed table is a place, with the rows that each output had at the death. A topic has
an interrupted row at least once: a reader drops repeats by the headers, and the table counts them.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1800)]

from deltalake import DeltaTable  # noqa: E402
from support.etl_kills import BATCH, HALF, WINDOW, Drivers, Place  # noqa: E402
from support.postgres import PostgresServer, postgres  # noqa: E402

__all__ = ["postgres"]

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "kind": {"type": "string"}}}
GOOD, BROKEN, KINDS = 40, 8, 10  # of each place
EVENT_TIME = ", timestamp: {field: _timestamp, watermark: 1 minute}"
GROUPS = "group_by: [kind], select: {n: count(*), total: sum(id)}"
ROW = ("__etl.source.topic", "__etl.source.partition", "__etl.source.offset")
LETTER = ("__etl.errors.topic", "__etl.errors.partition", "__etl.errors.offset")
SUMMARY = ("__etl.version",)
WINDOWED = ("__etl.window", "__etl.version")

FILES, COMMIT = "lake.delta.Transaction.write", "lake.delta.Transaction.commit"
LETTERS, TOPIC = "sinks.dead_letters.DeadLetters.write", "sinks.topics.TopicWriter.write"
ROWS, SUMMARIES = "sinks.kafka_rows.KafkaRows.write", "sinks.summaries.SummaryTopic.publish"
POSTGRES, STAGED = "sinks.postgres.sink.Postgres", "sinks.postgres.connection.Database.append"
COMMITTED, OFFSETS = "sinks.postgres.connection.Connection.commit", "kafka.admin.KafkaAdmin.commit"
NEXT = "sinks.delta_rows.DeltaRows.write"
MARKS, UNMARKED = "checkpoint.batches.Batches", "checkpoint.notes.LocalNotes.remove"

#: Rows of the interrupted batch: in the table, letters, in the topic, in PostgreSQL.
NOTHING, TABLE, ALL_LETTERS = (0, 0, 0, 0), (GOOD, 0, 0, 0), (GOOD, BROKEN, 0, 0)
ALL_ROWS, ALL = (GOOD, BROKEN, GOOD, 0), (GOOD, BROKEN, GOOD, GOOD)
PLACES = {
    "files": [
        Place("batch planned, nothing begun", (BATCH, f"{MARKS}.begun"), "before", NOTHING),
        Place("batch marked as begun", (BATCH, f"{MARKS}.begun"), "after", NOTHING),
        Place("table: some files written", (BATCH, FILES), "half", NOTHING),
        Place("table: files in work, JVM lives", (BATCH, FILES), "during"),
        Place("table: files written", (BATCH, "batch.writer.BatchWriter._metadata"), "before", NOTHING),
        Place("table: files synced", (BATCH, "lake.durable.sync_files"), "after", NOTHING),
    ],
    "commit": [
        Place("table: in the commit, JVM lives", (BATCH, COMMIT), "during"),
        Place("table: committed, not synced", (BATCH, COMMIT), "after", TABLE),
        Place("table: committed, no letter sent", (BATCH, LETTERS), "before", TABLE),
        Place("dead letters: some sent", (BATCH, LETTERS), "half", (GOOD, HALF, 0, 0)),
        Place("dead letters: all sent", (BATCH, LETTERS), "after", ALL_LETTERS),
    ],
    "tables": [
        Place("next table: nothing written", (BATCH, NEXT), "before", ALL_LETTERS),
        Place("next table: files written", (BATCH, NEXT, COMMIT), "before", ALL_LETTERS),
        Place("next table: in the commit, JVM lives", (BATCH, NEXT, COMMIT), "during"),
        Place("next table: committed", (BATCH, NEXT), "after", ALL_LETTERS),
    ],
    "rows": [
        Place("topic of rows: none sent", (BATCH, ROWS, TOPIC), "before", ALL_LETTERS),
        Place("topic of rows: some sent", (BATCH, ROWS, TOPIC), "half", (GOOD, BROKEN, HALF, 0)),
        Place("topic of rows: sending, JVM lives", (BATCH, ROWS, TOPIC), "during"),
        Place("topic of rows: all sent", (BATCH, ROWS, TOPIC), "after", ALL_ROWS),
    ],
    "postgres": [
        Place("PostgreSQL: nothing staged", (BATCH, f"{POSTGRES}._new_staging"), "before", ALL_ROWS),
        Place("PostgreSQL: some rows staged", (BATCH, STAGED), "half", ALL_ROWS),
        Place("PostgreSQL: all rows staged", (BATCH, f"{POSTGRES}._commit"), "before", ALL_ROWS),
        Place("PostgreSQL: end of the transaction", (BATCH, f"{POSTGRES}._commit", COMMITTED), "before", ALL_ROWS),
        Place("PostgreSQL: in the commit, JVM lives", (BATCH, f"{POSTGRES}._commit", COMMITTED), "during"),
        Place("PostgreSQL: committed, not marked", (BATCH, f"{POSTGRES}._commit"), "after", ALL),
    ],
    "marks": [
        Place("batch finished, begun mark there", (BATCH, f"{MARKS}.finished", UNMARKED), "before", ALL),
        Place("offsets not in the group", (BATCH, OFFSETS), "before", ALL),
        Place("offsets in the group", (BATCH, OFFSETS), "after", ALL),
    ],
    "aggregates": [
        Place("summary: none sent", (SUMMARIES, TOPIC), "before", ALL),
        Place("summary: some sent", (SUMMARIES, TOPIC), "half", ALL),
        Place("summary: sent, not marked", ("run.summaries.Summaries._shown",), "before", ALL),
        Place("windows: none sent", (WINDOW, TOPIC), "before"),
        Place("windows: some sent", (WINDOW, TOPIC), "half"),
        Place("windows: sent, not marked", (WINDOW, f"{MARKS}.finished"), "before"),
    ],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def ids(place: int) -> range:
    """Return the ids of a place's good records."""
    return range(100 * place, 100 * place + GOOD)


@dataclass
class Outputs:
    """The outputs of the pipeline, as their readers see them."""

    drivers: Drivers
    server: PostgresServer

    def check(self, places: int, name: str) -> list[int]:
        """Check that the records of the first places are everywhere; return the number of later rows in each output.

        No row of any place may be in the table or in PostgreSQL twice.
        """
        whole = [number for place in range(places) for number in ids(place)]
        table = [number for (number,) in self.drivers.rows("id")]
        stored = [number for (number,) in self.drivers.stored(self.server, "id")]
        for found in (table, stored):
            assert len(found) == len(set(found)), name
            assert sorted(number for number in found if number < 100 * places) == whole, name
        messages = self.drivers.messages("rows")
        rows = {json.loads(each.value())["id"] for each in messages}
        assert len(rows) == len(self.drivers.topic("rows", *ROW)), name
        assert sorted(number for number in rows if number < 100 * places) == whole, name
        letters = {each.key().decode() for each in self.drivers.messages("dlq")}
        assert len(letters) == len(self.drivers.topic("dlq", *LETTER)), name
        assert {f"broken-{place}-{number}" for place in range(places) for number in range(BROKEN)} <= letters, name
        good, broken = GOOD * places, BROKEN * places
        return [len(table) - good, len(letters) - broken, len(rows) - good, len(stored) - good]

    def check_aggregates(self, places: int) -> None:
        """Check that the newest record of each group counts each row once."""
        expected = []
        for kind in range(KINDS):
            found = [number for place in range(places) for number in ids(place) if number % KINDS == kind]
            expected.append((f"k{kind}", len(found), sum(found)))
        for topic in ("sums", "windows"):
            newest = self.drivers.newest(topic).values()
            assert sorted((each["kind"], each["n"], each["total"]) for each in newest) == expected, topic

    def repeats(self) -> dict[str, int]:
        """Return the records of each topic that a reader drops."""
        counted = {
            "letters": self.drivers.topic("dlq", *LETTER),
            "rows": self.drivers.topic("rows", *ROW),
            "summaries": self.drivers.topic("sums", *SUMMARY, key=True),
            "windows": self.drivers.topic("windows", *WINDOWED, key=True),
        }
        return {name: found.total() - len(found) for name, found in counted.items()}


@pytest.mark.parametrize("group", PLACES)
def test_no_place_loses_or_doubles_a_record(
    group: str, tmp_path: Path, broker: Broker, postgres: PostgresServer, jars: Path
) -> None:
    drivers = Drivers(tmp_path, broker.bootstrap_servers, jars)
    name, places = drivers.name, PLACES[group]
    sinks = [f"type: delta, path: {drivers.table}", f"type: kafka, topic: {name}.rows", drivers.postgres(postgres)]
    even = tmp_path / "even"
    if group == "tables":
        sinks.insert(1, f"type: delta, path: {even}, where: id % 2 = 0")
    if group == "aggregates":
        sinks.append(f"type: kafka, topic: {name}.sums, aggregate: {{{GROUPS}}}")
        sinks.append(f"type: kafka, topic: {name}.windows, aggregate: {{window: 10000 days, {GROUPS}}}")
    drivers.write(SCHEMA, sinks, decode=EVENT_TIME)
    outputs = Outputs(drivers, postgres)
    for number, place in enumerate(places):
        drivers.produce([(f"{each}", {"id": each, "kind": f"k{each % KINDS}"}) for each in ids(number)])
        drivers.produce([(f"broken-{number}-{each}", "broken") for each in range(BROKEN)])
        repeated = outputs.repeats()
        drivers.die(place)
        if place.at[0] == WINDOW:  # the other query has come to any place
            drivers.finish("run")
            assert outputs.check(number + 1, place.name) == [0, 0, 0, 0]
            outputs.check_aggregates(number + 1)
            print(f"| {place.name} | | | | | {outputs.repeats()} |")
            continue
        left = outputs.check(number, place.name)
        print(f"| {place.name} | {' | '.join(map(str, left))} | {repeated} |")
        assert place.outputs is None or left == list(place.outputs), place.name
    drivers.finish("run")
    assert outputs.check(len(places), "the end") == [0, 0, 0, 0]
    print(f"raw repeats: {outputs.repeats()}")
    if group == "aggregates":
        outputs.check_aggregates(len(places))
    if group == "tables":
        whole = [each for number in range(len(places)) for each in ids(number) if each % 2 == 0]
        assert sorted(DeltaTable(even).to_pyarrow_table()["id"].to_pylist()) == whole
        return
    drivers.finish("compact", "--retention", "0")
    assert {path.name for path in drivers.table.glob("*.parquet")} == drivers.listed()
