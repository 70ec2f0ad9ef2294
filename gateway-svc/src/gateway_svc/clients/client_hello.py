"""The first message of a client's handshake, before OpenSSL has it.

    head of a record          head of a message
    22  3 x  length           1  length of the rest
    └──── 5 bytes ────┘       └── 4 bytes ──┘

OpenSSL takes memory for the whole of a message once it has its head: 128 KiB for 9 bytes of a client. So a ClientHello
is one record, as those of all clients are, and has 16 KiB at most. A server may ask for another one
(HelloRetryRequest). Other messages come after its answer, and are short or encrypted.
"""

from __future__ import annotations

from typing import Final

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_RECORD_HEAD: Final = 5
_HEADS: Final = 9
#: The random bytes by which a ServerHello asks for another ClientHello (RFC 8446), and their place in its record.
_RETRY: Final = bytes.fromhex("cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c")
_RETRY_AT: Final = 11


def asks_again(answer: bytes) -> bool:
    """Return whether an answer of the server asks for another ClientHello."""
    return answer[_RETRY_AT : _RETRY_AT + len(_RETRY)] == _RETRY


class HelloCheck:
    """Reads the heads in the bytes of one client, for as long as a ClientHello may come."""

    __slots__ = ("_head", "_left")

    def __init__(self) -> None:
        self._head = b""
        #: Bytes of the record that are still to come.
        self._left = 0

    def check(self, data: memoryview) -> None:
        """Read further bytes. Raises ValueError if they are those of no ClientHello that is accepted."""
        at, end = 0, len(data)
        while at < end:
            if self._left:
                step = min(self._left, end - at)
                self._left -= step
                at += step
                continue
            head = self._head
            wanted = _HEADS if head[:1] == bytes((_HANDSHAKE,)) and len(head) >= _RECORD_HEAD else _RECORD_HEAD
            head += bytes(data[at : at + wanted - len(head)])
            at += len(head) - len(self._head)
            self._head = head
            if len(head) == wanted:
                self._take(head)

    def _take(self, head: bytes) -> None:
        """Take the head of a record, or the heads of a record and of its message."""
        size = int.from_bytes(head[3:5], "big")
        if len(head) == _HEADS:
            if head[5] != _CLIENT_HELLO or int.from_bytes(head[6:9], "big") + 4 != size:  # mutant: hello-bounded
                raise ValueError("no ClientHello in one record")
            self._head, self._left = b"", size - 4
        elif head[0] != _HANDSHAKE:
            self._head, self._left = b"", size
        elif size < 4:
            raise ValueError("no ClientHello in one record")
