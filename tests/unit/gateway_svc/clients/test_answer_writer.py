"""Answers on a real socket whose reader takes its time: all bytes, in order, and nothing held afterwards."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from gateway_svc.clients.answer_writer import SENDFILE_BYTES_MAX, AnswerWriter
from gateway_svc.clients.plain_wire import PlainWire
from gateway_svc.clients.slices import FileRange, OpenFile
from gateway_svc.clients.wire import MakeWire, Wire
from gateway_svc.memory_budget import MemoryBudget
from service_chassis.socket_room import SocketRoom

pytestmark = pytest.mark.event_loops("asyncio", "uvloop")

CONTENT = os.urandom(3 << 20)


class Sender:
    """The user of a plain wire: it sends with the writer, as a connection does."""

    def __init__(self) -> None:
        self.drained = self.overfull = 0
        self.failures: list[str] = []
        self.lost_wire = asyncio.Event()

    def began(self, wire: Wire) -> None:
        self.wire = wire
        self.budget = MemoryBudget(1 << 30)
        self.writer = AnswerWriter(
            wire, self.budget, drained=self._drained, failed=self._failed, overfull=self._overfull
        )

    def ready(self) -> None: ...

    def room(self) -> memoryview:
        return memoryview(bytearray(8))

    def received(self, count: int) -> None: ...

    def _drained(self) -> None:
        self.drained += 1

    def _overfull(self) -> None:
        self.overfull += 1

    def _failed(self, reason: str) -> None:
        self.failures.append(reason)
        self.wire.abort()

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()

    def lost(self) -> None:
        self.writer.close()
        self.lost_wire.set()


class Ends:
    """A connection: our end, the sender, and the client's socket, `theirs`."""

    def __init__(self, theirs: socket.socket) -> None:
        self.theirs = theirs
        self.sender = Sender()
        self.room = SocketRoom(asyncio.get_running_loop())
        self.transport: asyncio.Transport

    async def connect(self, ours: socket.socket, make_wire: MakeWire = PlainWire) -> None:
        self.transport, _ = await asyncio.get_running_loop().create_connection(  # type: ignore[type-var]
            lambda: make_wire(self.sender, self.room), sock=ours
        )

    async def close(self) -> None:
        self.transport.abort()
        await self.sender.lost_wire.wait()
        self.room.close()
        self.theirs.close()


@pytest.fixture
async def ends() -> AsyncIterator[Ends]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    made = Ends(theirs)
    await made.connect(ours)
    yield made
    await made.close()


@pytest.fixture
def file(tmp_path: Path) -> OpenFile:
    (tmp_path / "0.log").write_bytes(CONTENT)
    return OpenFile(os.open(tmp_path / "0.log", os.O_RDONLY))


async def received(theirs: socket.socket, size: int) -> bytes:
    loop, data = asyncio.get_running_loop(), bytearray()
    while len(data) < size:
        piece = await loop.sock_recv(theirs, 100_000)
        if not piece:
            break
        data += piece
    return bytes(data)


def open_descriptors(*files: int) -> set[tuple[int, str]]:
    """Return the descriptors that are open for the same files and sockets, and for epoll objects, each with its target.

    Other parts of this process open others at the same time.
    """
    wanted = {os.readlink(f"/proc/self/fd/{number}") for number in files} | {"anon_inode:[eventpoll]"}
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself
            found.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return {(number, target) for number, target in found if target in wanted}


@pytest.mark.parametrize("head_bytes", [20, 2 << 20], ids=["small head", "head that has to wait"])
async def test_a_range_goes_on_as_the_socket_has_room(ends: Ends, file: OpenFile, head_bytes: int) -> None:
    sender, theirs = ends.sender, ends.theirs
    head = os.urandom(head_bytes)
    sender.writer.send([head, FileRange(file, 7, 2 << 20), b"between", FileRange(file, 0, len(CONTENT)), b"last"])
    assert sender.writer.busy
    expected = head + CONTENT[7 : 7 + (2 << 20)] + b"between" + CONTENT + b"last"
    assert await received(theirs, len(expected)) == expected
    await asyncio.sleep(0)
    assert (sender.writer.busy, sender.drained, sender.failures) == (False, 1, [])
    assert (file.users, sender.budget.used) == (0, 0)


@contextlib.asynccontextmanager
async def connected_from(client: str) -> AsyncIterator[Ends]:
    """Return the ends of a TCP connection; another address stands for another machine."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        theirs = await asyncio.to_thread(socket.create_connection, listening.getsockname(), 10, (client, 0))
        ends = Ends(theirs)
        await ends.connect((await loop.sock_accept(listening))[0])
    yield ends
    await ends.close()


@pytest.mark.parametrize("client", ["127.0.0.1", "127.0.0.2"])
async def test_nothing_is_paced_on_the_way_to_the_same_machine(client: str) -> None:
    async with connected_from(client) as ends:
        option = socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16
        ours = ends.transport.get_extra_info("socket").getsockopt(*option)
        assert ours == (b"reno".ljust(16, b"\0") if client == "127.0.0.1" else ends.theirs.getsockopt(*option))


async def test_others_have_their_turn_while_much_is_sent(file: OpenFile) -> None:
    """The socket would take all of it in one call."""
    async with connected_from("127.0.0.1") as ends:
        sender, theirs = ends.sender, ends.theirs
        theirs.setblocking(False)
        sender.writer.send([FileRange(file, 0, len(CONTENT))])
        taken = 0
        select.select([theirs], [], [], 30)  # a busy kernel delivers it a moment later
        with contextlib.suppress(BlockingIOError):
            while piece := theirs.recv(1 << 20):
                taken += len(piece)
        assert 0 < taken <= SENDFILE_BYTES_MAX
        assert await received(theirs, len(CONTENT) - taken) == CONTENT[taken:]


async def test_answers_that_wait_one_after_the_other_need_no_descriptors(ends: Ends, file: OpenFile) -> None:
    sender, theirs = ends.sender, ends.theirs
    ours = ends.transport.get_extra_info("socket").fileno()
    opened = []
    for number in range(1, 4):
        head = os.urandom(20)
        sender.writer.send([head, FileRange(file, 0, len(CONTENT))])
        assert sender.writer.busy
        assert await received(theirs, 20 + len(CONTENT)) == head + CONTENT
        await asyncio.sleep(0)
        assert (sender.writer.busy, sender.drained) == (False, number)
        opened.append(open_descriptors(ours, file.descriptor))
    assert opened == [opened[0]] * 3


async def test_a_head_that_is_taken_in_part_goes_before_its_range(ends: Ends, file: OpenFile) -> None:
    sender, theirs = ends.sender, ends.theirs
    ends.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    head = os.urandom(60_000)
    sender.writer.send([head, FileRange(file, 0, len(CONTENT))])
    assert await received(theirs, len(head) + len(CONTENT)) == head + CONTENT
    await asyncio.sleep(0)
    assert (sender.writer.busy, sender.failures, file.users) == (False, [], 0)


async def test_a_range_that_the_socket_takes_at_once_leaves_nothing_to_wait_for(ends: Ends, file: OpenFile) -> None:
    sender, theirs = ends.sender, ends.theirs
    sender.writer.send([b"head", FileRange(file, 0, 70_000)])
    assert (sender.writer.busy, sender.drained, file.users) == (False, 0, 0)
    assert await received(theirs, 70_004) == b"head" + CONTENT[:70_000]


async def test_a_file_shorter_than_its_slice_ends_the_connection(ends: Ends, file: OpenFile) -> None:
    sender, theirs = ends.sender, ends.theirs
    sender.writer.send([FileRange(file, 1 << 20, len(CONTENT))])
    assert await received(theirs, len(CONTENT)) == CONTENT[1 << 20 :]
    await sender.lost_wire.wait()
    assert sender.failures == ["the file of a slice is shorter than the slice"]
    assert file.users == 0


async def test_a_connection_that_ends_meanwhile_gives_up_the_file_and_its_descriptor(
    ends: Ends, file: OpenFile
) -> None:
    sender = ends.sender
    descriptor = ends.transport.get_extra_info("socket").fileno()
    ours = os.dup(descriptor)  # names the socket after its end
    before = open_descriptors(ours, file.descriptor)
    sender.writer.send([FileRange(file, 0, len(CONTENT)), os.urandom(100_000)])
    opened = open_descriptors(ours, file.descriptor) - before
    assert (file.users, sender.budget.used) == (1, 100_000)
    assert [of for _, of in opened] == ["anon_inode:[eventpoll]"]
    ends.transport.abort()
    await sender.lost_wire.wait()
    after = open_descriptors(ours, file.descriptor)
    os.close(ours)
    assert (file.users, sender.budget.used, after - before) == (0, 0, opened)
    assert descriptor not in [number for number, _ in after]


async def test_a_reader_that_goes_away_meanwhile_ends_the_answer(ends: Ends, file: OpenFile) -> None:
    sender, theirs = ends.sender, ends.theirs
    sender.writer.send([FileRange(file, 0, len(CONTENT))])
    theirs.close()
    await sender.lost_wire.wait()  # writer and event loop both watch the socket: either is the first to see it
    assert file.users == 0


async def test_every_byte_that_waits_is_counted(ends: Ends) -> None:
    """Those in the transport's buffer as well, and those of small parts."""
    sender, theirs = ends.sender, ends.theirs
    sender.budget.limit = 1 << 20
    parts = [bytes(300_000), bytes(100), bytes(600_000), bytes(2_000)]
    total = sum(map(len, parts))
    sender.writer.send(parts)
    sender.writer.count_buffered()
    waiting = sender.writer.memory_held
    assert (sender.budget.used, sender.overfull) == (waiting, 0)
    assert 602_100 < waiting == 602_100 + ends.transport.get_write_buffer_size()  # the kernel has the rest
    sender.writer.send([bytes(600_000)])
    assert (sender.budget.full, sender.overfull) == (True, 1)
    assert len(await received(theirs, total + 600_000)) == total + 600_000
    while sender.writer.busy:  # noqa: ASYNC110
        await asyncio.sleep(0)
    sender.writer.count_buffered()
    assert (sender.budget.used, sender.writer.memory_held) == (0, 0)
