"""`millrace up`: one machine's broker from start to stop.

Standard output gets one line, `ready kafka=HOST:PORT http=HOST:PORT`, once every service is ready; everything else is
log lines on standard error. Ports, the Unix socket's folder and a temporary data folder belong to this process and go
with it. The next start removes the folders of one that was killed.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

from service_chassis.address import Address, is_loopback

from millrace.folders import DATA_DIR, private_folder
from millrace.layout import WILDCARD_HOSTS, Layout
from millrace.ports import AddressError, Reservation
from millrace.processes import ServiceFailedError, Supervisor, stop_deadline_s
from millrace.stopping import Stopping

__all__ = ["UpOptions", "run"]


@dataclass(frozen=True)
class UpOptions:
    """The options of the command, see `millrace up --help`."""

    data_dir: Path | None
    host: str
    advertised_host: str | None
    kafka_port: int
    #: REST changes everything, so it is opened to others by itself, not with Kafka.
    http_host: str
    http_port: int
    gateways: int
    separate: bool
    topics: str | None


def run(options: UpOptions) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; return the exit status: 1 when a service had to be killed."""
    _open_standard_streams()
    if not is_loopback(options.http_host) and not os.environ.get("MILLRACE_ADMIN_AUTH"):
        return _failed(
            f"--http-host {options.http_host} opens the REST API to other machines; set MILLRACE_ADMIN_AUTH to token"
            " with a MILLRACE_ADMIN_TOKENS_FILE, or to none if anyone may administer the cluster"
        )
    stopping = Stopping()
    with contextlib.ExitStack() as held:
        try:
            kafka = held.enter_context(Reservation(options.host, options.kafka_port, claim=True)).address
            http = held.enter_context(Reservation(options.http_host, options.http_port, claim=True)).address
            folder, lock = held.enter_context(private_folder())
        except AddressError as error:
            return _failed(str(error))
        except OSError as error:
            return _failed(f"cannot make a temporary folder: {error.strerror}")
        data_dir = (options.data_dir or folder / DATA_DIR).absolute()
        try:
            data_dir.mkdir(parents=True, exist_ok=True)  # the gateway opens it too, maybe before storage
        except OSError as error:
            return _failed(f"cannot use the data folder {data_dir}: {error.strerror}")
        layout = Layout(
            data_dir=data_dir,
            socket_dir=folder,
            kafka=kafka,
            advertised=Address(_advertised_host(options), kafka.port),
            http=http,
            separate=options.separate or options.gateways > 1,
            gateways=options.gateways,
            topics=options.topics,
        )
        supervisor = Supervisor(
            layout.processes(lambda: held.enter_context(Reservation("127.0.0.1", 0)).address),
            stop_deadline_s(),
            descriptors=(lock,),
        )
        stopping.stops(supervisor)
        shown = Address(layout.advertised.host if http.host in WILDCARD_HOSTS else http.host, http.port)
        if stopping.asked:
            return 0
        try:
            supervisor.run(lambda: _print(f"ready kafka={layout.advertised} http={shown}\n"))
        except ServiceFailedError as error:
            return _failed(str(error))
    return 1 if supervisor.killed else 0


def _open_standard_streams() -> None:
    """Open closed standard streams on /dev/null, so that no socket gets their numbers and receives the log."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one


def _print(line: str) -> None:
    """Write to standard output, which may be closed, full or without a reader: the broker serves all the same."""
    with contextlib.suppress(OSError):
        os.write(1, line.encode())


def _advertised_host(options: UpOptions) -> str:
    if options.advertised_host is not None:
        return options.advertised_host
    return socket.gethostname() if options.host in WILDCARD_HOSTS else options.host


def _failed(reason: str) -> int:
    print(f"millrace up: {reason}", file=sys.stderr, flush=True)
    return 1
