"""Complete requests of one connection: from bytes to calls that are in service.

A request is decoded by `dispatch`, unless it is so like an earlier one of the same connection that comparing bytes says
what it asks:

    Produce, several that follow each other    produce_runs      one append for all of them
    OffsetCommit                               known_commit      not decoded
    heartbeats                                 known_heartbeat   answered here

At debug level every request has lines of its own, and goes the general way. Whatever is kept of the shared buffer is
copied out of it once and owned by nobody else from then on: a pool whose buffers are used again while storage still
reads them would send one client's records into another's topic.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from protocol_lib.api import ApiKey
from service_chassis import logs

from gateway_svc.clients.answer_writer import AnswerWriter
from gateway_svc.clients.frame_reader import SMALL_FRAME_BYTES
from gateway_svc.clients.pipeline import IN_FLIGHT_MAX, Kind, Pipeline
from gateway_svc.handlers.heartbeat_pattern import KnownHeartbeat, known
from gateway_svc.handlers.offset_commit_pattern import KnownCommit, KnownCommits
from gateway_svc.handlers.produce_pattern import KnownHeads, ProduceRun
from gateway_svc.requests.call import Client, Services
from gateway_svc.requests.dispatch import Dispatcher

#: A connection is quiet after so many heartbeats like the one before, with nothing else between them.
QUIET_AFTER = 2


#: API key and version, as one number.
_start_of: Final = Struct(">i").unpack_from


class RequestStarter:
    """Owned by its connection, with what its last requests were like."""

    __slots__ = (
        "_client",
        "_commits",
        "_dispatcher",
        "_heads",
        "_heartbeat",
        "_pipeline",
        "_repeated",
        "_services",
        "_shared",
        "_writer",
    )

    def __init__(
        self,
        client: Client,
        services: Services,
        dispatcher: Dispatcher,
        pipeline: Pipeline,
        writer: AnswerWriter,
        shared: bytearray,
    ) -> None:
        """`shared` is read into again after each call of `start`."""
        self._client = client
        self._services = services
        self._dispatcher = dispatcher
        self._pipeline = pipeline
        self._writer = writer
        self._shared = shared
        self._heads = KnownHeads()
        self._commits = KnownCommits()
        self._heartbeat: KnownHeartbeat | None = None
        #: How often it was repeated since anything else was said.
        self._repeated = 0

    def close(self) -> None:
        """The client is gone."""
        self._forget_heartbeat()
        self._commits.forget()

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:
        """Return how the request at `begin` shares its connection."""
        return self._dispatcher.kind(*_start_of(store, begin))

    def start(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        """Starts the request between `begin` and `frame_end`, which the pipeline admits, and those behind it, up to
        `end`, that are one run of Produce with it. Returns where the last of them ends.

        Raises:
            RequestRefused: it is none that can be answered.
        """
        taken = None
        if not logs.debug_enabled():
            if self._heartbeat is not None:
                if self._repeats(self._heartbeat, store, begin, frame_end):
                    self._repeated += 1
                    if self._repeated == QUIET_AFTER:
                        self._client.quieten()
                    return frame_end
                if self._repeated >= QUIET_AFTER:
                    self._client.rouse()
                self._repeated = 0
            if self._commits.latest is not None and (commit := self._commits.find(store, begin, frame_end)) is not None:
                self._start_known(commit, store, begin)
                return frame_end
            taken = self._heads.take(store, begin, frame_end, end, IN_FLIGHT_MAX - self._pipeline.requests)
        view = memoryview(store)
        if taken is None:
            frame = view[begin:frame_end]
            if store is self._shared or len(frame) <= SMALL_FRAME_BYTES:
                self._open(frame.tobytes())
            else:
                self._open(frame)
            return frame_end
        requests, spans, behind = taken
        shift = 0
        if store is self._shared:
            view, shift = memoryview(view[begin:behind].tobytes()), begin
        batches: list[memoryview] = []
        for start, stop in spans:
            batches.append(view[start - shift : stop - shift])
        run = ProduceRun(self._client, self._services, requests, batches, behind - begin)
        self._services.requests.take(run.size)
        self._pipeline.open(run)
        run.start()
        return behind

    def _repeats(self, heartbeat: KnownHeartbeat, store: bytes | bytearray, begin: int, frame_end: int) -> bool:
        """Answers the request if it is the heartbeat that is known, and is answered as before. Nothing waits before
        it: the pipeline admits no heartbeat else."""
        if not heartbeat.matches(store, begin, frame_end):
            return False
        answer = heartbeat.answer(store, begin)
        if answer is None:
            self._forget_heartbeat()
            return False
        self._writer.send((answer,))
        return True

    def _open(self, frame: bytes | memoryview) -> None:
        call, request = self._dispatcher.open(self._client, frame)
        self._services.requests.take(call.size)
        self._pipeline.open(call)
        if call.route.kind is Kind.APPEND:
            self._heads.learn(call, request, frame)
        elif call.route.api_key == ApiKey.OFFSET_COMMIT:
            self._commits.learn(call, request, frame)
        self._dispatcher.start(call, request, self._services)
        if call.repeat is not None:
            self._forget_heartbeat()
            self._heartbeat = known(call, frame)

    def _forget_heartbeat(self) -> None:
        if self._heartbeat is not None:
            self._heartbeat.forget()
            self._heartbeat = None

    def _start_known(self, commit: KnownCommit, store: bytes | bytearray, begin: int) -> None:
        call, offsets = commit.open(self._client, store, begin)
        self._services.requests.take(call.size)
        self._pipeline.open(call)
        commit.start(call, offsets, self._services)
