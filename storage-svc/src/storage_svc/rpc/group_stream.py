"""The gRPC side of heartbeats and commits: messages of many calls in, messages of many answers out, on one stream per
gateway.

All answers that are ready when the writer wakes go out in one message. A call that fails by a fault of ours is logged
and comes back empty; its neighbours are not touched. A gateway that does not read its answers is not read from either,
once `_CALLS_MAX` of its calls are open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import grpc
from broker_contract import groups_pb2 as pb
from service_chassis import logs as service_logs

from storage_svc.rpc.groups import GroupsService

_CALLS_MAX: Final = 100_000
#: Answers in one message: what is ready beyond them goes into the next.
_ANSWERS_MAX: Final = 10_000

_log = service_logs.get(__name__)

_Context = grpc.aio.ServicerContext[Any, Any]


class _Exchange:
    """One stream."""

    def __init__(self, service: GroupsService, context: _Context) -> None:
        self._context = context
        self._answers: list[pb.GroupAnswer] = []
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._open_calls = 0
        self._ended = False
        self._methods: dict[str, Callable[[Any, Callable[[Any], None]], object]] = {
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
        if service_logs.debug_enabled():
            _log.debug("call", method=kind, correlation_id=request.correlation_id)
        try:
            self._methods[kind](request, lambda answer: self._answer(pb.GroupAnswer(call_id=call_id, **{kind: answer})))
        except Exception:
            _log.exception("call failed", method=kind, correlation_id=request.correlation_id)
            self._answer(pb.GroupAnswer(call_id=call_id))

    def _answer(self, answer: pb.GroupAnswer) -> None:
        self._answers.append(answer)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._answers:
                answers, self._answers = self._answers[:_ANSWERS_MAX], self._answers[_ANSWERS_MAX:]
                self._open_calls -= len(answers)
                await self._context.write(pb.GroupAnswers(answers=answers))
            if self._open_calls <= _CALLS_MAX:
                self._room.set()
            if self._ended and self._open_calls == 0:
                return


def group_stream(service: GroupsService) -> grpc.RpcMethodHandler[Any, Any]:
    """The handler of millrace.v1.Groups/Exchange."""

    async def exchange(_requests: Any, context: _Context) -> None:
        await _Exchange(service, context).run()

    return grpc.stream_stream_rpc_method_handler(
        exchange, request_deserializer=pb.GroupCalls.FromString, response_serializer=pb.GroupAnswers.SerializeToString
    )
