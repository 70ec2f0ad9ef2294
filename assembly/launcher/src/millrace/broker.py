"""`Broker()`: a broker inside this Python process, for tests, notebooks and other programs.

    with Broker(topics="orders:3") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It is the real broker in combined mode: gateway and storage in an event loop of a background thread. The data folder
has Kafka's files. `start` (or the `with` line) raises an error at the start. Leaving the block stops the broker in
order and removes a temporary data folder. A broker that still runs when the program ends is stopped then.

Group rebalances do not wait for more members, as Kafka's 3 s default would. With `admin=True` the REST API runs in a
separate process. MILLRACE_* variables apply, but not to addresses and folders. Arguments win over them. With `users`
the listener asks clients to log in. A fork of the program keeps nothing of the broker: it may connect to it as a
client.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeVar

import uvloop
from service_chassis import address as addresses
from service_chassis import logs
from service_chassis.authorizer_settings import AuthorizerSettings
from service_chassis.bearer_tokens import BearerSettings
from service_chassis.settings import variable

from millrace.direct import DirectBroker, DirectSettings
from millrace.first_users import AdminLogin, check_users, listener_with_users, super_users_of
from millrace.folders import DATA_DIR, STORAGE_SOCKET, private_folder
from millrace.layout import GATEWAY_NAME, LISTENER, admin_process, certificate_of, reachable
from millrace.ports import Reservation
from millrace.supervisor import Supervisor

#: A start that takes longer is given up: recovery of a large data folder included.
_START_TIMEOUT_S = 120.0

#: The settings that admin-api has as the broker has them.
_ALIKE: Final = ("log_level", "log_format", *AuthorizerSettings.fields, *BearerSettings.fields)

_Value = TypeVar("_Value")


class _ThreadSettings(DirectSettings):
    """Settings of a broker that shares the interpreter with its clients. It does not poll, which would block them."""

    poll_us: int = 0
    gateway_name: str = GATEWAY_NAME
    log_level: Literal["debug", "info", "warning", "error"] = "error"
    log_format: Literal["json", "text"] = "text"


class Broker:
    """One broker in this process; a context manager, or `start` and `close`. May be started again after `close`."""

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        kafka_port: int = 0,
        host: str = "localhost",
        topics: str | None = None,
        admin: bool = False,
        http_port: int = 0,
        flush_policy: str | None = None,
        log_level: str | None = None,
        users: Mapping[str, str] | None = None,
        tls: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        **settings: object,
    ) -> None:
        """Prepare a broker; `topics` are created at the start: `"orders:3,users:1"`. `tls`: PEM files of a key and its
        certificate, for a listener with TLS.

        `users` are passwords by name: with them, clients log in by SASL (SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN). With
        `authorizer="acl"` ACLs decide, and the first of them may do everything, unless `super_users` names others.

        `settings` are fields of either service's settings, such as `message_max_bytes=2_000_000`; `millrace settings`
        lists them. The log is in text and has errors only, unless arguments or variables say otherwise.
        """
        unknown = sorted(settings.keys() - DirectSettings.fields.keys())
        if unknown:
            raise TypeError(f"Broker() has no setting {', '.join(unknown)}")
        self._users = dict(users) if users is not None else None
        if self._users is not None:
            check_users(self._users)
        self._given_data_dir = Path(data_dir) if data_dir is not None else None
        self._host = host
        self._kafka_port = kafka_port
        self._http_port = http_port if admin else None
        if tls is not None:
            files = {"ssl_key_file": os.fspath(tls[0]), "ssl_certificate_file": os.fspath(tls[1])}
            protocol = "SSL" if users is None else "SASL_SSL"
            settings = {"listener_security_protocol_map": f"{LISTENER}:{protocol}", **files, **settings}
        given = {"topics": topics, "log_level": log_level, "flush_policy": flush_policy}
        self._settings = {**{name: value for name, value in given.items() if value is not None}, **settings}
        #: The lock of `start` and `close`.
        self._changing = threading.RLock()
        self._held = contextlib.ExitStack()
        self._data_dir: Path | None = None
        self._exit: _AtExit | None = None
        self._kafka: addresses.Address | None = None
        self._http: addresses.Address | None = None
        self._supervisor: Supervisor | None = None
        #: TCP ports in use.
        self._ports: list[int] = []

    @property
    def bootstrap_servers(self) -> str:
        """The value of bootstrap.servers for Kafka clients: `host:port`."""
        return str(self._started(self._kafka))

    @property
    def kafka_address(self) -> tuple[str, int]:
        kafka = self._started(self._kafka)
        return kafka.host, kafka.port

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Address of the REST API; None without `admin=True`."""
        self._started(self._kafka)
        return None if self._http is None else (self._http.host, self._http.port)

    @property
    def data_dir(self) -> Path:
        return self._started(self._data_dir)

    def start(self) -> Self:
        """Start the broker and return when clients can connect. Raises the error that prevented the start.

        Threads may share a broker: one starts or closes it at a time.
        """
        with self._changing:
            if self._kafka is not None:
                raise RuntimeError("the broker runs already")
            _open_brokers.add(self)
            with contextlib.ExitStack() as held:
                self._start(held)
                self._held = held.pop_all()
            self._exit = _AtExit(self.close)
        return self

    def _start(self, held: contextlib.ExitStack) -> None:
        lock: int | None = None
        storage_bind = None
        if self._given_data_dir is None or self._http_port is not None or self._users is not None:
            folder, lock = held.enter_context(private_folder())
            if self._http_port is not None:
                storage_bind = f"unix:{folder / STORAGE_SOCKET}"
        self._data_dir = self._given_data_dir or folder / DATA_DIR
        listener = f"EXTERNAL://{addresses.Address(self._host, self._kafka_port)}"
        admin_login: dict[str, str] = {}
        secured: dict[str, str] = {}
        own = dict(self._settings)
        if self._users is not None:
            login = AdminLogin.of(self._data_dir) if self._http_port is not None else None
            given = self._settings.get("super_users", os.environ.get(variable("super_users"), ""))
            secured = listener_with_users(folder, self._users, login)
            own["super_users"] = super_users_of(self._users, login, str(given))
            admin_login = {} if login is None else login.settings
        settings = _ThreadSettings(
            data_dir=str(self._data_dir),
            gateway_data_dir=str(self._data_dir),
            **{"listeners": listener, "advertised_listeners": listener, **secured, **own},
        )
        held.enter_context(logs.configured("broker", settings.log_level, settings.log_format))
        kafka = held.enter_context(_running_in_thread(settings, storage_bind))
        self._ports = [kafka.port]
        if storage_bind is not None and self._http_port is not None:
            reservation = held.enter_context(Reservation(self._host, self._http_port))
            health = held.enter_context(Reservation("127.0.0.1", 0))
            self._ports = [kafka.port, reservation.address.port, health.address.port]
            chosen = {variable(name): str(value) for name, value in settings.shown().items()}
            certificate = certificate_of(chosen)
            admin = admin_process(
                storage_bind, reachable(kafka), reservation.address, health.address, encrypted=certificate
            )
            # mutant: rest-obeys-acls
            alike = {name: chosen[name] for name in map(variable, _ALIKE)}
            admin = replace(admin, settings={**alike, **admin.settings, **admin_login})
            supervisor = Supervisor([admin], settings.stop_deadline_s, () if lock is None else (lock,))
            self._supervisor = supervisor
            held.enter_context(_running(supervisor))
            self._http = reservation.address
        self._kafka = addresses.Address(self._host, kafka.port)

    def close(self) -> None:
        """Stop in order: admin-api, gateway, storage. Does nothing when not running."""
        with self._changing:
            if self._exit is not None:
                self._exit.callback = None
            self._kafka = self._http = None
            self._held.close()
            self._data_dir = self._supervisor = None
            self._ports = []
            _open_brokers.discard(self)

    def _disown(self) -> None:
        """Let go of everything, in a fork of the program."""
        self._changing = threading.RLock()
        folders = [] if self._data_dir is None else [str(self._data_dir)]
        _disown(folders, self._ports, [] if self._supervisor is None else self._supervisor.stop_pipes())

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    @staticmethod
    def _started(value: _Value | None) -> _Value:
        if value is None:
            raise RuntimeError("the broker does not run")
        return value


#: Brokers between `start` and `close`.
_open_brokers: weakref.WeakSet[Broker] = weakref.WeakSet()


def _disown_all() -> None:
    for broker in list(_open_brokers):
        broker._disown()
    _open_brokers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_disown_all)  # mutant: fork-disowns-broker


class _AtExit:
    """The close of a broker that is still open when the program ends; `callback` is None for a closed one.

    atexit alone is too late: executors, which stopping needs, accept no more work by then. The earlier hook of
    `threading` is used where it exists. A fork of the program does nothing, since the broker is its parent's.
    """

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self._pid = os.getpid()
        register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
        register(self)

    def __call__(self) -> None:
        if self.callback is not None and self._pid == os.getpid():
            self.callback()


@contextlib.contextmanager
def _running_in_thread(settings: DirectSettings, storage_bind: str | None) -> Iterator[addresses.Address]:
    """Run a broker in a thread's event loop, stopped in order at the end; yield its Kafka address."""
    started: Future[tuple[addresses.Address, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    ended: Future[None] = Future()

    async def live() -> None:
        stop = asyncio.Event()
        try:
            async with contextlib.AsyncExitStack() as running:
                broker = await DirectBroker.start(settings)
                running.push_async_callback(broker.stop)
                if storage_bind is not None:
                    await broker.serve_storage(storage_bind)
                kafka = addresses.Address(*next(iter(broker.gateway.addresses.values())))
                started.set_result((kafka, asyncio.get_running_loop(), stop))  # raises if nobody waits any more
                await stop.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    def run() -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                ended.set_result(runner.run(live()))
        except BaseException as error:
            ended.set_exception(error)

    thread = threading.Thread(target=run, name="millrace-broker", daemon=True)
    thread.start()
    try:
        kafka, loop, stop = started.result(_START_TIMEOUT_S)
    except BaseException:
        started.cancel()
        raise
    try:
        yield kafka
    finally:
        if thread.is_alive():  # not in a fork of this process
            loop.call_soon_threadsafe(stop.set)
            ended.result(settings.stop_deadline_s)
        thread.join(settings.stop_deadline_s)


@contextlib.contextmanager
def _running(supervisor: Supervisor) -> Iterator[None]:
    """Run a supervisor in a thread. Its processes are ready when this yields."""
    ready: Future[None] = Future()

    def run() -> None:
        try:
            supervisor.run(lambda: ready.set_result(None))
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error)

    thread = threading.Thread(target=run, name="millrace-admin", daemon=True)
    thread.start()
    try:
        ready.result(_START_TIMEOUT_S)
        yield
    finally:
        supervisor.stop()
        thread.join()


def _disown(folders: Collection[str], ports: Collection[int], descriptors: Collection[int]) -> None:
    """Replace by /dev/null: files and Unix sockets in `folders`, sockets of a local TCP port, and `descriptors`.

    A lock of flock and a listening port belong to the open file, which a fork shares. A child that lives longer than
    the broker would keep the data folder locked and the port listening. The numbers stay in use, because the copied
    objects still believe that they are theirs. Linux lists a process's descriptors. Other systems replace only those in
    `descriptors`.
    """
    prefixes = tuple(os.path.realpath(folder) + "/" for folder in folders)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for descriptor in (*descriptors, *_descriptors_of(prefixes, ports)):
            os.dup2(null, descriptor, inheritable=False)
    finally:
        os.close(null)


def _descriptors_of(prefixes: tuple[str, ...], ports: Collection[int]) -> list[int]:
    found = []
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # that of the listing itself
                target = os.readlink(f"/proc/self/fd/{name}")
                if target.startswith(prefixes) or (
                    target.startswith("socket:") and _is_ours(int(name), prefixes, ports)
                ):
                    found.append(int(name))
    return found


def _is_ours(descriptor: int, prefixes: tuple[str, ...], ports: Collection[int]) -> bool:
    of_process = socket.socket(fileno=descriptor)
    try:
        name = of_process.getsockname()
        if of_process.family == socket.AF_UNIX:
            return isinstance(name, str) and name.startswith(prefixes)
        is_tcp = of_process.family in (socket.AF_INET, socket.AF_INET6) and of_process.type == socket.SOCK_STREAM
        return is_tcp and name[1] in ports
    finally:
        of_process.detach()
