"""Calls that wait for their group's answer: parked joins and syncs, and for a moment leaves.

A call gets a number, which its event carries as `request`; the group's `Answer` names it. The answer to a call whose
caller has gone away meanwhile is dropped: the group learns of that by the silence that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from storage_svc.coordinator.classic.events import AnswerValue, Join, Leave, Sync

AnswerT = TypeVar("AnswerT", bound=AnswerValue)
Call = Join | Sync | Leave


class CallsEndedError(Exception):
    """The service stops; what is parked will not be answered by its group."""


class WaitingCalls:
    """Owner: the groups' host, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._next_request = 1
        self._waiting: dict[int, asyncio.Future[AnswerValue]] = {}

    async def ask(self, call: Call, kind: type[AnswerT], handle: Callable[[Call], None]) -> AnswerT:
        """Numbers the call, has it handled at once, and waits for its answer.

        Raises:
            CallsEndedError: the service stops.
        """
        request = call.request = self._next_request
        self._next_request += 1
        future: asyncio.Future[AnswerValue] = self._loop.create_future()
        self._waiting[request] = future
        try:
            handle(call)
            answer = await future
        finally:
            del self._waiting[request]
        if not isinstance(answer, kind):
            raise TypeError(f"{type(call).__name__} was answered {type(answer).__name__}")
        return answer

    def answer(self, request: int, value: AnswerValue) -> None:
        future = self._waiting.get(request)
        if future is not None and not future.done():
            future.set_result(value)

    def end(self) -> int:
        """Ends the wait of every call that is parked; how many these were."""
        parked = [future for future in self._waiting.values() if not future.done()]
        for future in parked:
            future.set_exception(CallsEndedError())
        return len(parked)
