"""`replay-dlq PIPELINE`: bring dead letters back, each once: through decode and rules into the sinks, or to the source.

    --to sinks    judge the letters again as the file is now; good rows go to the sinks, others become new letters
    --to source   write the original key, value and headers to the topic that the letter names

`--stage`, `--rule`, `--from` and `--until` choose letters. A letter without its value (`.left_out`) stays. Marks next
to the checkpoint keep which letters have been replayed. A letter of the stage `sink` goes to the sinks that it names:
the others have its row. It stays if the file has no such sink. A replay that was interrupted is finished first, with
its own choice of letters, and the command ends. `--to sinks` needs the pipeline stopped and sinks of `mode: append`;
windows and summaries get no replayed row directly. A record that went back to its source
replaces no row of a key that is later there (replayed.py). Prints one JSON object with the numbers of letters and rows.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, Observation, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.storagelevel import StorageLevel

from spark_etl.checkpoint import notes
from spark_etl.checkpoint.batches import BatchPlace
from spark_etl.config import Pipeline, PostgresSinkConfig
from spark_etl.counts import Taken
from spark_etl.decode import replayed
from spark_etl.errors import AccountingError, ConfigError, OutputError
from spark_etl.judgement import REFUSED_AT, Judged, plan
from spark_etl.jvm.session import opened
from spark_etl.kafka import sources
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import OffsetRanges, condition, outside, spanned
from spark_etl.lake import LakeTable
from spark_etl.lake.locks import checkpoint_lock
from spark_etl.letters.replays import QUERY, Replay, Replays
from spark_etl.logs import Log
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings
from spark_etl.sinks import Outputs
from spark_etl.sinks import opened as outputs_of
from spark_etl.sinks.dead_letters import (
    ERROR_HEADERS,
    ERROR_PREFIX,
    ITEM,
    LEFT_OUT_BYTES,
    REFUSED_BY,
    SINK,
    TIMESTAMP_FORMAT,
)
from spark_etl.sinks.rows import MISFIT_STAGE
from spark_etl.sinks.topics import Identity, LookBack, TopicWriter, header, header_text

REPLAY_HEADER = "__etl.replay"  # topic/partition/offset/topic id of the letter


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", choices=("sinks", "source"), default="sinks", help="where to (default: sinks)")
    parser.add_argument("--stage", help="only letters of this stage, such as decode")
    parser.add_argument("--rule", help="only letters of this rule")
    for name, text in {"from": "not older", "until": "older"}.items():
        parser.add_argument(f"--{name}", dest=f"{name}_", type=_time, metavar="TIME", help=f"only letters {text}")


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:
    """Replay the chosen letters. Raises EtlError."""
    with opened(settings, f"{pipeline.config.name} replay-dlq") as session:
        pipeline = pinned(pipeline, session)
        cluster = Cluster(settings.bootstrap_servers, pipeline.config.kafka.properties)
        document = Command(session, cluster, pipeline, log).replay(options)
    log.info("letters replayed", **document)
    print(json.dumps(document), flush=True)
    return 0


class Command:
    """One call of the command."""

    def __init__(self, session: SparkSession, cluster: Cluster, pipeline: Pipeline, log: Log) -> None:
        self._session = session
        self._cluster = cluster
        self._pipeline = pipeline
        self._config = pipeline.config
        self._topic = pipeline.config.dead_letter.topic
        self._log = log

    def replay(self, options: argparse.Namespace) -> dict[str, Any]:
        """Replay the letters that the options choose, or those of an interrupted replay."""
        with checkpoint_lock(self._session, self._config.checkpoint, "replay"):
            return self._replay(options)

    def _replay(self, options: argparse.Namespace) -> dict[str, Any]:
        with self._cluster.admin(self._session) as admin:
            topic_id = admin.topic_ids([self._topic])[self._topic] or ""
            ends = admin.end_offsets([self._topic])[self._topic]
            self._oldest = admin.start_offsets([self._topic])[self._topic]
        replays = self._replays = Replays(notes.at(notes.absolute(self._config.checkpoint), self._session), topic_id)
        if replays.recovered and (self._config.table is not None or self._config.beside):
            replays.finished(_ranges(self._returned(_chosen(options, ends, replays.next_number))), "sinks")
        replay = replays.resumed(self._topic)
        again = replay is not None
        if replays.interrupted is not None and not again:
            self._log.warning("an interrupted replay is given up, its letters are gone")
        if replay is None:
            replay = _chosen(options, ends, replays.next_number)
            replay = dataclasses.replace(replay, topic=self._topic, topic_id=topic_id)
        else:
            self._log.warning("an interrupted replay is finished first", number=replay.number, to=replay.to)
        with self._table(replay) as self._lake:
            if self._lake is not None and not again:  # a checkpoint that was removed forgot the numbers
                held = self._lake.delta.version_of(BatchPlace.of(self._config.name, QUERY, 0).app_id)
                replay = dataclasses.replace(replay, number=max(replay.number, held + 1))
            replays.begun(replay)
            letters = self._letters(replay, replays.done).persist(StorageLevel.MEMORY_AND_DISK)
            try:
                ranges = _ranges(letters)
                count = sum(last - first + 1 for each in ranges.values() for first, last in each)
                begun_before = replay.began if again else None
                write = self._to_source if replay.to == "source" else self._to_sinks
                outcome = write(_once(letters), replay, begun_before) if count else {}
                replays.finished(ranges, replay.to)
            finally:
                letters.unpersist()
        return {"pipeline": self._config.name, "replay": replay.number, "to": replay.to, "letters": count, **outcome}

    def _check_file(self, replay: Replay, basis: str) -> None:
        """Refuse to finish a replay by another file, or with other joined tables.

        Records would be in the table and letters again, or in neither.
        """
        place = BatchPlace.of(self._config.name, QUERY, replay.number)
        unwritten = self._lake is not None and not self._lake.holds(place.app_id, place.batch_id)
        if replay.file in ("", basis) or unwritten:
            return
        if replay.file.partition("/")[0] == basis.partition("/")[0]:
            raise OutputError("an interrupted replay began with other joined tables: put the earlier files back first")
        raise OutputError("an interrupted replay began with another pipeline file: finish it with that file first")

    @contextmanager
    def _table(self, replay: Replay) -> Iterator[LakeTable | None]:
        """Hold the sinks as their one driver, before the replay leaves any mark. OutputError: the pipeline runs."""
        if replay.to == "source":
            yield None
            return
        self._check_append()
        table = self._config.table
        with checkpoint_lock(self._session, self._config.checkpoint, "run"):
            if table is None:
                yield None
                return
            empty = plan(self._session, sources.no_records(self._session), self._pipeline)
            with LakeTable.opened(self._session, table, empty.good(empty.rows).schema) as lake:
                yield lake

    def _returned(self, replay: Replay) -> DataFrame:
        """Return the letters whose records are in a table: they came back before a checkpoint was lost.

        Nothing says so of a letter of one sink, which lacks a row that the tables always have.
        """
        letters = self._letters(dataclasses.replace(replay, stage=None, rule=None, since=None, until=None), {})
        letters = letters.where(F.col(SINK).isNull())
        placed = letters.withColumns({f"_{name}": F.col(name) for name in _PLACE})
        span = condition(spanned(placed)) or "false"
        found = [
            LakeTable.existing(self._session, sink).among(placed, span, "left_semi") for sink in self._config.tables
        ]
        return reduce(DataFrame.union, found).dropDuplicates(["letter_partition", "letter_offset"])

    def _letters(self, replay: Replay, done: OffsetRanges) -> DataFrame:
        """Return the letters of a replay: the record's parts, and the place of the letter as `letter_…`."""
        # The topic may have more partitions than when the replay began, and letters may be gone.
        ends = {str(number): max(first, replay.ends.get(str(number), first)) for number, first in self._oldest.items()}
        reader = self._session.read.format("kafka").options(**self._cluster.reading())
        found = (
            reader.option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("endingOffsets", json.dumps({self._topic: ends}))
            .option("includeHeaders", "true")
            .load()
        )
        texts = {name: header_text(ERROR_PREFIX + name) for name in ("pipeline", "stage", "rule", *_PLACE)}
        named = found.select("*", *(text.alias(f"error_{name}") for name, text in texts.items()))
        whole = ~F.coalesce(F.element_at("headers", -1)["key"] == F.lit(LEFT_OUT_BYTES), F.lit(False))
        wanted = [F.col("error_pipeline") == self._config.name, whole]
        wanted += [F.col("error_partition").isNotNull() & F.col("error_offset").isNotNull()]
        wanted += [F.col(f"error_{name}") == value for name, value in _named(replay).items()]
        if replay.since is not None:
            wanted.append(F.col("timestamp") >= F.lit(datetime.fromisoformat(replay.since)))
        if replay.until is not None:
            wanted.append(F.col("timestamp") < F.lit(datetime.fromisoformat(replay.until)))
        by_sink = (F.col("error_stage") == MISFIT_STAGE) & (F.element_at("headers", -1)["key"] == F.lit(REFUSED_BY))
        of_item = F.coalesce(by_sink & (F.try_element_at("headers", F.lit(-2))["key"] == F.lit(ITEM)), F.lit(False))
        if replay.to == "sinks":
            wanted.append(~by_sink | header_text(REFUSED_BY).isin(self._sinks()))
            wanted.append(~of_item)  # the sink has the other rows of the record
        for each in wanted:
            named = named.where(each)
        more = [F.when(each, F.lit(1)).otherwise(F.lit(0)) for each in (by_sink, of_item)]
        own = sum(more, F.lit(len(ERROR_HEADERS)))
        original = F.slice("headers", F.lit(1), F.size("headers") - own)
        return outside(named, done).select(
            "key",
            "value",
            F.col("error_topic").alias("topic"),
            F.col("error_partition").cast("int").alias("partition"),
            F.col("error_offset").cast("bigint").alias("offset"),
            F.to_timestamp("error_timestamp", TIMESTAMP_FORMAT).alias("timestamp"),
            F.lit(0).alias("timestampType"),
            original.alias("headers"),
            F.col("partition").alias("letter_partition"),
            F.col("offset").alias("letter_offset"),
            F.when(by_sink, header_text(REFUSED_BY)).alias(SINK),
        )

    def _sinks(self) -> list[str]:
        """Return the names of the sinks that can refuse a row."""
        empty = plan(self._session, sources.no_records(self._session), self._pipeline)
        schema = empty.good(empty.rows).schema
        return [sink.name for sink in outputs_of(self._session, self._config, self._cluster, schema).rows]

    def _check_append(self) -> None:
        for number, sink in enumerate(self._config.sinks):
            if getattr(sink, "mode", None) == "upsert":
                reason = "replay-dlq --to sinks would put old values over newer ones; use --to source"
                raise self._pipeline.fault(("sinks", number), reason)

    def _to_source(self, letters: DataFrame, replay: Replay, begun_before: datetime | None) -> dict[str, Any]:
        """Write the original records to their topics, with a header that names the letter."""
        source = self._config.source
        for number, sink in enumerate(self._config.sinks):
            if isinstance(sink, PostgresSinkConfig) and sink.mode == "upsert" and not sink.keeps_places:
                names = ", ".join(replayed.PLACE)
                reason = f"a replayed row may be older than the table's: add {names} to columns, which say so"
                raise self._pipeline.fault(("sinks", number), reason)
        for row in letters.select("topic").distinct().collect():
            topic = row["topic"]
            if not source.reads(topic):
                raise ConfigError(f"a letter is of topic {topic}, which the pipeline does not read")
            own = letters.where(F.col("topic") == topic)
            parts = (F.lit(self._topic), "letter_partition", "letter_offset", F.lit(replay.topic_id))
            place = F.concat_ws("/", *parts)
            marks = F.array(header(replayed.HEADER, replayed.source_text()), header(REPLAY_HEADER, place))
            records = own.select("key", "value", F.concat("headers", marks).alias("headers"))
            writer = TopicWriter(self._session, self._cluster, topic, Identity((REPLAY_HEADER,)))
            writer.check()
            writer.write(records, begun_before)
        return {}

    def _to_sinks(self, letters: DataFrame, replay: Replay, begun_before: datetime | None) -> dict[str, Any]:
        judged = plan(self._session, letters.select(*sources.COLUMNS), self._pipeline)
        basis = judged.basis
        self._check_file(replay, basis)
        schema = judged.good(judged.rows).schema
        outputs = outputs_of(self._session, self._config, self._cluster, schema)
        outputs.check()
        outputs.letters.compare_with(LookBack({int(number): end for number, end in replay.ends.items()}))
        rows = judged.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counted = Observation()
            rows.observe(counted, *judged.counters).write.format("noop").mode("overwrite").save()
            counts = judged.counts(counted.get)
            counts = counts.after(Taken.by_statements(letters.count())) if self._config.transform else counts
            if not counts.balanced:
                raise AccountingError(f"{counts.rows} letters in, {counts.good} good, refused: {counts.refused}")
            self._replays.begun(dataclasses.replace(replay, file=basis))
            place = BatchPlace.of(self._config.name, QUERY, replay.number)
            once = BatchPlace.of(self._config.name, f"{QUERY} {replay.at}", replay.number)
            misfits = self._write(judged, _with_sinks(rows, letters), outputs, place, once, begun_before)
        finally:
            rows.unpersist()
        refused = sum(counts.refused.values()) + misfits
        taken = {"rows_dropped": counts.numbers["dropped"], "rows_duplicates": counts.duplicates}
        return {"rows_out": counts.good, "rows_dlq": refused, **taken}

    def _write(
        self,
        judged: Judged,
        rows: DataFrame,
        outputs: Outputs,
        place: BatchPlace,
        once: BatchPlace,
        begun_before: datetime | None,
    ) -> int:
        """Write to the table at `place`, which numbers its replays, and to the sinks at `once`, of this replay only."""
        lake = self._lake
        if lake is not None and not lake.holds(place.app_id, place.batch_id):
            last = lake.last_metadata() or {}
            metadata = {**last, "replay": place.batch_id}
            of_all_sinks = judged.good(rows.where(F.col(SINK).isNull()))
            span = condition(spanned(rows)) or "false"
            missing = lake.among(of_all_sinks, span, "left_anti")  # some came back before a `recover`
            lake.write(missing, place.app_id, place.batch_id, lambda _: metadata)
        outputs.letters.write(judged.refused(rows), begun_before)
        number = 0
        for sink in outputs.rows:
            lacking = rows.where(F.col(SINK).isNull() | F.array_contains(F.split(SINK, _BETWEEN), sink.name))
            number += sink.write(judged.good(lacking, raw=self._config.gives_raw), once, begun_before)
        return number


_PLACE = ("topic", "partition", "offset", "timestamp")  # the time tells a topic from one that was created again
_BETWEEN = " "  # names of sinks; an address of several hosts has commas


def _chosen(options: argparse.Namespace, ends: Mapping[int, int], number: int) -> Replay:
    return Replay(
        number=number,
        at=datetime.now(UTC).isoformat(),  # wall clock: the begin of a replay, compared in the same way
        to=options.to,
        stage=options.stage,
        rule=options.rule,
        since=options.from_.isoformat() if options.from_ is not None else None,
        until=options.until_.isoformat() if options.until_ is not None else None,
        ends={str(partition): end for partition, end in ends.items()},
    )


def _named(replay: Replay) -> Mapping[str, str]:
    given = {"stage": replay.stage, "rule": replay.rule}
    return {name: value for name, value in given.items() if value is not None}


def _once(letters: DataFrame) -> DataFrame:
    """Return the first letter of each record: a topic may have a letter twice, or one for each sink that refused it."""
    columns = [name for name in letters.columns if name != SINK]
    first = F.min_by(F.struct(*columns), F.struct("letter_partition", "letter_offset")).alias("first")
    sinks = F.when(F.count(SINK) == F.count(F.lit(1)), F.array_join(F.collect_set(SINK), _BETWEEN)).alias(SINK)
    return letters.groupBy(*_PLACE).agg(first, sinks).select("first.*", SINK)


def _with_sinks(rows: DataFrame, letters: DataFrame) -> DataFrame:
    """Return judged rows with the sinks that lack them as `_sink`, null for all: the others have such a row."""
    place = [F.col(name).alias(f"_of_{name}") for name in _PLACE]
    sinks = F.broadcast(letters.select(*place, SINK).where(F.col(SINK).isNotNull()))
    at = F.coalesce("_timestamp", REFUSED_AT) if REFUSED_AT in rows.columns else F.col("_timestamp")
    own = {**{name: F.col(f"_{name}") for name in _PLACE}, "timestamp": at}
    same = [own[name].eqNullSafe(F.col(f"_of_{name}")) for name in _PLACE]
    return rows.join(sinks, same, "left").drop(*(f"_of_{name}" for name in _PLACE))


def _ranges(letters: DataFrame) -> dict[int, list[tuple[int, int]]]:
    """Return the offsets of letters as ranges of neighbours; the letters themselves stay in Spark."""
    by_partition = Window.partitionBy("letter_partition").orderBy("letter_offset")
    island: Column = F.col("letter_offset") - F.row_number().over(by_partition)
    grouped = letters.select("letter_partition", "letter_offset", island.alias("island"))
    bounds = grouped.groupBy("letter_partition", "island").agg(F.min("letter_offset"), F.max("letter_offset"))
    ranges: dict[int, list[tuple[int, int]]] = {}
    for partition, _, first, last in bounds.orderBy("letter_partition", "island").collect():
        ranges.setdefault(int(partition), []).append((int(first), int(last)))
    return ranges


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
