"""The command line: `python -m spark_etl COMMAND PIPELINE.yaml`, also as `spark-etl` and `millrace etl`.

Exit status: 0 done, 1 failed, 2 the pipeline file or a setting is wrong, 128 + n stopped by signal n. Log lines are
JSON objects on stderr. As `driver` and `executor` the program is a container of Spark on Kubernetes (pods.py).
"""

import argparse
import signal
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from spark_etl import logs
from spark_etl.config import load
from spark_etl.errors import ConfigError
from spark_etl.reasons import reason
from spark_etl.settings import EtlSettings, Variables, environment
from spark_etl.signals import Signals, Stopped

#: Command → line of the help. Its module is spark_etl.commands.NAME, with _ for -.
COMMANDS = {
    "run": "run a pipeline, once or without end",
    "status": "show how far a pipeline has come",
    "schema": "compare the table's columns with the pipeline's",
    "compact": "rewrite a table's small files, and remove old ones",
    "backfill": "read a range of records again, and exchange its rows in the table",
    "recover": "write a lost checkpoint again from the table",
    "validate": "check a pipeline file, without a broker",
    "test": "run fixture records through a pipeline, without a broker",
    "replay-dlq": "bring dead letters back",
}
JARS = "jars"


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] in (["driver"], ["executor"]):
        return _become(given)
    given = _with_command(given)
    options = _parser(given[:1]).parse_args(given)
    signals = Signals()
    signals.install()
    log = logs.configure("info")
    status = 0
    try:
        settings = EtlSettings()
        log = logs.configure(settings.log_level)
        status = _perform(options, settings, log, signals)
    except Stopped:
        pass
    except ConfigError as error:
        log.error("configuration refused", reason=str(error))
        return 2
    except ValidationError as error:
        reasons = [f"MILLRACE_{'.'.join(map(str, e['loc'])).upper()}: {e['msg']}" for e in error.errors()]
        log.error("configuration refused", reason="; ".join(reasons))
        return 2
    except KeyboardInterrupt:  # of PySpark's own handler, while the session opens
        signals.received = signal.SIGINT
    except Exception as error:
        if signals.gave_up:  # py4j and others give the end of their call as a failure
            return _stopped(log, signals)
        log.error(f"{options.command} failed", reason=reason(error), exc_info=settings.log_level == "debug")
        return 1
    return _stopped(log, signals) if signals.received else status


def _stopped(log: logs.Log, signals: Signals) -> int:
    log.info("stopped", signal=signal.Signals(signals.received).name)
    return 128 + signals.received


def _perform(options: argparse.Namespace, settings: EtlSettings, log: logs.Log, signals: Signals) -> int:
    if options.command == JARS:
        from spark_etl.jvm.session import fetch_jars

        log.info("jars fetched", folder=str(options.folder), jars=fetch_jars(settings, options.folder))
        return 0
    pipeline = load(options.pipeline, Variables(environment()))
    command = _module(options.command)
    signals.end_work = _end_jvm
    if options.command == "run":
        return int(command.run(pipeline, settings, options, log, signals))
    return int(command.run(pipeline, settings, options, log))


def _end_jvm() -> None:
    """Kill the JVM of the session, if the command has opened one."""
    end_jvm = getattr(sys.modules.get("spark_etl.jvm.session"), "end_jvm", None)  # a signal may come during the import
    if end_jvm is not None:
        end_jvm()


def _become(given: list[str]) -> int:
    """Run as a driver or an executor on Kubernetes; return only if that is not possible."""
    from spark_etl.jvm import pods

    try:
        pods.become(given, environment())
    except ConfigError as error:
        logs.configure("info").error("configuration refused", reason=str(error))
    return 2


def _module(command: str) -> Any:
    return import_module(f"spark_etl.commands.{command.replace('-', '_')}")


def _with_command(arguments: list[str]) -> list[str]:
    known = {*COMMANDS, JARS, "-h", "--help"}
    return arguments if not arguments or arguments[0] in known else ["run", *arguments]


def _parser(chosen: list[str]) -> argparse.ArgumentParser:
    """Return the parser, with the options of the chosen command only: other commands need not be imported."""
    parser = argparse.ArgumentParser(
        prog="spark-etl", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, help_line in COMMANDS.items():
        command = commands.add_parser(name, help=help_line)
        command.add_argument("pipeline", type=Path)
        if [name] == chosen:
            _module(name).arguments(command)
    jars = commands.add_parser(JARS, help="fetch the jars of Spark that pyspark lacks into a folder")
    jars.add_argument("folder", type=Path)
    return parser


if __name__ == "__main__":
    sys.exit(main())
