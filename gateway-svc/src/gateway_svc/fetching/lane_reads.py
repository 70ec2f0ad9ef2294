"""Reads of records over a lane into this process's memory: for conversions, which need the bytes.

Then storage copies no records, and other answers on the shared stream are not delayed by them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from broker_contract.data import ReadResponse, ReadResult
from service_chassis import logs

from gateway_svc.storage.protocols import LaneAnswer, RecordLanes

_log = logs.get(__name__)


class LaneRead:
    """One read: the results of a read that has named the records by slices, and the records as far as they came.

    `done` is called once with the results and their records, or with None if the lane has not brought them. If all of
    that happens within `start`, its result does nothing.
    """

    __slots__ = ("_answer", "_at", "_done", "_give_up", "_results", "_view")

    def __init__(self, results: Sequence[ReadResult], size: int, done: Callable[[ReadResponse | None], None]) -> None:
        """Prepare a read of slices with `size` bytes together."""
        self._results = results
        self._view = memoryview(bytearray(size))
        self._at = 0
        self._done: Callable[[ReadResponse | None], None] | None = done
        self._answer: LaneAnswer | None = None
        self._give_up: Callable[[], None] | None = None

    def start(self, lanes: RecordLanes) -> Callable[[], None]:
        """Ask for the records; return a function that gives the read up, after which `done` is not called."""
        self._give_up = lanes.read([piece for result in self._results for piece in result.slices], self._begun)
        return self.give_up

    def give_up(self) -> None:
        self._done = None
        if self._give_up is not None:
            self._give_up()
        self._release()

    def _begun(self, answer: LaneAnswer | None) -> None:
        if answer is None:
            self._end(None)
        else:
            self._answer = answer
            self.has_records()

    def has_records(self) -> None:
        """Receive what has come (`storage.protocols.RecordReader`)."""
        answer = self._answer
        if answer is None:
            return
        try:
            while self._at < len(self._view):
                got = answer.receive(self._view[self._at :])
                if not got:
                    answer.wait(self)
                    return
                self._at += got
        except OSError:
            self._end(None)
            return
        self._end(ReadResponse(self._with_records()))

    def fail(self, error: Exception) -> None:
        """Log an error that the caller raised when it received the records."""
        _log.error("records not used", reason=repr(error))
        self._release()

    def _with_records(self) -> list[ReadResult]:
        records, begin = self._view.toreadonly(), 0
        results = []
        for result in self._results:
            end = begin + sum([piece.length for piece in result.slices])
            results.append(replace(result, slices=[], records=records[begin:end]))
            begin = end
        return results

    def _end(self, response: ReadResponse | None) -> None:
        self._release()
        done, self._done = self._done, None
        if done is not None:
            done(response)

    def _release(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.release()
