"""`status PIPELINE`: prints one JSON object: the last batch, and each partition's position, end and lag.

    {"pipeline": "orders", "query": "8f2c…", "batch": 17, "lag": 3, "partitions": [{"topic": "orders", …}]}

The position is that of the checkpoint, which counts. A pipeline that never ran has batch null and no partitions.
"""

import argparse
import json

from spark_etl.checkpoint import Checkpoint
from spark_etl.cluster import Cluster
from spark_etl.config import Pipeline
from spark_etl.logs import Log
from spark_etl.session import opened
from spark_etl.settings import EtlSettings


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    """Print the state of a pipeline. Raises EtlError."""
    config = pipeline.config
    with opened(settings, config.name) as session:
        checkpoint = Checkpoint(config.checkpoint, session)
        batch = checkpoint.last_committed()
        reached = (checkpoint.end_offsets(batch) if batch is not None else None) or {}
        with Cluster(settings.bootstrap_servers, config.kafka.properties).admin(session) as admin:
            ends = admin.end_offsets(reached)
        partitions = [
            {"topic": topic, "partition": number, "position": position, "end": end, "lag": end - position}
            for topic, positions in sorted(reached.items())
            for number, position in sorted(positions.items())
            for end in [ends[topic].get(number, position)]
        ]
        document = {
            "pipeline": config.name,
            "query": checkpoint.query_id(),
            "batch": batch,
            "lag": sum(each["lag"] for each in partitions if isinstance(each["lag"], int)),
            "partitions": partitions,
        }
    print(json.dumps(document), flush=True)
    return 0
