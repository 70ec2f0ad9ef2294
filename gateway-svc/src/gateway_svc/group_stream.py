"""Heartbeats and commits over one long-lived gRPC stream that all connections share.

What waits when the writer wakes leaves in one message. A commit wakes it at once. A heartbeat does when nothing has
left for GATHER_S; else it waits for the rest of that, or leaves with what leaves before: one that comes alone is not
delayed, and thousands of members do not cost a message each.

When the stream breaks, what may be said twice waits for the next one, and is said again if it was sent. A consumer
group's heartbeat is answered COORDINATOR_NOT_AVAILABLE at once, then and while there is no stream: of one that was sent
nobody knows what it did, and one that waits may be done for a client that waits no more, with an answer nobody reads (a
client waits as long as its heartbeat interval). So is everything that has no answer after CONTROL_WAIT_S, and it is not
sent later. Members try again then. The calls of one connection are never out of order, for it has one at a time.

A heartbeat that is said again word for word goes as the call id it had, if storage's answer allowed that. When storage
says that the answer holds no more, or the stream breaks, or nothing comes for CONTROL_WAIT_S, its caller is told to
come with the whole heartbeat, which is a call like any other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import grpc
from broker_contract import groups_pb2
from protocol_lib.errors import ErrorCode
from service_chassis import logs

from gateway_svc.asked_repeat import AskedRepeat
from gateway_svc.lasting_stream import LastingStream
from gateway_svc.metrics import GatewayMetrics

#: How long a call waits for storage to come back or to answer.
CONTROL_WAIT_S: Final = 10.0
#: How long heartbeats wait for others.
GATHER_S: Final = 0.025
#: Most calls in one message, and most without an answer; more are answered as if storage were away.
MESSAGE_CALLS_MAX: Final = 10_000
OUTSTANDING_MAX: Final = 100_000

_UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

log = logs.get(__name__)

_Request = groups_pb2.HeartbeatRequest | groups_pb2.CommitOffsetsRequest | groups_pb2.ConsumerGroupHeartbeatRequest


class _Call:
    """A call without an answer."""

    __slots__ = ("deadline", "done", "forgotten", "kind", "repeatable", "request")

    def __init__(
        self, kind: str, request: _Request | None, done: Callable[[Any], None], deadline: float, *, repeatable: bool
    ) -> None:
        #: Its name in GroupCall, and its answer's in GroupAnswer.
        self.kind = kind
        #: None: the repetition of the heartbeat that had this call id.
        self.request = request
        self.done = done
        self.deadline = deadline
        self.repeatable = repeatable
        #: Whether it will not be repeated although it may.
        self.forgotten = False

    def fail(self) -> None:
        match self.request:
            case None:
                self.done(False)
            case groups_pb2.HeartbeatRequest():
                self.done(groups_pb2.HeartbeatResponse(error_code=_UNAVAILABLE))
            case groups_pb2.CommitOffsetsRequest(offsets=offsets):
                self.done(groups_pb2.CommitOffsetsResponse(error_codes=[_UNAVAILABLE for _ in offsets]))
            case groups_pb2.ConsumerGroupHeartbeatRequest():
                self.done(groups_pb2.ConsumerGroupHeartbeatResponse(error_code=_UNAVAILABLE))


class StreamRepeat(AskedRepeat):
    """Of a heartbeat that went over the stream."""

    __slots__ = ("_call_id", "_stream")

    def __init__(self, stream: GroupStream, call_id: int) -> None:
        self._stream = stream
        self._call_id = call_id

    @property
    def may_be_asked(self) -> bool:
        return self._stream.may_repeat(self._call_id)

    def ask(self, done: Callable[[bool], None]) -> None:
        self._stream.repeat(self._call_id, done)

    def forget(self) -> None:
        self._stream.forget(self._call_id)


class GroupStream:
    """The calls of `storage.Groups` that have a `done`. Owned by its GrpcStorage."""

    def __init__(self, channel: grpc.aio.Channel, metrics: GatewayMetrics) -> None:
        self._loop = asyncio.get_running_loop()
        #: By call id, the oldest first.
        self._calls: dict[int, _Call] = {}
        #: Ids of calls to send. One whose call is gone meanwhile is passed over.
        self._unsent: deque[int] = deque()
        self._last_call_id = 0
        #: Ids of heartbeats that storage knows and that may be repeated; and those it does not know to be forgotten.
        self._known: set[int] = set()
        self._forgotten: list[int] = []
        self._wake = asyncio.Event()
        self._gathering: asyncio.TimerHandle | None = None
        self._left_at = 0.0
        self._expiry: asyncio.TimerHandle | None = None
        exchange: Any = channel.stream_stream(
            "/millrace.v1.Groups/Exchange",
            request_serializer=groups_pb2.GroupCalls.SerializeToString,
            response_deserializer=groups_pb2.GroupAnswers.FromString,
        )
        self._stream = LastingStream(
            "group_stream", channel, exchange, read=self._read, write=self._write, lost=self._lost, metrics=metrics
        )
        self._closed = False

    # -- calls -----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: groups_pb2.HeartbeatRequest, done: Callable[[groups_pb2.HeartbeatResponse], None]
    ) -> StreamRepeat | None:
        call_id = self._add("heartbeat", request, done, repeatable=True)
        self._wake_soon()
        return None if call_id is None else StreamRepeat(self, call_id)

    def commit_offsets(
        self, request: groups_pb2.CommitOffsetsRequest, done: Callable[[groups_pb2.CommitOffsetsResponse], None]
    ) -> None:
        # Repeatable: it stores the same positions again.
        self._add("commit_offsets", request, done, repeatable=True)
        self._wake.set()

    def consumer_group_heartbeat(
        self,
        request: groups_pb2.ConsumerGroupHeartbeatRequest,
        done: Callable[[groups_pb2.ConsumerGroupHeartbeatResponse], None],
    ) -> StreamRepeat | None:
        call_id = self._add("consumer_group_heartbeat", request, done, repeatable=False)
        self._wake_soon()
        return None if call_id is None else StreamRepeat(self, call_id)

    def _add(self, kind: str, request: _Request, done: Callable[[Any], None], *, repeatable: bool) -> int | None:
        """Its id; None when it failed already."""
        deadline = self._loop.time() + CONTROL_WAIT_S
        call = _Call(kind, request, done, deadline, repeatable=repeatable)
        is_refused = self._closed or not (repeatable or self._stream.connected.is_set())
        if is_refused or len(self._calls) >= OUTSTANDING_MAX:
            call.fail()
            return None
        self._last_call_id = call_id = self._last_call_id + 1
        self._await(call_id, call)
        return call_id

    def _await(self, call_id: int, call: _Call) -> None:
        self._calls[call_id] = call
        self._unsent.append(call_id)
        if self._expiry is None:
            self._expiry = self._loop.call_at(call.deadline, self._expire)

    # -- heartbeats said again -------------------------------------------------------------------------------------

    def may_repeat(self, call_id: int) -> bool:
        """Whether the heartbeat that had this id was answered over this stream, may be repeated and is not being."""
        return call_id in self._known and call_id not in self._calls

    def repeat(self, call_id: int, done: Callable[[bool], None]) -> None:
        """`done` is told whether its answer holds; else it has to come whole."""
        if not self.may_repeat(call_id) or len(self._calls) >= OUTSTANDING_MAX:
            done(False)
            return
        self._await(call_id, _Call("repeat", None, done, self._loop.time() + CONTROL_WAIT_S, repeatable=False))
        self._wake_soon()

    def forget(self, call_id: int) -> None:
        """Storage is told with the next message."""
        if call_id in self._known:
            self._known.discard(call_id)
            self._forgotten.append(call_id)
        elif (call := self._calls.get(call_id)) is not None:
            call.forgotten = True

    def _wake_soon(self) -> None:
        if self._gathering is not None:
            return
        due = self._left_at + GATHER_S
        if due <= self._loop.time():
            self._wake.set()
        else:
            self._gathering = self._loop.call_at(due, self._wake.set)

    def _expire(self) -> None:
        """Fails the calls whose time is over. One timer serves all of them: it looks at the oldest."""
        self._expiry = None
        now = self._loop.time()
        while self._calls:
            call_id, call = next(iter(self._calls.items()))
            if call.deadline > now:
                if self._expiry is None:
                    self._expiry = self._loop.call_at(call.deadline, self._expire)
                return
            del self._calls[call_id]
            self.forget(call_id)
            call.fail()

    # -- the stream ------------------------------------------------------------------------------------------------

    async def _write(self, stream: Any) -> None:
        while True:
            while self._unsent:
                await stream.write(self._next_message())
            await self._wake.wait()
            self._wake.clear()

    def _next_message(self) -> groups_pb2.GroupCalls:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._left_at = self._loop.time()
        message = groups_pb2.GroupCalls()
        for _ in range(min(len(self._unsent), MESSAGE_CALLS_MAX)):
            call_id = self._unsent.popleft()
            call = self._calls.get(call_id)
            if call is None:
                continue
            if call.request is None:
                message.repeats.append(call_id)
            else:
                message.calls.add(call_id=call_id, **{call.kind: call.request})
        if self._forgotten:
            message.forgotten.extend(self._forgotten)
            self._forgotten.clear()
        return message

    async def _read(self, stream: Any) -> None:
        while True:
            message = await stream.read()
            if message is grpc.aio.EOF:
                raise EOFError("storage ended the stream")
            for answer in message.answers:
                call = self._calls.pop(answer.call_id, None)
                if call is not None:
                    self._finish(call, answer)
                elif answer.may_repeat:  # it came too late
                    self._forgotten.append(answer.call_id)
            for call_id in message.held:
                self._finish_repeat(call_id, holds=True)
            for call_id in message.ended:
                self._known.discard(call_id)
                self._finish_repeat(call_id, holds=False)

    def _finish_repeat(self, call_id: int, *, holds: bool) -> None:
        call = self._calls.pop(call_id, None)
        if call is None:
            return
        try:
            call.done(holds)
        except Exception:  # as below
            log.exception("answering failed", call=call.kind)

    def _finish(self, call: _Call, answer: groups_pb2.GroupAnswer) -> None:
        if answer.may_repeat:
            (self._forgotten.append if call.forgotten else self._known.add)(answer.call_id)
        try:
            if answer.WhichOneof("answer") == call.kind:
                call.done(getattr(answer, call.kind))
            else:  # it failed in storage
                call.fail()
        except Exception:  # of one client; the others' answers are in the same message
            log.exception("answering failed", call=call.kind)

    def _lost(self) -> None:
        self._known.clear()
        self._forgotten.clear()
        ended = [call_id for call_id, call in self._calls.items() if self._closed or not call.repeatable]
        failed = [self._calls.pop(call_id) for call_id in ended]
        self._unsent = deque(self._calls)
        for call in failed:
            call.fail()

    async def close(self) -> None:
        self._closed = True
        await self._stream.close()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._gathering is not None:
            self._gathering.cancel()
