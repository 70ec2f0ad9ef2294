"""`millrace up`."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.errors import USAGE, CliError
from millrace.launch_options import LaunchOptions

_DEFAULTS = LaunchOptions()


def up(
    data_dir: Annotated[
        str | None,
        typer.Option(
            "--data-dir", metavar="DIR", help="Data folder, created if missing [default: temporary, removed at exit]."
        ),
    ] = None,
    kafka_port: Annotated[
        int, typer.Option("--kafka-port", metavar="PORT", help="Kafka port, 0 for a free one.")
    ] = _DEFAULTS.kafka_port,
    http_port: Annotated[
        int, typer.Option("--http-port", metavar="PORT", help="REST port, 0 for a free one.")
    ] = _DEFAULTS.http_port,
    metrics_port: Annotated[
        int,
        typer.Option(
            "--metrics-port",
            metavar="PORT",
            help="Port of the broker's /metrics on 127.0.0.1; each further service has the next one. 0: free ports.",
        ),
    ] = _DEFAULTS.metrics_port,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="HOST",
            help="Kafka host to listen on; 0.0.0.0 for every interface. Others than loopback need authentication, or"
            " MILLRACE_OPEN_LISTENERS=EXTERNAL.",
        ),
    ] = _DEFAULTS.host,
    http_host: Annotated[
        str,
        typer.Option(
            "--http-host",
            metavar="HOST",
            help="REST host to listen on; others than loopback need MILLRACE_ADMIN_AUTH.",
        ),
    ] = _DEFAULTS.http_host,
    advertised_host: Annotated[
        str | None,
        typer.Option("--advertised-host", metavar="HOST", help="Host that clients connect to [default: --host]."),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics", metavar="NAME:N,…", help="Topics to create at start, with their numbers of partitions."
        ),
    ] = None,
    gateways: Annotated[
        int, typer.Option("--gateways", metavar="N", help="Gateway processes on the Kafka port.")
    ] = _DEFAULTS.gateways,
    processes: Annotated[
        bool, typer.Option("--processes", help="Separate mode: a process for each service, as in containers.")
    ] = False,
) -> None:
    """Run the broker and its REST API on this machine until a signal.

    When ready, it prints `ready kafka=HOST:PORT http=HOST:PORT`, `metrics SERVICE=URL …` and `open URL`. The REST API
    starts then; its port listens, and requests wait for it, less than a second. Everything else is set by MILLRACE_*
    variables: millrace settings
    """
    options = LaunchOptions(**locals())
    from millrace.launch import launch

    if fault := options.fault():
        raise CliError(fault, USAGE)
    raise typer.Exit(launch(options))
