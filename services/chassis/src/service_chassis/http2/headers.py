"""Blocks of header fields: HPACK (RFC 7541), the rules for requests (RFC 9113, section 8), and gRPC's metadata.

Out: fields are literals without Huffman coding, which need no table. In: SETTINGS announce a table of 0 bytes, so peers
send the same block for the same fields. A block that was decoded while the table was empty means the same the next time
and is kept. The library `hpack` decodes the others.
"""

from __future__ import annotations

import base64
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import quote, unquote

import hpack

from service_chassis.http2.frames import ErrorCode, PeerError

#: gRPC's metadata: the value of a name that ends with `-bin` is bytes.
Metadata = Sequence[tuple[str, "str | bytes"]]

#: Bytes of the blocks that are kept, and their number.
_KEPT_BLOCK_BYTES_MAX: Final = 512
_KEPT_BLOCKS_MAX: Final = 256
#: The table that a peer may use before it has read our SETTINGS.
_FIRST_TABLE_BYTES: Final = 4096

#: Fields of HTTP/1.1's connections, which HTTP/2 forbids; gRPC's messages have their length themselves.
_FORBIDDEN: Final = frozenset(
    {"connection", "content-length", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
_PSEUDO_FIELDS: Final = frozenset({":method", ":scheme", ":path", ":authority"})
_NEEDED: Final = (":method", ":scheme", ":path")


class Fields(tuple[tuple[str, str], ...]):
    """Header fields as they came. What a call makes of them is kept with them: most calls have the same block."""

    @functools.cached_property
    def by_name(self) -> Mapping[str, str]:
        """The last value of each name."""
        return dict(self)

    @functools.cached_property
    def metadata(self) -> Metadata:
        return tuple(metadata(self))

    @functools.cached_property
    def fault_of_request(self) -> str | None:
        return fault_of_request(self)


class HeaderDecoder:
    """The decoder of one connection's blocks."""

    def __init__(self, list_bytes_max: int) -> None:
        """Begin without a table. `list_bytes_max`: bytes of a block's fields, each counted with 32 more."""
        self._decoder = hpack.Decoder(max_header_list_size=list_bytes_max)
        self._decoder.max_allowed_table_size = _FIRST_TABLE_BYTES
        self._kept: dict[bytes, Fields] = {}

    def decode(self, block: bytes) -> Fields:
        """Return the fields of a block.

        Raises:
            PeerError: the block cannot be decoded, or has too many fields. The table is lost with it.
        """
        kept = self._kept.get(block)
        if kept is not None:
            return kept
        try:
            fields = Fields((str(name), str(value)) for name, value in self._decoder.decode(block))
        except hpack.OversizedHeaderListError as error:
            raise PeerError(ErrorCode.ENHANCE_YOUR_CALM, "too many header fields") from error
        except (hpack.HPACKError, UnicodeDecodeError, ValueError, IndexError) as error:
            raise PeerError(ErrorCode.COMPRESSION_ERROR, f"header fields: {error}") from error
        if self._decoder.header_table.dynamic_entries:
            self._kept.clear()  # while there is a table, a block may change it
        elif len(block) <= _KEPT_BLOCK_BYTES_MAX and len(self._kept) < _KEPT_BLOCKS_MAX:
            self._kept[block] = fields
        return fields


def fault_of_request(fields: Sequence[tuple[str, str]]) -> str | None:
    """Return how the header fields of a request break RFC 9113, 8.2 and 8.3; None if they do not."""
    seen: set[str] = set()
    regular = False
    for name, value in fields:
        if name[:1] == ":":
            if regular or name in seen or name not in _PSEUDO_FIELDS:
                return f"the pseudo field {name[:40]!r}"
            seen.add(name)
        else:
            regular = True
            if _is_broken(name, value):
                return f"the field {name[:40]!r}"
    if not seen.issuperset(_NEEDED) or any(name == ":path" and not value for name, value in fields):
        return "a missing pseudo field"
    return None


def fault_of_trailers(fields: Sequence[tuple[str, str]]) -> str | None:
    """Return how trailing fields break RFC 9113, 8.1; None if they do not."""
    return next(
        (f"the field {name[:40]!r}" for name, value in fields if name[:1] == ":" or _is_broken(name, value)), None
    )


def _is_broken(name: str, value: str) -> bool:
    return not name or name != name.lower() or name in _FORBIDDEN or (name == "te" and value != "trailers")


def block(fields: Iterable[tuple[str, str | bytes]]) -> bytes:
    """Return fields as a block. Values of names with `-bin` are encoded in base 64."""
    parts = []
    for name, value in fields:
        if name.endswith("-bin"):
            encoded = base64.b64encode(value.encode() if isinstance(value, str) else value).rstrip(b"=")
        else:
            encoded = value.encode() if isinstance(value, str) else value
        key = name.encode()
        parts.append(b"".join((b"\0", _length(len(key)), key, _length(len(encoded)), encoded)))
    return b"".join(parts)


def _length(number: int) -> bytes:
    """Return the length of a string without Huffman coding (RFC 7541, 5.1)."""
    if number < 127:
        return bytes((number,))
    out, number = bytearray(b"\x7f"), number - 127
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def metadata(fields: Sequence[tuple[str, str]]) -> Metadata:
    """Return the fields of a call's metadata: all without a colon in front. A `-bin` value that is not base 64 is
    left out."""
    found: list[tuple[str, str | bytes]] = []
    for name, value in fields:
        if name.endswith("-bin"):
            try:
                found.append((name, base64.b64decode(value + "=" * (-len(value) % 4), validate=True)))
            except ValueError:  # binascii.Error is one, too
                continue
        elif name[:1] != ":":
            found.append((name, value))
    return found


def escaped(text: str) -> str:
    """Return a `grpc-message`: UTF-8, with a percent sign for each byte that is not printable ASCII."""
    return quote(text, safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~", errors="replace")


def unescaped(text: str) -> str:
    return unquote(text, errors="replace") if "%" in text else text
