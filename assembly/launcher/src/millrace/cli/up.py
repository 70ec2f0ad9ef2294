"""`millrace up`: the options of the one-machine broker."""

from __future__ import annotations

import argparse
from pathlib import Path

from millrace.up import UpOptions, run

__all__ = ["main"]

_GATEWAYS_MAX = 64


def main(arguments: list[str]) -> int:
    given = _parser().parse_args(arguments)
    return run(
        UpOptions(
            data_dir=given.data_dir,
            host=given.host,
            advertised_host=given.advertised_host,
            kafka_port=given.kafka_port,
            http_host=given.http_host,
            http_port=given.http_port,
            gateways=given.gateways,
            separate=given.processes,
            topics=given.topics,
        )
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="millrace up",
        description="Run the broker and its REST API on this machine until a signal. When ready, print one line: "
        "ready kafka=HOST:PORT http=HOST:PORT",
        epilog="Everything else is set by MILLRACE_* variables: millrace settings",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="data folder, created if missing (default: temporary, removed at exit)",
    )
    add("--kafka-port", type=_port, default=9092, metavar="PORT", help="Kafka port, 0 for a free one (default: 9092)")
    add("--http-port", type=_port, default=8082, metavar="PORT", help="REST port, 0 for a free one (default: 8082)")
    add("--host", default="localhost", help="Kafka host to listen on; 0.0.0.0 for every interface (default: localhost)")
    add(
        "--http-host",
        default="localhost",
        metavar="HOST",
        help="REST host to listen on; others than loopback need MILLRACE_ADMIN_AUTH (default: localhost)",
    )
    add("--advertised-host", metavar="HOST", help="host that clients connect to (default: --host)")
    add("--topics", metavar="NAME:N,…", help="topics to create at start, with their numbers of partitions")
    add("--gateways", type=_gateways, default=1, metavar="N", help="gateway processes on the Kafka port (default: 1)")
    add("--processes", action="store_true", help="separate mode: a process for each service, as in containers")
    return parser


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port")
    return int(text)


def _gateways(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= _GATEWAYS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {_GATEWAYS_MAX}")
    return int(text)
