"""`recover`: write a lost checkpoint again from the metadata of the table's last commit. No broker is needed.

The next run replays the last batch of the table: the table holds it and skips it, the other sinks write the rows that
they lack. The next run also compares the cluster and the topics with those of the metadata.

A pipeline with `dedupe` keeps the keys that it has seen in the checkpoint. They cannot be found again: it goes on after
the last batch and forgets them. The next run first gives that batch to the other sinks (run/unfinished_batch.py).
Windows of a Kafka sink have another checkpoint, and begin again with higher versions. The marks of replayed letters are
lost, too: the next `replay-dlq` leaves out the letters whose records the table has.
"""

import argparse
import json
from datetime import UTC, datetime

from pyspark.sql import SparkSession

from spark_etl.config import Pipeline
from spark_etl.errors import OutputError
from spark_etl.lake import LakeTable, recovery
from spark_etl.logs import Log
from spark_etl.run import notes, unfinished_batch
from spark_etl.run.batches import Batches, BatchPlace
from spark_etl.run.identity import document_of
from spark_etl.run.replays import QUERY, Replays
from spark_etl.session import opened
from spark_etl.settings import EtlSettings
from spark_etl.sinks import windows


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
    table = LakeTable.existing(session, config.delta)
    with table.folder.commanded(as_driver=True):
        last = table.last_metadata()
        if last is None:
            raise OutputError(f"{table.location}: no commit of the pipeline is in the table's log")
        if last.get("pipeline") != config.name:
            raise OutputError(f"{table.location}: the last batch is of the pipeline {last.get('pipeline')}")
        stateful = config.dedupe is not None
        files = recovery.fresh(last) if stateful else recovery.before_last_batch(last)
        recovery.check_absent(session, config.checkpoint, files)
        documents = notes.at(config.checkpoint, session)  # before the files: a checkpoint that is there has them all
        if "cluster" in last and "topic_ids" in last:
            again, left = last.get("created_again", ()), last.get("left", {})
            documents.write("identity", document_of(last["cluster"], {**left, **last["topic_ids"]}, again, left))
        if stateful:
            documents.write("start", {"offsets": last["end"], "after": last["query"]})
            documents.write(unfinished_batch.NOTE, unfinished_batch.note(last))  # mutant: recovered-batch-noted
        else:
            place = BatchPlace.of(config.name, str(last["query"]), int(last["batch"]))
            committed = datetime.fromtimestamp(int(last["committed_ms"]) / 1000, UTC)
            Batches(documents).restore(place, committed)
        documents.write(windows.NOTE, {"first": int(last["committed_ms"])})
        Replays(documents).restore(table.delta.version_of(BatchPlace.of(config.name, QUERY, 0).app_id) + 1)
        recovery.written(session, config.checkpoint, files)
    return {"checkpoint": config.checkpoint, "batch": last["batch"], "end": last["end"], "state_lost": stateful}
