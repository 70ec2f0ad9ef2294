"""What a connection's consumer will ask for next, asked of storage before it does.

A consumer that reads one partition from end to end repeats its request with the offset behind its last answer. While an
answer is on its way to it, storage is asked for the next ones: which bytes of which files they are. The request that
comes then finds its answer here.

Invariant: an answer is given from here only if storage would give the same now. Storage says with it a number of its
`Revisions`, which it moves before anybody can hear that the log has changed (records appended, deleted or expired, the
topic gone, a segment rewritten); the number is compared when the answer is used. Storage may also be gone, and another
one in its place that this gateway has not heard of: answers are good for GOOD_S only, in which none starts.

Where a consumer has no session, its next request is known byte for byte but for its correlation id, and so is the head
of the answer. Such a request is compared with the one that is waited for, and answered where it was received: it is not
decoded, takes no place in its connection's order, and asks for nothing.

Nothing is held open for what may never be asked: of a file only its name is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Final

from broker_contract.data import AheadRequest, AheadResponse, ReadPartition, ReadRequest, ReadResult, Slice
from broker_contract.revisions import Revisions

from gateway_svc.clients.slices import SENDFILE_MIN_BYTES, Part
from gateway_svc.errors import SliceGone
from gateway_svc.fetching.answer_layout import AnswerLayout
from gateway_svc.storage.protocols import Records

if TYPE_CHECKING:
    from gateway_svc.requests.call import Route, Services

#: How many answers are asked for at most, and of how many bytes; more when a quarter of them is left.
READS: Final = 16
_BYTES: Final = 32 << 20
#: How long an answer is good from when it was asked for; the start of a storage takes longer.
GOOD_S: Final = 0.1
#: After so many answers in vain, one after the other, that many requests are answered without.
_VAIN_MAX: Final = 4
_PAUSE: Final = 64
#: The correlation id's place, in requests behind their length and in answers alike.
_ID_AT: Final = 4
_BEHIND_ID: Final = 8

_put_offset = Struct(">q").pack


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


class RequestBytes:
    """What the requests of a consumer without a session are, but for their correlation id and offset.

    `head` is API key and version, `before` and `behind` the bytes around the offset, behind the correlation id."""

    __slots__ = ("before", "behind", "head", "length", "route")

    def __init__(self, route: Route, frame: bytes, offset_at: int) -> None:
        self.route = route
        self.length = len(frame)
        self.head = frame[:_ID_AT]
        self.before = frame[_BEHIND_ID:offset_at]
        self.behind = frame[offset_at + 8 :]


class _Known:
    """The answer to a read from this offset on. `request` and `head` are what follows the correlation id in the request
    that asks for it and in the answer, up to the records; empty where that is not known."""

    __slots__ = ("head", "offset", "prepared", "request", "size", "slices")

    def __init__(self, offset: int, slices: list[Slice], prepared: _Prepared) -> None:
        self.offset = offset
        self.slices = slices
        self.prepared = prepared
        self.request = self.head = b""
        #: The answer's length as it is written.
        self.size = b""


class AheadReads:
    """Of one connection, whose requests are alike but for their offsets; forgotten when they change."""

    __slots__ = (
        "_asking",
        "_count",
        "_few",
        "_last_offset",
        "_layout",
        "_pause",
        "_prepared",
        "_read",
        "_request",
        "_vain",
    )

    def __init__(self, request: RequestBytes | None) -> None:
        """`request`: None if the consumer has a session, whose epoch moves with each request."""
        self._request = request
        self._prepared: deque[_Known] = deque()
        self._asking = False
        #: How many are asked for, and how few are left then.
        self._count = self._few = 0
        self._vain = 0
        self._pause = 0
        #: What was answered last: the read but for its offset, that, and how it was told.
        self._read: ReadRequest
        self._last_offset = -1
        self._layout: AnswerLayout

    def take(self, offset: int, now: float) -> ReadResult | None:
        """What storage would answer to a read from this offset on, if that is known; `now` is `time.monotonic`'s, for
        an event loop's own clock may stand where its turn began."""
        prepared = self._prepared
        if not prepared:
            return None
        # It asks faster than storage is asked ahead: these were answered the longer way meanwhile.
        while prepared[0].offset < offset and len(prepared) > 1:
            prepared.popleft()
        known = prepared.popleft()
        if known.offset != offset or not known.prepared.holds(now):
            prepared.clear()
            self._vain += 1
            if self._vain >= _VAIN_MAX:
                self._vain, self._pause = 0, _PAUSE
            return None
        self._vain = 0
        return known.prepared.result(known.slices)

    def answer(
        self, store: bytes | bytearray, begin: int, end: int, services: Services, send: Callable[[Sequence[Part]], None]
    ) -> bool:
        """Answers the request between two positions, before which nothing waits, if it is the one that is known."""
        now = monotonic()
        request = self._request
        if not self._prepared or request is None:
            return False
        known = self._prepared[0]
        if (
            not known.head
            or not store.startswith(known.request, begin + _BEHIND_ID)
            or end - begin != request.length
            or not store.startswith(request.head, begin)
            or not known.prepared.holds(now)
        ):
            return False
        files, (piece,) = services.files, known.slices
        if files is None:
            return False
        try:
            records = files.range(piece, now)
        except SliceGone:
            return False  # which is found again, and read by value
        self._prepared.popleft()
        head = b"".join((known.size, store[begin + _ID_AT : begin + _BEHIND_ID], known.head))
        after = self._layout.after
        send((head, records, after) if after else (head, records))
        self._vain = 0
        self._last_offset = known.offset
        route, size = request.route, piece.length
        answered = len(head) + size + len(after) - 4
        route.counts.count(route.version, "NONE", monotonic() - now, end - begin, answered)
        (wanted,) = self._read.partitions
        counts = services.metrics.topic_by(wanted.topic, wanted.topic_id)
        counts.fetches += 1
        counts.bytes_out += size
        if len(self._prepared) <= self._few and not self._asking:
            self._ask_soon(services)
        return True

    def answered(self, read: ReadRequest, size: int, layout: AnswerLayout, services: Services) -> None:
        """A read by reference was given records of that size: it may be time to ask for what follows."""
        if self._asking or len(self._prepared) > self._few:
            return
        (wanted,) = read.partitions
        if size < SENDFILE_MIN_BYTES or 2 * size < min(read.max_bytes, wanted.max_bytes):
            return  # little is asked for, or the end is near
        if self._pause:
            self._pause -= 1
            return
        self._read, self._last_offset, self._layout = read, wanted.fetch_offset, layout
        self._count = max(2, min(READS, _BYTES // size))
        self._few = self._count // 2
        self._ask_soon(services)

    def _ask_soon(self, services: Services) -> None:
        """When this turn is over, so that the answer leaves first."""
        records = services.storage.records
        if records.revisions is not None:
            self._asking = True
            services.loop.call_soon(self._ask, records, monotonic() + GOOD_S)

    def _ask(self, records: Records, good_until: float) -> None:
        revisions, read = records.revisions, self._read
        if revisions is None:
            self._asking = False
            return
        (wanted,) = read.partitions
        behind = self._prepared[-1].offset if self._prepared else self._last_offset
        read.partitions = [
            ReadPartition(
                wanted.topic, wanted.partition, behind, wanted.max_bytes, wanted.leader_epoch, wanted.topic_id
            )
        ]
        committed = read.isolation_level == 1
        came = partial(self._came, records, revisions, good_until, committed, behind)
        records.read_ahead(AheadRequest(read, self._count), came)

    def _came(
        self,
        records: Records,
        revisions: Revisions,
        good_until: float,
        committed: bool,
        behind: int,
        response: AheadResponse,
    ) -> None:
        self._asking = False
        if self._prepared and self._prepared[-1].offset != behind:
            return
        prepared = _Prepared(response, records, revisions, good_until, committed)
        for read in response.reads:
            known = _Known(read.fetch_offset, read.slices, prepared)
            if self._request is not None and len(read.slices) == 1:
                self._write(known, self._request)
            self._prepared.append(known)

    def _write(self, known: _Known, request: RequestBytes) -> None:
        """The bytes of what is asked and told, if the records are sent from their file."""
        size = known.slices[0].length
        if size >= SENDFILE_MIN_BYTES:
            head = self._layout.head(0, known.prepared.result(known.slices), size)
            known.size, known.head = head[:_ID_AT], head[_BEHIND_ID:]
            known.request = request.before + _put_offset(known.offset) + request.behind
