"""Where load comes from: a process of its own beside the bench's, so that what it costs is known.

driven = Driver.shared().call(produce, address, flood, 1_000)
driven.result, driven.cpu_seconds
"""

from __future__ import annotations

import functools
import multiprocessing
import resource
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Driven(Generic[T]):
    result: T
    #: user and system time of the call
    cpu_seconds: float


class Driver:
    """One process that runs functions of the modules of this folder."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_quietly)
        self._pool.submit(_quietly).result()

    @staticmethod
    @functools.cache
    def shared() -> Driver:
        """The one that most workloads use; it ends with the bench."""
        return Driver()

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Driven[T]:
        return self._pool.submit(_timed, function, args, kwargs).result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)


def _quietly() -> None:
    """Ctrl-C is the bench's to answer."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _timed(function: Callable[..., T], args: tuple[object, ...], kwargs: dict[str, object]) -> Driven[T]:
    before = resource.getrusage(resource.RUSAGE_SELF)
    result = function(*args, **kwargs)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return Driven(result, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
