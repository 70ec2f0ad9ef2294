"""A batch is in a PostgreSQL output exactly once, and none before it is missing, whatever is lost or restored."""

from __future__ import annotations

import argparse
import random
import shutil
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl import logs  # noqa: E402
from spark_etl.checkpoint.batches import BatchPlace  # noqa: E402
from spark_etl.commands import recover, replay_dlq  # noqa: E402
from spark_etl.errors import ConfigError, EtlError, OutputError, RunError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.sinks.postgres import batches  # noqa: E402
from spark_etl.sinks.postgres.sink import Postgres  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402
from support.postgres import PASSWORD, USER, PostgresServer, postgres  # noqa: E402
from support.postgres_cases import Case, case  # noqa: E402

__all__ = ["broker", "case", "etl", "postgres"]

QUERY = "8f2c1d0a-0000-4000-8000-000000000001"


class Table:
    """The table of one pipeline, which has no other output, with its database and checkpoint."""

    def __init__(self, etl: Etl, server: PostgresServer) -> None:
        self._etl, self._server = etl, server
        self.checkpoint = etl.folder / "checkpoint"
        login = f'url: "{server.url}", user: {USER}, password: "{PASSWORD}"'
        self._login = login
        self._options: dict[str, Any] = {"table": False, "sink": self.sink(etl.name)}

    def sink(self, table: str) -> str:
        return f"- {{type: postgres, table: {table}, columns: [id], {self._login}}}"

    def run(self, sections: str = "", **options: Any) -> Any:
        return self._etl.run(sections=sections, **{**self._options, **options})

    def ids(self) -> list[int]:
        return sorted(int(number) for (number,) in self._server.rows(f"SELECT id FROM {self._etl.name}"))

    def refused(self, reason: str, **options: Any) -> None:
        """Run, and see that the run is refused and changes nothing."""
        before = self.ids()
        with pytest.raises(OutputError, match=reason):
            self.run(**options)
        assert self.ids() == before

    def save(self, number: int) -> None:
        """Keep the state of the database, as a backup does."""
        name = self._etl.name
        self._server.run(
            f"CREATE TABLE {name}_{number} AS TABLE {name}",
            f"CREATE TABLE {name}_b{number} AS SELECT * FROM etl_batches WHERE target = 'public.{name}'",
        )

    def restore(self, number: int) -> None:
        name = self._etl.name
        self._server.run(
            f"TRUNCATE {name}",
            f"INSERT INTO {name} TABLE {name}_{number}",
            f"DELETE FROM etl_batches WHERE target = 'public.{name}'",
            f"INSERT INTO etl_batches TABLE {name}_b{number}",
        )

    def lose_checkpoint(self) -> None:
        shutil.rmtree(self.checkpoint)

    def recover(self) -> None:
        recover.recover(self._etl.spark, self._etl.pipeline)


@pytest.fixture
def table(etl: Etl, postgres: PostgresServer) -> Table:
    return Table(etl, postgres)


def test_lost_and_restored_parts_are_refused_and_recovered(table: Table, etl: Etl) -> None:
    etl.produce(1, 2)
    table.run()
    table.save(0)
    shutil.copytree(table.checkpoint, etl.folder / "old")
    etl.produce(3)
    table.run()
    shutil.move(table.checkpoint, etl.folder / "new")
    table.refused(r"was written with another checkpoint \(query [0-9a-f-]{36}, now a new one\): .*`recover`")
    shutil.rmtree(table.checkpoint)
    shutil.move(etl.folder / "old", table.checkpoint)
    table.refused("has batch 1, and the checkpoint is older: batch 0 is its last one")
    table.lose_checkpoint()
    table.recover()
    etl.produce(4)
    assert table.run().rows_in == 1 + 1  # the last batch is looked at once more
    assert table.ids() == [1, 2, 3, 4]
    table.restore(0)
    etl.produce(5)
    table.refused(r"has batch 0 as its last one, and batch 2 is missing: the database was restored.*`recover`")
    table.lose_checkpoint()
    table.recover()
    table.run()
    assert table.ids() == [1, 2, 3, 4, 5]
    assert table.run().rows_in == 0


def test_a_restored_database_next_to_a_delta_table_has_another_way_out(
    table: Table, etl: Etl, postgres: PostgresServer
) -> None:
    etl.produce(1, 2)
    table.run(table=True)
    table.save(0)
    for number in (3, 4):
        etl.produce(number)
        table.run(table=True)
    table.restore(0)
    etl.produce(5)
    reason = (
        rf"has batch 0 as its last one, and batch 2 is missing: .* copy the rows of {etl.place}/table to a new table"
    )
    table.refused(reason, table=True)
    table.run(table=True, sink="")
    rows = ", ".join(f"({number})" for number in etl.ids())
    postgres.run(f"CREATE TABLE {etl.name}_new (id bigint)", f"INSERT INTO {etl.name}_new VALUES {rows}")
    etl.produce(6)
    table.run(table=True, sink=table.sink(f"{etl.name}_new"))
    assert postgres.rows(f"SELECT id FROM {etl.name}_new ORDER BY 1") == [(str(number),) for number in range(1, 7)]


def test_a_file_may_be_mended_while_no_output_has_the_batch(
    table: Table, etl: Etl, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("not today")

    etl.produce(1, 2)
    with monkeypatch.context() as patch:
        patch.setattr(Postgres, "_commit", fails)
        with pytest.raises(RunError, match="not today"):
            table.run()
    with monkeypatch.context() as patch:  # the letter is there, and the row is not
        patch.setattr(Postgres, "_commit", fails)
        with pytest.raises(RunError, match="not today"):
            table.run('rules: [{name: small, expr: "id < 2"}]')
    with pytest.raises(OutputError, match=rf"^batch 0 is in kafka:{etl.letters} as an earlier pipeline file judged it"):
        table.run()
    table.run('rules: [{name: small, expr: "id < 2"}]')
    assert table.ids() == [1]
    assert [key for key, _ in etl.read(etl.letters)] == ["2"]


def test_rows_that_the_database_refuses_become_dead_letters(case: Case, postgres: PostgresServer) -> None:
    """The first is refused by a check, the last by a key that is there; one waits for the end of the transaction."""
    name = case.table
    postgres.run(
        f"CREATE TABLE {name}_of (k text PRIMARY KEY)",
        f"INSERT INTO {name}_of VALUES ('a')",
        f"CREATE TABLE {name} (id bigint UNIQUE, v text CHECK (length(v) < 5),"
        f" k text REFERENCES {name}_of DEFERRABLE INITIALLY DEFERRED)",
    )
    rows = [(1, "toolong", "a"), (2, "a", "a"), (3, "b", "none"), (4, "c", "a"), (5, "d", None), (4, "e", "a")]
    assert case.write(case.frame("id bigint, v string, k string", *rows)) == 3
    assert case.stored() == [("2", "a", "a"), ("4", "c", "a"), ("5", "d", "\\N")]
    assert [(batch, count) for _, batch, count in case.batches()] == [("0", "3")]
    why = f"table {name} refuses the row: "
    assert sorted(case.letters.written) == [
        (0, "constraint", f'{why}new row for relation "{name}" violates check constraint "{name}_v_check"'),
        (
            2,
            "constraint",
            f'{why}insert or update on table "{name}" violates foreign key constraint "{name}_k_fkey"',
        ),
        (5, "constraint", f'{why}duplicate key value violates unique constraint "{name}_id_key"'),
    ]


def test_the_last_row_of_a_key_that_is_taken_counts(case: Case, postgres: PostgresServer) -> None:
    postgres.run(f"CREATE TABLE {case.table} (id bigint UNIQUE, n bigint CHECK (n < 100))")
    draw = random.Random(7)
    rows = [(draw.randrange(4), draw.choice([draw.randrange(100), 100])) for _ in range(40)]
    expected = {key: n for key, n in rows if n < 100}
    refused = case.write(case.frame("id bigint, n bigint", *rows), mode="upsert", keys=["id"])
    assert case.stored() == [(str(key), str(n)) for key, n in sorted(expected.items())]
    # A row that a later one of its key replaces, in the same part of the batch, need not be refused.
    assert 0 < refused == len(case.letters.written) <= sum(n == 100 for _, n in rows)


def test_a_second_run_waits_and_is_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "RUN_WAIT_SECONDS", 0)
    rows = case.frame("id bigint", (1,))
    first, second = case.sink(rows), case.sink(rows)
    for sink in (first, second):
        sink.check()
    position = batches.Position(case.pipeline, None)
    first.claim(position)
    with pytest.raises(OutputError, match=f"/{case.table}: another run of this pipeline writes to the table$"):
        second.claim(position)
    first.release()
    second.claim(position)
    second.release()


def test_an_earlier_build_kept_the_number_of_its_batch(case: Case, postgres: PostgresServer) -> None:
    schema = f"s{case.table}"
    app = f"etl/{case.pipeline}/{QUERY}"
    postgres.run(
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.etl_batches (app_id text NOT NULL, target text NOT NULL, batch bigint NOT NULL,"
        " rows bigint NOT NULL, committed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (app_id, target))",
        f"CREATE TABLE {schema}.{case.table} (id bigint)",
        f"INSERT INTO {schema}.{case.table} VALUES (1)",
        f"INSERT INTO {schema}.etl_batches VALUES ('{app}', '{schema}.{case.table}', 4, 1)",
    )
    rows = case.frame("id bigint", (2,))
    sink = case.sink(rows, url=f"{postgres.url}?currentSchema={schema}")
    sink.check()
    commit = {"end": {"t": {"0": 9}}}
    assert sink.write(rows, BatchPlace(QUERY, 4, case.pipeline, app, commit), None) == 0  # the table has it
    sink.write(rows, BatchPlace(QUERY, 5, case.pipeline, app, commit), None)
    assert postgres.rows(f"SELECT id FROM {schema}.{case.table} ORDER BY 1") == [("1",), ("2",)]
    assert postgres.rows(f"SELECT batch, place FROM {schema}.etl_batches") == [("5", '{"end": {"t": {"0": 9}}}')]


@pytest.mark.parametrize(
    ("batch", "end", "reason"),
    [
        (2, {"t": {"0": 9}}, None),
        (1, {"t": {"0": 5}}, None),
        (0, {"t": {"0": 2}}, None),
        (1, {"t": {"0": 6}}, "has batch 1 with other records"),
        (3, {"t": {"0": 9}}, "has batch 1 as its last one, and batch 2 is missing"),
    ],
)
def test_which_batch_may_follow(batch: int, end: dict, reason: str | None) -> None:
    held = batches.Held(QUERY, 1, {"end": {"t": {"0": 5}}}, 0)
    place = BatchPlace(QUERY, batch, "p", f"etl/p/{QUERY}", {"end": end})
    if reason is None:
        assert batches.check_follows(held, place, "postgres:h/d/t", known=False) == (batch < 2)
        return
    with pytest.raises(EtlError, match=reason):
        batches.check_follows(held, place, "postgres:h/d/t", known=False)


def test_a_table_that_is_emptied_during_a_run_lacks_a_batch() -> None:
    place = BatchPlace.of("p", QUERY, 3)
    assert not batches.check_follows(None, place, "postgres:h/d/t", known=False)  # a new output
    with pytest.raises(OutputError, match="has no batch of this checkpoint, and batch 2 is missing"):
        batches.check_follows(None, place, "postgres:h/d/t", known=True)


def test_two_sinks_of_one_table_are_refused(etl: Etl, postgres: PostgresServer) -> None:
    """The second one would find each batch as written by itself. The server's address may be another one, too."""
    table = Table(etl, postgres)
    etl.produce(1, 2)
    login = f'columns: [id], user: {USER}, password: "{PASSWORD}"'
    other = f'url: "{postgres.url.replace("127.0.0.1", "localhost")}?ApplicationName=other"'
    second = f"  - {{type: postgres, table: public.{etl.name}, {other}, {login}}}"
    with pytest.raises(ConfigError, match=rf"^the sinks .* write the same table, public\.{etl.name}$"):
        table.run(sink=f"{table.sink(etl.name)}\n{second}")
    assert table.run().rows_out == 2


def test_a_row_with_a_letter_stays_out_although_it_fits_by_now(
    etl: Etl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver dies between the letter and the commit. A replay of the letter, which has the record, writes it."""
    postgres.run(f"CREATE TABLE of_{etl.name} (id bigint PRIMARY KEY)", f"INSERT INTO of_{etl.name} VALUES (1)")
    postgres.run(f"CREATE TABLE {etl.name} (id bigint REFERENCES of_{etl.name}, CONSTRAINT no_three CHECK (id <> 3))")
    table = Table(etl, postgres)
    etl.produce(1, 2, 3)
    real = Postgres._refuse_broken

    def dies(*arguments: Any) -> None:
        real(*arguments)
        raise RuntimeError("not today")

    with monkeypatch.context() as patch:
        patch.setattr(Postgres, "_refuse_broken", dies)
        with pytest.raises(RunError, match="not today"):
            table.run()
    postgres.run(f"INSERT INTO of_{etl.name} VALUES (2), (3)")
    totals = table.run()
    assert (totals.rows_in, totals.rows_out, totals.rows_dlq) == (3, 3, 2)
    assert table.ids() == [1]
    assert sorted(etl.read(etl.letters)) == [("2", '{"id": 2, "kind": "k0"}'), ("3", '{"id": 3, "kind": "k1"}')]
    postgres.run(f"ALTER TABLE {etl.name} DROP CONSTRAINT no_three")
    options = argparse.Namespace(to="sinks", stage="sink", rule=None, from_=None, until_=None)
    replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get()).replay(options)
    assert table.ids() == [1, 2, 3]


def test_a_second_try_without_rows_keeps_its_letters(
    etl: Etl, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No good row is left to read, and none of a letter: the numbers of rows come nevertheless."""
    table = Table(etl, postgres)
    etl.produce("broken")
    with monkeypatch.context() as patch:
        patch.setattr(Postgres, "_commit", lambda *_: (_ for _ in ()).throw(RuntimeError("not today")))
        with pytest.raises(RunError, match="not today"):
            table.run()
    assert table.run().rows_in == 1
    assert table.ids() == []
