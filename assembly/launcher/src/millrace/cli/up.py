"""`millrace up`: the options of the one-machine broker."""

from __future__ import annotations

import argparse
from pathlib import Path

from millrace.up import UpOptions, run

__all__ = ["main", "parser"]

_GATEWAYS_MAX = 64
_EXAMPLES = """examples:
  millrace up --data-dir data                     Kafka on localhost:9092, HTTP on localhost:8082
  millrace up --kafka-port 0 --http-port 0        free ports, a temporary data folder
  millrace up --topics orders:3 --metrics-port 9103

Everything else is set by MILLRACE_* variables: millrace settings"""


def main(arguments: list[str]) -> int:
    parsed = parser()
    given = parsed.parse_args(arguments)
    ports = [("--kafka-port", given.kafka_port), ("--http-port", given.http_port)]
    if given.metrics_port:
        services = given.gateways + 2 if given.processes or given.gateways > 1 else 2
        if given.metrics_port + services - 1 > _PORT_MAX:
            parsed.error(f"argument --metrics-port: {services} services need {services} ports from there")
        ports += [("--metrics-port", given.metrics_port + number) for number in range(services)]
    seen: dict[int, str] = {}
    for option, port in ports:
        if port and port in seen:
            parsed.error(f"argument {option}: port {port} is that of {seen[port]} too")
        seen[port] = option
    return run(
        UpOptions(
            data_dir=given.data_dir,
            host=given.host,
            advertised_host=given.advertised_host,
            kafka_port=given.kafka_port,
            http_host=given.http_host,
            http_port=given.http_port,
            metrics_port=given.metrics_port,
            gateways=given.gateways,
            separate=given.processes,
            topics=given.topics,
        )
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which knows the help of each option."""
    parser = argparse.ArgumentParser(
        prog="millrace up",
        description="Run the broker and its REST API on this machine until a signal.\n\n"
        "When ready, print on standard output:\n"
        "  ready kafka=HOST:PORT http=HOST:PORT\n"
        "  metrics SERVICE=URL …\n"
        "  open URL",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=_folder,
        metavar="DIR",
        help="data folder, created if missing (default: temporary, removed at exit)",
    )
    add("--kafka-port", type=_port, default=9092, metavar="PORT", help="Kafka port, 0 for a free one (default: 9092)")
    add("--http-port", type=_port, default=8082, metavar="PORT", help="REST port, 0 for a free one (default: 8082)")
    add(
        "--metrics-port",
        type=_port,
        default=0,
        metavar="PORT",
        help="port of the broker's /metrics on 127.0.0.1; each further service has the next one (default: free ports)",
    )
    add(
        "--host",
        type=_host,
        default="localhost",
        help="Kafka host to listen on; 0.0.0.0 for every interface (default: localhost)",
    )
    add(
        "--http-host",
        type=_host,
        default="localhost",
        metavar="HOST",
        help="REST host to listen on; others than loopback need MILLRACE_ADMIN_AUTH (default: localhost)",
    )
    add("--advertised-host", type=_host, metavar="HOST", help="host that clients connect to (default: --host)")
    add("--topics", metavar="NAME:N,…", help="topics to create at start, with their numbers of partitions")
    add("--gateways", type=_gateways, default=1, metavar="N", help="gateway processes on the Kafka port (default: 1)")
    add("--processes", action="store_true", help="separate mode: a process for each service, as in containers")
    return parser


_PORT_MAX = 65535


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > _PORT_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _folder(text: str) -> Path:
    if not text:
        raise argparse.ArgumentTypeError("the name is empty; is a shell variable not set?")
    return Path(text)


def _host(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("the host is empty; 0.0.0.0 stands for every interface")
    return text


def _gateways(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _GATEWAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_GATEWAYS_MAX}")
    return int(text)
