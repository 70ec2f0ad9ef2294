"""Drivers killed (-9) at every place of a merge, of rows and of change events: the last change of each key counts.

Each place has other changes: of all keys, a new key, and the removal of the new key of the place before.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from millrace import Broker

pytestmark = [pytest.mark.etl, pytest.mark.slow, pytest.mark.timeout(1800)]

from support.etl_kills import BATCH, Drivers, Place  # noqa: E402
from support.postgres import PostgresServer, postgres  # noqa: E402

__all__ = ["postgres"]

KEYS = range(20)
ROW = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "n": {"type": "integer"}}}
PLAIN = {**ROW, "required": ["id", "n"]}
IMAGE = {**ROW, "type": ["object", "null"]}
CHANGE = {
    "type": "object",
    "required": ["op"],
    "properties": {"op": {"type": "string"}, "before": IMAGE, "after": IMAGE},
}
OBSERVER = "lake.delta.CommitObserver"
POSTGRES, COMMITTED = "sinks.postgres.sink.Postgres", "sinks.postgres.connection.Connection.commit"

#: Outputs: whether the table and PostgreSQL have the changes of the interrupted batch.
MERGES = [
    Place("merge: nothing written", (BATCH, "lake.delta.Delta.merge"), "before", (0, 0)),
    Place("merge: files written", (BATCH, f"{OBSERVER}.preparingCommit"), "before", (0, 0)),
    Place("merge: in the commit, JVM lives", (BATCH, f"{OBSERVER}.beginDoCommit"), "during"),
    Place("merge: committed, not synced", (BATCH, f"{OBSERVER}.transactionCommitted"), "before", (1, 0)),
]
PLACES = {
    "upsert": [
        *MERGES,
        Place(
            "PostgreSQL, upsert: end of the transaction", (BATCH, f"{POSTGRES}._commit", COMMITTED), "before", (1, 0)
        ),
        Place("PostgreSQL, upsert: committed, not marked", (BATCH, f"{POSTGRES}._commit"), "after", (1, 1)),
    ],
    "debezium": MERGES[1:],
}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def rows(change: int) -> list[tuple[int, int]]:
    """Return the rows after a change; -1: before the first one."""
    return [] if change < 0 else [*((key, change) for key in KEYS), (1000 + change, change)]


def records(change: int, debezium: bool) -> Iterator[tuple[str, Any]]:
    """Return the keys and values of a change."""
    for key, number in rows(change):
        row = {"id": key, "n": number}
        if not debezium:
            yield str(key), row
        elif number and key < 1000:
            yield str(key), {"op": "u", "before": {**row, "n": number - 1}, "after": row}
        else:
            yield str(key), {"op": "c", "before": None, "after": row}
    if change:
        removed = {"op": "d", "before": {"id": 999 + change, "n": change - 1}, "after": None}
        yield str(999 + change), removed if debezium else None


@pytest.mark.parametrize("group", PLACES)
def test_the_last_change_of_each_key_counts(
    group: str, tmp_path: Path, broker: Broker, postgres: PostgresServer, jars: Path
) -> None:
    debezium = group == "debezium"
    drivers = Drivers(tmp_path, broker.bootstrap_servers, jars)
    upsert = "mode: upsert, keys: [id]"
    table = f"type: delta, path: {drivers.table}, {upsert}"
    if debezium:
        drivers.write(CHANGE, [f"{table}, envelope: debezium"])
    else:
        drivers.write(PLAIN, [table, drivers.postgres(postgres, f", {upsert}")], decode=", null_value: delete")

    def found(change: int) -> tuple[bool, bool]:
        """Return whether the outputs have a change. They have it whole, or the one before it."""
        has = []
        for stored in (
            (drivers.rows("id, n"), drivers.stored(postgres, "id, n")) if not debezium else (drivers.rows("id, n"),)
        ):
            assert sorted(stored) in (rows(change - 1), rows(change))
            has.append(sorted(stored) == rows(change))
        return has[0], has[-1] and not debezium

    for number, place in enumerate(PLACES[group]):
        drivers.produce(records(number, debezium))
        drivers.die(place)
        left = found(number)
        print(f"| {group} | {place.name} | {left} |")
        assert place.outputs is None or left == place.outputs, place.name
    drivers.finish("run")
    assert found(len(PLACES[group]) - 1) == (True, not debezium)
