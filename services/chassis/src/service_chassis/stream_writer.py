"""Messages of one gRPC stream, written one after the other without a task.

gRPC accepts one message at a time and signals later that it has sent it. A task that waits for the signal and then for
the next message costs two turns of the event loop a message. `write_on` passes a message to gRPC before it returns, if
none is under way. Otherwise gRPC receives the message as soon as the one before it has left.

The coroutine of a write is stepped as `asyncio.Task` steps one (and as `asyncio.eager_task_factory` does since Python
3.12). It yields a future, and continues when that is done.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

MessageT = TypeVar("MessageT")


class StreamWriter(Generic[MessageT]):
    """A queue's writer. The owner of the stream owns it.

    Args:
        write: Writes one message to the stream.
        following: Removes the next message from its queue; None if there is none. Called again when one has left.
        failed: Receives the error of a write, after which nothing is written.
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
        #: The write that is under way.
        self._writing: Coroutine[Any, Any, None] | None = None

    def write_on(self) -> None:
        """Write the waiting messages, now or when the message under way has left."""
        if self._writing is None:
            self._go_on(None)

    def close(self) -> None:
        """Stop writing. gRPC still has the message under way."""
        self._following = _nothing
        self._failed = _ignored

    def _go_on(self, _future: asyncio.Future[Any] | None) -> None:
        """Step the write under way, or the next, as far as it goes."""
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
    """Return nothing, as the last `following`."""


def _ignored(_error: BaseException) -> None:
    """Ignore the error: the stream is closed."""
