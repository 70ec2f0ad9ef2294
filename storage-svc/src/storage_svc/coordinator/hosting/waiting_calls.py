"""Calls that wait for their answer: parked joins and syncs, and calls whose answer waits for the log.

A call gets a number, which its event carries as `request`; an `Answer` in an outcome names it. The answer to a call
whose caller has gone away is dropped: a group learns of that by the silence that follows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

AnswerT = TypeVar("AnswerT")
Done = Callable[[Any], None]


class Call(Protocol):
    """An event with a caller."""

    request: int


class CallsEndedError(Exception):
    """The service stops; the group will not answer this parked call."""


class WaitingCalls:
    """Owner: the performer, on the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._last_request = 0
        self._waiting: dict[int, Done] = {}
        #: The futures among them.
        self._parked: dict[int, asyncio.Future[Any]] = {}

    def expect(self, done: Done) -> int:
        """Return a number for a call; `done` gets the answer."""
        self._last_request += 1
        self._waiting[self._last_request] = done
        return self._last_request

    async def ask(self, call: Call, kind: type[AnswerT], handle: Callable[[Call], object]) -> AnswerT:
        """Number the call, have it handled at once, and return its answer.

        Raises:
            CallsEndedError: the service stops.
        """
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(value: Any) -> None:
            if not future.done():
                future.set_result(value)

        request = call.request = self.expect(done)
        self._parked[request] = future
        try:
            handle(call)
            answer = await future
        finally:
            self._waiting.pop(request, None)
            self._parked.pop(request, None)
        if not isinstance(answer, kind):
            raise TypeError(f"{type(call).__name__} was answered {type(answer).__name__}")
        return answer

    def answer(self, request: int, value: Any) -> None:
        """Answer the call, if its caller still waits."""
        done = self._waiting.pop(request, None)
        if done is not None:
            done(value)

    def detach(self, request: int) -> Done:
        """Return the call of a request, which is parked no longer: its answer waits for the log alone."""
        self._parked.pop(request, None)
        return self._waiting.pop(request, _drop_answer)

    def end(self) -> int:
        """End the wait of every parked call and return their number."""
        parked = [future for future in self._parked.values() if not future.done()]
        for future in parked:
            future.set_exception(CallsEndedError())
        return len(parked)


def _drop_answer(_: Any) -> None:
    """Drop the answer: the caller has gone."""
