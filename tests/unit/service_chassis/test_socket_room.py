"""A writer that waits for room in its socket is called when there is some, alone or among others that end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest
from service_chassis.socket_room import Sent, SocketRoom

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")

PIECE = bytes(4 * 1024)


class Writer:
    """A writer that fills its socket until all is sent, with at most `a_turn` pieces a turn."""

    def __init__(self, room: SocketRoom, pieces: int, a_turn: int = 10_000) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.descriptor = self.ours.fileno()
        self.left = pieces
        self.turns = 0
        self._a_turn = a_turn
        self._room = room

    def begin(self) -> None:
        if self._send() is not Sent.ALL:
            self._room.wait(self.descriptor, self)

    def has_room(self) -> Sent:
        self.turns += 1
        return self._send()

    def fail(self, error: Exception) -> None:
        raise AssertionError from error

    def _send(self) -> Sent:
        sent = Sent.NOTHING
        for _ in range(self._a_turn):
            if not self.left:
                break
            try:
                self.ours.send(PIECE)
            except BlockingIOError:
                return sent
            self.left -= 1
            sent = Sent.SOME
        return sent if self.left else Sent.ALL

    async def drain(self) -> None:
        for _ in range(1000):
            try:
                self.theirs.recv(1 << 20)
            except BlockingIOError:
                if not self.left:
                    return
            await asyncio.sleep(0)
        raise AssertionError(f"{self.left} pieces were never sent")

    def close(self) -> None:
        self._room.forget(self.descriptor)
        self.ours.close()
        self.theirs.close()


@pytest.fixture
async def room() -> Iterator[SocketRoom]:
    room = SocketRoom(asyncio.get_running_loop())
    yield room
    room.close()


async def quiet_turns(writers: list[Writer]) -> int:
    """Count the calls of writers while no socket gets room."""
    before = sum(writer.turns for writer in writers)
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    return sum(writer.turns for writer in writers) - before


@pytest.mark.parametrize("count", [1, 3])
async def test_each_that_waits_sends_all_and_again(room: SocketRoom, count: int) -> None:
    writers = [Writer(room, 0) for _ in range(count)]
    for _ in range(3):
        for writer in writers:
            writer.left = 400
            writer.begin()
            assert writer.left
        assert await quiet_turns(writers) == 0
        for writer in reversed(writers):
            await writer.drain()
        assert await quiet_turns(writers) == 0
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("count", [1, 3])
async def test_who_waits_although_there_is_room_is_told(room: SocketRoom, count: int) -> None:
    """A file may give less than the socket takes."""
    writers = [Writer(room, 0, a_turn=1) for _ in range(count)]
    for _ in range(2):
        for writer in writers:
            writer.left = 3
            writer.begin()
            assert writer.left == 2
        await quiet_turns(writers)
        assert [writer.left for writer in writers] == [0] * count
        for writer in writers:
            await writer.drain()
    for writer in writers:
        writer.close()


async def test_one_whose_reader_stands_still_is_not_told_while_another_goes_on(room: SocketRoom) -> None:
    still, going = Writer(room, 400), Writer(room, 2000)
    still.begin()
    going.begin()
    await going.drain()
    assert still.turns <= 1 < going.turns
    await still.drain()
    still.close()
    going.close()


async def test_one_that_waits_alone_is_not_told_again_and_again_of_another_that_ended(room: SocketRoom) -> None:
    ended, waiting = Writer(room, 400), Writer(room, 400)
    ended.begin()
    await ended.drain()
    waiting.begin()
    ended.theirs.close()  # its socket is still registered, and reported as hung up
    assert await quiet_turns([waiting]) <= 1
    await waiting.drain()
    waiting.close()
    ended.close()


async def test_the_descriptor_of_one_that_is_closed_may_be_another_socket(room: SocketRoom) -> None:
    for _ in range(20):  # a thread of the process may take the descriptor first
        first = Writer(room, 400)
        first.begin()
        first.close()
        others = [Writer(room, 400) for _ in range(3)]
        if first.descriptor in [other.descriptor for other in others]:
            break
        for other in others:
            other.close()
    else:
        pytest.fail("no descriptor was used again")
    for other in others:
        other.begin()
    for other in others:
        await other.drain()
        other.close()
    assert first.turns == 0


class Broken(Writer):
    """A writer whose file cannot be read."""

    failed: Exception | None = None

    def has_room(self) -> Sent:
        raise OSError(5, "Input/output error")

    def fail(self, error: Exception) -> None:
        self.failed = error


@pytest.mark.parametrize("others", [0, 2])
async def test_one_that_raises_is_closed_and_loses_no_report_of_another(room: SocketRoom, others: int) -> None:
    broken = Broken(room, 400)
    writers = [Writer(room, 400) for _ in range(others)]
    for writer in (broken, *writers):
        writer.begin()
    for writer in (broken, *writers):
        while True:
            try:
                writer.theirs.recv(1 << 20)
            except BlockingIOError:
                break
    for writer in writers:
        await writer.drain()
    async with asyncio.timeout(60):
        while broken.failed is None:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert isinstance(broken.failed, OSError)
    assert await quiet_turns(writers) == 0
    for writer in (broken, *writers):
        writer.close()
