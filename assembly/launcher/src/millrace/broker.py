"""`Broker()`: a broker inside this Python process, for tests, notebooks and other programs.

    with Broker(topics="orders:3") as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It is the real broker in combined mode: gateway and storage in an event loop of a background thread. The data folder
has Kafka's files. `start` (or the `with` line) raises an error at the start. Leaving the block stops the broker in
order and removes a temporary data folder. A broker that still runs when the program ends is stopped then.

Group rebalances do not wait for more members, as Kafka's 3 s default would. With `admin=True` the REST API runs in a
separate process. MILLRACE_* variables apply; arguments win over them.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import uvloop
from service_chassis import address as addresses
from service_chassis import logs
from service_chassis.settings import load

from millrace.direct import DirectBroker, DirectSettings
from millrace.folders import STORAGE_SOCKET, private_folder
from millrace.layout import GATEWAY_NAME, admin_process
from millrace.ports import Reservation
from millrace.processes import Supervisor

__all__ = ["Broker"]

#: A start that takes longer is given up: recovery of a large data folder included.
_START_TIMEOUT_S = 120.0

_Value = TypeVar("_Value")


class _ThreadSettings(DirectSettings):
    """Settings of a broker that shares the interpreter with its clients. It does not poll, which would block them."""

    poll_us: int = 0


class Broker:
    """One broker in this process; a context manager, or `start` and `close`. May be started again after `close`."""

    def __init__(
        self,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        kafka_port: int = 0,
        host: str = "localhost",
        topics: str = "",
        admin: bool = False,
        http_port: int = 0,
        flush_policy: str | None = None,
        log_level: str = "error",
        **settings: object,
    ) -> None:
        """Prepare a broker; `topics` are created at the start: `"orders:3,users:1"`.

        `settings` are fields of either service's settings, such as `message_max_bytes=2_000_000`; `millrace settings`
        lists them.
        """
        unknown = sorted(settings.keys() - DirectSettings.model_fields.keys())
        if unknown:
            raise TypeError(f"Broker() has no setting {', '.join(unknown)}")
        self._given_data_dir = Path(data_dir) if data_dir is not None else None
        self._host = host
        self._kafka_port = kafka_port
        self._http_port = http_port if admin else None
        self._settings: dict[str, object] = {
            "topics": topics,
            "gateway_name": GATEWAY_NAME,
            "log_level": log_level,
            "log_format": "text",
            **({} if flush_policy is None else {"flush_policy": flush_policy}),
            **settings,
        }
        self._held = contextlib.ExitStack()
        self._data_dir: Path | None = None
        self._exit: _AtExit | None = None
        self._kafka: addresses.Address | None = None
        self._http: addresses.Address | None = None

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
        """Start the broker and return when clients can connect. Raises the error that prevented the start."""
        if self._kafka is not None:
            raise RuntimeError("the broker runs already")
        with contextlib.ExitStack() as held:
            self._data_dir = self._given_data_dir or held.enter_context(private_folder("millrace-data-"))
            storage_bind = None
            if self._http_port is not None:
                socket_dir = held.enter_context(private_folder("millrace-"))
                storage_bind = f"unix:{socket_dir / STORAGE_SOCKET}"
            listener = f"EXTERNAL://{addresses.Address(self._host, self._kafka_port)}"
            settings = load(
                _ThreadSettings,
                data_dir=str(self._data_dir),
                gateway_data_dir=str(self._data_dir),
                **{"listeners": listener, "advertised_listeners": listener, **self._settings},
            )
            held.enter_context(logs.configured("broker", settings.log_level, settings.log_format))
            kafka = held.enter_context(_running_in_thread(settings, storage_bind))
            if storage_bind is not None and self._http_port is not None:
                reservation = held.enter_context(Reservation(self._host, self._http_port))
                health = held.enter_context(Reservation("127.0.0.1", 0))
                held.enter_context(_running_admin(storage_bind, reservation.address, health.address))
                self._http = reservation.address
            self._kafka = addresses.Address(self._host, kafka.port)
            self._held = held.pop_all()
        self._exit = _AtExit(self.close)
        return self

    def close(self) -> None:
        """Stop in order: admin-api, gateway, storage. Does nothing when not running."""
        if self._exit is not None:
            self._exit.callback = None
        self._kafka = self._http = None
        self._held.close()
        self._data_dir = None

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
def _running_admin(storage_bind: str, http: addresses.Address, health: addresses.Address) -> Iterator[None]:
    """Run admin-api as a separate process, watched by a thread. It is ready when this yields."""
    supervisor = Supervisor([admin_process(storage_bind, http, health)])
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
