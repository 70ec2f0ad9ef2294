"""New tables of PostgreSQL for tests, each with the sink of one pipeline that writes to it, and its dead letters."""

from __future__ import annotations

from datetime import datetime
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession
from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import PostgresSinkConfig
from spark_etl.sinks.postgres.sink import Postgres
from support.postgres import PASSWORD, USER, PostgresServer

PLACES = "_key string, _topic string, _partition int, _offset bigint, _timestamp timestamp"
AT = datetime(2026, 1, 31, 12)


class Letters:
    """Dead letters that are kept here, as (offset, rule, message)."""

    def __init__(self) -> None:
        self.written: list[tuple[int, str, str]] = []

    def write(self, refused: DataFrame, begun_before: datetime | None) -> None:
        rows = refused.select("_offset", "_error.stage", "_error.rule", "_error.message").collect()
        assert {row["stage"] for row in rows} == {"sink"}
        self.written += [(row["_offset"], row["rule"], row["message"]) for row in rows]


class Case:
    """A new table, and the sink of one pipeline that writes to it."""

    def __init__(self, session: SparkSession, server: PostgresServer) -> None:
        self._session, self._server = session, server
        self.table = "t" + uuid4().hex
        self.pipeline = "p" + uuid4().hex
        self.letters = Letters()

    def frame(self, schema: str, *rows: tuple) -> DataFrame:
        placed = [(*row, "k", "orders", 0, offset, AT) for offset, row in enumerate(rows)]
        return self._session.createDataFrame(placed, f"{schema}, {PLACES}")

    def sink(self, rows: DataFrame, **options: object) -> Postgres:
        document = {"type": "postgres", "url": self._server.url, "table": self.table, "user": USER}
        config = PostgresSinkConfig.model_validate({**document, "password": PASSWORD, **options})
        return Postgres(self._session, config, rows.schema, self.pipeline, self.letters)

    def place(self, batch: int) -> BatchPlace:
        return BatchPlace.of(self.pipeline, "query", batch)

    def write(self, rows: DataFrame, batch: int = 0, **options: object) -> int:
        sink = self.sink(rows, **options)
        sink.check()
        return sink.write(rows, self.place(batch), None)

    def stored(self, columns: str = "*", order: str = "1") -> list[tuple[str, ...]]:
        return self._server.rows(f"SELECT {columns} FROM {self.table} ORDER BY {order}")

    def batches(self) -> list[tuple[str, ...]]:
        return self._server.rows(f"SELECT app_id, batch, rows FROM etl_batches WHERE target = 'public.{self.table}'")

    def staging(self) -> list[tuple[str, ...]]:
        return self._server.rows("SELECT tablename FROM pg_tables WHERE tablename LIKE 'etl\\_staging%'")


@pytest.fixture
def case(spark: SparkSession, postgres: PostgresServer) -> Case:
    return Case(spark, postgres)
