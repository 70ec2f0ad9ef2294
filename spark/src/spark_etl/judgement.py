"""The plan of a pipeline, from Kafka records to judged rows: one frame of all records, streaming or not.

Columns of the frame:

- the data columns; `_rescued` with decode.unknown_fields: rescue; `_deleted` with decode.null_value: delete;
  `_replayed` with a sink of `mode: upsert` (decode/replayed.py);
- `_key _topic _partition _offset _timestamp`: the key as decode.key says, and the record's place;
- `_raw_key _raw_value _raw_headers`: the record itself, null for good rows that no sink writes as they came;
- `_error`: STRUCT<stage, rule, message>, null for good rows;
- `_rows`, with `explode`: the rows of a good record (transform/explode.py); `good` makes rows of them;
- `_noted`, if a rule has `on_violation: keep`: a bit for each of these rules that the row breaks.

Steps, in this order: decode, join, derive, rules, dedupe, statements, partition check, explode. Run, validate, test and
backfill all use `plan`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import TimestampType

from spark_etl.config import Explode, Pipeline, Rule
from spark_etl.config.model import seconds
from spark_etl.config.pipeline_file import Place
from spark_etl.counts import DUPLICATE, LATE, Check, Counts
from spark_etl.decode import RAW, SOURCE_COLUMNS, Decoded, decode, replayed
from spark_etl.decode.avro import has_text, not_text
from spark_etl.decode.faults import barrier, fault
from spark_etl.errors import ConfigError
from spark_etl.lake.demands import Demands, Folder
from spark_etl.reasons import reason
from spark_etl.transform import dedupe, explode, joins, statements
from spark_etl.transform.table_files import TableFiles

STATED = "millrace_stated"  # name of the observation of the rows that come to the statements
NOT_UTF8 = ("transform", "text")  # the check of texts that expressions, statements and joins made
MARKS = ("_deleted", replayed.COLUMN)  # of good rows, which no statement sees
REFUSED_AT = "_refused_at"  # a refused row's `_timestamp`, which is null itself where it is the event time of dedupe


@dataclass(frozen=True, slots=True)
class Judged:
    rows: DataFrame
    columns: tuple[str, ...]  # of a good row, in the order they are written
    checks: tuple[Check, ...]  # every check that refuses a row
    drops: tuple[Check, ...]  # every check that drops a row
    notes: tuple[Check, ...]  # every rule that keeps a row, in the order of the bits of `_noted`
    file: str = ""  # digest of the sections of the pipeline file that the plan is made of
    tables: tuple[TableFiles, ...] = ()  # files of the joined tables
    exploded: bool = False  # whether good rows are made of `_rows`

    def check_tables(self) -> None:
        """Raise TableError if a batch may have read a part of a joined table. Ask after its first job."""
        for files in self.tables:
            files.check()

    @property
    def basis(self) -> str:
        """The digest of the file, and after `/` that of the joined tables as they are now, if there are any."""
        states = "".join(files.state() for files in self.tables)
        return f"{self.file}/{hashlib.sha256(states.encode()).hexdigest()}" if states else self.file

    @property
    def counters(self) -> list[Column]:
        """Aggregates for `DataFrame.observe` on the frame or a batch of it; `counts` reads their values."""
        error = F.col("_error")
        found = [
            F.count_if((error["stage"] == stage) & (error["rule"] == rule)).alias(f"{stage}.{rule}")
            for stage, rule in (*self.checks, *self.drops)
        ]
        noted = [
            F.count_if(error.isNull() & (F.getbit("_noted", F.lit(bit)) == 1)).alias(f"{stage}.{rule}")
            for bit, (stage, rule) in enumerate(self.notes)
        ]
        rows = F.sum(F.when(error.isNull(), F.size(explode.ROWS))).alias(explode.ROWS)
        made = [rows] if self.exploded else []
        return [F.count(F.lit(1)).alias("rows"), F.count_if(error.isNull()).alias("good"), *made, *found, *noted]

    def counts(self, observed: Mapping[str, Any]) -> Counts:
        """Return the counts that an observation of `counters` found; a check that found nothing is left out."""

        def of(checks: Sequence[Check]) -> dict[Check, int]:
            found = {check: int(observed.get(".".join(check)) or 0) for check in checks}
            return {check: count for check, count in found.items() if count}

        rows, good = int(observed.get("rows") or 0), int(observed.get("good") or 0)
        exploded = int(observed.get(explode.ROWS) or 0) if self.exploded else None
        refused, dropped = of(self.checks), of(self.drops)
        late, duplicates = refused.pop(LATE, 0) + dropped.pop(LATE, 0), dropped.pop(DUPLICATE, 0)
        return Counts(rows, good, refused, dropped, of(self.notes), late, duplicates, exploded)

    def good(self, batch: DataFrame, *, raw: bool = False) -> DataFrame:
        """Return the good rows of the frame or a batch of it; `raw`: with the raw columns."""
        good = batch.where("_error IS NULL")
        good = explode.exploded(good) if self.exploded else good
        return good.select(*self.columns, *(RAW if raw else ()))

    def refused(self, batch: DataFrame) -> DataFrame:
        """Return the rows of the frame or a batch that become dead letters."""
        place = F.concat_ws(".", "_error.stage", "_error.rule")
        return self.aside(batch).where(~place.isin([".".join(check) for check in self.drops]))

    def aside(self, batch: DataFrame) -> DataFrame:
        """Return the rows of the frame or a batch that are no good ones."""
        aside = batch.where("_error IS NOT NULL")
        if REFUSED_AT not in batch.columns:
            return aside
        return aside.withColumn("_timestamp", F.coalesce("_timestamp", REFUSED_AT))


def plan(
    session: SparkSession,
    records: DataFrame,
    pipeline: Pipeline,
    late_before: int = 0,
    *,
    batch_ms: int | None = None,
    raw: bool = False,
) -> Judged:
    """Return the judged frame of Kafka records (`sources.COLUMNS`). ConfigError: an expression or table is wrong.

    With `late_before`, a watermark in milliseconds, the check LATE is for records that the `dedupe` of a stream would
    leave out as late. Only Spark knows this of a stream. `batch_ms` is the time of a batch that is judged again, in
    milliseconds; without it the time is now. With `raw` all rows keep the record itself.
    """
    return _Planner(session, pipeline, batch_ms, raw=raw).judged(records, late_before)


class _Planner:
    def __init__(self, session: SparkSession, pipeline: Pipeline, batch_ms: int | None, *, raw: bool) -> None:
        self._session = session
        self._batch_ms = batch_ms
        self._pipeline = pipeline
        self._raw = raw or pipeline.config.gives_raw
        self._config = pipeline.config
        deleting = pipeline.config.decode.null_value == "delete"
        self._aside = "(_error IS NOT NULL OR _deleted)" if deleting else "(_error IS NOT NULL)"
        self._notes = [rule for rule in self._config.rules if rule.on_violation == "keep"]
        self._tables: list[TableFiles] = []
        self._demands = Demands(pipeline, lambda number, error: self._fault(("sinks", number), error))

    def judged(self, records: DataFrame, late_before: int) -> Judged:
        config = self._config
        decoded = self._decoded(records)
        frame = self._derived(decoded.rows)
        known = self._demands.known(frame) if config.transform else self._demands.folders
        frame = self._ruled(frame, known)
        frame = self._timed(frame)
        if config.dedupe is not None:
            frame = self._late(frame, late_before) if late_before > 0 else frame
            frame = dedupe.deduplicated(frame, config.dedupe, F.expr(self._aside))
        made = [column for join in config.join for column in join.select]
        data = [*decoded.columns, *made, *config.derive, *(["_rescued"] if "_rescued" in decoded.marks else [])]
        if config.transform:
            if records.isStreaming:
                frame = frame.observe(STATED, F.count(F.lit(1)).alias("rows"))
            frame, data = self._stated(frame, decoded)
            unknown = [folder for folder in self._demands.folders if folder not in known]
            unfit = [F.when(~F.expr(self._aside), each) for each in self._demands.faults(unknown, frame)]
            frame = frame.withColumn("_error", barrier(F.coalesce("_error", *unfit)))
        made = data if config.transform else [name for name in data if name not in decoded.columns]
        if config.explode is not None:
            frame, data = self._exploded(frame, data, config.explode)
            made = [*made, explode.ROWS]
        frame = self._texts(frame, [name for name in made if name in frame.columns])
        columns = (*data, *(name for name in decoded.marks if name in MARKS), *SOURCE_COLUMNS)
        columns += (explode.INDEX,) if config.explode is not None else ()
        if "_deleted" in decoded.marks:
            frame = self._demands.keyed(frame, columns)
        if self._demands.checks:
            frame = self._demands.changing(frame, columns)  # mutant: op-demanded
        own = [name for name in ("_noted", REFUSED_AT, explode.ROWS) if name in frame.columns]
        of_items = {*config.explode.select, explode.INDEX} if config.explode is not None else set()
        judged = [name for name in columns if name not in of_items]
        frame = self._without_raw(frame).select(*judged, *RAW, "_error", *own)
        outcomes = self._outcomes(decoded, own_dedupe=config.dedupe is not None and not records.isStreaming)
        files, exploded = tuple(self._tables), config.explode is not None
        return Judged(frame, columns, *outcomes, digest(self._pipeline), files, exploded)

    def _joined(self, frame: DataFrame) -> DataFrame:
        for number, join in enumerate(self._config.join):
            try:
                frame, files = joins.joined(self._session, frame, join, F.expr(self._aside))
            except (PySparkException, ConfigError) as error:
                raise self._fault(("join", number), error) from None
            self._tables.append(files)
        return frame

    def _decoded(self, records: DataFrame) -> Decoded:
        try:
            decoded = decode(records, self._pipeline, self._batch_ms)
            decoded.rows.schema  # noqa: B018  (Spark reads an Avro schema here)
        except (PySparkException, Py4JJavaError) as error:
            raise self._fault(("decode", "schema"), error) from None
        return decoded

    def _derived(self, frame: DataFrame) -> DataFrame:
        """Add the columns of joins and derived columns; those that need no joined column come first.

        ConfigError: an expression or a table is wrong.
        """
        later = list[str]()
        for name, expression in self._config.derive.items():
            try:
                derived = frame.withColumn(name, F.expr(expression))
            except PySparkException as error:
                if not self._config.join:
                    raise self._fault(("derive", name), error) from None
                later.append(name)
                continue
            self._check(frame, expression, ("derive", name))
            frame = derived
        frame = self._joined(frame)
        for name in later:
            self._check(frame, self._config.derive[name], ("derive", name))
            frame = frame.withColumn(name, F.expr(self._config.derive[name]))
        return frame

    def _check(self, frame: DataFrame, expression: str, place: Place) -> None:
        try:
            selected = frame.select(F.expr(expression))
        except PySparkException as error:
            raise self._fault(place, error) from None
        if not statements.repeatable(selected):
            raise self._fault(place, ConfigError(statements.NOT_REPEATABLE))

    def _ruled(self, frame: DataFrame, folders: Sequence[Folder]) -> DataFrame:
        """Add the faults of rules and of partition columns to `_error`, and the broken rules of notes as `_noted`."""
        for number, rule in enumerate(self._config.rules):
            self._check(frame, f"CAST(({rule.expr}) AS BOOLEAN)", ("rules", number, "expr"))
        faults = [
            F.when(_broken(rule), fault("rules", rule.name, F.lit(f"not true: {rule.expr}")))
            for rule in self._config.rules
            if rule.on_violation != "keep"
        ]
        faults += self._demands.faults(folders, frame)
        added = F.when(~F.expr(self._aside), F.coalesce(*faults)) if faults else F.lit(None)
        bits = [F.when(_broken(rule), F.lit(1 << bit)).otherwise(F.lit(0)) for bit, rule in enumerate(self._notes)]
        noted = [sum(bits[1:], bits[0]).cast("bigint").alias("_noted")] if bits else []
        others = [name for name in frame.columns if name != "_error"]
        error = barrier(F.coalesce("_error", added)) if faults else F.col("_error")
        return frame.select(*others, *noted, error.alias("_error"))

    def _texts(self, frame: DataFrame, made: Sequence[str]) -> DataFrame:
        """Refuse rows whose made texts are not UTF-8: other readers than Spark could not read their file."""
        faults = [
            F.when(not_text(F.col(f"`{name}`"), frame.schema[name].dataType), F.lit(name))
            for name in made
            if has_text(frame.schema[name].dataType)
        ]
        if not faults:
            return frame
        name = F.coalesce(*faults)
        reason = fault(*NOT_UTF8, F.concat(name, F.lit(" is not UTF-8")))
        return frame.withColumn("_error", barrier(F.coalesce("_error", F.when(name.isNotNull(), reason))))

    def _timed(self, frame: DataFrame) -> DataFrame:
        """Give the frame its watermark. The event time of a refused row counts for nothing."""
        event_time = self._config.decode.timestamp
        if event_time is None:
            return frame
        delay = event_time.watermark
        if self._config.dedupe is not None:
            delay = max(delay, self._config.dedupe.within, key=seconds)
        name = event_time.field
        if not isinstance(frame.schema[name].dataType, TimestampType):
            found = frame.schema[name].dataType.simpleString()
            raise self._fault(("decode", "timestamp", "field"), ConfigError(f"{name} is {found}, not a time"))
        if self._config.dedupe is not None:  # Spark's first watermark is 1970: it would drop older rows uncounted
            early = F.col(name) <= F.timestamp_seconds(F.lit(0))
            reason = fault("decode", "event_time", F.lit(f"{name} is not after 1970-01-01T00:00Z, as `dedupe` needs"))
            frame = frame.withColumn("_error", barrier(F.coalesce("_error", F.when(early, reason))))
        if name == "_timestamp":
            if self._config.dedupe is None:
                return frame.withWatermark(name, delay)
            frame = frame.withColumn(REFUSED_AT, F.when(F.col("_error").isNotNull(), F.col(name)))
        return frame.withColumn(name, F.when(F.col("_error").isNull(), F.col(name))).withWatermark(name, delay)

    def _late(self, frame: DataFrame, before: int) -> DataFrame:
        """Refuse the rows that are late for a watermark in milliseconds, as Spark's `dedupe` judges it."""
        assert self._config.decode.timestamp is not None  # as `dedupe` needs
        field = self._config.decode.timestamp.field
        late = F.col("_error").isNull() & (F.unix_micros(field) <= before * 1000)  # mutant: late-as-spark
        reason = fault(*LATE, F.lit(f"{field} is not after the watermark {datetime.fromtimestamp(before / 1000, UTC)}"))
        return frame.withColumn("_error", barrier(F.coalesce("_error", F.when(late, reason))))

    def _stated(self, frame: DataFrame, decoded: Decoded) -> tuple[DataFrame, list[str]]:
        """Apply the statements; return their frame and data columns."""
        deleted = [name for name in decoded.marks if name in MARKS]
        kept = (*SOURCE_COLUMNS, *RAW, "_error", *deleted)
        kept += tuple(name for name in ("_noted", REFUSED_AT) if name in frame.columns)
        for number, statement in enumerate(self._config.transform):
            try:
                frame = statements.applied(self._session, frame, statement.sql, kept, self._aside)
            except ConfigError as error:
                raise self._fault(("transform", number, "sql"), error) from None
        return frame, [name for name in frame.columns if name not in kept]

    def _exploded(self, frame: DataFrame, data: Sequence[str], config: Explode) -> tuple[DataFrame, list[str]]:
        """Add the rows of each good record, and return the data columns of the rows."""
        try:
            explode.check(frame, config, data)
        except ConfigError as error:
            raise self._fault(("explode", "column"), error) from None
        for name in config.select:
            try:
                explode.check_item(frame, config, name)
            except ConfigError as error:
                raise self._fault(("explode", "select", name), error) from None
        if config.empty != "keep":
            empty = F.when(explode.is_empty(config), fault(*explode.EMPTY, F.lit(f"{config.column} has no items")))
            frame = frame.withColumn("_error", barrier(F.coalesce("_error", empty)))
        frame = frame.withColumn(explode.ROWS, F.when(~F.expr(self._aside), explode.rows(config)))
        return frame, [*(name for name in data if name != config.column), *config.select]

    def _without_raw(self, frame: DataFrame) -> DataFrame:
        if self._raw:
            return frame
        raw = {name: F.when(F.col("_error").isNotNull(), F.col(name)) for name in RAW}
        return frame.withColumns(raw)

    def _outcomes(
        self, decoded: Decoded, *, own_dedupe: bool
    ) -> tuple[tuple[Check, ...], tuple[Check, ...], tuple[Check, ...]]:
        """Return the checks that refuse a row, those that drop it, and those that only note it."""
        config = self._config
        outcome = dict.fromkeys(decoded.checks, "dlq")
        if config.decode.null_value == "drop":
            outcome["decode", "null_value"] = "drop"
        outcome |= {("join", join.name): join.unmatched for join in config.join if join.unmatched != "keep"}
        outcome |= {("rules", rule.name): rule.on_violation for rule in config.rules}
        if own_dedupe and config.decode.timestamp is not None:
            outcome |= {LATE: config.decode.timestamp.late, DUPLICATE: "drop"}
        if config.transform or config.derive or config.join or config.explode is not None:
            outcome[NOT_UTF8] = "dlq"
        if config.explode is not None and config.explode.empty != "keep":
            outcome[explode.EMPTY] = config.explode.empty
        outcome |= {("partition", name): "dlq" for _, name in self._demands.folders}
        outcome |= dict.fromkeys(self._demands.checks, "dlq")

        def having(*wanted: str) -> tuple[Check, ...]:
            return tuple(check for check, found in outcome.items() if found in wanted)

        return having("dlq", "fail"), having("drop"), having("keep")

    def _fault(self, place: Place, error: Exception) -> ConfigError:
        text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else str(error)
        lines = str(text or "").strip().splitlines()
        return self._pipeline.fault(place, lines[0] if lines else reason(error))


def digest(pipeline: Pipeline) -> str:
    """Return a digest of the sections of the file that judge records."""
    sections = {"decode", "join", "derive", "rules", "dedupe", "transform"}
    if pipeline.config.explode is not None:
        sections.add("explode")
    chosen = pipeline.model_dump_json(include={"config": sections, "schema_": True, "key_schema": True})
    return hashlib.sha256(chosen.encode()).hexdigest()


def _broken(rule: Rule) -> Column:
    """Return whether a row breaks a rule. It holds if its expression is true; false and null break it."""
    return ~F.coalesce(F.expr(rule.expr).cast("boolean"), F.lit(False))
