"""Hexadecimal text as bytes.

    > 0000001a 0012 0000 00000007 0008 7264…             sent by a client
    < 00000044 00000007 0000 …                            sent by a broker
    00000000: 0000 0014 0003 0001  ........               as xxd writes it
    00000000  00 00 00 14 00 03 00 01  |........|         as hexdump -C writes it
    # a remark

Lines belong together until an empty line, a line with a direction, or an offset of 0. Without a
direction, the bytes show their sender. White space, colons and commas between digits do not matter. The length in front
of a single frame may be left out.
"""

import re
from typing import Final

from protocol_lib.dump.stream import Connection, Piece, Side
from protocol_lib.errors import DecodeError

_DIRECTION: Final = re.compile(r"\s*([<>])(.*)")
#: An offset, and its separator from the digits: a colon (xxd, tcpdump) or two spaces (hexdump -C).
_OFFSET: Final = re.compile(r"\s*(?:0x)?([0-9a-fA-F]{4,16})(:\s|\s\s)\s*(.*)")
_OFFSET_ALONE: Final = re.compile(r"[0-9a-fA-F]{8}\s*")
_BETWEEN: Final = re.compile(r"[\s:,]")


def read_hexdump(text: str) -> Connection:
    """Return the pieces of a dump, as one connection; raise DecodeError with the line that is not hexadecimal."""
    pieces: list[Piece] = []
    side = Side.UNKNOWN
    digits: list[str] = []
    with_offsets = False

    def close() -> None:
        if digits:
            pieces.append(Piece("", side, bytes.fromhex("".join(digits))))
            digits.clear()

    for number, line in enumerate(text.splitlines(), 1):
        columns = line
        if line.lstrip().startswith("#"):
            continue
        if not line.strip():
            close()
            side, with_offsets = Side.UNKNOWN, False
            continue
        if with_offsets and _OFFSET_ALONE.fullmatch(line):
            continue  # how hexdump -C ends
        if match := _DIRECTION.fullmatch(line):
            close()
            side, columns = Side(match[1]), match[2]
        elif (match := _OFFSET.fullmatch(line)) and int(match[1], 16) in (0, sum(map(len, digits)) // 2):
            with_offsets = True
            if int(match[1], 16) == 0:
                close()
            columns = match[3].partition("  ")[0] if match[2].startswith(":") else match[3].partition("|")[0]
        found = _BETWEEN.sub("", columns)
        if len(found) % 2 or not re.fullmatch("[0-9a-fA-F]*", found):
            raise DecodeError(f"line {number} is not hexadecimal: {line.strip()[:40]!r}")
        digits.append(found)
    close()
    return Connection("", pieces, whole=True)
