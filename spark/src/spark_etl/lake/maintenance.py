"""Commands on a table that may run while its pipeline does: each is one commit, between two of the pipeline's.

`compact` rewrites small files into large ones (OPTIMIZE), which changes no row, and removes files that no version of
the last `retention_hours` names (VACUUM). `replace` exchanges all rows that a condition names.

On a local folder one such command runs at a time. A retention under a day needs the pipeline to stand still: files that
a batch has written and not yet committed would be removed. On a file system of Hadoop's it is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from spark_etl.errors import ConfigError
from spark_etl.lake import choice, columns
from spark_etl.lake.delta import is_conflict
from spark_etl.lake.table import CONFLICT_TRIES, LakeTable, dumped

RETENTION_HOURS = 168.0
RETENTION_BESIDE_A_RUN_HOURS = 24.0


@dataclass(frozen=True, slots=True)
class Compacted:
    """The outcome of one compaction. `version` is that of the table afterwards."""

    version: int
    files_before: int
    files_after: int
    files_rewritten: int


def compact(session: SparkSession, table: LakeTable, retention_hours: float = RETENTION_HOURS) -> Compacted:
    """Rewrite small files and remove old ones. Readers of a version older than the retention fail afterwards."""
    short = retention_hours < RETENTION_BESIDE_A_RUN_HOURS
    if short and table.folder.root is None:
        raise ConfigError(f"a retention under {RETENTION_BESIDE_A_RUN_HOURS:g} hours needs a local table")
    table.use_codec(session)
    with table.folder.commanded(as_driver=short):
        before = table.delta.files()
        rewritten = _optimize(session, table)
        _vacuum(session, table, retention_hours)
        after = table.delta.files()
        return Compacted(table.delta.version(), before, after, rewritten)


def replace(table: LakeTable, rows: DataFrame, condition: str, metadata: Mapping[str, Any]) -> int:
    """Exchange the rows that a SQL condition names for those that the table takes of `rows`; return the version.

    All of these must fulfil the condition.
    """
    table.use_codec(rows.sparkSession)
    rows = choice.chosen(table.config, rows)
    fitted = rows.select(*columns.fitted(table.delta.schema(), rows.schema))
    partition_by = table.delta.partition_by()
    if partition_by:
        fitted = fitted.repartition(*partition_by)

    def write() -> None:
        writer = fitted.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        writer.save(table.location)

    # The lock is held from the start: each batch of the pipeline appends rows that the condition might name, and Delta
    # would refuse this commit after every one of them.
    _commit(rows.sparkSession, table, write, metadata, lock_first=True)
    return table.delta.version()


def _optimize(session: SparkSession, table: LakeTable) -> int:
    upsert = table.config.mode == "upsert"
    outcome: list[int] = []

    def optimize() -> None:
        row = session.sql(f"OPTIMIZE {_named(table)}").first()
        outcome.append(int(row["metrics"]["numFilesRemoved"]) if row else 0)

    _commit(session, table, optimize, {"operation": "compact"}, lock_first=upsert)
    return outcome[-1]


def _vacuum(session: SparkSession, table: LakeTable, retention_hours: float) -> None:
    settings = {
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        # tasks of each listing; by default 10,000
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * session.sparkContext.defaultParallelism),
    }
    for key, value in settings.items():
        session.conf.set(key, value)
    try:
        _commit(
            session,
            table,
            lambda: session.sql(f"VACUUM {_named(table)} RETAIN {retention_hours} HOURS").collect(),
            {"operation": "vacuum"},
            lock_first=False,
        )
    finally:
        for key in settings:
            session.conf.unset(key)


def _named(table: LakeTable) -> str:
    """Return the table as SQL names it by its folder."""
    return f"delta.`{table.location.replace('`', '``')}`"


def _commit(
    session: SparkSession,
    table: LakeTable,
    work: Callable[[], object],
    metadata: Mapping[str, Any],
    *,
    lock_first: bool,
) -> None:
    """Run a command of Delta's, again after a conflict. Its commit carries the last batch's metadata."""

    def carrying() -> Mapping[str, Any]:
        return {**metadata, "last": table.last_metadata()}

    for attempt in range(1, CONFLICT_TRIES + 1):
        try:
            with table.folder.command(session, carrying, dumped, lock_first=lock_first):
                work()
            return
        except Py4JJavaError as error:
            if attempt == CONFLICT_TRIES or not is_conflict(error):
                raise


def summary(outcome: Compacted) -> dict[str, int]:
    return asdict(outcome)
