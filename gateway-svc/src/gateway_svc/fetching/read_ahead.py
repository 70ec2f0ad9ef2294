"""Reads of storage that are made before the consumer asks for them.

A consumer that reads one partition from end to end repeats its request with the offset after its last answer:

    request   offset 0 ─ storage    offset 10 ─ storage    offset 20 ─ read ahead    offset 30 ─ read ahead
    storage                             asked for 20, 30, …, 100        when half are left: for 110, 120, …

While the second answer is on its way, the gateway asks storage for the next ones: which bytes of which files they are.
The next request then finds its answer here. Only names of files are kept, so no file is open for a request that may
never come.

Invariant: a result is used only if storage would return the same now. Storage returns with it a number from its
`Revisions`. It moves that number before any client can know that the log has changed (records appended, deleted or
expired, the topic deleted, a segment rewritten). The number is compared when the result is used. Another storage may
have replaced this one without a sign so far; so a result is used for GOOD_S only, less than a storage takes to start.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Final

from broker_contract.data import AheadRequest, AheadResponse, ReadPartition, ReadRequest, ReadResult, Slice
from broker_contract.revisions import Revisions
from protocol_lib.messages.fetch import FetchRequest
from protocol_lib.template import RecordsAnswerTemplate

from gateway_svc.clients.slices import SENDFILE_MIN_BYTES
from gateway_svc.fetching.sessions import Fetch
from gateway_svc.storage.protocols import Records

#: Most reads asked for at once, and most bytes of them. More are asked for when half of them are left.
READS: Final = 16
_BYTES: Final = 32 << 20
#: Seconds for which a result may be used, from the time storage was asked for it.
GOOD_S: Final = 0.1
#: Results in a row that no request asked for, and the number of requests without reading ahead that follow them.
_UNUSED_MAX: Final = 4
_PAUSE: Final = 64

#: A request's version and all its fields, without its offset and its session.
RequestKey = tuple[int, str, bytes, int, int, int, int, int, int, int]


def request_key(version: int, request: FetchRequest) -> RequestKey | None:
    """Return the part that repeated requests of one consumer share; None unless the request is for one partition."""
    if len(request.topics) != 1:
        return None
    (topic,) = request.topics
    if len(topic.partitions) != 1:
        return None
    (asked,) = topic.partitions
    return (
        version,
        topic.topic,
        topic.topic_id,
        asked.partition,
        asked.partition_max_bytes,
        asked.current_leader_epoch,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
    )


class _Response:
    """Results that came together, and whether they still hold."""

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
        """Return whether storage would return the same now."""
        response = self.response
        # mutant: read-ahead-valid
        return (
            now < self.good_until
            and self.records.revisions is self.revisions
            and self.revisions[response.slot] == response.revision
        )

    def result(self, slices: list[Slice]) -> ReadResult:
        found = self.response
        aborted: list[tuple[int, int]] | None = [] if self.committed else None
        return ReadResult(0, found.high_watermark, found.last_stable_offset, found.log_start_offset, aborted, slices)


class ReadAhead:
    """The next results of one consumer, whose requests all have the key `key`.

    The Fetch handler keeps one for each connection and replaces it when a request has another key.
    """

    __slots__ = (
        "_asking",
        "_count",
        "_good_s",
        "_last_offset",
        "_loop",
        "_pause",
        "_read",
        "_records",
        "_results",
        "_unused",
        "fetch",
        "key",
        "layout",
        "repeated",
    )

    #: The layout of the last answer with records. Set with `fetch`.
    layout: RecordsAnswerTemplate

    def __init__(
        self, key: RequestKey, records: Records, loop: asyncio.AbstractEventLoop, *, good_s: float = GOOD_S
    ) -> None:
        """Read ahead for requests with this key. `good_s`: instead of GOOD_S."""
        self.key = key
        #: Whether a second request had the same key: only then are reads made ahead.
        self.repeated = False
        #: The fetch that was last answered with records; None before the first such answer.
        self.fetch: Fetch | None = None
        self._records = records
        self._loop = loop
        self._good_s = good_s
        #: Next results by offset, the lowest first.
        self._results: deque[tuple[int, list[Slice], _Response]] = deque()
        self._asking = False
        #: Number of reads in the last request to storage.
        self._count = 0
        self._unused = 0
        self._pause = 0
        #: The last request to storage that had an answer by reference, and the last offset that was answered.
        self._read: ReadRequest | None = None
        self._last_offset = -1

    @property
    def has_results(self) -> bool:
        return bool(self._results)

    def take(self, offset: int, now: float) -> ReadResult | None:
        """Return the result of a read from `offset` on, if it is known and holds.

        `now` is a reading of `time.monotonic`: the event loop's own clock may stand at the begin of its turn.
        """
        results = self._results
        if not results:
            return None
        # Storage answered the consumer's last requests while these results were on their way.
        while results[0][0] < offset and len(results) > 1:
            results.popleft()
        known_offset, slices, response = results.popleft()
        if known_offset != offset or not response.holds(now):
            results.clear()
            self._unused += 1
            if self._unused >= _UNUSED_MAX:
                self._unused, self._pause = 0, _PAUSE
            return None
        self._unused = 0
        self._last_offset = offset
        return response.result(slices)

    def answered(self, read: ReadRequest, fetch: Fetch, layout: RecordsAnswerTemplate, size: int) -> None:
        """Note that storage answered a read by reference with `size` bytes of records; ask for more if it is time.

        A session may have answered another partition than the request named, and has forgotten that one since.
        """
        (partition,) = fetch.partitions
        # mutant: read-ahead-of-same-partition
        if (partition.topic, partition.topic_id, partition.asked.partition) != self.key[1:4]:
            self.fetch = None
            return
        self.fetch, self.layout = fetch, layout
        if self.repeated:
            self._read, self._last_offset = read, read.partitions[0].fetch_offset
            self.ask(size)

    def ask(self, size: int) -> None:
        """Ask storage for the next results if few are left. `size`: bytes of records in the last answer."""
        read = self._read
        if read is None or self._asking or 2 * len(self._results) > self._count:
            return
        (wanted,) = read.partitions
        if size < SENDFILE_MIN_BYTES or 2 * size < min(read.max_bytes, wanted.max_bytes):
            return  # the answer is small, or the end of the log is near
        if self._pause:
            self._pause -= 1
            return
        if self._records.revisions is None:
            return
        self._count = max(2, min(READS, _BYTES // size))
        self._asking = True
        # After this turn, so that the answer leaves first.
        self._loop.call_soon(self._ask, read, monotonic() + self._good_s)

    def _ask(self, read: ReadRequest, good_until: float) -> None:
        revisions = self._records.revisions
        if revisions is None:
            self._asking = False
            return
        (wanted,) = read.partitions
        last = self._results[-1][0] if self._results else self._last_offset
        from_last = ReadPartition(wanted.topic_partition, last, wanted.max_bytes, wanted.leader_epoch)
        received = partial(self._received, revisions, good_until, read.isolation_level == 1, last)
        self._records.read_ahead(AheadRequest(replace(read, partitions=[from_last]), self._count), received)

    def _received(
        self, revisions: Revisions, good_until: float, committed: bool, last: int, response: AheadResponse
    ) -> None:
        self._asking = False
        if self._results and self._results[-1][0] != last:
            return
        shared = _Response(response, self._records, revisions, good_until, committed)
        for read in response.reads:
            self._results.append((read.fetch_offset, read.slices, shared))
