"""`python -m millrace_demo` runs the main job on a temporary broker, checks every count, and removes everything again.

    python -m millrace_demo [run] [--flights N] [--chart FILE] [--jars DIR] [--bootstrap-servers … --rest …]
    python -m millrace_demo load  --bootstrap-servers HOST:PORT --rest HOST:PORT [--flights N] [--token-file FILE]
    python -m millrace_demo check --bootstrap-servers HOST:PORT [--flights N]

Exit status: 0 everything is right, 1 something is not (the reason is the last line on stderr), 128 + n ended by signal
n. `load` fills a broker that runs, and does nothing if it has the flights already. `check` looks at the results of
`load` and one run of the ETL job in that broker. Both take `--client-config FILE`: lines NAME=VALUE for their clients.
"""

import argparse
import signal
import sys
import time
from pathlib import Path

from rich.console import Console

from millrace_demo import jobs
from millrace_demo.access import NO_OPTIONS, Options, read_options, read_token
from millrace_demo.children import Household, Interrupted, Signals
from millrace_demo.errors import DemoError
from millrace_demo.flights import FLIGHTS_ALL
from millrace_demo.rest import Rest

PLAIN_WIDTH = 120  # columns of the table when there is no terminal to ask


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given if given and not given[0].startswith("--") else ["run", *given])
    signals = Signals()
    signals.install()
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
    household, status = Household(signals), 0
    try:
        with household:
            _dispatch(options, console, household)
    except Interrupted:
        pass
    except (DemoError, OSError) as error:
        if not signals.received:  # else it is a consequence of the signal
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
        status = 1
    except Exception:
        if not signals.received:
            raise
    finally:
        household.close()
    if signals.received:
        name = signal.Signals(signals.received).name
        print(f"stopped by {name}, everything is put away", file=sys.stderr)
        return 128 + signals.received
    return status


def _dispatch(options: argparse.Namespace, console: Console, household: Household) -> None:
    if options.command == "load":
        rest = Rest(options.rest, read_token(options.token_file) if options.token_file else "")
        jobs.load(console, options.bootstrap_servers, rest, options.flights, _client_options(options))
    elif options.command == "check":
        jobs.check(console, options.bootstrap_servers, options.flights, _client_options(options))
    else:
        request = jobs.Request(options.flights, options.chart, options.jars, options.bootstrap_servers, options.rest)
        jobs.run(console, household, request, time.monotonic())


def _client_options(given: argparse.Namespace) -> Options:
    return read_options(given.client_config) if given.client_config else NO_OPTIONS


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millrace_demo", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="the main job on a temporary broker")
    run.add_argument("--chart", type=Path, default=Path("build/demo/delays.png"), help="where the chart goes")
    run.add_argument(
        "--jars", type=Path, default=Path("build/demo/jars"), help="the Kafka connector, kept between runs"
    )
    run.add_argument("--bootstrap-servers", help="use this broker, which must be empty, and start none")
    run.add_argument("--rest", help="its admin API")
    load = commands.add_parser("load", help="load the flights into a broker that runs")
    load.add_argument("--bootstrap-servers", required=True)
    load.add_argument("--rest", required=True)
    load.add_argument("--token-file", type=Path, help="file with a token of the REST API")
    check = commands.add_parser("check", help="check the results of load and the ETL job in a broker")
    check.add_argument("--bootstrap-servers", required=True)
    for command in (load, check):
        command.add_argument("--client-config", type=Path, help="file of librdkafka's options, as sasl.password=…")
    for command in (run, load, check):
        command.add_argument("--flights", type=_count, default=FLIGHTS_ALL, help="only the first N of them")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if not 0 < number <= FLIGHTS_ALL:
        raise argparse.ArgumentTypeError(f"1 to {FLIGHTS_ALL}")
    return number


if __name__ == "__main__":
    sys.exit(main())
