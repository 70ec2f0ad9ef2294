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

An answered call may be repeated in short, if storage allows it:

    commit       only the offsets are sent; storage may ask for the whole commit (`refused`)
    heartbeat    the gateway answers, while storage's *promise* holds that the answer has not changed

The gateway reports repeated heartbeats every REPORT_S, which keeps the members' sessions. A promise ends

- when storage revokes it, or the stream is lost - with an answer outside of this stream that may show a changed group
(`end_promises`), as it may overtake the revocation

Promises are not used while the last answer of storage is older than ANSWER_AGE_MAX_S.

So a client that learned of a change through this gateway never gets an older heartbeat's answer. After a change through
another gateway the answer may be some milliseconds older, and ANSWER_AGE_MAX_S older while storage hangs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import Any, Final

from broker_contract import groups_pb2
from service_chassis.grpc_call import ClientCall
from service_chassis.grpc_channel import Channel
from service_chassis.http2.stream import Message

from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_calls import (
    CommitDone,
    GroupCall,
    RemoteRepeatableCommit,
    RemoteRepeatableHeartbeat,
    RepeatedCommitCall,
    Request,
)
from gateway_svc.storage.lasting_stream import LastingStream

#: Seconds for which a call waits for storage to return or to answer.
CONTROL_WAIT_S: Final = 10.0
#: Seconds for which heartbeats wait for others.
GATHER_S: Final = 0.025
#: Seconds between two reports of repeated heartbeats; half of the delay that `storage_svc.rpc.group_stream` allows for.
REPORT_S: Final = 0.25
#: Seconds between two messages while there are promises, so that storage can tell a gateway that stands still from one
#: with silent members. A third of STILL_S in `storage_svc.rpc.group_stream`.
KEEPALIVE_S: Final = 0.5
#: Greatest age of storage's last answer for its promises to be used, in seconds.
ANSWER_AGE_MAX_S: Final = 1.0
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
        answer_age_max_s: float = ANSWER_AGE_MAX_S,
    ) -> None:
        """Open the stream in the background. `wait_s` and `answer_age_max_s` replace the constants of these names."""
        self._loop = asyncio.get_running_loop()
        self._wait_s = wait_s
        self._answer_age_max_s = answer_age_max_s
        #: Calls without an answer by call id, the oldest first.
        self._calls: dict[int, GroupCall] = {}
        #: Ids of calls to send. An id whose call has ended is skipped.
        self._unsent: deque[int] = deque()
        self._last_call_id = 0
        #: Number of times that the stream was lost.
        self._stream_number = 0
        #: Promises that hold, by group and call id, and the groups of all of them by call id.
        self._promises: dict[str, dict[int, RemoteRepeatableHeartbeat]] = {}
        self._promised: dict[int, str] = {}
        #: Call ids of promises that have ended, for storage.
        self._forgotten: list[int] = []
        #: Promises made by the answers to calls up to this id are not used: they may have ended already.
        self._unusable_up_to = 0
        self._promises_valid_until = 0.0
        #: Call ids of repeated heartbeats for the next report; the timer of the report, and whether it is due.
        self._repeated: set[int] = set()
        self._report_timer: asyncio.TimerHandle | None = None
        self._report_due = False
        #: The timer of the next empty message, for a time without others, and whether it is due.
        self._keepalive_timer: asyncio.TimerHandle | None = None
        self._keepalive_due = False
        #: Times at which reports left that storage has not acknowledged.
        self._reports_sent_at: deque[float] = deque()
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
        call = self._add("heartbeat", request, done, repeatable=True)
        self._wake_soon()
        return self._repeatable(call, request.group_id)

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
        call.kept = kept = RemoteRepeatableCommit(self, self._last_call_id, request, self._stream_number, is_wanted)
        return kept

    def repeat_commit(self, like: RemoteRepeatableCommit, offsets: Sequence[int], done: CommitDone) -> bool:
        """Send a commit's offsets alone; return False when the whole commit has to be sent."""
        if like.stream_number != self._stream_number or self._closed or len(self._calls) >= OUTSTANDING_MAX:
            return False
        self._open(RepeatedCommitCall(like, offsets, done, self._loop.time()))
        self._send_soon()
        return True

    def consumer_group_heartbeat(
        self,
        request: groups_pb2.ConsumerGroupHeartbeatRequest,
        done: Callable[[groups_pb2.ConsumerGroupHeartbeatResponse], None],
    ) -> RemoteRepeatableHeartbeat | None:
        call = self._add("consumer_group_heartbeat", request, done, repeatable=False)
        self._wake_soon()
        return self._repeatable(call, request.group_id)

    def _repeatable(self, call: GroupCall | None, group_id: str) -> RemoteRepeatableHeartbeat | None:
        if call is not None:
            call.kept = promise = RemoteRepeatableHeartbeat(self, self._last_call_id, group_id)
            return promise
        return None

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

    # -- repeated heartbeats ---------------------------------------------------------------------------------------

    def repeat_heartbeat(self, call_id: int) -> bool:
        """Add a heartbeat to the next report; return False if storage's last answer is too old."""
        now = self._loop.time()
        if now >= self._promises_valid_until:  # mutant: promises-expire
            return False
        self._repeated.add(call_id)
        if self._report_timer is None:
            self._report_timer = self._loop.call_at(now + REPORT_S, self._request_report)
        return True

    def forget(self, kept: RemoteRepeatableHeartbeat | RemoteRepeatableCommit) -> None:
        """Have storage forget it with the next message: it will not be repeated."""
        if not kept.holds:
            call = self._calls.get(kept.call_id)
            if call is not None and call.kept is kept:
                call.kept = None
        elif isinstance(kept, RemoteRepeatableHeartbeat):
            self._end(kept.call_id)
        else:
            kept.holds = False
            if kept.stream_number == self._stream_number:
                self._forgotten.append(kept.call_id)

    def end_promises(self, group_ids: Iterable[str] | None = None, *, but: Set[str] = frozenset()) -> None:
        """End the promises of groups: an answer outside of the stream may show that they have changed.

        `group_ids`: None for all groups but those in `but`.
        """
        self._unusable_up_to = self._last_call_id
        for group_id in self._promises.keys() - but if group_ids is None else group_ids:
            for call_id in list(self._promises.get(group_id, ())):
                self._end(call_id)

    def _end(self, call_id: int) -> None:
        """End a promise. Storage learns of it with the next message, together with repetitions not reported yet."""
        group_id = self._promised.pop(call_id, None)
        if group_id is None:
            return
        promises = self._promises[group_id]
        promises.pop(call_id).holds = False
        if not promises:
            del self._promises[group_id]
        self._forgotten.append(call_id)

    def _request_report(self) -> None:
        self._report_timer = None
        if self._repeated:
            self._report_due = True
            self._send_soon()

    def _keep_alive(self) -> None:
        self._keepalive_timer = None
        due = self._sent_at + KEEPALIVE_S
        if self._loop.time() >= due:
            self._keepalive_due = True  # mutant: pulse-sent
            self._send_soon()
            due = self._loop.time() + KEEPALIVE_S
        if self._promised or self._forgotten:
            self._keepalive_timer = self._loop.call_at(due, self._keep_alive)

    def _note_answer(self, since: float) -> None:
        """Use promises for longer: storage has answered a message that left at `since`."""
        self._promises_valid_until = max(self._promises_valid_until, since + self._answer_age_max_s)

    def _wake_soon(self) -> None:
        if self._gather_timer is not None:
            return
        due = self._sent_at + GATHER_S
        if due <= self._loop.time():
            self._send_soon()
        else:
            self._gather_timer = self._loop.call_at(due, self._send_soon)

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
        if not (self._unsent or self._report_due or self._keepalive_due):
            return None
        wire = self._next_message().SerializeToString()
        return (wire,), len(wire), b""

    def _next_message(self) -> groups_pb2.GroupCalls:
        if self._gather_timer is not None:
            self._gather_timer.cancel()
            self._gather_timer = None
        self._sent_at = self._loop.time()
        self._keepalive_due = False
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
            if isinstance(call, RepeatedCommitCall) and call.is_short:
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
        if self._report_due or (self._repeated and self._forgotten):  # those from before a call was forgotten
            self._report_due = False
            message.repeats.extend(self._repeated)
            self._repeated.clear()
            self._reports_sent_at.append(self._sent_at)
        if self._forgotten:
            message.forgotten.extend(self._forgotten)
            self._forgotten.clear()
        return message

    def _received(self, wire: memoryview) -> None:
        """Finish the calls of one message."""
        message = groups_pb2.GroupAnswers.FromString(bytes(wire))
        for _ in range(message.heard):
            self._note_answer(self._reports_sent_at.popleft())
        for call_id in message.ended:
            self._end(call_id)
        for call_id in message.refused:
            self._send_whole(call_id)
        for call_id in message.committed:
            call = self._calls.pop(call_id, None)
            if call is not None:
                self._finish(call, None)
        for answer in message.answers:
            call = self._calls.pop(answer.call_id, None)
            if answer.may_repeat:
                self._keep(answer.call_id, None if call is None else call.kept)
            if call is not None:  # else its time was over
                self._finish(call, answer)

    def _send_whole(self, call_id: int) -> None:
        call = self._calls.get(call_id)
        if isinstance(call, RepeatedCommitCall):
            call.make_whole()
            self._unsent.append(call_id)
            self._send_soon()

    def _finish(self, call: GroupCall, answer: groups_pb2.GroupAnswer | None) -> None:
        """Answer a call. `answer`: None when storage did all of it without an error."""
        self._note_answer(call.asked_at)
        if answer is None:
            call.tell(())
        else:
            call.answer(answer)

    def _keep(self, call_id: int, kept: RemoteRepeatableHeartbeat | RemoteRepeatableCommit | None) -> None:
        """Remember that storage allows a call to be repeated in short."""
        if isinstance(kept, RemoteRepeatableCommit):
            kept.holds, kept.stream_number = True, self._stream_number
            return
        if self._keepalive_timer is None:
            self._keepalive_timer = self._loop.call_at(self._sent_at + KEEPALIVE_S, self._keep_alive)
        if kept is None or call_id <= self._unusable_up_to:  # mutant: promise-after-doubt
            self._forgotten.append(call_id)
        else:
            kept.holds = True
            self._promised[call_id] = kept.group_id
            self._promises.setdefault(kept.group_id, {})[call_id] = kept

    def _lost(self) -> None:
        for call_id in list(self._promised):
            self._end(call_id)
        self._forgotten.clear()
        self._repeated.clear()
        self._report_due = self._keepalive_due = False
        self._reports_sent_at.clear()
        self._promises_valid_until = 0.0
        self._stream_number += 1
        for call in self._calls.values():
            if isinstance(call, RepeatedCommitCall):
                call.make_whole()  # mutant: short-commit-of-its-stream
        ended = [call_id for call_id, call in self._calls.items() if self._closed or not call.may_wait()]
        failed = [self._calls.pop(call_id) for call_id in ended]
        self._unsent = deque(self._calls)
        for call in failed:
            call.fail()

    async def close(self) -> None:
        self._closed = True
        await self._stream.close()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        for timer in (self._report_timer, self._keepalive_timer):
            if timer is not None:
                timer.cancel()
        if self._gather_timer is not None:
            self._gather_timer.cancel()
