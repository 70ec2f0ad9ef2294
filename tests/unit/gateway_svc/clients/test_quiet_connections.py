"""Quiet connections are read together: when each is read, and that a removed one is not."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator

import pytest
from gateway_svc.clients.quiet_connections import GATHER_S, READ_TURN, QuietConnections

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")


class Member:
    """One end of a socket, which notes the turns in which it is read; the other end speaks."""

    def __init__(self, quiet: QuietConnections) -> None:
        self.quiet = quiet
        self.ours, self.theirs = socket.socketpair()
        self.heard: list[bytes] = []
        self.read_at = 0.0
        self.read = asyncio.Event()
        quiet.add(self.ours.fileno(), self)

    def read_quiet(self) -> None:
        self.heard.append(self.ours.recv(100))
        self.read_at = time.monotonic()
        self.read.set()

    def abort(self) -> None:
        self.read.set()

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


@pytest.fixture
def members(quiet: QuietConnections) -> Iterator[list[Member]]:
    made = [Member(quiet) for _ in range(READ_TURN + 2)]
    yield made
    quiet.check_invariants()
    quiet.close()
    for member in made:
        member.close()


async def read(member: Member) -> None:
    await asyncio.wait_for(member.read.wait(), 60)
    member.read.clear()


async def test_the_first_is_read_at_once_and_those_behind_it_together(members: list[Member]) -> None:
    first, *others = members
    first.theirs.send(b"1")
    await read(first)
    for member in others:
        member.theirs.send(b"2")
        await asyncio.sleep(0)
    for member in others:
        await read(member)
    assert min(member.read_at for member in others) - first.read_at >= GATHER_S / 2
    assert [member.heard for member in members] == [[b"1"], *([b"2"] for _ in others)]


async def test_after_a_silence_one_is_read_at_once_again(quiet: QuietConnections, members: list[Member]) -> None:
    member = members[0]
    for word in (b"1", b"2", b"3"):
        member.theirs.send(word)
        await read(member)
    while quiet.is_gathering:  # noqa: ASYNC110
        await asyncio.sleep(GATHER_S / 5)
    member.theirs.send(b"4")
    for _ in range(20):  # turns, which take far less than GATHER_S
        await asyncio.sleep(0)
    assert member.heard == [b"1", b"2", b"3", b"4"]


async def test_one_that_is_removed_is_not_read(quiet: QuietConnections, members: list[Member]) -> None:
    gone, stays, *_ = members
    quiet.remove(gone.ours.fileno())
    assert len(quiet) == len(members) - 1
    gone.theirs.send(b"1")
    stays.theirs.send(b"2")
    await read(stays)
    assert (gone.heard, stays.heard) == ([], [b"2"])


async def test_one_may_remove_another_that_has_come_as_well(quiet: QuietConnections, members: list[Member]) -> None:
    first, second, third, *_ = members

    def read_and_remove_the_other() -> None:
        for member in (first, second):
            if not member.heard:
                member.heard.append(b"removed")
                quiet.remove(member.ours.fileno())
                member.read.set()

    first.read_quiet = second.read_quiet = read_and_remove_the_other  # type: ignore[method-assign]
    first.theirs.send(b"1")
    second.theirs.send(b"2")
    await read(second)
    third.theirs.send(b"3")
    await read(third)
    assert (first.heard, second.heard, third.heard) == ([b"removed"], [b"removed"], [b"3"])


async def test_nothing_is_read_after_the_end(quiet: QuietConnections, members: list[Member]) -> None:
    member = members[0]
    member.theirs.send(b"1")
    await read(member)
    quiet.close()
    member.theirs.send(b"2")
    await asyncio.sleep(2 * GATHER_S)
    assert member.heard == [b"1"]


class Broken(Member):
    """A connection whose request raises."""

    is_aborted = False

    def read_quiet(self) -> None:
        self.ours.recv(100)
        raise MemoryError

    def abort(self) -> None:
        self.is_aborted = True
        self.read.set()


async def test_one_that_raises_is_closed_and_the_others_are_read(quiet: QuietConnections) -> None:
    broken, whole = Broken(quiet), Member(quiet)
    for member in (broken, whole):
        member.theirs.send(b"1")
    for member in (broken, whole):
        await read(member)
    assert (broken.is_aborted, whole.heard) == (True, [b"1"])
    whole.theirs.send(b"2")
    await read(whole)
    assert whole.heard == [b"1", b"2"]
    quiet.check_invariants()
    quiet.close()
    for member in (broken, whole):
        member.close()
