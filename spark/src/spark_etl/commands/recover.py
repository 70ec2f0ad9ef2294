"""`recover`: write a lost checkpoint again from the metadata of the table's last commit. No broker is needed.

With several tables it is the first one that takes all rows. Without such a table, the newest of the others has that
metadata, or `etl_batches` of PostgreSQL.

The next run replays the last batch of the table. The table holds it and skips it, the other sinks write the rows that
they lack. The next run also compares the cluster and the topics with those of the metadata.

A pipeline with `dedupe` keeps the keys that it has seen in the checkpoint. They cannot be found again, so Spark cannot
repeat the batch. The next run gives it to the other sinks without Spark (batch/last_batch.py), and starts over.
Windows of a Kafka sink have another checkpoint, and begin again with higher versions. The marks of replayed letters are
lost, too: the next `replay-dlq` leaves out the letters whose records the table has.
"""

import argparse
import json
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from spark_etl import judgement
from spark_etl.batch import last_batch
from spark_etl.batch.identity import document_of
from spark_etl.checkpoint import notes
from spark_etl.checkpoint.batches import Batches, BatchPlace, of_tables
from spark_etl.config import DeltaSinkConfig, Pipeline, PostgresSinkConfig
from spark_etl.errors import ConfigError, OutputError
from spark_etl.jvm.session import opened
from spark_etl.lake import LakeTable, recovery
from spark_etl.letters.replays import QUERY, Replays
from spark_etl.logs import Log
from spark_etl.registry import pins
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings
from spark_etl.sinks import windows
from spark_etl.sinks.postgres import sink as postgres


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    with opened(settings, f"{pipeline.config.name} recover") as session:
        document = recover(session, pinned(pipeline, session))
    log.info("checkpoint recovered", **document)
    if document.pop("file_changed"):
        log.warning(
            "the pipeline file judges records in another way than that of the last batch: outputs may differ in it"
        )
    print(json.dumps(document), flush=True)
    return 0


def recover(session: SparkSession, pipeline: Pipeline) -> dict[str, object]:
    """Write the checkpoint; return the document to print."""
    config = pipeline.config
    with ExitStack() as held:
        tables = [LakeTable.existing(session, sink) for sink in config.sinks if isinstance(sink, DeltaSinkConfig)]
        for table in tables:
            held.enter_context(table.folder.commanded(as_driver=True))
        commits = {table.location: _commit(table, config.name) for table in tables}
        first = next((table for table in tables if table.config is config.table), None)
        if first is None:
            last = _last_of_outputs(session, pipeline, commits)
            return _recovered(session, pipeline, last, 0)
        last = commits[first.location]
        _check_states(commits, last)
        following = first.delta.version_of(BatchPlace.of(config.name, QUERY, 0).app_id) + 1
        return _recovered(session, pipeline, last, following)


def _commit(table: LakeTable, pipeline: str) -> Mapping[str, Any]:
    """Return the metadata of the last batch in a table. OutputError: there is none of the pipeline."""
    last = table.last_metadata()
    if last is None or "end" not in last:
        raise OutputError(f"{table.location}: no commit of the pipeline is in the table's log")
    if last.get("pipeline") != pipeline:
        raise OutputError(f"{table.location}: the last batch is of the pipeline {last.get('pipeline')}")
    return last


def _check_states(found: Mapping[str, Mapping[str, Any]], last: Mapping[str, Any]) -> None:
    """Refuse outputs that are not at the last batch, or the one before, which the next run writes to them."""
    for each in found.values():
        if each["query"] == last["query"] and int(last["batch"]) - 1 <= int(each["batch"]) <= int(last["batch"]):
            continue
        if each["query"] != last["query"] and int(last["batch"]) == 0:  # the source had begun again
            continue
        states = ", ".join(f"{name}: batch {each['batch']}" for name, each in found.items())
        raise OutputError(f"the tables are not at the same batch ({states}): restore them to the same state first")


def _last_of_outputs(
    session: SparkSession, pipeline: Pipeline, commits: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """Return what the outputs keep of the pipeline's last batch. OutputError: they do not agree on one."""
    config = pipeline.config
    outputs = [sink for sink in config.sinks if isinstance(sink, PostgresSinkConfig | DeltaSinkConfig)]
    if not outputs:
        raise ConfigError(f"pipeline {config.name}: recover needs a delta or postgres sink")
    found = dict(commits)
    for sink in config.sinks:
        if isinstance(sink, PostgresSinkConfig):
            held = postgres.last_batch(session, sink, config.name)
            if held is None or "end" not in held.place:
                raise OutputError(f"{sink.table}: the database has no batch of the pipeline with its offsets")
            found[sink.table] = {**held.place, "committed_ms": held.committed_ms}
    query = max(found.values(), key=lambda each: int(each["committed_ms"]))["query"]
    last = max((each for each in found.values() if each["query"] == query), key=lambda each: int(each["batch"]))
    _check_states(found, last)
    if config.dedupe is not None and (len(outputs) > 1 or config.sinks[-1] is not outputs[0]):
        raise OutputError(
            "with `dedupe`, recover needs a delta sink that takes all rows, or one delta or postgres sink, the last one"
            " in the file"
        )
    return last


def _recovered(session: SparkSession, pipeline: Pipeline, last: Mapping[str, Any], following: int) -> dict[str, object]:
    """Write the checkpoint of the moment before Spark committed a batch. `following`: the next replay."""
    config = pipeline.config
    stateful = config.dedupe is not None
    files = recovery.before_last_batch(last)
    recovery.check_absent(session, config.checkpoint, files)
    documents = notes.at(config.checkpoint, session)  # before the files: a checkpoint that is there has them all
    if "cluster" in last and "topic_ids" in last:
        again, left = last.get("created_again", ()), last.get("left", {})
        documents.write("identity", document_of(last["cluster"], {**left, **last["topic_ids"]}, again, left))
    if stateful:
        documents.write(last_batch.FORGOTTEN, {"query": last["query"]})  # mutant: lost-keys-noted
    place = BatchPlace.of(config.name, str(last["query"]), int(last["batch"]))
    committed = datetime.fromtimestamp(int(last["committed_ms"]) / 1000, UTC)
    basis = str(last.get("basis", ""))
    Batches(documents).restore(place, committed, of_tables(basis))
    pins.keep(pipeline, documents)
    documents.write(windows.NOTE, {"first": int(last["committed_ms"])})
    Replays(documents).restore(following)
    recovery.written(session, config.checkpoint, files)
    changed = basis.partition("/")[0] not in ("", judgement.digest(pipeline))
    found = {"checkpoint": config.checkpoint, "batch": last["batch"], "end": last["end"], "state_lost": stateful}
    return {**found, "file_changed": changed}
