"""Heartbeats and commits over one long-lived gRPC stream that all connections share.

    state of a call    when storage answers             when the stream is lost
    waiting            (it is sent with the next        it waits for the next stream; a consumer group's
                       message)                         heartbeat is answered 15 COORDINATOR_NOT_AVAILABLE
    sent               it is answered                   a classic heartbeat is sent again; other calls are answered 15
    lost               the answer is dropped            (it was answered 15, after CONTROL_WAIT_S at most)
    answered           the client may repeat it         the next one is sent whole

A commit that was sent is not sent again: storage may have stored it, and a later commit of another gateway may have
followed. A commit that waited for WAITED_S is dropped if its client has left. The calls of one connection keep their
order, because a connection has one at a time.

A commit leaves at once. Heartbeats are gathered for GATHER_S after the last message, so a single one is not delayed.

An answered call may be repeated in short, if storage allows it: a heartbeat by the id of the answered call, a commit by
that and its offsets. Storage answers with the id alone, or asks for the whole call (`refused`).

While heartbeats may be repeated, a message leaves every PULSE_S, so that storage can tell a gateway that stands still
from one with silent members.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker_contract import groups_pb2
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_channel import Channel
from service_chassis.http2.stream import Message

from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_calls import (
    GroupCall,
    RemoteRepeatable,
    RemoteRepeatableCommit,
    RemoteRepeatableHeartbeat,
    RepeatedCall,
    Request,
)
from gateway_svc.storage.lasting_stream import LastingStream

#: Seconds for which a call waits for storage to return or to answer.
CONTROL_WAIT_S: Final = 10.0
#: Seconds for which heartbeats wait for others.
GATHER_S: Final = 0.025
#: Seconds between two messages while heartbeats may be repeated. A third of STILL_S in `storage_svc.rpc.group_stream`.
PULSE_S: Final = 0.5
#: Seconds after which a waiting commit is sent only if its client is still connected.
WAITED_S: Final = 0.1
#: Most calls in one message, and most without an answer; more are answered COORDINATOR_NOT_AVAILABLE.
MESSAGE_CALLS_MAX: Final = 10_000
OUTSTANDING_MAX: Final = 100_000

_EXCHANGE: Final = "/millrace.v1.Groups/Exchange"
#: The longest message of storage: of 10,000 answers.
_ANSWERS_BYTES_MAX: Final = 1 << 30


class GroupStream:
    """The calls of `storage.Groups` that have a `done`. Owned by its GrpcStorage."""

    def __init__(
        self,
        channel: Channel,
        metrics: GatewayMetrics,
        *,
        wait_s: float = CONTROL_WAIT_S,
    ) -> None:
        """Open the stream in the background. `wait_s` replaces CONTROL_WAIT_S."""
        self._loop = asyncio.get_running_loop()
        self._wait_s = wait_s
        #: Calls without an answer by call id, the oldest first.
        self._calls: dict[int, GroupCall] = {}
        #: Ids of calls to send. An id whose call has ended is skipped.
        self._unsent: deque[int] = deque()
        self._last_call_id = 0
        #: Number of times that the stream was lost.
        self._stream_number = 0
        #: Call ids of heartbeats that may be repeated.
        self._beating: set[int] = set()
        #: Call ids of calls that will not be repeated any more, for storage.
        self._forgotten: list[int] = []
        #: The timer of the next pulse, and whether it is due.
        self._pulse_timer: asyncio.TimerHandle | None = None
        self._pulse_due = False
        #: The latest stream; one that has ended sends nothing.
        self._stream_call: ClientCall | None = None
        self._gather_timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        self._expiry_timer: asyncio.TimerHandle | None = None
        self._stream = LastingStream(
            "group_stream",
            lambda: channel.stream(_EXCHANGE, message_bytes_max=_ANSWERS_BYTES_MAX),
            opened=self._opened,
            lost=self._lost,
            metrics=metrics,
        )
        #: Set while the stream is up.
        self.connected = self._stream.connected
        self._closed = False

    @property
    def refusal(self) -> str | None:
        """The reason of a storage that is of another release; None if it is not."""
        return self._stream.refusal

    # -- calls -----------------------------------------------------------------------------------------------------

    def heartbeat(
        self, request: groups_pb2.HeartbeatRequest, done: Callable[[groups_pb2.HeartbeatResponse], None]
    ) -> RemoteRepeatableHeartbeat | None:
        return self._beat("heartbeat", request, done, repeatable=True)

    def consumer_group_heartbeat(
        self,
        request: groups_pb2.ConsumerGroupHeartbeatRequest,
        done: Callable[[groups_pb2.ConsumerGroupHeartbeatResponse], None],
    ) -> RemoteRepeatableHeartbeat | None:
        return self._beat("consumer_group_heartbeat", request, done, repeatable=False)

    def _beat(
        self, kind: str, request: Request, done: Callable[[Any], None], *, repeatable: bool
    ) -> RemoteRepeatableHeartbeat | None:
        call = self._add(kind, request, done, repeatable=repeatable)
        self._wake_soon()
        if call is None:
            return None
        call.kept = kept = RemoteRepeatableHeartbeat(self, self._last_call_id, call, self._stream_number)
        return kept

    def commit_offsets(
        self,
        request: groups_pb2.CommitOffsetsRequest,
        done: Callable[[groups_pb2.CommitOffsetsResponse], None],
        is_wanted: Callable[[], bool],
    ) -> RemoteRepeatableCommit | None:
        call = self._add("commit_offsets", request, done, repeatable=True)
        self._send_soon()
        if call is None:
            return None
        call.is_wanted = is_wanted
        if not request.will_repeat:
            return None
        call.kept = kept = RemoteRepeatableCommit(self, self._last_call_id, call, self._stream_number)
        return kept

    def repeat(self, call: RepeatedCall) -> bool:
        """Send a call in short; return False when it has to be sent whole."""
        if call.like.stream_number != self._stream_number or self._closed or len(self._calls) >= OUTSTANDING_MAX:
            return False
        self._open(call)
        if call.offsets:
            self._send_soon()
        else:
            self._wake_soon()
        return True

    def forget(self, kept: RemoteRepeatable) -> None:
        """Have storage forget a call with the next message: it will not be repeated."""
        if kept.holds:
            kept.holds = False
            if kept.stream_number == self._stream_number:
                self._forgotten.append(kept.call_id)
        else:
            call = self._calls.get(kept.call_id)
            if call is not None and call.kept is kept:
                call.kept = None
        self._beating.discard(kept.call_id)

    def time(self) -> float:
        """Return the event loop's time."""
        return self._loop.time()

    def _add(self, kind: str, request: Request, done: Callable[[Any], None], *, repeatable: bool) -> GroupCall | None:
        """Return the call, or None when it has failed already."""
        call = GroupCall(kind, request, done, self._loop.time(), repeatable=repeatable)
        is_refused = self._closed or not (repeatable or self.connected.is_set())
        if is_refused or len(self._calls) >= OUTSTANDING_MAX:
            call.fail()
            return None
        self._open(call)
        return call

    def _open(self, call: GroupCall) -> None:
        self._last_call_id = call_id = self._last_call_id + 1
        self._calls[call_id] = call
        self._unsent.append(call_id)
        if self._expiry_timer is None:
            self._expiry_timer = self._loop.call_at(call.asked_at + self._wait_s, self._expire)

    # -- when messages leave ---------------------------------------------------------------------------------------

    def _pulse(self) -> None:
        self._pulse_timer = None
        due = self._sent_at + PULSE_S
        if self._loop.time() >= due:
            self._pulse_due = True  # mutant: pulse-sent
            self._send_soon()
            due = self._loop.time() + PULSE_S
        if self._beating or self._forgotten:
            self._pulse_timer = self._loop.call_at(due, self._pulse)

    def _wake_soon(self) -> None:
        if self._gather_timer is not None:
            return
        due = self._sent_at + GATHER_S
        if due <= self._loop.time():
            self._send_soon()
        else:
            self._gather_timer = self._loop.call_at(due, self._gathered)

    def _gathered(self) -> None:
        self._gather_timer = None  # also when the stream is lost, and no message leaves
        self._send_soon()

    def _expire(self) -> None:
        """Fail the calls whose time is over. One timer serves all calls, and waits for the oldest."""
        self._expiry_timer = None
        now = self._loop.time()
        over: list[int] = []
        for call_id, call in self._calls.items():
            deadline = call.asked_at + self._wait_s
            if deadline > now:
                self._expiry_timer = self._loop.call_at(deadline, self._expire)
                break
            over.append(call_id)
        for call in [self._calls.pop(call_id) for call_id in over]:
            call.fail()

    # -- the stream ------------------------------------------------------------------------------------------------

    def _opened(self, call: ClientCall) -> None:
        self._stream_call = call
        call.on_room = partial(call.send_from, self._next_calls)
        call.receive(self._received)
        call.send_now()

    def _send_soon(self) -> None:
        if self._stream_call is not None:
            self._stream_call.send_soon()

    def _next_calls(self) -> Message | None:
        """Return the next message, encoded; None if there is none."""
        if not (self._unsent or self._pulse_due):
            return None
        wire = self._next_message().SerializeToString()
        return (wire,), len(wire), b""

    def _next_message(self) -> groups_pb2.GroupCalls:
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        self._sent_at = self._loop.time()
        self._pulse_due = False
        message = groups_pb2.GroupCalls(pulses=True)
        again: list[int] = []
        likes: list[int] = []
        counts: list[int] = []
        offsets: list[int] = []
        for _ in range(min(len(self._unsent), MESSAGE_CALLS_MAX)):
            call_id = self._unsent.popleft()
            call = self._calls.get(call_id)
            if call is not None:
                # mutant: late-commit-of-gone-client
                if self._sent_at - call.asked_at > WAITED_S and not call.is_wanted():
                    del self._calls[call_id]
                    call.fail()
                    continue
                call.is_sent = True
            if isinstance(call, RepeatedCall) and call.is_short:
                again.append(call_id)
                likes.append(call.like.call_id)
                counts.append(len(call.offsets))
                offsets += call.offsets
            elif call is not None:
                message.calls.add(call_id=call_id, **{call.kind: call.request})
        if again:
            message.again.extend(again)
            message.again_like.extend(likes)
            message.again_counts.extend(counts)
            message.again_offsets.extend(offsets)
        if self._forgotten:
            message.forgotten.extend(self._forgotten)
            self._forgotten.clear()
        return message

    def _received(self, wire: memoryview) -> None:
        """Finish the calls of one message."""
        message = groups_pb2.GroupAnswers.FromString(bytes(wire))
        for call_id in message.refused:
            self._send_whole(call_id)
        for call_id in message.done:
            repeated = self._calls.pop(call_id, None)
            if isinstance(repeated, RepeatedCall):
                repeated.succeed()
        for answer in message.answers:
            call = self._calls.pop(answer.call_id, None)
            if answer.may_repeat:
                self._keep(answer.call_id, None if call is None else call.kept)
            if call is not None:  # else its time was over
                call.answer(answer)

    def _send_whole(self, call_id: int) -> None:
        call = self._calls.get(call_id)
        if isinstance(call, RepeatedCall):
            self._beating.discard(call.like.call_id)
            call.make_whole()
            self._unsent.append(call_id)
            self._send_soon()

    def _keep(self, call_id: int, kept: RemoteRepeatable | None) -> None:
        """Remember that storage allows a call to be repeated in short."""
        if kept is None:
            self._forgotten.append(call_id)
            return
        kept.holds, kept.stream_number = True, self._stream_number
        if isinstance(kept, RemoteRepeatableHeartbeat):
            self._beating.add(call_id)
            if self._pulse_timer is None:
                self._pulse_timer = self._loop.call_at(self._sent_at + PULSE_S, self._pulse)

    def _lost(self) -> None:
        self._beating.clear()
        self._forgotten.clear()
        self._pulse_due = False
        self._stream_number += 1
        for call in self._calls.values():
            if isinstance(call, RepeatedCall):
                call.make_whole()  # mutant: short-commit-of-its-stream
        ended = [call_id for call_id, call in self._calls.items() if self._closed or not call.may_wait()]
        failed = [self._calls.pop(call_id) for call_id in ended]
        self._unsent = deque(self._calls)
        for call in failed:
            call.fail()

    async def close(self) -> None:
        self._closed = True
        await self._stream.close()
        for timer in (self._expiry_timer, self._pulse_timer, self._gather_timer):
            if timer is not None:
                timer.cancel()
