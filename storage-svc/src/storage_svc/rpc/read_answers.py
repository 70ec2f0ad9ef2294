"""The answers to reads, after the look-up of their partitions: records by value, or slices of segment files.

    limit                                         beyond it
    INLINE_BYTES_MAX, by value in an answer       slices, which the gateway reads by value when it has room
    INLINE_BYTES_A_TURN, by value in a turn       slices

Both apply to reads that may wait: many of them may be due in one turn. Such a read also gets slices if its records are
not in memory. A read that does not wait reads a cold disk in a thread (cold_reads.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from broker_contract.data import ReadRequest, ReadResponse

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.rpc.cold_reads import ColdReads, Outcome, read_spans
from storage_svc.rpc.found_records import Found, first_of, note_failure, slices_of

#: Most bytes of records by value in the answer to a read that may wait, and in all such answers of one turn.
INLINE_BYTES_MAX: Final = 64 << 10
INLINE_BYTES_A_TURN: Final = 4 << 20

ReadDone = Callable[[ReadResponse], None]


class ReadAnswers:
    """Owner: Reads, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, files: Files) -> None:
        self._loop = loop
        self.cold = ColdReads(loop, files)
        #: Bytes of records by value that answers of this turn may still hold, if their reads may wait.
        self._inline_left = INLINE_BYTES_A_TURN
        #: Bytes of records in all answers: those that storage read from memory, those that it waited for, and those
        #: of which the answer names the place in a segment file.
        self.cached_bytes = self.disk_bytes = self.named_bytes = 0

    def answer(self, request: ReadRequest, found: list[Found], done: ReadDone) -> Callable[[], None]:
        """Answer a read that does not wait, now or when its records were read from a cold disk.

        A cold read of many segments is answered with the first of them. Its client asks for the others again.
        """
        if request.max_wait_ms > 0 or not self._are_cold(found):  # mutant: cold-read-off-loop
            done(self.response(request, found))
            return nothing
        some = first_of(found, self.cold.segments_max)  # mutant: cold-segments-bounded

        def read(outcome: Outcome) -> None:
            for number, each in enumerate(some):
                if isinstance(outcome, StorageFailure):
                    note_failure(each, outcome)
                else:
                    each[0].records = outcome[number]
            self.disk_bytes += sum([size for _, _, size in some])
            done(ReadResponse([result for result, _, _ in found]))

        return self.cold.read([spans for _, spans, _ in some], read)

    def _are_cold(self, found: list[Found]) -> bool:
        try:
            return self.cold.are_cold(spans for _, spans, _ in found)
        except StorageFailure:  # the read itself will fail
            return False

    def response(self, request: ReadRequest, found: list[Found]) -> ReadResponse:
        """Return the answer, with its records."""
        total = sum([size for _, _, size in found])
        as_slices = request.by_reference
        if total and not as_slices:
            as_slices = request.max_wait_ms > 0 and (
                total > INLINE_BYTES_MAX or self._are_cold(found) or not self._may_inline(total)
            )
            for each in found:
                result, spans, size = each
                if as_slices:
                    result.slices = slices_of(spans)
                elif size:
                    try:
                        result.records = read_spans(spans)
                    except StorageFailure as error:
                        note_failure(each, error)
        self.count(total, named=as_slices)
        return ReadResponse([result for result, _, _ in found])

    def count(self, size: int, *, named: bool) -> None:
        """Count the bytes of records in an answer from memory, or those that it names."""
        if named:
            self.named_bytes += size
        else:
            self.cached_bytes += size

    def _may_inline(self, size: int) -> bool:
        """Return whether an answer of a read that may wait holds these records by value, and count them."""
        if size > min(INLINE_BYTES_MAX, self._inline_left):  # mutant: inline-bytes-shared
            return False
        if self._inline_left == INLINE_BYTES_A_TURN:
            self._loop.call_soon(self._begin_turn)
        self._inline_left -= size
        return True

    def _begin_turn(self) -> None:
        self._inline_left = INLINE_BYTES_A_TURN


def nothing() -> None:
    """Do nothing: the read is answered already."""
