"""Messages of one gRPC stream, written one behind the other without a task.

gRPC takes one message at a time and says later that it has. A task that waits for that and then for the next message
costs two turns of the event loop a message. Here a message is in gRPC's hands when `write_on` returns, if none was on
its way, and else as soon as the one before it has left.

The coroutine of a write is stepped as `asyncio.Task` steps one (and as tasks begin at once since Python 3.12,
`asyncio.eager_task_factory`): what it yields is a future, after which it goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

MessageT = TypeVar("MessageT")


class StreamWriter(Generic[MessageT]):
    """Owned by whoever has the stream.

    Args:
        write: of the stream.
        following: takes the next message out of its queue; None when there is none. Asked again when one has left.
        failed: a write raised this; nothing is written any more.
    """

    __slots__ = ("_failed", "_following", "_loop", "_write", "_writing")

    def __init__(
        self,
        write: Callable[[MessageT], Coroutine[Any, Any, None]],
        following: Callable[[], MessageT | None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._write = write
        self._following = following
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        #: Of the message on its way.
        self._writing: Coroutine[Any, Any, None] | None = None

    def write_on(self) -> None:
        """Write what waits, now or when the message on its way has left."""
        if self._writing is None:
            self._go_on(None)

    def close(self) -> None:
        """Nothing more is written. A message on its way is gRPC's."""
        self._following = _nothing
        self._failed = _ignored

    def _go_on(self, _future: asyncio.Future[Any] | None) -> None:
        """As far as it goes: the message on its way, or the next."""
        writing = self._writing
        while True:
            if writing is None:
                message = self._following()
                if message is None:
                    return
                self._writing = writing = self._write(message)
                del message
            try:
                future = writing.send(None)
            except StopIteration:
                self._writing = writing = None
            except (Exception, asyncio.CancelledError) as error:
                self._following = _nothing
                self._writing = None
                self._failed(error)
                return
            else:
                if future is None:  # it lets others have their turn
                    self._loop.call_soon(self._go_on, None)
                else:
                    future._asyncio_future_blocking = False
                    future.add_done_callback(self._go_on)
                return


def _nothing() -> None:
    """What follows at the end."""


def _ignored(_error: BaseException) -> None:
    """Nobody asks any more."""
