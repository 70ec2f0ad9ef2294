"""`test PIPELINE [CASES]`: run fixture records through the pipeline and compare all outputs, without a broker.

CASES is a YAML file (spark_etl/cases.py has its form); by default, PIPELINE with the suffix `.test.yaml`.
Prints a line for each case and each difference; the status is 1 if a case failed. Each case is judged alone. A window
aggregate sees all records of a case at once: no record is late.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_etl.commands.cases import Case, load_cases
from spark_etl.config import KafkaSinkConfig, Pipeline
from spark_etl.judgement import Judged, plan
from spark_etl.jvm.session import opened
from spark_etl.kafka import sources
from spark_etl.logs import Log
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings
from spark_etl.sinks.aggregates import KEEP_NULLS
from spark_etl.sinks.kafka_rows import row_records
from spark_etl.sinks.plans import check_plans
from spark_etl.sinks.summaries import summary
from spark_etl.sinks.windows import window_records, windowed

#: Cases share a frame. The partitions of a case begin at its number times this.
_PARTITIONS = 1_000_000
TIME = datetime(2026, 1, 1, tzinfo=UTC)  # of a record without one
_PLACE = ("_topic", "_partition", "_offset")


@dataclass
class Outcome:
    """Outputs of one case, in the order of the source; those of aggregates by key."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    dead_letters: list[dict[str, Any]] = field(default_factory=list)
    topics: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("cases", type=Path, nargs="?", help="file of the cases (default: PIPELINE.test.yaml)")


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    """Run all cases; return 0 if every one passed, else 1."""
    cases = load_cases(options.cases or options.pipeline.with_suffix(".test.yaml"))
    with opened(settings.brief(), f"{pipeline.config.name} test") as session:
        pipeline = pinned(pipeline, session)
        outcomes = outcomes_of(session, pipeline, cases)
    failed = 0
    for case, outcome in zip(cases, outcomes, strict=True):
        found = differences(case, outcome)
        failed += bool(found)
        print(f"{'FAIL' if found else 'ok  '} {case.name}")
        for line in found:
            print(f"     {line}")
    print(f"{len(cases)} cases, {failed} failed", flush=True)
    return 1 if failed else 0


def outcomes_of(session: SparkSession, pipeline: Pipeline, cases: Sequence[Case]) -> list[Outcome]:
    """Return the outcome of each case. Cases share a plan, unless one record can change another's outcome."""
    groups = [[case] for case in cases] if _cases_would_mix(pipeline) else [list(cases)]
    return [outcome for group in groups for outcome in _together(session, pipeline, group)]


def differences(case: Case, outcome: Outcome) -> list[str]:
    """Return a line for each difference between a case and its outcome."""
    found = _compared("dead letter", case.dead_letters, outcome.dead_letters)
    if case.rows is not None:
        found += _compared("row", case.rows, outcome.rows)
    for topic, expected in case.topics.items():
        if topic in outcome.topics:
            found += _compared(f"{topic}: record", expected, outcome.topics[topic])
        else:
            found.append(f"{topic}: no sink writes this topic")
    return found


def _cases_would_mix(pipeline: Pipeline) -> bool:
    config = pipeline.config
    expressions = config.model_dump(include={"derive", "rules", "transform", "join", "sinks"})
    return config.dedupe is not None or "_partition" in json.dumps(expressions, default=str).replace("partition_by", "")


def _together(session: SparkSession, pipeline: Pipeline, cases: Sequence[Case]) -> list[Outcome]:
    judged = plan(session, _records(session, pipeline, cases), pipeline)
    check_plans(pipeline, judged)
    rows = judged.rows.persist()
    try:
        outcomes = [Outcome() for _ in cases]
        for number, row in _numbered(_as_json(judged.good(rows), judged.columns)):
            outcomes[number].rows.append(_restored(row))
        error = [F.col(f"_error.{name}").alias(name) for name in ("stage", "rule", "message")]
        letters = judged.refused(rows).select(*_PLACE, *error)
        for number, row in _numbered(_as_json(letters, letters.columns)):
            restored = {name.removeprefix("_"): value for name, value in _restored(row).items()}
            outcomes[number].dead_letters.append(restored)
        for sink in pipeline.config.sinks:
            if isinstance(sink, KafkaSinkConfig):
                _add_topic(outcomes, sink, pipeline, judged, rows)
        return outcomes
    finally:
        rows.unpersist()


def _add_topic(
    outcomes: list[Outcome], sink: KafkaSinkConfig, pipeline: Pipeline, judged: Judged, rows: DataFrame
) -> None:
    good, name = judged.good(rows, raw=pipeline.config.keeps_raw), pipeline.config.name
    for outcome in outcomes:
        outcome.topics[sink.topic] = []
    if sink.aggregate is None:
        made = row_records(good, sink, name).select(*_PLACE, "_made.*").orderBy(*_PLACE)
        for row in made.collect():
            outcomes[row["_partition"] // _PARTITIONS].topics[sink.topic].append(_record(row))
        return
    for number, outcome in enumerate(outcomes):
        own = good.where(F.col("_partition").between(number * _PARTITIONS, (number + 1) * _PARTITIONS - 1))
        if sink.aggregate.window is None:
            made = summary(own, sink, name, 0)
        else:
            assert pipeline.config.decode.timestamp is not None  # checked with the file
            made = window_records(windowed(own, sink, pipeline.config.decode.timestamp), sink, name, 0)
        outcome.topics[sink.topic] = [_record(row) for row in made.orderBy("key").collect()]


def _records(session: SparkSession, pipeline: Pipeline, cases: Sequence[Case]) -> DataFrame:
    topics = pipeline.config.source.topics
    now = datetime.now(UTC)  # wall clock: when the records are produced
    default = TIME if pipeline.config.decode.timestamp is None else now
    rows: list[tuple[Any, ...]] = []
    for number, case in enumerate(cases):
        for offset, record in enumerate(case.records):
            headers = [
                Row(key=name, value=None if text is None else text.encode()) for name, text in record.headers.items()
            ]
            place = (
                record.topic or (topics[0] if topics else "topic"),
                number * _PARTITIONS + record.partition,
                offset if record.offset is None else record.offset,
            )
            at = record.timestamp or default
            rows.append((record.key_bytes, record.value_bytes, *place, at, 0, headers))
    columns = ", ".join(f"{name} {kind}" for name, kind in sources.COLUMNS.items())
    return session.createDataFrame(rows, columns)


def _as_json(frame: DataFrame, columns: Sequence[str]) -> list[str]:
    """Return rows as JSON in the order of the source. `_partition` is among the columns."""
    text = F.to_json(F.struct(*columns), KEEP_NULLS).alias("text")
    return [row["text"] for row in frame.select(text, *_PLACE).orderBy(*_PLACE).collect()]


def _numbered(texts: Sequence[str]) -> list[tuple[int, dict[str, Any]]]:
    rows = [json.loads(text) for text in texts]
    return [(row["_partition"] // _PARTITIONS, row) for row in rows]


def _restored(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "_partition": row["_partition"] % _PARTITIONS}


def _record(row: Row) -> dict[str, Any]:
    headers = {each["key"]: _text(each["value"]) for each in row["headers"]}
    partition = headers.get("__etl.source.partition")
    if partition is not None:
        headers["__etl.source.partition"] = str(int(partition) % _PARTITIONS)
    return {"key": _text(row["key"]), "value": _document(row["value"]), "headers": headers}


def _text(content: bytes | None) -> str | None:
    return None if content is None else bytes(content).decode(errors="replace")


def _document(content: bytes | None) -> Any:
    try:
        return None if content is None else json.loads(bytes(content))
    except ValueError:
        return _text(content)


def _compared(what: str, expected: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = []
    for number, (wanted, got) in enumerate(zip(expected, found, strict=False)):
        lines += [f"{what} {number}: {line}" for line in _unequal("", wanted, got)]
    lines += [f"{what} {number}: missing" for number in range(len(found), len(expected))]
    lines += [
        f"{what} {number}: not expected: {json.dumps(found[number])}" for number in range(len(expected), len(found))
    ]
    return lines


def _unequal(place: str, wanted: Any, got: Any) -> list[str]:
    """Return the differences; of mappings, only the wanted fields are compared."""
    if isinstance(wanted, Mapping) and isinstance(got, Mapping):
        lines = []
        for name, value in wanted.items():
            inner = f"{place}.{name}" if place else str(name)
            lines += _unequal(inner, value, got[name]) if name in got else [f"{inner}: no such field"]
        return lines
    same = wanted == got and isinstance(wanted, bool) == isinstance(got, bool)
    return [] if same else [f"{place}: expected {json.dumps(wanted)}, got {json.dumps(got)}"]
