"""`recover`: write a lost checkpoint again from the metadata of the table's last commit. No broker is needed.

A pipeline without a table has that metadata in `etl_batches` of PostgreSQL, with each batch.

The next run replays the last batch of the table. The table holds it and skips it, the other sinks write the rows that
they lack. The next run also compares the cluster and the topics with those of the metadata.

A pipeline with `dedupe` keeps the keys that it has seen in the checkpoint. They cannot be found again: it goes on after
the last batch and forgets them. The next run first gives that batch to the other sinks (run/unfinished_batch.py).
Windows of a Kafka sink have another checkpoint, and begin again with higher versions. The marks of replayed letters are
lost, too: the next `replay-dlq` leaves out the letters whose records the table has.
"""

import argparse
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from spark_etl.config import Pipeline, PostgresSinkConfig
from spark_etl.errors import ConfigError, OutputError
from spark_etl.lake import LakeTable, recovery
from spark_etl.logs import Log
from spark_etl.run import notes, unfinished_batch
from spark_etl.run.batches import Batches, BatchPlace
from spark_etl.run.identity import document_of
from spark_etl.run.replays import QUERY, Replays
from spark_etl.session import opened
from spark_etl.settings import EtlSettings
from spark_etl.sinks import windows
from spark_etl.sinks.postgres import last_batch


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: the command has no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    with opened(settings, f"{pipeline.config.name} recover") as session:
        document = recover(session, pipeline)
    log.info("checkpoint recovered", **document)
    print(json.dumps(document), flush=True)
    return 0


def recover(session: SparkSession, pipeline: Pipeline) -> dict[str, object]:
    """Write the checkpoint; return the document to print."""
    config = pipeline.config
    if config.table is None:
        return _recovered(session, pipeline, _last_in_postgres(session, pipeline), 0)
    table = LakeTable.existing(session, config.delta)
    with table.folder.commanded(as_driver=True):
        last = table.last_metadata()
        if last is None:
            raise OutputError(f"{table.location}: no commit of the pipeline is in the table's log")
        if last.get("pipeline") != config.name:
            raise OutputError(f"{table.location}: the last batch is of the pipeline {last.get('pipeline')}")
        following = table.delta.version_of(BatchPlace.of(config.name, QUERY, 0).app_id) + 1
        return _recovered(session, pipeline, last, following)


def _last_in_postgres(session: SparkSession, pipeline: Pipeline) -> Mapping[str, Any]:
    """Return what the databases keep of the pipeline's last batch. OutputError: they do not agree on one."""
    config = pipeline.config
    outputs = [sink for sink in config.sinks if isinstance(sink, PostgresSinkConfig)]
    if not outputs:
        raise ConfigError(f"pipeline {config.name}: recover needs a delta or postgres sink")
    found = {sink.table: last_batch(session, sink, config.name) for sink in outputs}
    absent = [table for table, held in found.items() if held is None or "end" not in held.place]
    if absent:
        raise OutputError(f"{absent[0]}: the database has no batch of the pipeline with its offsets")
    held = [each for each in found.values() if each is not None]
    newest = max(held, key=lambda each: each.batch)
    if any(each.query != newest.query or each.batch < newest.batch - 1 for each in held):
        states = ", ".join(f"{table}: batch {each.batch}" for table, each in found.items() if each is not None)
        raise OutputError(f"the tables are not at the same batch ({states}): restore them to the same state first")
    if config.dedupe is not None and (len(outputs) > 1 or config.sinks[-1] is not outputs[0]):
        raise OutputError(
            "with `dedupe` and without a delta sink, recover needs one postgres sink, the last in the file"
        )
    return {**newest.place, "committed_ms": newest.committed_ms}


def _recovered(session: SparkSession, pipeline: Pipeline, last: Mapping[str, Any], following: int) -> dict[str, object]:
    """Write the checkpoint before a batch, or after it if only Spark could repeat it. `following`: the next replay."""
    config = pipeline.config
    stateful = config.dedupe is not None
    files = recovery.fresh(last) if stateful else recovery.before_last_batch(last)
    recovery.check_absent(session, config.checkpoint, files)
    documents = notes.at(config.checkpoint, session)  # before the files: a checkpoint that is there has them all
    if "cluster" in last and "topic_ids" in last:
        again, left = last.get("created_again", ()), last.get("left", {})
        documents.write("identity", document_of(last["cluster"], {**left, **last["topic_ids"]}, again, left))
    if stateful:
        documents.write("start", {"offsets": last["end"], "after": last["query"]})
        if config.table is not None:
            documents.write(unfinished_batch.NOTE, unfinished_batch.note(last))  # mutant: recovered-batch-noted
    else:
        place = BatchPlace.of(config.name, str(last["query"]), int(last["batch"]))
        committed = datetime.fromtimestamp(int(last["committed_ms"]) / 1000, UTC)
        Batches(documents).restore(place, committed)
    documents.write(windows.NOTE, {"first": int(last["committed_ms"])})
    Replays(documents).restore(following)
    recovery.written(session, config.checkpoint, files)
    return {"checkpoint": config.checkpoint, "batch": last["batch"], "end": last["end"], "state_lost": stateful}
