"""Commands killed (-9) at every place: called again they end their work, and no output loses or doubles a row."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1800)]

from support.etl_kills import BATCH, HALF, Drivers, Place  # noqa: E402
from support.postgres import PostgresServer, postgres  # noqa: E402

__all__ = ["postgres"]

SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
GOOD = 40  # records of each run
TWICE, LATER = "derive: {twice: 2 * id}\n", "derive: {twice: 100 + id}\n"
NO_FIVES = "rules: [{name: no_fives, expr: id % 10 <> 5}]\n"
DEDUPE = "dedupe: {keys: [id], within: 10 days}\n"
EVENT_TIME = ", timestamp: {field: _timestamp, watermark: 1 minute}"
ROW = ("__etl.source.topic", "__etl.source.partition", "__etl.source.offset")
LETTER = ("__etl.errors.topic", "__etl.errors.partition", "__etl.errors.offset")
OBSERVER = "lake.delta.CommitObserver"
OPTIMIZE, VACUUM, REPLACE = ("lake.maintenance." + name for name in ("_optimize", "_vacuum", "replace"))
TOPIC, COMMIT = "sinks.topics.TopicWriter.write", "lake.delta.Transaction.commit"
LETTERS_OUT = "sinks.dead_letters.DeadLetters.write"
STOOD_STILL = ("compact", "--retention", "0")
RANGE = ("backfill", "--from", "3", "--to", "15")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


class Case:
    """A pipeline into a table, a topic and PostgreSQL, whose file a test changes."""

    def __init__(self, folder: Path, broker: Broker, jars: Path, server: PostgresServer) -> None:
        self.drivers = Drivers(folder, broker.bootstrap_servers, jars)
        self._server = server
        self._runs = 0

    def write(self, sections: str, decode: str = "") -> None:
        rows = f"type: kafka, topic: {self.drivers.name}.rows"
        sinks = [f"type: delta, path: {self.drivers.table}", rows, self.drivers.postgres(self._server)]
        self.drivers.write(SCHEMA, sinks, sections, decode)

    def produce(self, *more: int) -> list[int]:
        """Produce the records of a run; return their ids."""
        made = list(range(100 * self._runs, 100 * self._runs + GOOD))
        self._runs += 1
        self.drivers.produce((str(number), {"id": number}) for number in (*made, *more))
        return made

    def table(self) -> list[tuple[int, int]]:
        return sorted(self.drivers.rows("id, twice"))

    def ids(self) -> tuple[list[int], list[int], list[int]]:
        """Return the ids in the table, in the topic without repeats, and in PostgreSQL."""
        messages = {self._place(each): json.loads(each.value())["id"] for each in self.drivers.messages("rows")}
        stored = [number for (number,) in self.drivers.stored(self._server, "id")]
        return sorted(number for number, _ in self.table()), sorted(messages.values()), sorted(stored)

    def _place(self, message) -> tuple[bytes, ...]:
        headers = dict(message.headers())
        return tuple(headers[name] for name in ROW)

    def repeats(self) -> dict[str, int]:
        """Return the records of each topic that a reader drops."""
        found = {"letters": self.drivers.topic("dlq", *LETTER), "rows": self.drivers.topic("rows", *ROW)}
        return {name: each.total() - len(each) for name, each in found.items()}


@pytest.fixture
def case(tmp_path: Path, broker: Broker, jars: Path, postgres: PostgresServer) -> Case:
    return Case(tmp_path, broker, jars, postgres)


def test_compact(case: Case) -> None:
    """A compaction that dies changes no row. Without another one its files stay, and no reader counts them."""
    case.write(TWICE)
    ids = case.produce()
    case.drivers.finish("run")
    for place in (
        None,
        Place("compact: files rewritten", (OPTIMIZE, f"{OBSERVER}.preparingCommit"), "before", (), STOOD_STILL),
        Place("compact: in the commit, JVM lives", (OPTIMIZE, f"{OBSERVER}.beginDoCommit"), "during", (), STOOD_STILL),
        None,
        Place(
            "compact: committed, not synced", (OPTIMIZE, f"{OBSERVER}.transactionCommitted"), "before", (), STOOD_STILL
        ),
        Place("compact: old files there", (VACUUM,), "before", (), STOOD_STILL),
        Place("compact: old files gone", (VACUUM,), "after", (), STOOD_STILL),
    ):
        if place is None:
            ids += case.produce()
            case.drivers.finish("run")
        else:
            case.drivers.die(place)
            print(f"| {place.name} | {len(case.table())} rows |")
        assert case.table() == [(number, 2 * number) for number in ids]
    assert case.drivers.finish(*STOOD_STILL)["files_after"] == 1
    assert case.table() == [(number, 2 * number) for number in ids]
    assert {path.name for path in case.drivers.table.glob("*.parquet")} == case.drivers.listed()


def test_backfill(case: Case) -> None:
    """The rows of the range are those of before or those of the new file, all of them."""
    case.write(TWICE)
    before = [(number, 2 * number) for number in case.produce()]
    case.drivers.finish("run")
    chosen = {row[0] for row in case.drivers.rows("id, _offset") if 3 <= row[1] < 15}
    after = [(number, 100 + number if number in chosen else twice) for number, twice in before]
    after = [(number, twice) for number, twice in after if number not in chosen or number % 10 != 5]
    fives = len(before) - len(after)
    assert (len(chosen), fives > 0) == (24, True)
    case.write(LATER + NO_FIVES)
    for place in (
        Place("backfill: some letters sent", (LETTERS_OUT, TOPIC), "half", (0,), RANGE),
        Place("backfill: letters sent, nothing exchanged", (REPLACE,), "before", (0,), RANGE),
        Place("backfill: files written", (REPLACE, f"{OBSERVER}.preparingCommit"), "before", (0,), RANGE),
        Place("backfill: in the commit, JVM lives", (REPLACE, f"{OBSERVER}.beginDoCommit"), "during", None, RANGE),
        Place("backfill: committed, not synced", (REPLACE, f"{OBSERVER}.transactionCommitted"), "before", (1,), RANGE),
    ):
        case.drivers.die(place)
        assert case.table() in (before, after), place.name
        done = int(case.table() == after)
        print(f"| {place.name} | exchanged: {done} | {case.repeats()} |")
        assert place.outputs is None or place.outputs == (done,), place.name
    assert case.drivers.finish(*RANGE)["rows_dlq"] == fives
    assert case.table() == after
    assert len(case.drivers.topic("dlq", *LETTER)) == fives
    assert case.repeats()["letters"] == 0


def test_replay_of_dead_letters(case: Case) -> None:
    case.write(TWICE + NO_FIVES)
    ids = case.produce()
    case.drivers.finish("run")
    case.write(TWICE)
    command = ("replay-dlq",)
    write, rows = "commands.replay_dlq.Command._write", "sinks.kafka_rows.KafkaRows.write"
    commit, committed = "sinks.postgres.sink.Postgres._commit", "sinks.postgres.connection.Connection.commit"
    fives = sum(number % 10 == 5 for number in ids)
    good = len(ids) - fives
    for place in (
        Place("replay-dlq: letters chosen", ("letters.replays.Replays.begun",), "after", (0, 0, 0), command),
        Place("replay-dlq: in the commit, JVM lives", (write, COMMIT), "during", None, command),
        Place("replay-dlq: in the table only", (write, LETTERS_OUT), "before", (fives, 0, 0), command),
        Place("replay-dlq: some rows in the topic", (write, rows, TOPIC), "half", (fives, HALF, 0), command),
        Place("replay-dlq: end of the transaction", (write, commit, committed), "before", (fives, fives, 0), command),
        Place("replay-dlq: done, not marked", ("letters.replays.Replays.finished",), "before", (fives,) * 3, command),
    ):
        case.drivers.die(place)
        left = tuple(len(found) - good for found in case.ids())
        print(f"| {place.name} | {left} | {case.repeats()} |")
        assert place.outputs is None or left == place.outputs, place.name
        assert all(len(found) == len(set(found)) for found in case.ids())
    case.drivers.finish(*command)
    assert case.ids() == (ids, ids, ids)
    assert case.drivers.finish(*command)["letters"] == 0
    assert case.ids() == (ids, ids, ids)


RECOVER = ("recover",)


@pytest.mark.parametrize("dedupe", [False, True], ids=["rows", "dedupe"])
def test_recover(case: Case, dedupe: bool) -> None:
    """The checkpoint is lost after a driver died in the middle of a batch; a run after `recover` ends that batch."""
    case.write(TWICE + NO_FIVES + (DEDUPE if dedupe else ""), EVENT_TIME if dedupe else "")
    found = list[int]()
    places = [
        Place("recover: nothing written", ("lake.recovery.written",), "before", (), RECOVER),
        Place("recover: some documents written", ("checkpoint.notes.LocalNotes.write",), "after", (), RECOVER),
        Place(
            "recover: written, not synced", ("lake.recovery.written", "lake.durable.sync_files"), "before", (), RECOVER
        ),
        Place("recover: written and synced", ("lake.recovery.written",), "after", (), RECOVER),
    ]
    for number, place in enumerate(places):
        ids = case.produce(*(range(100 * number, 100 * number + 10) if dedupe else ()))
        batch = Place("", (BATCH, (LETTERS_OUT, TOPIC)[number % 2]), ("before", "half")[number // 2])
        case.drivers.die(batch)
        shutil.rmtree(case.drivers.checkpoint)
        case.drivers.die(place)
        again = case.drivers.call({}, "recover")
        assert again.returncode == 0 or "there is a checkpoint; move it away first" in again.stderr, again.stderr
        case.drivers.finish("run")
        found += [each for each in ids if each % 10 != 5]
        print(f"| {place.name}{', dedupe' if dedupe else ''} | {case.repeats()} |")
        assert case.ids() == (found, found, found), place.name
        letters = {each.key().decode() for each in case.drivers.messages("dlq")}
        assert letters == {
            str(each) for run in range(number + 1) for each in range(100 * run + 5, 100 * run + GOOD, 10)
        }
