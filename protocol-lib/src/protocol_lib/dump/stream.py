"""The content of a dump: bytes that went over connections, in the order they were recorded."""

from dataclasses import dataclass, field
from enum import Enum


class Side(Enum):
    """The sender of the bytes."""

    CLIENT = ">"
    BROKER = "<"
    UNKNOWN = "?"


@dataclass(slots=True)
class Piece:
    """Bytes that were recorded together; pieces of one connection and one source are one stream."""

    source: str
    side: Side
    data: bytes


@dataclass(slots=True)
class Connection:
    """The pieces of one connection, of both directions, in the order they were recorded."""

    name: str
    pieces: list[Piece] = field(default_factory=list)
    #: Each piece holds whole frames, or one frame without the length in front of it.
    whole: bool = False
