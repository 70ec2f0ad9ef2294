"""`status PIPELINE`: prints one JSON object: the last batch, and each partition's position, end and lag.

    {"pipeline": "orders", "query": "8f2c…", "batch": 17, "rows": {"delta:/lake/orders": {"in": 9, "out": 7,
     "dlq": 2, "dropped": 0, "late": 0, "duplicates": 0}}, "lag": 3, "partitions": [{"topic": "orders", …}]}

`rows` are the records of all batches of the query by outcome, for each sink: in is the sum of the others.
The position is that of the checkpoint, which counts. A pipeline that never ran has batch null and no partitions.
No JVM starts, unless the checkpoint is not on a local disk, or only Kafka's client in Java has an option. A log line
says so then.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from spark_etl.checkpoint import notes, state_steps
from spark_etl.checkpoint.batches import Batches
from spark_etl.checkpoint.offsets import Checkpoint
from spark_etl.config import KafkaSinkConfig, Pipeline
from spark_etl.kafka.cluster import Cluster
from spark_etl.kafka.ends import OnlyJavaError, client_of, end_offsets
from spark_etl.logs import Log
from spark_etl.settings import EtlSettings

Ends = Callable[[Iterable[str]], dict[str, dict[int, int]]]  # topics → topic → partition → offset after the last record


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    """Print the state of a pipeline. Raises EtlError."""
    config = pipeline.config
    try:
        ends: Ends = partial(end_offsets, client_of(settings.bootstrap_servers, config.kafka.properties))
        needs = "" if notes.local_path(config.checkpoint) is not None else f"the checkpoint {config.checkpoint}"
    except OnlyJavaError as error:
        needs = f"kafka.{error}"
    document = (
        _with_jvm(pipeline, settings, needs, log) if needs else state(Checkpoint(config.checkpoint), ends, pipeline)
    )
    print(json.dumps(document), flush=True)
    return 0


def _with_jvm(pipeline: Pipeline, settings: EtlSettings, needs: str, log: Log) -> dict[str, Any]:
    from spark_etl.jvm.session import opened  # PySpark takes a third of a second

    config = pipeline.config
    log.info("a JVM starts", reason=f"only Java can read {needs}")
    with opened(settings.brief(), config.name) as session:
        checkpoint = Checkpoint(config.checkpoint, session)
        with Cluster(settings.bootstrap_servers, config.kafka.properties).admin(session) as admin:
            return state(checkpoint, admin.end_offsets, pipeline)


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


def state(checkpoint: Checkpoint, ends_of: Ends, pipeline: Pipeline) -> dict[str, Any]:
    """Return the document that the command prints. Raises ClusterError as `ends_of` does, and OutputError."""
    batch = checkpoint.last_committed()
    reached = (checkpoint.end_offsets(batch) if batch is not None else None) or {}
    ends = ends_of(reached)
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
