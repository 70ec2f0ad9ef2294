"""The memory of the gateway's answers: each is reserved before it is read."""

from __future__ import annotations

import asyncio
from collections import deque

#: Bytes of one answer. A fetch asks for less, but its first record batch comes whole.
ANSWER_BYTES_MAX = 16 * 1024 * 1024


class AnswerTooLargeError(ConnectionError):
    """The gateway's answer is larger than ANSWER_BYTES_MAX. Its connection is closed."""


class AnswerMemory:
    """A number of bytes, reserved in the order of the requests for them. The event loop owns it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def reserve(self, size: int) -> None:
        """Wait until `size` bytes, which are at most the total, are free."""
        if not self._waiting and size <= self.free:
            self.free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(size)
            else:
                self._waiting.remove((size, turn))
                self.release(0)
            raise

    def release(self, size: int) -> None:
        self.free += size
        while self._waiting and self._waiting[0][0] <= self.free:
            size, turn = self._waiting.popleft()
            self.free -= size
            turn.set_result(None)
