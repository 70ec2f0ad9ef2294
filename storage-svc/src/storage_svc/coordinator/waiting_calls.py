"""Calls that wait for their group's answer: parked joins and syncs; every other call is answered before `ask` returns,
or soon after when it came while its group was at work.

A call gets a number, which its event carries as `request`; the group's `Answer` names it. The answer to a call whose
caller has gone away meanwhile is dropped: the group learns of that by the silence that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from storage_svc.coordinator.group_events import AnswerValue, Commit, Heartbeat, Join, Leave, Sync

AnswerT = TypeVar("AnswerT", bound=AnswerValue)
Call = Join | Sync | Heartbeat | Leave | Commit


class CallsEndedError(Exception):
    """The service stops; what is parked will not be answered by its group."""


class WaitingCalls:
    """Owner: the groups' host, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next_request = 1
        #: Called with the answer, or with None when the service stops.
        self._waiting: dict[int, Callable[[AnswerValue | None], None]] = {}

    def ask(self, call: Call, handle: Callable[[Call], None], done: Callable[[AnswerValue | None], None]) -> None:
        """Numbers the call and has it handled at once; `done` gets its answer, or None when the service stops."""
        request = call.request = self._next_request
        self._next_request += 1
        self._waiting[request] = done
        try:
            handle(call)
        except BaseException:
            self._waiting.pop(request, None)
            raise

    async def wait(self, call: Call, kind: type[AnswerT], handle: Callable[[Call], None]) -> AnswerT:
        """As `ask`, for coroutines.

        Raises:
            CallsEndedError: the service stops.
        """
        future: asyncio.Future[AnswerValue | None] = self._loop.create_future()
        try:
            self.ask(call, handle, partial(_resolve, future))
            answer = await future
        finally:
            self._waiting.pop(call.request, None)
        if answer is None:
            raise CallsEndedError
        if not isinstance(answer, kind):
            raise TypeError(f"{type(call).__name__} was answered {type(answer).__name__}")
        return answer

    def answer(self, request: int, value: AnswerValue) -> None:
        done = self._waiting.pop(request, None)
        if done is not None:
            done(value)

    def end(self) -> int:
        """Ends the wait of every call that is parked; how many these were."""
        parked, self._waiting = self._waiting, {}
        for done in parked.values():
            done(None)
        return len(parked)


def _resolve(future: asyncio.Future[AnswerValue | None], answer: AnswerValue | None) -> None:
    if not future.done():
        future.set_result(answer)
