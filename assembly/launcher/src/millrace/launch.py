"""`millrace up`: one machine's broker from start to stop.

Standard output gets three lines once Kafka clients are served: `ready kafka=HOST:PORT http=HOST:PORT`, the addresses of
all /metrics, and the address of the REST API's documentation. The REST API starts at that moment. Its port listens
already, and requests wait for it, less than a second. Everything else is log lines on standard error: text on a
terminal, else JSON, unless MILLRACE_LOG_FORMAT names one. Ports, the Unix socket's folder and a temporary data folder
belong to this process and go with it. The next start removes the folders of one that was killed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from service_chassis.address import Address, is_loopback
from service_chassis.stop_signals import StopRequest, StopSignals, handled

from millrace.child import ServiceProcess
from millrace.first_users import EXTENDED, admin_mechanism
from millrace.folders import DATA_DIR, private_folder
from millrace.launch_options import LaunchOptions
from millrace.layout import LISTENER, WILDCARD_HOSTS, Layout
from millrace.ports import AddressError, Reservation
from millrace.supervisor import ServiceFailedError, Supervisor, stop_deadline_s
from millrace.variables import VARIABLES


def launch(options: LaunchOptions) -> int:
    """Run until SIGTERM, SIGINT or SIGHUP; return the exit status: 1 when a service had to be killed."""
    _open_standard_streams()
    if not is_loopback(options.http_host) and not os.environ.get("MILLRACE_ADMIN_AUTH"):
        return _failed(
            f"--http-host {options.http_host} opens the REST API to other machines; set MILLRACE_ADMIN_AUTH to token"
            " with a MILLRACE_ADMIN_TOKENS_FILE, to users, or to none if anyone may administer the cluster"
        )
    stop_requests = StopRequests()
    _warn_of_variables()
    if os.isatty(2):
        os.environ.setdefault("MILLRACE_LOG_FORMAT", "text")
    with contextlib.ExitStack() as held:
        try:
            kafka = _reserved(held, "--kafka-port", options.host, options.kafka_port)
            http = _reserved(held, "--http-port", options.http_host, options.http_port)
            folder, lock = held.enter_context(private_folder())
        except AddressError as error:
            return _failed(str(error))
        except OSError as error:
            return _failed(f"cannot make a temporary folder: {error.strerror}")
        data_dir = Path(options.data_dir or folder / DATA_DIR).absolute()
        try:
            data_dir.mkdir(parents=True, exist_ok=True)  # the gateway opens it too, maybe before storage
        except (FileExistsError, NotADirectoryError):
            return _failed(f"--data-dir: {data_dir} is not a folder")
        except OSError as error:
            return _failed(f"--data-dir: cannot use {data_dir}: {error.strerror}")
        layout = Layout(
            data_dir=data_dir,
            socket_dir=folder,
            kafka=kafka,
            advertised=Address(_advertised_host(options), kafka.port),
            http=http,
            separate=options.separate,
            gateways=options.gateways,
            topics=options.topics,
        )
        try:
            processes = layout.processes(_metrics_addresses(held, options.metrics_port))
        except AddressError as error:
            return _failed(str(error))
        except OSError as error:
            return _failed(f"cannot use {error.filename}: {error.strerror}")
        except UnicodeDecodeError:
            return _failed("MILLRACE_USERS_FILE: it is not UTF-8")
        _warn_of_admin_login()
        _warn_of_overrides(processes)
        supervisor = Supervisor(processes, stop_deadline_s(), descriptors=(lock,))
        stop_requests.stops(supervisor)
        shown = Address(layout.advertised.host if http.host in WILDCARD_HOSTS else http.host, http.port)
        if stop_requests.asked:
            return 0
        try:
            supervisor.run(lambda: _print_ready(layout, shown, processes))
        except ServiceFailedError as error:
            return _failed(_in_options(str(error)))
    return 1 if supervisor.killed else 0


def _reserved(held: contextlib.ExitStack, option: str, host: str, port: int) -> Address:
    try:
        return held.enter_context(Reservation(host, port, claim=True)).address
    except AddressError as error:
        raise AddressError(f"{option}: {error}") from error


def _metrics_addresses(held: contextlib.ExitStack, first: int) -> Callable[[], Address]:
    """Return a function that reserves the next address for /metrics. It raises AddressError if that is in use."""
    ports = itertools.count(first) if first else itertools.repeat(0)

    def following() -> Address:
        try:
            return held.enter_context(Reservation("127.0.0.1", next(ports))).address
        except AddressError as error:
            raise AddressError(f"--metrics-port: {error}") from error

    return following


def _print_ready(layout: Layout, http: Address, processes: Sequence[ServiceProcess]) -> None:
    names = [each.service if each.number == 1 else f"{each.service}-{each.number}" for each in processes]
    metrics = [f"{name}=http://{each.http_address}/metrics" for name, each in zip(names, processes, strict=True)]
    _print(f"ready kafka={layout.advertised} http={http}\nmetrics {' '.join(metrics)}\nopen http://{http}/\n")


#: Variables that `up` sets from an option, and the option.
_OPTIONS = {
    "MILLRACE_DATA_DIR": "--data-dir",
    "MILLRACE_LISTENERS": "--host and --kafka-port",
    "MILLRACE_ADVERTISED_LISTENERS": "--advertised-host",
    "MILLRACE_ADMIN_HTTP": "--http-host and --http-port",
    "MILLRACE_TOPICS": "--topics",
    "MILLRACE_BROKER_HTTP": "--metrics-port",
    "MILLRACE_STORAGE_HTTP": "--metrics-port",
    "MILLRACE_GATEWAY_HTTP": "--metrics-port",
    "MILLRACE_ADMIN_HEALTH_HTTP": "--metrics-port",
}


def _in_options(reason: str) -> str:
    """Return a reason with the option's name for a variable that the environment does not have."""

    def shown(found: re.Match[str]) -> str:
        return found[0] if found[0] in os.environ else _OPTIONS.get(found[0], found[0])

    return re.sub(r"MILLRACE_[A-Z_]+", shown, reason)


#: Prefix of variables that pipeline files of spark-etl may name as they like.
_PIPELINES_PREFIX = "MILLRACE_ETL_"


def _warn_of_variables() -> None:
    """Name variables that no service knows, with the one that was probably meant."""
    for name in sorted(name for name in os.environ if name.startswith("MILLRACE_")):
        if name in VARIABLES or name.startswith(_PIPELINES_PREFIX):
            continue
        from difflib import get_close_matches

        near = get_close_matches(name, VARIABLES, n=1, cutoff=0.85)
        _warn(f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else " of Millrace"))


def _warn_of_admin_login() -> None:
    """Say so if the REST API cannot log in to the listener, through which it reads and writes records."""
    if admin_mechanism(os.environ, LISTENER) == "":
        _warn(
            "the REST API cannot read or write records: MILLRACE_SASL_ENABLED_MECHANISMS has no SCRAM-SHA-512,"
            " SCRAM-SHA-256 or PLAIN by which it could log in"
        )


def _warn_of_overrides(processes: Sequence[ServiceProcess]) -> None:
    """Name variables of the environment that have no effect, because `up` chooses their values."""
    chosen = {name: value for process in processes for name, value in process.settings.items()}
    for name in sorted(chosen.keys() & os.environ.keys()):
        if os.environ[name] != chosen[name] and name not in EXTENDED:
            option = f"; use {_OPTIONS[name]}" if name in _OPTIONS else ""
            _warn(f"{name} has no effect on `millrace up`, which chooses its value{option}")


def _warn(text: str) -> None:
    print(f"millrace up: warning: {text}", file=sys.stderr, flush=True)


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


def _advertised_host(options: LaunchOptions) -> str:
    if options.advertised_host is not None:
        return options.advertised_host
    return socket.gethostname() if options.host in WILDCARD_HOSTS else options.host


def _failed(reason: str) -> int:
    print(f"millrace up: {reason}", file=sys.stderr, flush=True)
    return 1


class StopRequests:
    """The signals that ask for a stop, to the end of the process. Make it before any other thread.

    All threads block these signals, and one thread waits for them. A handler in the main thread could run between its
    last check for signals and its wait for the next event: the signal would then be without effect until the event.
    """

    def __init__(self) -> None:
        self._numbers = handled()
        self._signals = StopSignals()
        self._supervisor: Supervisor | None = None
        self._changing = threading.Lock()
        #: Whether a stop was requested.
        self.asked = False
        signal.pthread_sigmask(signal.SIG_BLOCK, self._numbers)  # mutant: signals-to-main-thread
        if self._numbers:
            threading.Thread(target=self._wait, name="signals", daemon=True).start()

    def stops(self, supervisor: Supervisor) -> None:
        """Pass requests on to a supervisor from now on, and one that came before too."""
        with self._changing:
            self._supervisor = supervisor
            if self.asked:
                supervisor.stop()

    def _wait(self) -> None:
        while True:
            request = self._signals.received(signal.sigwait(self._numbers))
            with self._changing:
                self.asked = True
                if self._supervisor is None:
                    if request is StopRequest.KILL:
                        os._exit(1)
                elif request is StopRequest.KILL:
                    self._supervisor.kill()
                elif request is not StopRequest.NOTHING:
                    self._supervisor.stop()
