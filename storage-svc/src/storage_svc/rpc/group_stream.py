"""The gRPC side of heartbeats and commits: messages of many calls in, messages of many answers out, on one stream per
gateway.

All answers that are ready at the end of a turn of the event loop go out in one message. A call that fails by a fault of
ours is logged and comes back empty; the others of its message go on. A gateway that does not read its answers is not
read from either, once `_CALLS_MAX` of its calls are open.

The answer to a heartbeat that may be repeated (`RepeatableHeartbeat`) is a promise: the gateway answers repeats by
itself, and reports a few times a second which calls it answered. When the group changes the promise ends. The gateway
learns of that in the next message, before it gets later answers. Each of its reports is confirmed, so that it knows how
old its last news from storage is. Promises also end with the stream, and when the gateway says so; if there are more
than REPEATS_MAX the oldest ends.

The answer to a commit that will be repeated lets the gateway repeat it by its offsets alone. Repeats that are durable
without an error are answered by their call ids alone. REPEATS_MAX of a stream are kept. One whose original was dropped,
or would not be accepted, has to come whole.

A session that promises keep up lasts REPEATS_LATE_MS longer, for heartbeats that the gateway has not reported yet. When
the stream ends it starts again, for those that it will never report.

A gateway that holds promises sends a message even when it has nothing to say. If none comes for STILL_S, the gateway
stands still, and heartbeats may wait in its sockets: no session of its promises ends until it has had GRACE_S after its
next message. A gateway that says nothing for STILL_MAX_S counts as dead, and its members' sessions end.
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
#: Twice the time between two reports of a gateway (`gateway_svc.storage.group_stream`, REPORT_S).
REPEATS_LATE_MS: Final = 500
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
        #: Heartbeats by the id of their call, the oldest first.
        self._repeats: dict[int, RepeatableHeartbeat] = {}
        #: Commits by the id of the whole commit's call, the oldest first.
        self._commits: dict[int, RepeatableCommit] = {}
        #: Call ids of repeated commits that are durable, and of those that have to come whole.
        self._committed: list[int] = []
        self._refused: list[int] = []
        #: Messages with repeats that have come, and ids of promises that have ended, since the last message left.
        self._reports = 0
        self._ended_promises: list[int] = []
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
        #: The next look for a standstill, while there are promises.
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
            for repeat in self._repeats.values():
                repeat.start_session(REPEATS_LATE_MS)
                repeat.forget()

    def _receive(self, wire: memoryview) -> None:
        """Start the calls of a message."""
        message = pb.GroupCalls.FromString(bytes(wire))
        self._note_life(message)
        for call in message.calls:
            self._take(call)
        if message.again:
            self._repeat_commits(message)
        if message.repeats:
            self._repeat(message.repeats)
        for call_id in message.forgotten:
            self._drop(call_id)
        if self._open_calls > _CALLS_MAX:
            self._stream.pause()

    def _note_life(self, message: pb.GroupCalls) -> None:
        self._received_at = self._loop.time()
        self._pulses = self._pulses or message.pulses
        if self._stands_still:
            self._stands_still = False
            self._keep_sessions()

    def _check_for_standstill(self) -> None:
        if not self._repeats:  # mutant: quiet-gateway
            self._standstill_timer = None
            return
        now = self._loop.time()
        self._standstill_timer = self._loop.call_at(now + STANDSTILL_CHECK_S, self._check_for_standstill)
        silent_s = now - self._received_at
        if self._pulses and STILL_S < silent_s < STILL_MAX_S:  # mutant: dead-gateway
            if not self._stands_still:
                _log.warning("a gateway stands still", promises=len(self._repeats))
            self._stands_still = True
            self._keep_sessions()  # mutant: sessions-over-standstill

    def _keep_sessions(self) -> None:
        for repeat in self._repeats.values():
            repeat.keep_session(int(GRACE_S * 1000))

    def _take(self, call: pb.GroupCall) -> None:
        self._open_calls += 1
        call_id, kind = call.call_id, call.WhichOneof("call")
        if kind is None:  # of a newer gateway
            self._answer(pb.GroupAnswer(call_id=call_id))
            return
        request = getattr(call, kind)
        answered: list[pb.GroupAnswer] = []

        def done(answer: Any) -> None:
            answered.append(pb.GroupAnswer(call_id=call_id, **{kind: answer}))
            self._answer(answered[0])

        if _log.debug_enabled:
            _log.debug("call", method=kind, correlation_id=request.correlation_id)
        try:
            repeat = self._methods[kind](request, done)
        except Exception:
            _log.exception("call failed", method=kind, correlation_id=request.correlation_id)
            self._answer(pb.GroupAnswer(call_id=call_id))
            return
        if repeat is None:
            return
        if isinstance(repeat, RepeatableCommit):
            self._keep(call_id, repeat)
        elif answered:
            self._promise(call_id, repeat)

    def _keep(self, call_id: int, commit: RepeatableCommit) -> None:
        if len(self._commits) >= self._repeats_max:
            del self._commits[next(iter(self._commits))]
        self._commits[call_id] = commit

    def _repeat_commits(self, message: pb.GroupCalls) -> None:
        offsets, begin = message.again_offsets, 0
        for call_id, like, count in zip(message.again, message.again_like, message.again_counts, strict=True):
            end = begin + count
            self._open_calls += 1
            try:
                commit = self._commits.get(like)
                if commit is None or not commit(offsets[begin:end], partial(self._committed_repeat, call_id)):
                    self._commits.pop(like, None)
                    self._refused.append(call_id)
                    self._stream.send_soon()
            except Exception:
                _log.exception("call failed", method="commit_offsets")
                self._answer(pb.GroupAnswer(call_id=call_id))
            begin = end

    def _committed_repeat(self, call_id: int, error_codes: Sequence[int]) -> None:
        if error_codes:
            outcome = pb.CommitOffsetsResponse(error_codes=error_codes)
            self._answer(pb.GroupAnswer(call_id=call_id, commit_offsets=outcome))
        else:
            self._committed.append(call_id)
            self._stream.send_soon()

    def _promise(self, call_id: int, repeat: RepeatableHeartbeat) -> None:
        self._drop(call_id)
        if len(self._repeats) >= self._repeats_max:
            oldest = next(iter(self._repeats))
            self._drop(oldest)
            self._end(oldest)
        self._repeats[call_id] = repeat
        if self._standstill_timer is None:
            self._standstill_timer = self._loop.call_at(
                self._loop.time() + STANDSTILL_CHECK_S, self._check_for_standstill
            )
        repeat.start_session(REPEATS_LATE_MS)
        repeat.promise(partial(self._end, call_id))

    def _drop(self, call_id: int) -> None:
        repeat = self._repeats.pop(call_id, None)
        if repeat is not None:
            repeat.forget()
        self._commits.pop(call_id, None)

    def _end(self, call_id: int) -> None:
        """End a promise. The gateway may have answered the member before it learns of this: the repeat is kept until it
        forgets it."""
        self._ended_promises.append(call_id)
        self._stream.send_soon()

    def _repeat(self, call_ids: Sequence[int]) -> None:
        """Start the sessions of repeated heartbeats again."""
        for call_id in call_ids:
            repeat = self._repeats.get(call_id)
            if repeat is not None:
                repeat.start_session(REPEATS_LATE_MS)  # mutant: promised-session-late
        self._reports += 1
        self._stream.send_soon()

    def _answer(self, answer: pb.GroupAnswer) -> None:
        self._answers.append(answer)
        self._stream.send_soon()

    def _next_answers(self) -> Message | None:
        """Return the next message, encoded; None if there is none."""
        if self._answers or self._committed or self._refused or self._reports or self._ended_promises:
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
            repeat = self._repeats.get(answer.call_id)
            # It may have ended already.
            # mutant: promise-still-held
            answer.may_repeat = answer.call_id in self._commits if repeat is None else repeat.is_promised
        message = pb.GroupAnswers(
            answers=answers,
            heard=self._reports,
            ended=self._ended_promises,
            committed=self._committed,
            refused=self._refused,
        )
        self._open_calls -= len(answers) + len(self._committed) + len(self._refused)
        self._reports, self._ended_promises, self._committed, self._refused = 0, [], [], []
        return message


def _nothing() -> None:
    """Write nothing, as the `on_room` of a stream that has ended."""


def group_stream(service: GroupsService, repeats_max: int = REPEATS_MAX) -> Method:
    """Return the method millrace.v1.Groups/Exchange. `repeats_max` bounds the heartbeats of a stream that may be
    repeated."""

    async def exchange(call: ServerCall) -> None:
        await _Exchange(service, call, repeats_max).run()

    return stream(exchange, request_bytes_max=_MESSAGE_BYTES_MAX)
