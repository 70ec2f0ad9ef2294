"""The bytes of one client connection, under its reader and its writer. Nothing above a wire knows a socket.

    socket ── Wire ┬ room, received ──────────────── FrameReader
                   └ write, Mover ────────────────── AnswerWriter

`plain_wire` is the form without encryption, `tls_wire` the one with it. A wire that encrypts has no `Mover`: the system
cannot move files and lanes to its socket. The writer then reads their bytes into memory, at most `WRITE_BYTES` at a
time, and writes them like others. So the same budgets hold for every form.

A wire is the protocol of asyncio's transport, and calls its connection (`WireUser`) in this order:

    began ── ready ── received, pause_writing, resume_writing … ── lost

Between `began` and `ready` it may agree on a key with the client, for `ready_within_s` at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from service_chassis.socket_room import SocketRoom, Waiter

from gateway_svc.storage.protocols import LaneAnswer


class Wire(Protocol):
    """One client connection, as its reader and its writer use it."""

    @property
    def ready_within_s(self) -> float:
        """Seconds after which a connection is closed that is not ready; infinity if it is ready at once."""
        ...

    @property
    def mover(self) -> Mover | None:
        """The way of files and lanes to the socket, past this process; None if their bytes must be encrypted here."""
        ...

    @property
    def peer(self) -> tuple[str, int]:
        """The client's address and port."""
        ...

    @property
    def principal(self) -> str:
        """The user that the client's certificate names; ANONYMOUS without one. Known once the wire is ready."""
        ...

    # -- reading ---------------------------------------------------------------------------------------------------

    def pause_reading(self) -> None:
        """Call `received` no more until `resume_reading`."""
        ...

    def resume_reading(self) -> None:
        """Call `received` again, later. Bytes that were read from the socket before come first."""
        ...

    def peer_is_open(self) -> bool:
        """Return whether the client still has its end open, whatever of its bytes were not read."""
        ...

    # -- writing ---------------------------------------------------------------------------------------------------

    def write(self, data: bytes | memoryview, /) -> None:
        """Write bytes, or keep them until the socket accepts them. Keeping many, it calls `pause_writing`."""
        ...

    def unwritten(self) -> int:
        """Return how many bytes are kept that the socket has not accepted."""
        ...

    def borrow(self, count: int) -> memoryview:
        """Return memory for the next `write`: at most `count` bytes, which nobody uses until then."""
        ...

    def is_closing(self) -> bool:
        """Return whether the wire is closed or being closed."""
        ...

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close once all bytes are written."""
        ...

    def abort(self) -> None:
        """Close at once."""
        ...


class Mover(Protocol):
    """A wire to whose socket the system moves ranges of files and lanes."""

    def is_writable(self) -> bool:
        """Return whether what is written now reaches the socket before anything else."""
        ...

    def pause_until_written(self) -> None:
        """Call `pause_writing` if bytes are kept, and `resume_writing` once all of them are written."""
        ...

    def write_now(self, head: bytes | memoryview) -> bool:
        """Write the bytes before a range to the socket; return whether they were written, or are kept."""
        ...

    def send_file(self, descriptor: int, position: int, count: int) -> int:
        """Send at most `count` bytes of a file; return how many.

        Raises:
            BlockingIOError: the socket has no room.
            OSError: the socket has failed (ConnectionError), or the file cannot be sent.
        """
        ...

    def splice(self, answer: LaneAnswer, count: int) -> int:
        """Move at most `count` bytes of a lane to the socket; return how many.

        Raises:
            OSError: the lane or the socket has failed.
        """
        ...

    def wait_for_room(self, waiter: Waiter) -> None:
        """Call the waiter when the socket has room."""
        ...


class WireUser(Protocol):
    """The connection, as its wire uses it."""

    def began(self, wire: Wire) -> None:
        """Start to count the connection: it is open, and not yet `ready`."""
        ...

    def ready(self) -> None:
        """Start to serve the client: from now on the wire can be written, and calls `received`."""
        ...

    @property
    def room(self) -> Callable[[], memoryview]:
        """The function that returns where to put bytes that have arrived; `received` must follow. Set by `began`."""
        ...

    def received(self, count: int) -> None:
        """Process the `count` bytes that were put into `room`."""
        ...

    def ended(self) -> bool:
        """Return whether the wire must stay open to be written: the client sends no more. Else the wire closes."""
        ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def failed(self, reason: str, detail: str) -> None:
        """Log and count why the wire closes now: the client broke the rules of its encryption."""
        ...

    def lost(self) -> None:
        """Forget the wire: it is closed."""
        ...


#: The user of clients that do not say who they are.
ANONYMOUS: Final = "User:ANONYMOUS"

#: A function that makes the wire of a connection, by the gateway's waiting room for sockets.
MakeWire = Callable[[WireUser, SocketRoom], asyncio.BaseProtocol]
