"""The thread of conversions, and the allowance of each.

Conversions run in one thread, one at a time, so only one of them holds memory, however many old clients there are. The
thread works in slices (service_chassis/time_slices.py). Decompression does not hold Python's interpreter lock.

A conversion has an allowance of decompressed bytes and of records for its whole request. When its call is abandoned, it
ends before the next record and releases its input. `close` abandons all of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Generic, Protocol, TypeVar

from protocol_lib.records.compression import DecompressedTooLarge
from protocol_lib.records.record import Record
from service_chassis.time_slices import Abandoned, TimeSlices

#: Bytes of a record that are counted in addition to its key and its value.
_RECORD_BYTES: Final = 26

T = TypeVar("T")


class FailingCall(Protocol):
    """A request's call (call.py), as far as it is needed here."""

    abandon: Callable[[], None] | None

    def failed(self, error: Exception) -> None: ...


class Allowance(TimeSlices):
    """The bytes and records that one request may still convert; called with each record (`conversion.Each`)."""

    __slots__ = ("bytes_left", "is_reduced", "records_left", "used")

    def __init__(self, bytes_max: int, records_max: int) -> None:
        super().__init__()
        self.bytes_left = bytes_max
        self.records_left = records_max
        #: Whether others have left it fewer bytes, so that more may be converted later.
        self.is_reduced = False
        #: Whether any record was converted.
        self.used = False

    def reduce(self, bytes_max: int) -> None:
        """Allow no more bytes than others have left."""
        if bytes_max < self.bytes_left:
            self.bytes_left, self.is_reduced = bytes_max, True

    def __call__(self, record: Record) -> None:
        """Count a record, and pause when it is time.

        Raises:
            DecompressedTooLarge: the request has used up its allowance.
            Abandoned: the call was abandoned.
        """
        self.used = True
        self.records_left -= 1
        self.bytes_left -= _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
        if self.records_left < 0 or self.bytes_left < 0:  # mutant: conversion-bounded
            raise DecompressedTooLarge("the records of one request are more than can be converted")
        self.turn()


class _Conversion(Generic[T]):
    """One conversion in the thread."""

    __slots__ = ("allowance", "work")

    def __init__(self, work: Callable[[Allowance], T], allowance: Allowance) -> None:
        self.work: Callable[[Allowance], T] | None = work
        self.allowance = allowance

    def __call__(self) -> T:
        work, self.work = self.work, None
        if work is None:
            raise Abandoned
        self.allowance.begin()
        return work(self.allowance)

    def abandon(self) -> None:
        self.work = None  # mutant: conversion-abandoned
        self.allowance.is_abandoned = True  # mutant: conversion-abandoned


class Conversions:
    """The thread of conversions; the gateway owns it, and uses it from its event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "conversion")
        self._running: dict[asyncio.Future[Any], _Conversion[Any]] = {}

    @property
    def count(self) -> int:
        """The number of conversions that run or wait."""
        return len(self._running)

    def run(
        self,
        call: FailingCall,
        work: Callable[[Allowance], T],
        done: Callable[[T], None],
        allowance: Allowance,
        *,
        inline: bool,
        release: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `done` with the result of `work`, now or later; an exception of either fails the call.

        While the conversion is in the thread, `call.abandon` ends it. `release` is called once when it has ended in any
        way, before `done`.
        """
        if inline:
            release()
            _finish(call, lambda: work(allowance), done)
            return
        conversion = _Conversion(work, allowance)
        future = self._loop.run_in_executor(self._thread, conversion)
        self._running[future] = conversion
        call.abandon = conversion.abandon

        def ended(outcome: asyncio.Future[T]) -> None:
            del self._running[outcome]
            release()
            if outcome.cancelled() or isinstance(outcome.exception(), Abandoned) or allowance.is_abandoned:
                return
            call.abandon = None
            _finish(call, outcome.result, done)

        future.add_done_callback(ended)

    def close(self) -> None:
        """Abandon all conversions; the thread ends after its current record."""
        for future, conversion in list(self._running.items()):
            conversion.abandon()
            future.cancel()
        self._thread.shutdown(wait=False)


def _finish(call: FailingCall, result: Callable[[], T], done: Callable[[T], None]) -> None:
    try:
        done(result())
    except Exception as error:
        call.failed(error)
