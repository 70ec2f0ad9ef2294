"""The recorded requests of stock clients: `recorded/CLIENT.gz`.

A recording is a line of JSON, then its frames in the order in which the broker received them: the number of the
connection in two bytes, the size in four, the request without its length. The line has the client's name and the ids
that the recording broker gave its topics.
"""

from __future__ import annotations

import gzip
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path

RECORDED = Path(__file__).with_name("recorded")
_HEAD = struct.Struct(">HI")


@dataclass
class Recording:
    """One client's requests."""

    #: Name and version of the client, and the prefix of its topics and groups.
    client: str
    #: Ids that the recording broker gave, by topic.
    topics: dict[str, str] = field(default_factory=dict)
    #: (number of the connection, request).
    frames: list[tuple[int, bytes]] = field(default_factory=list)

    @classmethod
    def read(cls, name: str) -> Recording:
        data = gzip.decompress((RECORDED / f"{name}.gz").read_bytes())
        end = data.index(b"\n")
        made = cls(**json.loads(data[:end]))
        position = end + 1
        while position < len(data):
            connection, size = _HEAD.unpack_from(data, position)
            position += _HEAD.size
            made.frames.append((connection, data[position : position + size]))
            position += size
        return made

    def write(self, name: str) -> None:
        head = json.dumps({"client": self.client, "topics": self.topics}, sort_keys=True).encode() + b"\n"
        body = b"".join(_HEAD.pack(connection, len(frame)) + frame for connection, frame in self.frames)
        RECORDED.mkdir(exist_ok=True)
        (RECORDED / f"{name}.gz").write_bytes(gzip.compress(head + body, 9, mtime=0))


def names() -> list[str]:
    return sorted(path.stem for path in RECORDED.glob("*.gz"))
