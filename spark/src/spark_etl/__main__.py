"""The command line: `python -m spark_etl run PIPELINE.yaml` (`run` is optional) · `python -m spark_etl jars DIR`.

run   processes the records that the source has now, and ends. Exit status: 0 done, 1 failed, 2 the pipeline file or a
      setting is wrong, 128 + n stopped by signal n (the next run continues from there).
jars  fetches the jars of Kafka, Delta Lake, Avro and PostgreSQL by Spark's Ivy into DIR, for MILLRACE_ETL_JARS_DIR.

The last line on stdout is one JSON object with the totals of the run.
"""

import argparse
import json
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from spark_etl import logs
from spark_etl.config import load
from spark_etl.errors import ConfigError
from spark_etl.reasons import reason
from spark_etl.settings import EtlSettings, environment


class Stopped(BaseException):
    """A signal that came before the run could be stopped in order."""


class Signals:
    """SIGTERM, SIGINT and SIGHUP: while the JVM starts they end the process at once, later they set `stop`.

    One that was ignored at the start (`nohup`) stays ignored.
    """

    def __init__(self) -> None:
        self.stop = threading.Event()
        self.received = 0
        self.graceful = False
        every = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
        self._numbers = [number for number in every if signal.getsignal(number) is not signal.SIG_IGN]

    def install(self) -> None:
        for number in self._numbers:
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.received = number
        self.stop.set()
        if not self.graceful:
            raise Stopped


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(_with_command(sys.argv[1:] if arguments is None else arguments))
    signals = Signals()
    signals.install()
    log = logs.configure("info")
    try:
        settings = EtlSettings()
        log = logs.configure(settings.log_level)
        if options.command == "jars":
            from spark_etl.session import fetch_jars

            log.info("jars fetched", folder=str(options.folder), jars=fetch_jars(settings, options.folder))
        else:
            _run(options.pipeline, settings, signals, log)
    except Stopped:
        pass
    except ConfigError as error:
        log.error("configuration refused", reason=str(error))
        return 2
    except ValidationError as error:
        reasons = [f"MILLRACE_{'.'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        log.error("configuration refused", reason="; ".join(reasons))
        return 2
    except Exception as error:
        log.error("run failed", reason=reason(error), exc_info=settings.log_level == "debug")
        return 1
    if signals.received:
        log.info("stopped", signal=signal.Signals(signals.received).name)
        return 128 + signals.received
    return 0


def _run(path: Path, settings: EtlSettings, signals: Signals, log: logs.Log) -> None:
    pipeline = load(path, environment())
    from spark_etl.manifest import Manifest
    from spark_etl.metrics import Metrics, served
    from spark_etl.pipeline import Run
    from spark_etl.session import opened

    config = pipeline.config
    metrics = Metrics(config.name)
    root = Path(config.parquet.path).absolute()
    with (
        Manifest.opened(root) as manifest,
        served(metrics, config.metrics),
        opened(settings, config.name) as session,
    ):
        signals.install()  # pyspark takes SIGINT for itself
        log.info(
            "run started", pipeline=config.name, bootstrap_servers=settings.bootstrap_servers, version=manifest.version
        )
        with _graceful(signals):
            totals = Run(pipeline, settings.bootstrap_servers, session, manifest, metrics, log).run(signals.stop)
        document = {"pipeline": config.name, **asdict(totals), "version": manifest.version, "rows_total": manifest.rows}
        log.info("run ended", **document)
        print(json.dumps(document), flush=True)


@contextmanager
def _graceful(signals: Signals) -> Iterator[None]:
    signals.graceful = True
    try:
        yield
    finally:
        signals.graceful = False


def _with_command(arguments: list[str]) -> list[str]:
    known = {"run", "jars", "-h", "--help"}
    return arguments if not arguments or arguments[0] in known else ["run", *arguments]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="spark_etl", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run a pipeline once")
    run.add_argument("pipeline", type=Path)
    jars = commands.add_parser("jars", help="fetch the jars that Spark lacks")
    jars.add_argument("folder", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
