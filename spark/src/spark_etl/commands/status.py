"""`status PIPELINE`: prints one JSON object: the last batch, and each partition's position, end and lag.

    {"pipeline": "orders", "query": "8f2c…", "batch": 17, "rows": {"delta:/lake/orders": {"in": 9, "out": 7,
     "dlq": 2, "dropped": 0, "late": 0, "duplicates": 0}}, "lag": 3, "partitions": [{"topic": "orders", …}]}

`rows` are the records of all batches of the query by outcome, for each sink: in is the sum of the others.
The position is that of the checkpoint, which counts. A pipeline that never ran has batch null and no partitions.
"""

import argparse
import json
from typing import Any

from pyspark.sql import SparkSession

from spark_etl.checkpoint import Checkpoint
from spark_etl.cluster import Cluster
from spark_etl.config import KafkaSinkConfig, Pipeline
from spark_etl.logs import Log
from spark_etl.run import state_steps
from spark_etl.run.batches import Batches
from spark_etl.session import opened
from spark_etl.settings import EtlSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    """Print the state of a pipeline. Raises EtlError."""
    with opened(settings, pipeline.config.name) as session:
        cluster = Cluster(settings.bootstrap_servers, pipeline.config.kafka.properties)
        document = state(session, cluster, pipeline)
    print(json.dumps(document), flush=True)
    return 0


def rows_of(checkpoint: Checkpoint, pipeline: Pipeline) -> dict[str, dict[str, int]]:
    """Return the records of each sink by outcome. Windows have checkpoints of their own."""
    checkpoints = [checkpoint]
    for sink in pipeline.config.sinks:
        if isinstance(sink, KafkaSinkConfig) and sink.aggregate is not None and sink.aggregate.window is not None:
            checkpoints.append(checkpoint.beside(state_steps.window_location(checkpoint, sink.topic)))
    found: dict[str, dict[str, int]] = {}
    for each in checkpoints:
        query = each.query_id()
        if query is not None:
            found |= Batches(each.notes).rows(query)
    return found


def state(session: SparkSession, cluster: Cluster, pipeline: Pipeline) -> dict[str, Any]:
    """Return the document that the command prints."""
    checkpoint = Checkpoint(pipeline.config.checkpoint, session)
    batch = checkpoint.last_committed()
    reached = (checkpoint.end_offsets(batch) if batch is not None else None) or {}
    with cluster.admin(session) as admin:
        ends = admin.end_offsets(reached)
    partitions: list[dict[str, Any]] = [
        {"topic": topic, "partition": number, "position": position, "end": end, "lag": max(0, end - position)}
        for topic, positions in sorted(reached.items())
        for number, position in sorted(positions.items())
        for end in [ends[topic].get(number, position)]
    ]
    return {
        "pipeline": pipeline.config.name,
        "query": checkpoint.query_id(),
        "batch": batch,
        "rows": rows_of(checkpoint, pipeline),
        "lag": sum(each["lag"] for each in partitions),
        "partitions": partitions,
    }
