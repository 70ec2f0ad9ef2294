"""The OffsetCommit that one connection sends again and again, as bytes in which only the offsets change.

    request = length i32, api key i16, version i16 | correlation id i32 | the same | offset i64 | the same | …

One that is written like the last is not decoded: its offsets are read at their places. Storage, which was told that
more will come like it, is asked with these alone, or, when it does not know it any more, with the last one's message
with these in it. An answer without an error is encoded once. Whether it is accepted storage decides anew each time.
Clients whose commits differ (other partitions each time) are given up on after a few.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from struct import Struct
from typing import Final

from broker_contract import groups_pb2
from protocol_lib.codec import encode
from protocol_lib.messages.offset_commit import OffsetCommitRequest

from gateway_svc.handlers import offset_commit
from gateway_svc.requests.call import Call, Client, Services
from gateway_svc.storage.protocols import RepeatableCommit

#: Longer requests are not kept.
KEPT_BYTES_MAX: Final = 4096
#: So many in a row that are not like the one before, and no more are looked at.
MISSES_MAX: Final = 8

_START: Final = Struct(">ii").unpack_from
_offset: Final = Struct(">q").unpack_from
_REST_AT, _OFFSET_BYTES = 8, 8


class KnownCommit:
    """One commit, taken apart. Its message to storage is used again: a connection has one commit at a time."""

    __slots__ = (
        "_again",
        "_answer",
        "_asked",
        "_client_id",
        "_places",
        "_request",
        "_rest",
        "_route",
        "_size",
        "_start",
    )

    def __init__(self, call: Call, request: OffsetCommitRequest, frame: bytes | memoryview, places: list[int]) -> None:
        version = call.route.version
        self._route = call.route
        self._client_id = call.client_id
        self._request = request
        self._asked = offset_commit.asked(call, request)
        self._asked.will_repeat = True
        #: How storage is asked with the offsets alone.
        self._again: RepeatableCommit | None = None
        self._answer = encode(offset_commit.answered(request, [0] * len(places)), version)
        self._size = len(frame)
        (self._start, _) = _START(frame)
        #: Where in the frame the offsets are; then what stays the same between them, each with its place.
        self._places = places
        begins = [_REST_AT, *(place + _OFFSET_BYTES for place in places)]
        ends = [*places, len(frame)]
        self._rest = [(begin, bytes(frame[begin:end])) for begin, end in zip(begins, ends, strict=True)]

    def matches(self, store: bytes | bytearray, begin: int, end: int) -> bool:
        """Whether the request between these positions differs in nothing but its correlation id and offsets."""
        if end - begin != self._size or _START(store, begin)[0] != self._start:
            return False
        return all(store.startswith(same, begin + place) for place, same in self._rest)

    def open(self, client: Client, store: bytes | bytearray, begin: int) -> tuple[Call, list[int]]:
        """The call of the request that begins here, and its offsets."""
        call = Call(client, self._route, _START(store, begin)[1], self._client_id, self._size)
        return call, [_offset(store, begin + place)[0] for place in self._places]

    def start(self, call: Call, offsets: list[int], services: Services) -> None:
        try:
            if self._again is not None:
                if self._again(offsets, partial(self._said, call)):
                    return
                self.forget()
            asked = self._asked
            asked.correlation_id = call.correlation_id
            for row, offset in zip(asked.offsets, offsets, strict=True):
                row.offset = offset
            self._again = services.storage.groups.commit_offsets(asked, partial(self._committed, call))
        except Exception as error:
            call.failed(error)

    def _committed(self, call: Call, answer: groups_pb2.CommitOffsetsResponse) -> None:
        self._said(call, answer.error_codes)

    def _said(self, call: Call, error_codes: Sequence[int]) -> None:
        if any(error_codes):
            offset_commit.answer(call, self._request, error_codes)
        else:
            call.answer_bytes(self._answer)

    def forget(self) -> None:
        """The client says something else, or is gone."""
        again, self._again = self._again, None
        if again is not None:
            again.forget()


class KnownCommits:
    """Owned by its connection."""

    __slots__ = ("_misses", "latest")

    def __init__(self) -> None:
        #: What the next one may be like; changed here only.
        self.latest: KnownCommit | None = None
        self._misses = 0

    def find(self, store: bytes | bytearray, begin: int, end: int) -> KnownCommit | None:
        """What the request between these positions is like."""
        latest = self.latest
        if latest is None or not latest.matches(store, begin, end):
            return None
        self._misses = 0
        return latest

    def forget(self) -> None:
        if self.latest is not None:
            self.latest.forget()
            self.latest = None

    def learn(self, call: Call, request: OffsetCommitRequest, frame: bytes | memoryview) -> None:
        """A request was decoded: the next one may be like it."""
        self.forget()
        if self._misses == MISSES_MAX or len(frame) > KEPT_BYTES_MAX:
            return
        self._misses += 1
        places = offset_places(request, call.route.version, frame)
        self.latest = KnownCommit(call, request, frame, places) if places else None


def offset_places(request: OffsetCommitRequest, version: int, frame: bytes | memoryview) -> list[int]:
    """Where in the frame the committed offsets are, in order; none if it is not written as we would write it."""
    zeros, ones = (encode(_with_offset(request, offset), version) for offset in (0, -1))
    body_at = len(frame) - len(zeros)
    places: list[int] = []
    position = 0
    while position < len(zeros):
        if zeros[position] == ones[position]:
            position += 1
        else:
            places.append(body_at + position)
            position += _OFFSET_BYTES
    body = bytearray(frame[body_at:]) if body_at >= _REST_AT else bytearray()
    for place in places:
        body[place - body_at : place - body_at + _OFFSET_BYTES] = bytes(_OFFSET_BYTES)
    offsets = [partition.committed_offset for topic in request.topics for partition in topic.partitions]
    return places if body == zeros and [_offset(frame, place)[0] for place in places] == offsets else []


def _with_offset(request: OffsetCommitRequest, offset: int) -> OffsetCommitRequest:
    return replace(
        request,
        topics=tuple(
            replace(topic, partitions=tuple(replace(each, committed_offset=offset) for each in topic.partitions))
            for topic in request.topics
        ),
    )
