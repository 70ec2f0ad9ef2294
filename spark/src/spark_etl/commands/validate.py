"""`validate PIPELINE`: check the file, its schemas, and every expression and statement, without a broker.

Prints one JSON object: the pipeline's name and the columns of its rows with their types. A fault is reported with its
file and line, and ends the command with status 2. Faults of the file, its schemas and places come without a JVM.
"""

import argparse
import json
import re

from pyspark.sql import SparkSession

from spark_etl.checkpoint import notes
from spark_etl.config import Pipeline
from spark_etl.decode import replayed
from spark_etl.judgement import plan
from spark_etl.jvm.session import opened
from spark_etl.kafka import sources
from spark_etl.logs import Log
from spark_etl.registry.pins import pinned
from spark_etl.settings import EtlSettings
from spark_etl.sinks.plans import check_plans

_PATTERN = re.compile(r"[*?\[{]")  # Spark reads all files whose names fit


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add no options."""


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:  # noqa: ARG001
    """Plan the pipeline over no records. Raises ConfigError with the file and line of the first fault."""
    check_places(pipeline)
    with opened(settings.brief(), f"{pipeline.config.name} validate") as session:
        pipeline = pinned(pipeline, session)
        columns = validate(session, pipeline)
    print(json.dumps({"pipeline": pipeline.config.name, "columns": columns}), flush=True)
    return 0


def check_places(pipeline: Pipeline) -> None:
    """Refuse a joined table that is not on the local disk where the file says. Raises ConfigError."""
    for number, join in enumerate(pipeline.config.join):
        path = notes.local_path(join.path)
        if path is not None and not path.exists() and not _PATTERN.search(join.path):
            raise pipeline.fault(("join", number, "path"), f"there is nothing at {path}")


def validate(session: SparkSession, pipeline: Pipeline) -> dict[str, str]:
    """Return the columns of good rows and their types. Raises ConfigError with file and line."""
    judged = plan(session, sources.no_records(session), pipeline)
    check_plans(pipeline, judged)
    good = judged.good(judged.rows)
    return {field.name: field.dataType.simpleString() for field in good.schema if field.name != replayed.COLUMN}
