"""Strangers at the door: `python bench/login_flood.py ATTACK ADDRESS TLS_ADDRESS SECONDS` sends one attack.

They come from the addresses 127.0.1.1 to 127.0.1.100, as fast as one process can send them, and print how many came.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import struct
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

import uvloop
from protocol_lib.plain import PlainToken, encode_plain
from protocol_lib.scram import ScramClient, ScramMechanism
from raw import handshake_frame, token_frame, token_of

#: Strangers at once.
CROWD: Final = 1000
_HOSTS: Final = 100
#: The begins of a handshake: a byte, a record's head, and a record without its end.
_STARTS: Final = (b"\x16", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(9000))
#: The head of a record without data, again and again.
_HEADS: Final = b"\x16\x03\x01\x00\x00" * 800

_numbers: Final = itertools.count()
#: One stranger's visit, by its number.
Visit = Callable[[asyncio.StreamReader, asyncio.StreamWriter, int], Awaitable[None]]


async def _call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


async def guess_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Guess the password of a user, or of none."""
    await _call(reader, writer, handshake_frame("PLAIN"))
    name = "alice" if number % 2 else f"user{number}"
    await _call(reader, writer, token_frame(encode_plain(PlainToken(name, f"guess {number}"))))


async def guess_scram(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Send a proof that is made up: so the guess costs the stranger nothing."""
    await _call(reader, writer, handshake_frame("SCRAM-SHA-256"))
    first = ScramClient(ScramMechanism.SHA_256, "alice" if number % 2 else f"user{number}", "").first()
    challenge = token_of(await _call(reader, writer, token_frame(first)))
    nonce = challenge.partition(b",")[0]
    await _call(reader, writer, token_frame(b"c=biws," + nonce + b",p=" + base64.b64encode(bytes(32))))


async def shake_no_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Begin a handshake, and wait until the broker gives it up."""
    writer.write(_STARTS[number % len(_STARTS)])
    await reader.read()


async def send_heads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _number: int) -> None:
    """Send records without data."""
    writer.write(_HEADS)
    await reader.read()


async def begin_logins(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
    """Begin a login, and wait until the broker gives it up."""
    await _call(reader, writer, handshake_frame("SCRAM-SHA-256"))
    if number % 2:
        await _call(reader, writer, token_frame(ScramClient(ScramMechanism.SHA_256, "alice", "").first()))
    await reader.read()


#: Attack -> the visit of each stranger, and whether it goes to the listener with TLS.
ATTACKS: Final[dict[str, tuple[Visit, bool]]] = {
    "wrong passwords by PLAIN": (guess_plain, False),
    "wrong proofs by SCRAM": (guess_scram, False),
    "logins without an end": (begin_logins, False),
    "handshakes without an end": (shake_no_hands, True),
    "records without data": (send_heads, True),
}


async def flood(visit: Visit, address: str, until: float) -> None:
    host, _, port = address.rpartition(":")

    async def come_again() -> None:
        while time.monotonic() < until:
            number = next(_numbers)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError, RuntimeError, TimeoutError):
                local = (f"127.0.1.{1 + number % _HOSTS}", 0)
                async with asyncio.timeout(max(0.1, until - time.monotonic())):
                    reader, writer = await asyncio.open_connection(host, int(port), local_addr=local)
                    try:
                        await visit(reader, writer, number)
                    finally:
                        writer.transport.abort()

    await asyncio.gather(*(come_again() for _ in range(CROWD)))


def main() -> None:
    attack, plain, tls, seconds = sys.argv[1:]
    visit, is_encrypted = ATTACKS[attack]
    uvloop.run(flood(visit, tls if is_encrypted else plain, time.monotonic() + float(seconds)))
    print(next(_numbers))


if __name__ == "__main__":
    main()
