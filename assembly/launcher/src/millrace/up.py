"""`millrace up`: one machine's broker from start to stop.

Standard output gets one line, `ready kafka=HOST:PORT http=HOST:PORT`, once every service is ready; everything else is
log lines on standard error. Ports, the Unix socket's folder and a temporary data folder belong to this process and go
with it.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from service_chassis.address import Address

from millrace.folders import private_folder
from millrace.layout import Layout
from millrace.ports import AddressError, Reservation
from millrace.processes import ServiceFailedError, Supervisor

__all__ = ["UpOptions", "run"]

_WILDCARD_HOSTS = ("", "0.0.0.0", "::")


@dataclass(frozen=True)
class UpOptions:
    """The options of the command, see `millrace up --help`."""

    data_dir: Path | None
    host: str
    advertised_host: str | None
    kafka_port: int
    #: REST has no authentication, so it is opened to others by itself, not with Kafka.
    http_host: str
    http_port: int
    gateways: int
    separate: bool
    topics: str | None


def run(options: UpOptions) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; return the exit status: 1 when a service had to be killed."""
    _on_stop_signals(lambda _number, _frame: sys.exit(0))  # the ExitStack releases everything
    with contextlib.ExitStack() as held:
        try:
            kafka = held.enter_context(Reservation(options.host, options.kafka_port)).address
            http = held.enter_context(Reservation(options.http_host, options.http_port)).address
        except AddressError as error:
            return _failed(str(error))
        data_dir = (options.data_dir or held.enter_context(private_folder("millrace-data-"))).absolute()
        try:
            data_dir.mkdir(parents=True, exist_ok=True)  # the gateway opens it too, maybe before storage
        except OSError as error:
            return _failed(f"cannot use the data folder {data_dir}: {error.strerror}")
        layout = Layout(
            data_dir=data_dir,
            socket_dir=held.enter_context(private_folder("millrace-")),
            kafka=kafka,
            advertised=Address(_advertised_host(options), kafka.port),
            http=http,
            separate=options.separate or options.gateways > 1,
            gateways=options.gateways,
            topics=options.topics,
        )
        supervisor = Supervisor(layout.processes(lambda: held.enter_context(Reservation("127.0.0.1", 0)).address))
        _on_stop_signals(lambda _number, _frame: supervisor.stop())
        shown = Address(layout.advertised.host if http.host in _WILDCARD_HOSTS else http.host, http.port)
        try:
            supervisor.run(lambda: print(f"ready kafka={layout.advertised} http={shown}", flush=True))
        except ServiceFailedError as error:
            return _failed(str(error))
        finally:
            _on_stop_signals(signal.SIG_IGN)  # it is stopping already: asked again, the exit status stays
    return 1 if supervisor.killed else 0


def _on_stop_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, handler)


def _advertised_host(options: UpOptions) -> str:
    if options.advertised_host is not None:
        return options.advertised_host
    return socket.gethostname() if options.host in _WILDCARD_HOSTS else options.host


def _failed(reason: str) -> int:
    print(f"millrace up: {reason}", file=sys.stderr, flush=True)
    return 1
