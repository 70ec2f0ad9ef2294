"""The gRPC side of heartbeats and commits: messages of many calls in, messages of many answers out, on one stream per
gateway.

All answers that are ready when the writer wakes go out in one message. A call that fails by a fault of ours is logged
and comes back empty; its neighbours are not touched. A gateway that does not read its answers is not read from either,
once `_CALLS_MAX` of its calls are open.

Of a heartbeat that may be repeated, what knows whether its answer holds (`repeated_heartbeats.Repeat`) is kept under
the id of its call, so that the gateway comes with that id instead of the whole heartbeat. It ends with the stream, when
the gateway says so or when the answer holds no more; of more than REPEATS_MAX the oldest ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

import grpc
from broker_contract import groups_pb2 as pb
from service_chassis import logs as service_logs

from storage_svc.coordinator.repeated_heartbeats import Repeat
from storage_svc.rpc.groups import GroupsService

_CALLS_MAX: Final = 100_000
#: Answers in one message: what is ready beyond them goes into the next.
_ANSWERS_MAX: Final = 10_000
REPEATS_MAX: Final = 100_000

_log = service_logs.get(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class _Exchange:
    """One stream."""

    def __init__(self, service: GroupsService, context: _Context, repeats_max: int) -> None:
        self._context = context
        self._repeats_max = repeats_max
        self._answers: list[pb.GroupAnswer] = []
        #: By the id of the heartbeat's call, the oldest first.
        self._repeats: dict[int, Repeat] = {}
        #: Ids of repeats to answer: of those that hold, and of the others.
        self._held: list[int] = []
        self._over: list[int] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._open_calls = 0
        self._ended = False
        self._methods: dict[str, Callable[[Any, Callable[[Any], None]], Repeat | None]] = {
            "heartbeat": service.heartbeat,
            "commit_offsets": service.commit_offsets,
            "consumer_group_heartbeat": service.consumer_group_heartbeat,
        }

    async def run(self) -> None:
        writer = asyncio.create_task(self._write())
        try:
            while (message := await self._context.read()) is not grpc.aio.EOF:
                for call in message.calls:
                    self._take(call)
                if message.repeats:
                    self._repeat(message.repeats)
                for call_id in message.forgotten:
                    self._repeats.pop(call_id, None)
                if self._open_calls > _CALLS_MAX:
                    self._room.clear()
                await self._room.wait()
                if writer.done():
                    return
            self._ended = True
            self._wake.set()
            await writer
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

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

        if service_logs.debug_enabled():
            _log.debug("call", method=kind, correlation_id=request.correlation_id)
        try:
            repeat = self._methods[kind](request, done)
        except Exception:
            _log.exception("call failed", method=kind, correlation_id=request.correlation_id)
            self._answer(pb.GroupAnswer(call_id=call_id))
            return
        if repeat is not None and answered:
            answered[0].may_repeat = True
            self._keep(call_id, repeat)

    def _keep(self, call_id: int, repeat: Repeat) -> None:
        if len(self._repeats) >= self._repeats_max:
            del self._repeats[next(iter(self._repeats))]
        self._repeats[call_id] = repeat

    def _repeat(self, call_ids: Sequence[int]) -> None:
        """Heartbeats said again."""
        self._open_calls += len(call_ids)
        for call_id in call_ids:
            (self._held if self._holds(call_id) else self._over).append(call_id)
        self._wake.set()

    def _holds(self, call_id: int) -> bool:
        repeat = self._repeats.get(call_id)
        if repeat is None:
            return False
        try:
            # Every call has a line of its own then, so it has to come whole.
            holds = not service_logs.debug_enabled() and repeat()
        except Exception:
            _log.exception("call failed", method="repeat")
            holds = False
        if not holds:
            del self._repeats[call_id]
        return holds

    def _answer(self, answer: pb.GroupAnswer) -> None:
        self._answers.append(answer)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._answers or self._held or self._over:
                answers, self._answers = self._answers[:_ANSWERS_MAX], self._answers[_ANSWERS_MAX:]
                held, self._held, over, self._over = self._held, [], self._over, []
                self._open_calls -= len(answers) + len(held) + len(over)
                await self._context.write(pb.GroupAnswers(answers=answers, held=held, ended=over))
            if self._open_calls <= _CALLS_MAX:
                self._room.set()
            if self._ended and self._open_calls == 0:
                return


def group_stream(service: GroupsService, repeats_max: int = REPEATS_MAX) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of millrace.v1.Groups/Exchange. `repeats_max`: how many heartbeats of a stream may be repeated."""

    async def exchange(_requests: Any, context: _Context) -> None:
        await _Exchange(service, context, repeats_max).run()

    return grpc.stream_stream_rpc_method_handler(
        exchange, request_deserializer=pb.GroupCalls.FromString, response_serializer=pb.GroupAnswers.SerializeToString
    )
