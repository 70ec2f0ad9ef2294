"""`backfill --from A --to B`: read a range of records again, and exchange exactly its rows in a table, in one commit.

A and B are times (`2026-01-31T00:00:00Z`), one offset for every partition (`1200`), or offsets by partition
(`{"orders": {"0": 1200, "1": 900}}`; partitions that are not named are left as they are). A is in the range, B is not.

The pipeline may be running: the range ends at its last commit, and its next commit waits for this one. Rows are
exchanged by (_topic, _partition, _offset). Records that the file refuses now become dead letters, unless they are there
already. Refused are: offsets that the broker no longer has or the pipeline has not read yet, a topic that was created
again since, a pipeline whose only tables are of `mode: upsert`. Several tables get their rows one after the other.

Prints one JSON object: the ranges, the records in, out, to dead letters and dropped, and the version of each table.
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession
from pyspark.storagelevel import StorageLevel

from spark_etl.checkpoint import notes
from spark_etl.config import Pipeline
from spark_etl.counts import Counts, Taken
from spark_etl.errors import AccountingError, ConfigError, OutputError, RuleError
from spark_etl.judgement import Judged, plan
from spark_etl.jvm.session import opened
from spark_etl.kafka.admin import KafkaAdmin
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ranges import Ranges, condition, records
from spark_etl.lake import LakeTable, maintenance
from spark_etl.lake.locks import checkpoint_lock
from spark_etl.letters.replays import Replays
from spark_etl.logs import Log
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings
from spark_etl.sinks.dead_letters import DeadLetters
from spark_etl.sinks.topics import LookBack

Offsets = dict[str, dict[int, int]]
Point = datetime | int | Offsets
_OUTCOMES = ("in", "out", "dlq", "dropped")  # `dedupe`, which finds the others, is refused
_DEAD_LETTERS_SINCE = datetime(1970, 1, 2, tzinfo=UTC)  # every letter is compared with those of earlier runs


def arguments(parser: argparse.ArgumentParser) -> None:
    for name, text in {"from": "first", "to": "first that stays"}.items():
        parser.add_argument(
            f"--{name}", dest=f"{name}_", required=True, metavar="POINT", help=f"{text}: time or offset"
        )


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:
    first, end = point("--from", options.from_), point("--to", options.to_)
    check_order(first, end)
    with opened(settings, f"{pipeline.config.name} backfill") as session:
        pipeline = pinned(pipeline, session)
        document = backfill(session, settings.bootstrap_servers, pipeline, first, end)
    log.info("range replaced", **document)
    print(json.dumps(document), flush=True)
    return 0


def backfill(
    session: SparkSession, bootstrap_servers: str, pipeline: Pipeline, first: Point, end: Point
) -> dict[str, Any]:
    """Exchange the rows of a range; return the document to print."""
    config = pipeline.config
    wanted = [sink for sink in config.tables if sink.mode == "append"]
    if not wanted:
        raise ConfigError("backfill: a table of mode: upsert holds last states, no range of offsets")
    if config.dedupe is not None:
        raise ConfigError(
            "backfill: dedupe compares records with those outside the range, which backfill does not read"
        )
    tables = [LakeTable.existing(session, sink) for sink in wanted]
    commits = [_last_commit(table) for table in tables]
    with KafkaAdmin.opened(session, bootstrap_servers, config.kafka.properties) as admin:
        for last in commits:
            check_topics(last, admin)
        letters_id = admin.topic_ids([config.dead_letter.topic])[config.dead_letter.topic] or ""
        ranges = resolved(admin, _in_all([_offsets(last["end"]) for last in commits]), first, end)
    nothing = {f"rows_{name}": 0 for name in _OUTCOMES}
    document: dict[str, Any] = {"ranges": ranges, **nothing}
    if not ranges:
        return {**document, "tables": {table.location: table.delta.version() for table in tables}}
    replays = Replays(notes.at(notes.absolute(config.checkpoint), session), letters_id)
    if replays.interrupted is not None:
        raise OutputError("backfill: an interrupted replay-dlq must be finished first, with its pipeline file")
    with ExitStack() as held:
        for lock in (checkpoint_lock(session, config.checkpoint, "replay"), *map(_commanded, tables)):
            held.enter_context(lock)
        read = records(session, bootstrap_servers, config, ranges)
        judged = plan(session, read, pipeline)
        rows = judged.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            counts = _counted(judged, rows)
            counts = counts.after(Taken.by_statements(read.count())) if config.transform else counts
            _check(pipeline, counts)
            if counts.refused:
                letters = DeadLetters(
                    session, Cluster(bootstrap_servers, config.kafka.properties), config.dead_letter.topic, config.name
                )
                letters.check()
                letters.compare_with(LookBack(others=replays.to_sinks))
                letters.write(judged.refused(rows), _DEAD_LETTERS_SINCE)
            metadata = {"operation": "backfill", "pipeline": config.name, "ranges": ranges, **counts.commit}
            place, good = condition(ranges), judged.good(rows)
            versions = {table.location: maintenance.replace(table, good, place, metadata) for table in tables}
        finally:
            rows.unpersist()
    outcomes = {f"rows_{name}": counts.numbers[name] for name in _OUTCOMES}
    return {**document, **outcomes, "tables": versions}


def _last_commit(table: LakeTable) -> Mapping[str, Any]:
    last = table.last_metadata()
    if last is None or "end" not in last:
        raise OutputError(f"{table.location}: no commit of the pipeline is in the table's log")
    return last


def _commanded(table: LakeTable) -> AbstractContextManager[None]:
    return table.folder.commanded(as_driver=False)


def _in_all(ends: Sequence[Offsets]) -> Offsets:
    """Return the offsets up to which every table has the records: one of them may lack the batch at work."""
    return {
        topic: {partition: min(end.get(topic, {}).get(partition, 0) for end in ends) for partition in partitions}
        for topic, partitions in ends[0].items()
    }


def point(option: str, text: str) -> Point:
    """Read an end of a range: a time, an offset, or offsets by partition. Raise ConfigError for anything else."""
    if re.fullmatch(r"\d{1,18}", text):
        return int(text)
    try:
        if text.startswith("{"):
            return _offsets(json.loads(text, parse_float=_no_offset))
        time = datetime.fromisoformat(text)
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"{option}: {text}: neither a time, an offset, nor a JSON object of offsets") from None
    if time.tzinfo is None:
        raise ConfigError(f"{option}: {text}: the time needs a zone, such as Z")
    return time


def check_order(first: Point, end: Point) -> None:
    """Raise ConfigError if a range ends before it begins. An offset and a time cannot be compared."""
    numbers = isinstance(first, int) and isinstance(end, int) and first > end
    if numbers or (isinstance(first, datetime) and isinstance(end, datetime) and first > end):
        raise ConfigError(f"--from: {first} is after --to: {end}")


def _no_offset(text: str) -> int:
    raise ValueError(text)


def resolved(admin: KafkaAdmin, committed: Mapping[str, Mapping[int, int]], first: Point, end: Point) -> Ranges:
    """Return the offsets of each partition between two points, within those that the pipeline has committed."""
    oldest = admin.start_offsets(committed)
    starts, ends = _positions(admin, committed, first), _positions(admin, committed, end)
    ranges: Ranges = {}
    for topic, partitions in committed.items():
        for partition, read in partitions.items():
            start, stop = starts[topic].get(partition), ends[topic].get(partition)
            if start is None or stop is None or start >= stop:
                continue
            if start < oldest[topic].get(partition, start):
                raise OutputError(
                    f"backfill: the broker has {topic}-{partition} from offset {oldest[topic][partition]}, not {start}"
                )
            if stop > read:
                raise OutputError(f"backfill: the pipeline has read {topic}-{partition} to offset {read}, not {stop}")
            ranges.setdefault(topic, {})[partition] = (start, stop)
    return ranges


def check_topics(last: Mapping[str, Any], admin: KafkaAdmin) -> None:
    """Raise OutputError if a topic is not the one whose offsets the last commit has."""
    known = last.get("topic_ids", {})
    for topic, topic_id in admin.topic_ids(known).items():
        if topic_id != known[topic]:
            raise OutputError(f"topic {topic} was deleted or created again since the table's last commit")
    for topic in sorted(set(last.get("created_again", ())) & known.keys()):
        raise OutputError(f"backfill: the table has rows of an earlier topic {topic}, with the same offsets")


def _positions(admin: KafkaAdmin, committed: Mapping[str, Mapping[int, int]], at: Point) -> Offsets:
    if isinstance(at, int):
        return {topic: dict.fromkeys(partitions, at) for topic, partitions in committed.items()}
    if isinstance(at, dict):
        unknown = sorted(set(at) - set(committed))
        if unknown:
            raise ConfigError(f"backfill: the pipeline has not read topic {unknown[0]}")
        for topic, partitions in at.items():
            for partition in sorted(set(partitions) - set(committed[topic])):
                raise ConfigError(f"backfill: the pipeline has not read {topic}-{partition}")
        return {topic: at.get(topic, {}) for topic in committed}
    found = admin.offsets_at(committed, max(0, int(at.timestamp() * 1000)))  # -1 would be the end
    return {
        topic: {
            partition: read if found[topic].get(partition, -1) < 0 else min(found[topic][partition], read)
            for partition, read in partitions.items()
        }
        for topic, partitions in committed.items()
    }


def _offsets(document: Mapping[str, Mapping[str, int]]) -> Offsets:
    return {topic: {int(p): int(offset) for p, offset in partitions.items()} for topic, partitions in document.items()}


def _counted(judged: Judged, rows: Any) -> Counts:
    counts = judged.counts(rows.agg(*judged.counters).first().asDict())
    if not counts.balanced:
        raise AccountingError(f"backfill: {counts.rows} records in, {counts.good} good, refused: {counts.refused}")
    return counts


def _check(pipeline: Pipeline, counts: Counts) -> None:
    for rule in pipeline.config.rules:
        broken = counts.refused.get(("rules", rule.name), 0)
        if rule.on_violation == "fail" and broken:
            raise RuleError(f"{broken} records break the rule {rule.name}: {rule.expr}")
