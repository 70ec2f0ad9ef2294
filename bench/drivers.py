"""The driver of a load: a separate process, so that its cost is known.

driven = Driver.shared().call(produce, address, flood, 1_000) driven.result, driven.cpu_seconds
"""

from __future__ import annotations

import multiprocessing
import resource
import signal
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Driven(Generic[T]):
    result: T
    #: user and system time of the call
    cpu_seconds: float


class Driver:
    """One process that runs functions of the modules of this folder."""

    _running: ClassVar[dict[str, Driver]] = {}

    def __init__(self) -> None:
        self._pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"), initializer=_quietly)

    @classmethod
    def shared(cls) -> Driver:
        """Return the driver of most workloads; it ends with the bench."""
        return cls.named("shared")

    @classmethod
    def second(cls) -> Driver:
        """Return a second driver for load at the same time; it ends with the bench too."""
        return cls.named("second")

    @classmethod
    def named(cls, name: str) -> Driver:
        """Return the driver of one kind of load; it ends with the bench too."""
        return cls._running.get(name) or cls._running.setdefault(name, cls())

    @classmethod
    def close_all(cls) -> None:
        while cls._running:
            cls._running.popitem()[1].close()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Driven[T]:
        return self.start(function, *args, **kwargs).result()

    def start(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[Driven[T]]:
        """Start a load, while something else is measured."""
        return self._pool.submit(_timed, function, args, kwargs)

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _quietly() -> None:
    """Ignore Ctrl-C, which the bench handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _timed(function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> Driven[T]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = function(*args, **kwargs)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Driven(result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
