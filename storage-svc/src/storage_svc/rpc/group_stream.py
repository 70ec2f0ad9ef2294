"""The gRPC side of heartbeats and commits: messages of many calls in, messages of many answers out, on one stream per
gateway.

All answers that are ready at the end of a turn of the event loop go out in one message. A call that fails by a fault of
ours is logged and comes back empty; the others of its message go on. A gateway that does not read its answers is not
read from either, once `_CALLS_MAX` of its calls are open.

The answer to a call may allow the gateway to repeat it in short (`RepeatableHeartbeat`, `RepeatableCommit`): by the id
of the call alone, for commits with other offsets. A repeated call that succeeds as it did before is answered by its id
alone. One whose original was dropped, or that would be answered otherwise, has to come whole. REPEATS_MAX heartbeats
and as many commits of a stream are kept; the oldest is dropped.

A gateway that may repeat heartbeats sends a message even when it has nothing to say. If none comes for STILL_S, the
gateway stands still, and heartbeats may wait in its sockets: no session of theirs ends until it has had GRACE_S after
its next message. A gateway that says nothing for STILL_MAX_S counts as dead, and its members' sessions end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from broker_contract import groups_pb2 as pb
from service_chassis import logs as service_logs
from service_chassis.grpc_server import Method, ServerCall, stream
from service_chassis.http2.stream import Message

from storage_svc.coordinator.hosting.repeatable_heartbeats import RepeatableHeartbeat
from storage_svc.coordinator.repeatable_commits import RepeatableCommit
from storage_svc.rpc.groups import GroupsService

_CALLS_MAX: Final = 100_000
#: The longest message of a gateway: of 10,000 calls, whose commits may be long.
_MESSAGE_BYTES_MAX: Final = 1 << 30
#: The most answers in one message; others that are ready go into the next.
_ANSWERS_MAX: Final = 10_000
REPEATS_MAX: Final = 100_000
#: Silence in seconds after which a gateway stands still (`gateway_svc.storage.group_stream`, KEEPALIVE_S: it is silent
#: for a third), and after which it is dead; the time between two looks; the time a gateway has after a standstill.
STILL_S: Final = 1.5
STILL_MAX_S: Final = 30.0
STANDSTILL_CHECK_S: Final = 0.5
GRACE_S: Final = 2.0

_log = service_logs.get(__name__)


class _Exchange:
    """One stream."""

    def __init__(self, service: GroupsService, stream: ServerCall, repeats_max: int) -> None:
        self._stream = stream
        stream.on_room = partial(stream.send_from, self._next_answers)
        self._repeats_max = repeats_max
        self._answers: list[pb.GroupAnswer] = []
        #: Those that may be repeated by the id of the whole call, the oldest first.
        self._heartbeats: dict[int, RepeatableHeartbeat] = {}
        self._commits: dict[int, RepeatableCommit] = {}
        #: Call ids of repeated calls that are done, and of those that have to come whole.
        self._repeated: list[int] = []
        self._refused: list[int] = []
        #: Set when the last call is answered and its answer has left.
        self._done = asyncio.Event()
        self._open_calls = 0
        self._ended = False
        self._loop = asyncio.get_running_loop()
        #: The event loop's time of the gateway's last message; whether it sends some without content, and whether
        #: it stands still.
        self._received_at = self._loop.time()
        self._pulses = False
        self._stands_still = False
        #: The next look for a standstill, while heartbeats may be repeated.
        self._standstill_timer: asyncio.Handle | None = None
        self._methods: dict[
            str, Callable[[Any, Callable[[Any], None]], RepeatableHeartbeat | RepeatableCommit | None]
        ] = {
            "heartbeat": service.heartbeat,
            "commit_offsets": service.commit_offsets,
            "consumer_group_heartbeat": service.consumer_group_heartbeat,
        }

    async def run(self) -> None:
        """Serve until the gateway has sent its last message and has its answers. It is cancelled when the stream is
        lost."""
        try:
            self._stream.begin()
            self._stream.receive(self._receive)
            await self._stream.last_message()
            self._ended = True
            self._stream.send_now()
            await self._done.wait()
        finally:
            self._stream.on_room = _nothing
            if self._standstill_timer is not None:
                self._standstill_timer.cancel()

    def _receive(self, wire: memoryview) -> None:
        """Start the calls of a message."""
        message = pb.GroupCalls.FromString(bytes(wire))
        self._note_life(message)
        for call in message.calls:
            self._take(call)
        if message.again:
            self._repeat(message)
        for call_id in message.forgotten:
            self._heartbeats.pop(call_id, None)
            self._commits.pop(call_id, None)
        if self._open_calls > _CALLS_MAX:
            self._stream.pause()

    def _note_life(self, message: pb.GroupCalls) -> None:
        self._received_at = self._loop.time()
        self._pulses = self._pulses or message.pulses
        if self._stands_still:
            self._stands_still = False
            self._keep_sessions()

    def _check_for_standstill(self) -> None:
        if not self._heartbeats:  # mutant: quiet-gateway
            self._standstill_timer = None
            return
        now = self._loop.time()
        self._standstill_timer = self._loop.call_at(now + STANDSTILL_CHECK_S, self._check_for_standstill)
        silent_s = now - self._received_at
        if self._pulses and STILL_S < silent_s < STILL_MAX_S:  # mutant: dead-gateway
            if not self._stands_still:
                _log.warning("a gateway stands still", heartbeats=len(self._heartbeats))
            self._stands_still = True
            self._keep_sessions()  # mutant: sessions-over-standstill

    def _keep_sessions(self) -> None:
        for repeat in self._heartbeats.values():
            repeat.keep_session(int(GRACE_S * 1000))

    def _take(self, call: pb.GroupCall) -> None:
        self._open_calls += 1
        call_id, kind = call.call_id, call.WhichOneof("call")
        if kind is None:  # of a newer gateway
            self._answer(pb.GroupAnswer(call_id=call_id))
            return
        request = getattr(call, kind)

        def done(answer: Any) -> None:
            self._answer(pb.GroupAnswer(call_id=call_id, **{kind: answer}))

        if _log.debug_enabled:
            _log.debug("call", method=kind, correlation_id=request.correlation_id)
        try:
            repeat = self._methods[kind](request, done)
        except Exception:
            _log.exception("call failed", method=kind, correlation_id=request.correlation_id)
            self._answer(pb.GroupAnswer(call_id=call_id))
            return
        if isinstance(repeat, RepeatableCommit):
            _keep(self._commits, call_id, repeat, self._repeats_max)
        elif repeat is not None:
            _keep(self._heartbeats, call_id, repeat, self._repeats_max)
            if self._standstill_timer is None:
                due = self._loop.time() + STANDSTILL_CHECK_S
                self._standstill_timer = self._loop.call_at(due, self._check_for_standstill)

    def _repeat(self, message: pb.GroupCalls) -> None:
        offsets, begin = message.again_offsets, 0
        for call_id, like, count in zip(message.again, message.again_like, message.again_counts, strict=True):
            end = begin + count
            self._open_calls += 1
            try:
                if not self._repeat_one(call_id, like, offsets[begin:end]):
                    self._refused.append(call_id)
                    self._stream.send_soon()
            except Exception:
                _log.exception("repeated call failed", is_commit=count > 0)
                self._answer(pb.GroupAnswer(call_id=call_id))
            begin = end

    def _repeat_one(self, call_id: int, like: int, offsets: Sequence[int]) -> bool:
        """Repeat a commit if there are offsets, otherwise a heartbeat. False if it has to come whole."""
        if offsets:
            commit = self._commits.get(like)
            if commit is not None and commit(offsets, partial(self._committed, call_id)):
                return True
            self._commits.pop(like, None)
            return False
        heartbeat = self._heartbeats.get(like)
        if heartbeat is not None and heartbeat(partial(self._answer_short, call_id)):
            return True
        self._heartbeats.pop(like, None)
        return False

    def _committed(self, call_id: int, error_codes: Sequence[int]) -> None:
        if error_codes:
            outcome = pb.CommitOffsetsResponse(error_codes=error_codes)
            self._answer(pb.GroupAnswer(call_id=call_id, commit_offsets=outcome))
        else:
            self._answer_short(call_id)

    def _answer_short(self, call_id: int, _: None = None) -> None:
        """Answer a repeated call by its id alone."""
        self._repeated.append(call_id)
        self._stream.send_soon()

    def _answer(self, answer: pb.GroupAnswer) -> None:
        self._answers.append(answer)
        self._stream.send_soon()

    def _next_answers(self) -> Message | None:
        """Return the next message, encoded; None if there is none."""
        if self._answers or self._repeated or self._refused:
            wire = self._next_message().SerializeToString()
            return (wire,), len(wire), b""
        if self._stream.is_paused and self._open_calls <= _CALLS_MAX:
            self._stream.resume()
        if self._ended and self._open_calls == 0:
            self._done.set()
        return None

    def _next_message(self) -> pb.GroupAnswers:
        answers, self._answers = self._answers[:_ANSWERS_MAX], self._answers[_ANSWERS_MAX:]
        for answer in answers:
            answer.may_repeat = answer.call_id in self._heartbeats or answer.call_id in self._commits
        message = pb.GroupAnswers(answers=answers, done=self._repeated, refused=self._refused)
        self._open_calls -= len(answers) + len(self._repeated) + len(self._refused)
        self._repeated, self._refused = [], []
        return message


def _keep(kept: dict[int, Any], call_id: int, repeat: object, most: int) -> None:
    """Keep a call that may be repeated; drop the oldest of `most`."""
    if len(kept) >= most:
        del kept[next(iter(kept))]
    kept[call_id] = repeat


def _nothing() -> None:
    """Write nothing, as the `on_room` of a stream that has ended."""


def group_stream(service: GroupsService, repeats_max: int = REPEATS_MAX) -> Method:
    """Return the method millrace.v1.Groups/Exchange. `repeats_max` bounds the heartbeats of a stream that may be
    repeated, and its commits."""

    async def exchange(call: ServerCall) -> None:
        await _Exchange(service, call, repeats_max).run()

    return stream(exchange, request_bytes_max=_MESSAGE_BYTES_MAX)
