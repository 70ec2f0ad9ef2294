"""Messages leave one after the other, in order, even if their writes wait or end with an error."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator

import pytest
from service_chassis.stream_writer import StreamWriter


class Stream:
    """A receiver of messages: each is under way until `leave` is called."""

    def __init__(self) -> None:
        self.queue: deque[int] = deque()
        self.begun: list[int] = []
        self.errors: list[BaseException] = []
        self.on_its_way: asyncio.Future[None] | None = None
        #: Number of steps of a write that still had to wait.
        self.steps = 0
        self.writer = StreamWriter(self.write, lambda: self.queue.popleft() if self.queue else None, self.errors.append)

    async def write(self, message: int) -> None:
        assert self.on_its_way is None, "one at a time"
        self.begun.append(message)
        self.on_its_way = asyncio.get_running_loop().create_future()
        try:
            await _Counted(self, self.on_its_way)
        finally:
            self.on_its_way = None

    async def leave(self, error: BaseException | None = None) -> None:
        assert self.on_its_way is not None
        if error is None:
            self.on_its_way.set_result(None)
        elif isinstance(error, asyncio.CancelledError):
            self.on_its_way.cancel()
        else:
            self.on_its_way.set_exception(error)
        await asyncio.sleep(0)


class _Counted:
    """Waits for a future as that itself does."""

    def __init__(self, stream: Stream, future: asyncio.Future[None]) -> None:
        self._stream = stream
        self._future = future

    def __await__(self) -> Generator[asyncio.Future[None], None, None]:
        while not self._future.done():
            self._stream.steps += 1
            self._future._asyncio_future_blocking = True
            yield self._future
        self._future.result()


async def test_a_message_is_begun_at_once_and_the_next_when_it_has_left():
    stream = Stream()
    stream.writer.write_on()
    assert stream.begun == []
    stream.queue += (1, 2)
    stream.writer.write_on()
    assert stream.begun == [1]
    stream.queue.append(3)
    stream.writer.write_on()
    assert (stream.begun, stream.steps) == ([1], 1)
    await stream.leave()
    assert stream.begun == [1, 2]
    await stream.leave()
    await stream.leave()
    assert (stream.begun, stream.on_its_way) == ([1, 2, 3], None)
    stream.queue.append(4)
    stream.writer.write_on()
    assert stream.begun == [1, 2, 3, 4]


async def test_writes_that_do_not_wait_or_wait_several_times():
    queue, written = deque([0, 1, 3, 0]), []

    async def write(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.wait_for(asyncio.sleep(0), None)
        written.append(turns)

    StreamWriter(write, lambda: queue.popleft() if queue else None, written.append).write_on()
    assert written == []
    for _ in range(20):
        await asyncio.sleep(0)
    assert written == [0, 1, 3, 0]


@pytest.mark.parametrize("error", [EOFError("gone"), asyncio.CancelledError()], ids=repr)
async def test_nothing_is_written_after_a_failure(error):
    stream = Stream()
    stream.queue += (1, 2)
    stream.writer.write_on()
    await stream.leave(error)
    stream.writer.write_on()
    assert [type(each) for each in stream.errors] == [type(error)]
    assert stream.begun == [1]


@pytest.mark.parametrize("error", [None, EOFError("gone")], ids=repr)
async def test_nothing_follows_once_it_is_closed(error):
    stream = Stream()
    stream.queue += (1, 2)
    stream.writer.write_on()
    stream.writer.close()
    await stream.leave(error)
    stream.writer.write_on()
    assert (stream.begun, stream.errors) == ([1], [])
