"""Fetch requests that differ from their connection's last one in nothing but correlation id, offset and session epoch.

A consumer of one partition repeats itself: its requests are known by comparing bytes, not by decoding them.

    api key i16, version i16 │ correlation id i32 │ … │ session epoch i32 │ … │ offset i64 │ …
    └───────── equal ────────┘                    equal                   equal           equal

Known are requests for one partition, encoded the way everybody encodes them; any other is decoded.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol_lib.codec import encode
from protocol_lib.messages.fetch import FetchPartition, FetchRequest

from gateway_svc.fetching.read_ahead import AheadReads, RequestBytes
from gateway_svc.requests.call import Call, Client, Route

#: A connection whose requests were learned so often without one that was known then is left alone.
_VAIN_MAX: Final = 16
#: Longer requests (names may be long) are not worth remembering.
_REQUEST_BYTES_MAX: Final = 1024
_SESSION_VERSION: Final = 7
#: The epoch of a request that has none and wants none.
_NO_SESSION: Final = -1
#: The first that only replicas need, with fields of their own.
_REPLICA_VERSION: Final = 17

_integer: Final = Struct(">i").unpack_from
_offset: Final = Struct(">q").unpack_from


class KnownFetches:
    """What one connection's consumer asked for last. Owned by its connection."""

    __slots__ = (
        "_client_id",
        "_epoch_at",
        "_length",
        "_offset_at",
        "_pieces",
        "_request",
        "_route",
        "_vain",
        "ahead",
    )

    def __init__(self) -> None:
        #: What is known of the next ones' answers.
        self.ahead: AheadReads | None = None
        self._length = -1
        self._vain = 0

    def learn(self, call: Call, request: FetchRequest, frame: bytes | memoryview) -> None:
        """A request was decoded: remember it, if it is one that may be known by its bytes."""
        version = call.route.version
        if self._vain >= _VAIN_MAX or version >= _REPLICA_VERSION or type(frame) is not bytes:
            return
        if len(frame) > _REQUEST_BYTES_MAX or len(request.topics) != 1 or len(request.topics[0].partitions) != 1:
            return
        self._vain += 1
        body = encode(request, version)
        if frame[-len(body) :] != body:
            return
        body_at = len(frame) - len(body)
        (asked,) = request.topics[0].partitions
        asked.fetch_offset = ~asked.fetch_offset
        holes = [(4, 8), _hole(body, encode(request, version), body_at)]
        asked.fetch_offset = ~asked.fetch_offset
        self._offset_at = holes[1][0]
        self._epoch_at = -1
        if version >= _SESSION_VERSION:
            request.session_epoch = ~request.session_epoch
            holes.insert(1, _hole(body, encode(request, version), body_at))
            request.session_epoch = ~request.session_epoch
            self._epoch_at = holes[1][0]
        begins = [0, *(end for _, end in holes)]
        ends = [*(begin for begin, _ in holes), len(frame)]
        self._pieces = [(begin, frame[begin:end]) for begin, end in zip(begins, ends, strict=True) if begin < end]
        self._length = len(frame)
        self._route: Route = call.route
        self._client_id = call.client_id
        self._request = request
        self.ahead = None

    def open(self, client: Client, frame: bytes | memoryview) -> tuple[Call, FetchRequest] | None:
        """What `Dispatcher.open` says of it, if it is known. The request is good until the next one is asked for."""
        if len(frame) != self._length or type(frame) is not bytes:
            return None
        startswith = frame.startswith
        for begin, piece in self._pieces:
            if not startswith(piece, begin):
                return None
        self._vain = 0
        request = self._request
        (topic,) = request.topics
        (last,) = topic.partitions
        asked = FetchPartition(  # a new one: sessions keep them
            partition=last.partition,
            current_leader_epoch=last.current_leader_epoch,
            fetch_offset=_offset(frame, self._offset_at)[0],
            last_fetched_epoch=last.last_fetched_epoch,
            log_start_offset=last.log_start_offset,
            partition_max_bytes=last.partition_max_bytes,
        )
        topic.partitions = (asked,)
        if self._epoch_at >= 0:
            (request.session_epoch,) = _integer(frame, self._epoch_at)
        call = Call(client, self._route, _integer(frame, 4)[0], self._client_id, len(frame))
        if self.ahead is None:
            sessionless = self._epoch_at < 0 or (request.session_id == 0 and request.session_epoch == _NO_SESSION)
            self.ahead = AheadReads(RequestBytes(self._route, frame, self._offset_at) if sessionless else None)
        call.follows = self.ahead
        return call, request


def _hole(body: bytes, changed: bytes, body_at: int) -> tuple[int, int]:
    """Where in a request its body differs from one of the same length in which all bits of one integer are changed."""
    differing = [body_at + at for at, (one, other) in enumerate(zip(body, changed, strict=True)) if one != other]
    return differing[0], differing[-1] + 1
