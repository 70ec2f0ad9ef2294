"""What a connection's consumer will ask for next, asked of storage before it does.

A consumer that reads one partition from end to end repeats its request with the offset behind its last answer. While an
answer is on its way to it, storage is asked for the next ones: which bytes of which files they are. The request that
comes then finds its answer here.

Invariant: an answer is given from here only if storage would give the same now. Storage says with it a number of its
`Revisions`, which it moves before anybody can hear that the log has changed (records appended, deleted or expired, the
topic gone, a segment rewritten); the number is compared when the answer is used. Storage may also be gone, and another
one in its place that this gateway has not heard of: answers are good for GOOD_S only, in which none starts.

Nothing is held open for what may never be asked: of a file only its name is known.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from functools import partial
from typing import Final

from broker_contract.data import AheadRequest, AheadResponse, ReadPartition, ReadRequest, ReadResult, Slice
from broker_contract.revisions import Revisions

from gateway_svc.slices import SENDFILE_MIN_BYTES
from gateway_svc.storage import Records

#: How many answers are asked for, and how few are left when more are.
READS: Final = 8
_FEW: Final = 2
#: How long an answer is good from when it was asked for; the start of a storage takes longer.
GOOD_S: Final = 0.1
#: After so many answers in vain, one after the other, that many requests are answered without.
_VAIN_MAX: Final = 4
_PAUSE: Final = 64


class _Prepared:
    """Answers that came together."""

    __slots__ = ("committed", "good_until", "records", "response", "revisions")

    def __init__(
        self, response: AheadResponse, records: Records, revisions: Revisions, good_until: float, committed: bool
    ) -> None:
        self.records = records
        self.response = response
        self.revisions = revisions
        self.good_until = good_until
        self.committed = committed

    def holds(self, now: float) -> bool:
        """Whether storage would say the same now."""
        response = self.response
        return (
            now < self.good_until
            and self.records.revisions is self.revisions
            and self.revisions[response.place] == response.revision
        )

    def result(self, slices: list[Slice]) -> ReadResult:
        told = self.response
        aborted: list[tuple[int, int]] | None = [] if self.committed else None
        return ReadResult(0, told.high_watermark, told.last_stable_offset, told.log_start_offset, aborted, slices)


class AheadReads:
    """Of one connection, whose requests are alike but for their offsets; forgotten when they change."""

    __slots__ = ("_asking", "_pause", "_prepared", "_vain")

    def __init__(self) -> None:
        self._prepared: deque[tuple[int, list[Slice], _Prepared]] = deque()
        self._asking = False
        self._vain = 0
        self._pause = 0

    def take(self, offset: int, now: float) -> ReadResult | None:
        """What storage would answer to a read from this offset on, if that is known; `now` is `time.monotonic`'s, for
        an event loop's own clock may stand where its turn began."""
        if not self._prepared:
            return None
        prepared_offset, slices, prepared = self._prepared.popleft()
        if prepared_offset != offset or not prepared.holds(now):
            self._prepared.clear()
            self._vain += 1
            if self._vain >= _VAIN_MAX:
                self._vain, self._pause = 0, _PAUSE
            return None
        self._vain = 0
        return prepared.result(slices)

    def answered(self, read: ReadRequest, size: int, records: Records, loop: asyncio.AbstractEventLoop) -> None:
        """A read by reference was given records of that size: it may be time to ask for what follows."""
        if self._asking or len(self._prepared) > _FEW or records.revisions is None:
            return
        (wanted,) = read.partitions
        if size < SENDFILE_MIN_BYTES or 2 * size < min(read.max_bytes, wanted.max_bytes):
            return  # little is asked for, or the end is near
        if self._pause:
            self._pause -= 1
            return
        self._asking = True
        # When this turn is over, so that the answer leaves first.
        loop.call_soon(self._ask, read, records, time.monotonic() + GOOD_S)

    def _ask(self, read: ReadRequest, records: Records, good_until: float) -> None:
        revisions = records.revisions
        if revisions is None:
            self._asking = False
            return
        if self._prepared:
            (wanted,) = read.partitions
            behind = self._prepared[-1][0]
            read.partitions[0] = ReadPartition(
                wanted.topic, wanted.partition, behind, wanted.max_bytes, wanted.leader_epoch, wanted.topic_id
            )
        committed = read.isolation_level == 1
        came = partial(self._came, records, revisions, good_until, committed, read.partitions[0])
        records.read_ahead(AheadRequest(read, READS), came)

    def _came(
        self,
        records: Records,
        revisions: Revisions,
        good_until: float,
        committed: bool,
        behind: ReadPartition,
        response: AheadResponse,
    ) -> None:
        self._asking = False
        if self._prepared and self._prepared[-1][0] != behind.fetch_offset:
            return
        prepared = _Prepared(response, records, revisions, good_until, committed)
        self._prepared += [(read.fetch_offset, read.slices, prepared) for read in response.reads]
