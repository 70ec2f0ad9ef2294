"""`schema`: show the columns of each table and of the pipeline file side by side, and whether a run would accept them.

    column  table   pipeline  outcome
    id      bigint  bigint    same
    price           double    added
    note    string            kept empty
    size    int     bigint    widened
    when    string  timestamp refused

Exit status 0: a run would accept the file; 1: it would refuse it, for the reason in a table's last line. No broker is
needed.
"""

import argparse
from collections.abc import Sequence

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from spark_etl.config import Pipeline
from spark_etl.errors import ConfigError
from spark_etl.judgement import plan
from spark_etl.jvm.session import opened
from spark_etl.kafka import sources
from spark_etl.lake import LakeTable, choice, columns
from spark_etl.logs import Log
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings

_HEAD = {"column": "column", "table": "table", "pipeline": "pipeline", "outcome": "outcome"}


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    with opened(settings, f"{pipeline.config.name} schema") as session:
        pipeline = pinned(pipeline, session)
        lines, status = report(session, pipeline)
    print("\n".join(lines), flush=True)
    return status


def report(session: SparkSession, pipeline: Pipeline) -> tuple[list[str], int]:
    """Return the lines to print, of one table after the other, and the exit status."""
    rows, found, statuses = rows_schema(session, pipeline), list[str](), list[int]()
    for sink in pipeline.config.tables:
        lines, status = _report(LakeTable(session, sink), choice.target(sink, rows))
        found, statuses = [*found, *lines], [*statuses, status]
    return found, max(statuses)


def _report(table: LakeTable, wanted: StructType) -> tuple[list[str], int]:
    if not table.delta.exists():
        lines = _aligned(columns.differences(StructType(), wanted))
        return [*lines, f"accepted: {table.location} will be created"], 0
    lines = _aligned(columns.differences(table.delta.schema(), wanted, widen=bool(table.config.widen)))
    try:
        table.check(wanted)
    except ConfigError as error:
        return [*lines, f"refused: {error}"], 1
    return [*lines, f"accepted: {table.location}, version {table.delta.version()}"], 0


def rows_schema(session: SparkSession, pipeline: Pipeline) -> StructType:
    """Return the schema of the pipeline's good rows, planned on no records."""
    empty = session.range(0).select(*(F.lit(None).cast(kind).alias(name) for name, kind in sources.COLUMNS.items()))
    judged = plan(session, empty, pipeline)
    return judged.good(judged.rows).schema


def _aligned(rows: Sequence[dict[str, str]]) -> list[str]:
    table = [_HEAD, *rows]
    widths = {name: max(len(row[name]) for row in table) for name in _HEAD}
    return ["  ".join(row[name].ljust(widths[name]) for name in _HEAD).rstrip() for row in table]
