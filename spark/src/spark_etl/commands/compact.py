"""`compact`: rewrite a table's small files into large ones, and remove old files. The pipeline may be running.

Prints one JSON object for each table: its version and the numbers of files before, after and rewritten. Programs that
read the folder without Delta's log count rows twice between the rewriting and the removal.
"""

import argparse
import json

from spark_etl.config import Pipeline
from spark_etl.errors import ConfigError
from spark_etl.jvm.session import opened
from spark_etl.lake import LakeTable, maintenance
from spark_etl.lake.maintenance import RETENTION_HOURS
from spark_etl.logs import Log
from spark_etl.settings import EtlSettings

RETENTION_HOURS_MAX = 1_000_000


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--retention",
        type=float,
        default=RETENTION_HOURS,
        metavar="HOURS",
        help=f"keep the files of older versions this long (default {RETENTION_HOURS:g}); "
        "under 24 hours the pipeline must stand still",
    )


def run(pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log) -> int:
    if not 0 <= options.retention <= RETENTION_HOURS_MAX:
        raise ConfigError(f"--retention: {options.retention:g} is not from 0 to {RETENTION_HOURS_MAX:,} hours")
    with opened(settings, f"{pipeline.config.name} compact") as session:
        for sink in pipeline.config.tables:
            table = LakeTable.existing(session, sink)
            outcome = maintenance.compact(session, table, options.retention)
            document = {"table": table.location, **maintenance.summary(outcome)}
            log.info("table compacted", **document)
            print(json.dumps(document), flush=True)
    return 0
