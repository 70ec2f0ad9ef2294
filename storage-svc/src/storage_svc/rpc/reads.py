"""Reads, answered at once or parked until enough records are there.

A read looks its partitions up (partition_read.py). If they have too few records, it is parked (parked_reads.py); else
it is answered (read_answers.py). A read of many partitions is looked up in steps.

    limit                                         beyond it
    `read_bytes_max` bytes in an answer           fewer records
    `parked_reads_max` reads parked               the read is answered at once, with the records found
    INLINE_BYTES_MAX, INLINE_BYTES_A_TURN         slices (read_answers.py)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator

from broker_contract.data import ReadRequest, ReadResponse, ReadResult
from protocol_lib.errors import ErrorCode

from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.rpc.found_records import Found
from storage_svc.rpc.parked_reads import ParkedReads
from storage_svc.rpc.partition_read import PIECE, PartitionReads
from storage_svc.rpc.read_answers import ReadAnswers, ReadDone, nothing


class Reads:
    """All reads, parked or not. The DataService owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop, directory: DataFolder, partitions: PartitionReads) -> None:
        self._partitions = partitions
        self.answers = ReadAnswers(loop, directory.files)
        self.parked = ParkedReads(loop, partitions, self.answers, directory.settings.parked_reads_max)
        self._closed = False

    def read(self, request: ReadRequest, done: ReadDone) -> Callable[[], None]:
        """Read; `done` is called once, unless the caller calls the returned function first."""
        if self._closed:
            done(ReadResponse([ReadResult(ErrorCode.NOT_LEADER_OR_FOLLOWER) for _ in request.partitions]))
            return nothing
        if len(request.partitions) > PIECE:
            return self._partitions.take_steps(request, self._read_in_steps(request, done))
        # As `bytes_allowed` does, without a call: most reads take this path.
        most = min(max(0, request.max_bytes), self._partitions.bytes_max)
        found, size, failed = self._partitions.collect(request, request.partitions, most)
        if request.by_reference and size >= request.min_bytes:
            self.answers.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return nothing
        return self._answer_or_park(request, done, found, size, failed)

    def _read_in_steps(self, request: ReadRequest, done: ReadDone) -> Generator[None, None, Callable[[], None]]:
        found, size, failed = yield from self._partitions.collect_in_steps(request)
        return self._answer_or_park(request, done, found, size, failed)

    def _answer_or_park(
        self, request: ReadRequest, done: ReadDone, found: list[Found], size: int, failed: bool
    ) -> Callable[[], None]:
        """Answer or park a read, after the look-up of its partitions."""
        parked = self.parked
        if not failed and size < request.min_bytes and request.max_wait_ms > 0 and len(parked.reads) < parked.most:
            sizes = self._partitions.awaited(request, found)
            if sum(sizes) < request.min_bytes:
                return parked.park(request, done, sizes, found)
        if request.by_reference:
            self.answers.named_bytes += size
            done(ReadResponse([result for result, _, _ in found]))
            return nothing
        return self.answers.answer(request, found, done)

    async def close(self) -> None:
        """Answer all parked reads with the records found, and wait for those that read a cold disk."""
        self._closed = True
        self.parked.close()
        self._partitions.finish_steps()
        await self.answers.cold.finish()
