"""One call of a connection: messages out, messages in, and the windows of both.

Waiting for room. A sender asks `has_room` before each message. If there is none, `on_room` is called when there is, or
when the stream has ended. **A stream that was refused room, or that has bytes to send, is always woken.** It waits in
one of two places, and `_wait_for_room` is the one way into them:

    what is missing                     where it waits                 what wakes it
    room of the connection: its         Connection.waiting, in turns   its WINDOW_UPDATE, the socket that has drained
    window, or its socket is full
    room of this stream's own window    nowhere                        `go_on`: its WINDOW_UPDATE, and SETTINGS
    either, and the stream ends         -                              `end`

Each of these events runs `Connection.pump_waiting`, which pumps the waiting streams in turns until there is no room or
no stream. `pump` sends one frame, then waits again, or calls `on_room` once. `check_invariants` states this in code.
The bytes of a sender that does not ask wait in the stream. Its call ends if Limits.queued_bytes of the connection wait
already: RESOURCE_EXHAUSTED.

Back-pressure. Received bytes are given back to the peer as WINDOW_UPDATE. This stops while the stream is paused, and
while complete messages wait for a reader. A peer that ignores it breaks the rules of the window and loses the call.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from service_chassis.grpc_status import Status
from service_chassis.http2.frames import DATA, HEAD, MESSAGE_HEAD, U32, ErrorCode, window_update
from service_chassis.http2.headers import Fields
from service_chassis.http2.limits import MESSAGE_COST, MESSAGES_A_FRAME, TINY_BYTES

if TYPE_CHECKING:
    from service_chassis.http2.connection import Connection

Buffer = bytes | bytearray | memoryview
#: A message to send: its parts, their bytes in all, and bytes that precede them.
Message = tuple[Sequence[Buffer], int, bytes]

#: The longest message that `send` copies. The parts of longer ones go to the transport as they are.
COPIED_BYTES_MAX: Final = 65_536


class Stream:
    """One call; ServerCall and ClientCall are its roles.

    `receiver` gets each message in the protocol's callback: a view that is valid until it returns. A message of more
    than reader.READ_BYTES has memory of its own and may be kept. An error that it raises ends the call.
    """

    __slots__ = (
        "__weakref__", "_body", "_clogged_at", "_given", "_queue", "_waiters", "_wants_room", "connection",
        "deadline", "half_closed", "id", "is_due", "is_open", "is_paused", "message_bytes_max", "on_room", "opened_at",
        "receiver", "trailers_due", "waiting", "was_refused", "window",
    )  # fmt: skip

    def __init__(self, connection: Connection, stream_id: int, message_bytes_max: int) -> None:
        self.connection = connection
        self.id = stream_id
        self.message_bytes_max = message_bytes_max
        #: Bytes that the peer accepts; negative after SETTINGS have shrunk it.
        self.window = connection.first_window
        self.receiver: Callable[[memoryview], None] = self._keep
        self.on_room: Callable[[], None] = _nothing
        #: Messages that came before somebody read them.
        self.waiting: deque[bytes] = deque()
        #: Whether the stream may still send, and whether the peer has sent its last message.
        self.is_open, self.half_closed = True, False
        self.is_paused = False
        #: Whether `send_now` will be called, at the end of this turn or by the owner.
        self.is_due = False
        #: Whether the peer has ended the call before it did anything for it.
        self.was_refused = False
        self.deadline: asyncio.TimerHandle | None = None
        self.opened_at = connection.loop.time()
        #: The last frames, which follow the bytes that wait.
        self.trailers_due: bytes | None = None
        self._queue: deque[memoryview] = deque()
        self._wants_room = False
        self._clogged_at = 0.0
        #: A message of which a part has come, with its head.
        self._body: bytearray | None = None
        #: Received bytes that were not given back to the peer's window.
        self._given = 0
        self._waiters: list[asyncio.Future[None]] = []

    # -- sending -----------------------------------------------------------------------------------------------------

    @property
    def is_queued(self) -> bool:
        """Whether bytes of the stream wait for room."""
        return bool(self._queue)

    def has_room(self) -> bool:
        """Return whether a message would leave now. If not, `on_room` is called when one would, or at the end."""
        connection = self.connection
        if self._queue or connection.is_full or self.window <= 0 or connection.window <= 0 or not self.is_open:
            self._wants_room = self.is_open  # mutant: refused-sender-noted
            self._wait_for_room()
            return False
        return True

    def send(self, parts: Sequence[Buffer], size: int, prefix: bytes = b"") -> None:
        """Send a message of `prefix` and `parts`, which are `size` bytes. An ended stream drops it.

        The parts of a message of more than COPIED_BYTES_MAX must never change.
        """
        connection = self.connection
        size += len(prefix)
        whole = size + 5
        if (
            whole <= self.window
            and whole <= connection.window
            and whole <= connection.frame_bytes_max
            and not self._queue
            and not connection.is_full
            and self.is_open
        ):
            self.window -= whole
            connection.window -= whole
            connection.count_sent(whole)
            head = MESSAGE_HEAD.pack(whole << 8 | DATA, 0, self.id, 0, size) + prefix
            if whole > COPIED_BYTES_MAX:
                connection.transport.writelines((head, *parts))
            else:
                connection.transport.write(b"".join((head, *parts)))
        elif self._queue and connection.is_behind:  # mutant: unread-messages-bounded
            self.fail(Status.RESOURCE_EXHAUSTED, "too many messages wait for the peer")
        elif self.is_open:
            connection.queued_bytes += whole
            head = b"\0" + U32.pack(size) + prefix
            if whole > COPIED_BYTES_MAX:
                self._queue.append(memoryview(head))
                self._queue.extend(memoryview(part).cast("B") for part in parts if len(part))
            else:
                self._queue.append(memoryview(b"".join((head, *parts))))
            self.go_on()

    def send_from(self, following: Callable[[], Message | None]) -> None:
        """Send what `following` returns for as long as there is room and it returns messages."""
        while self.has_room() and (message := following()) is not None:
            self.send(*message)

    def send_soon(self) -> None:
        """Call `send_now` at the end of this turn of the event loop, once for all that ask before."""
        if not self.is_due:
            self.is_due = True
            self.connection.loop.call_soon(self.send_now)

    def send_now(self) -> None:
        """Have the sender send, by `on_room`."""
        self.is_due = False
        self._call_on_room()

    def go_on(self) -> None:
        """Send what waits, as far as there is room."""
        if self._queue or self._wants_room:
            self._wait_for_room()
            self.connection.pump_waiting()

    def pump(self) -> None:
        """Send one frame of the bytes that wait, then wait for more room, or call `on_room`. Connection calls it."""
        connection = self.connection
        if self._queue and self.window > 0 and connection.window > 0 and not connection.is_full:
            self._send_frame()
        if self._queue:
            self._wait_for_room()
        elif self.trailers_due is not None:
            last, self.trailers_due = self.trailers_due, None
            self.finish(last)
        elif self._wants_room:
            if self.window > 0 and connection.window > 0 and not connection.is_full:
                self._call_on_room()
            else:
                self._wait_for_room()

    def _send_frame(self) -> None:
        connection, queue = self.connection, self._queue
        room = min(self.window, connection.window, connection.frame_bytes_max)
        pieces, size = [], 0
        while queue and size < room:
            piece = queue[0]
            if len(piece) > room - size:
                queue[0] = piece[room - size :]
                piece = piece[: room - size]
            else:
                queue.popleft()
            pieces.append(piece)
            size += len(piece)
        self.window -= size
        connection.window -= size
        connection.queued_bytes -= size
        connection.count_sent(size)
        connection.transport.writelines((HEAD.pack(size << 8 | DATA, 0, self.id), *pieces))

    def _wait_for_room(self) -> None:
        """Take the place to wait in: see the table above."""
        if not self.is_open:
            return
        if not self._clogged_at:
            self._clogged_at = self.connection.loop.time()
        if self.window > 0:
            self.connection.wait(self)  # mutant: waiting-stream-noted

    def _call_on_room(self) -> None:
        """Wake the sender. An error that it raises ends this call only: others wait for their turn, too."""
        self._wants_room = False
        self._count_clogged()
        try:
            self.on_room()
        except Exception as error:  # mutant: failed-sender-ends-alone
            self.on_callback_error(error)

    def _count_clogged(self) -> None:
        if self._clogged_at:
            self.connection.counts.clogged_s += self.connection.loop.time() - self._clogged_at
            self._clogged_at = 0.0

    def finish(self, last: bytes) -> None:
        """Send the last frames, after all messages."""
        if self._queue:
            self.trailers_due = last  # mutant: trailers-after-messages
        elif self.is_open:
            self.connection.write(last)
            self.on_finished()

    def drop_unsent(self) -> None:
        """Give up messages that wait, and the end that was to follow them. One may have been sent in part."""
        self.connection.queued_bytes -= sum(map(len, self._queue))
        self._queue.clear()
        self.trailers_due = None

    async def room(self) -> None:
        """Wait until there is room, or the stream has ended."""
        while self.is_open and not self.has_room():
            self.on_room = self.wake
            await self.news()

    # -- receiving ---------------------------------------------------------------------------------------------------

    def received(self, payload: memoryview) -> None:
        """Process bytes of messages that are not exactly one message."""
        body, self._body = self._body, None
        if body is None:
            body = bytearray()
        else:
            self.connection.held_bytes -= len(body)
        body += payload
        position = count = 0
        while self.is_open and len(body) - position >= 5:
            size = int.from_bytes(body[position + 1 : position + 5], "big")
            if not self._is_sound(body[position], size):
                return
            end = position + 5 + size
            if end > len(body):
                break
            count += 1
            if count > MESSAGES_A_FRAME and size < TINY_BYTES:
                self.connection.floods.count("DATA")  # mutant: tiny-messages-bounded
            self.deliver(memoryview(body)[position + 5 : end])
            position = end
        if position < len(body) and self.is_open:
            # A new one: views of the delivered messages may be kept.
            self._body = body[position:] if position else body
            self.connection.hold(self, len(self._body))

    def _is_sound(self, compressed: int, size: int) -> bool:
        """Return whether a message may have this head; if not, the call has ended."""
        if compressed:
            self.fail(Status.UNIMPLEMENTED, "compressed messages are not supported")
        elif size > self.message_bytes_max:  # mutant: long-message-refused
            self.fail(Status.RESOURCE_EXHAUSTED, f"a message of {size} bytes, {self.message_bytes_max} are allowed")
        return self.is_open and not compressed and size <= self.message_bytes_max

    @property
    def is_between_messages(self) -> bool:
        return self._body is None

    def deliver(self, message: memoryview) -> None:
        """Pass a message to the receiver; an error that it raises ends this call only."""
        try:
            self.receiver(message)
        except Exception as error:
            self.receiver = _ignore
            self.on_callback_error(error)

    def give(self, count: int) -> None:
        """Count received bytes, and give them back to the peer's window unless somebody is behind."""
        self._given += count
        if self._given >= self.connection.limits.stream_window // 2:
            self._give_back()

    def _give_back(self) -> None:
        if not (self.is_paused or self.waiting or self.half_closed):  # mutant: paused-window-kept
            self.connection.write(window_update(self.id, self._given))
            self._given = 0
        elif self._given > self.connection.limits.stream_window:
            self.connection.reset(self, ErrorCode.FLOW_CONTROL_ERROR)
            self.on_lost(Status.INTERNAL, "the peer has sent more than the window allows")

    def pause(self) -> None:
        """Give no more bytes back to the peer, which stops within its window."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        if self.is_open:
            self.give(0)

    def receive(self, receiver: Callable[[memoryview], None]) -> None:
        """Call `receiver` with the messages that wait, and then with each message in the protocol's callback."""
        self.receiver = receiver
        while self.waiting and self.receiver is receiver:
            self.deliver(memoryview(self._taken()))
        self.give(0)

    def _keep(self, message: memoryview) -> None:
        self.connection.hold(self, len(message) + MESSAGE_COST)
        self.waiting.append(message.tobytes())
        self.wake()

    def _taken(self) -> bytes:
        message = self.waiting.popleft()
        if self.is_open:
            self.connection.held_bytes -= len(message) + MESSAGE_COST
            if not self.waiting:
                self.give(0)
        return message

    async def next_message(self) -> bytes | None:
        """Return the next message; None after the last one."""
        while not self.waiting:
            if self.half_closed or not self.is_open:
                return None
            await self.news()
        return self._taken()

    # -- waiting for news --------------------------------------------------------------------------------------------

    async def news(self) -> None:
        """Wait until `wake` is called: for a message, room, the last message, or the end."""
        waiter = self.connection.loop.create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self) -> None:
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)

    def end(self) -> None:
        """Note that nothing can be sent or received any more. The connection calls it once."""
        self.is_open = False
        connection = self.connection
        if self._queue or self.trailers_due is not None:
            self.drop_unsent()
        if self.waiting:
            connection.held_bytes -= sum(map(len, self.waiting)) + MESSAGE_COST * len(self.waiting)
        if self._body is not None:
            connection.held_bytes -= len(self._body)
            self._body = None
        if self.deadline is not None:
            self.deadline.cancel()
        self._count_clogged()
        if self._wants_room:
            self._call_on_room()  # mutant: ended-sender-woken
        self.receiver, self.on_room = _ignore, _nothing  # mutant: ended-call-refers-to-itself
        self.wake()

    # -- what a role does --------------------------------------------------------------------------------------------

    def on_headers(self, fields: Fields, *, ends: bool) -> None:
        """Process header fields: the first ones, or the trailing ones."""

    def on_finished(self) -> None:
        """Note that the last frame has left."""

    def on_last_message(self) -> None:
        """Process the end of the peer's messages."""
        self.half_closed = True
        self.wake()

    def on_lost(self, status: Status, details: str) -> None:
        """Note that the call has ended without trailers; the connection calls it after `end`."""

    def fail(self, status: Status, details: str) -> None:
        """End the call because of what the peer does."""
        self.connection.reset(self, ErrorCode.CANCEL)
        self.on_lost(status, details)

    def on_callback_error(self, error: Exception) -> None:
        """End the call because its receiver, or its sender at `on_room`, has raised an error."""

    # -- invariants --------------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Fail if the stream waits for room without a place where it is woken."""
        if self.is_open and (self._queue or self._wants_room):
            is_noted = self.id in self.connection.waiting
            assert is_noted or self.window <= 0, f"stream {self.id} waits, and nothing wakes it"
        assert self.is_open or not self._queue


def _nothing() -> None:
    """Do nothing, as the `on_room` of a stream that nobody sends to."""


def _ignore(_message: memoryview) -> None:
    """Ignore a message of a call that has failed."""
