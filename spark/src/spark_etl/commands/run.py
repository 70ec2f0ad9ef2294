"""`run PIPELINE [--once]`: processes the records of the source; without end if the trigger says so.

Exit status: 0 done, 1 failed, 128 + n stopped by signal n after the batch at work (the next run continues from there).
A second signal, or a broker or database that is away, ends the batch at work; the next run repeats it.
The last line on stdout is one JSON object with the totals of the run.
"""

import argparse
import json
from dataclasses import asdict

from spark_etl.config import Pipeline
from spark_etl.jvm.session import opened
from spark_etl.kafka.cluster import Cluster
from spark_etl.logs import Log
from spark_etl.metrics import Metrics
from spark_etl.run import stopping
from spark_etl.run.pipeline_run import Run
from spark_etl.server import served
from spark_etl.settings import EtlSettings
from spark_etl.signals import Signals


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="end at the records that the source has now")


def run(
    pipeline: Pipeline, settings: EtlSettings, options: argparse.Namespace, log: Log, signals: Signals | None = None
) -> int:
    """Run a pipeline to its end. Raises EtlError."""
    signals = signals or Signals()
    config = pipeline.config
    metrics = Metrics(config.name)
    with served(metrics, config.metrics), opened(settings, config.name) as session:
        signals.install()  # pyspark takes SIGINT for itself
        log.info("run started", pipeline=config.name, bootstrap_servers=settings.bootstrap_servers)
        cluster = Cluster(settings.bootstrap_servers, config.kafka.properties)
        with signals.graceful():
            work = Run(pipeline, cluster, session, metrics, log, once=options.once)
            with stopping.watched(signals, work.away, log):
                totals = work.run(signals.stop)
            document = {
                "pipeline": config.name,
                **asdict(totals),
                "version": work.version,
                "rows_total": work.rows_total,
            }
        log.info("run ended", **document)
        print(json.dumps(document), flush=True)
    return 0
