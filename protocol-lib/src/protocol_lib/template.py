"""Templates: the constant bytes of messages that differ in a few fields of fixed size, and the places of those fields.

A client repeats itself. `RequestTemplate.learn` takes a request that was decoded, its frame and the names of the fields
that may differ, and finds out where they are in the frame. The next frame is then recognised by comparing the bytes
between them, and only the open fields are read. `AnswerTemplate` encodes an answer once and fills in its open fields.

A request, from `begin` on, without the int32 length of its frame:

    0               4                8                                                                      end
    │ key, version  │ correlation id │ client id, tags, body …  │ open │ body … │ open │ body …                │
    └── constant ───┘                └──────── constant ────────┘      └────────┘      └────────────────────────┘

A request that ends with records, which differ in length (Produce). Constant bytes follow them in flexible versions:

    │ key, version  │ correlation id │ client id … topic │ open │ length of records │ records         │ no tags │
    └──── start ────┘                └────── head ───────┘      ^ records_at        └─ find_records ──┘

An answer, with its length:

    │ length i32    │ correlation id │ tags, body …      │ open │ body …                                       │
    │ length i32    │ correlation id │ tags, body …      │ open │ body … │ length of records │ records │ after │
    └────────────────────────────────── head ─────────────────────────────────────────────┘

An open field is named by its path, "topics.partitions.committed_offset", and is a scalar outside of tagged fields. In
an array it is open in every element. The correlation id is always open. Values are in the order of the declaration,
which is the order on the wire. A request has no value for a field that its version does not send. `fill` and `head` of
an answer accept a value for such a field and leave it out, so that a caller passes the same values in every version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct, calcsize
from typing import Any, Final

from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.headers import (
    decode_request_header,
    encode_request_header,
    encode_response_header,
)
from protocol_lib.layout import message_layout
from protocol_lib.open_fields import OpenField, Shape, has_unknown_tags, records_length, shape_of
from protocol_lib.records.header import HEADER_SIZE
from protocol_lib.schema import message_info
from protocol_lib.varint import Buffer, read_unsigned, write_unsigned

#: The position of a request's first byte after key, version and correlation id.
HEAD_AT: Final = 8
_CORRELATION_ID_AT: Final = 4
_length: Final = Struct(">i").unpack_from

#: The begin and the end of records.
Span = tuple[int, int]
FindRecords = Callable[[Buffer, int, int], Span | None]

_FILL: Final = """
def make(pack, whole, write_unsigned, {constants}):
    def fill(correlation_id, {values}):
        return pack(whole, correlation_id, {arguments})
    return fill
"""
_HEAD: Final = """
def make(pack, whole, write_unsigned, {constants}):
    def head(correlation_id, size, {values}):
        return pack(whole + size, correlation_id, {arguments} size)
    return head
"""
_HEAD_FLEXIBLE: Final = """
def make(pack, whole, write_unsigned, {constants}):
    def head(correlation_id, size, {values}):
        length = write_unsigned(size + 1)
        return pack(whole + len(length) + size, correlation_id, {arguments}) + length
    return head
"""


def read_correlation_id(store: Buffer, begin: int) -> int:
    """Return the correlation id of the request that begins here; the caller knows that its header is there."""
    return int(_length(store, begin + _CORRELATION_ID_AT)[0])


class RequestTemplate:
    """Requests of one length that are equal but for the correlation id and the open fields."""

    __slots__ = ("_constants", "_read_constants", "size", "values")

    #: values(store, begin): the open fields of a request that matches, in wire order.
    values: Callable[[Buffer, int], tuple[Any, ...]]

    def __init__(self, frame: Buffer, shape: Shape) -> None:
        """Use `learn`."""
        self.size = len(frame)
        constants, values = _readers(shape.moved(len(frame) - len(shape.before)), len(frame))
        self._read_constants = constants.unpack_from
        self._constants = constants.unpack_from(frame)
        self.values = values.unpack_from

    @classmethod
    def learn(
        cls, request: Any, version: int, frame: Buffer, open_fields: tuple[str, ...] = ()
    ) -> RequestTemplate | None:
        """Return the template of a frame and the request that was decoded from it.

        None when the frame is not written as this package writes it, or holds tagged fields that it does not know.
        Raises TypeError, for any frame, where a path is no scalar of the request.
        """
        shape = _learn(request, version, frame, open_fields, with_records=False)
        return None if shape is None else cls(frame, shape)

    def matches(self, store: Buffer, begin: int, end: int) -> bool:
        """Return whether the request between these positions has the template's constant bytes."""
        return end - begin == self.size and self._read_constants(store, begin) == self._constants


class RecordsRequestTemplate:
    """Requests that end with one field of records and are equal but for it, the correlation id and the open fields.

    `matches` decides in one call. A loop over many requests compares `start` and `head` itself, reads `values` and
    calls `find_records(store, begin + records_at, end)`. That is all where no constant byte is between the first open
    field and the records.
    """

    __slots__ = ("_constants", "_read_constants", "find_records", "head", "records_at", "start", "values")

    #: values(store, begin): the open fields of a request that matches, in wire order.
    values: Callable[[Buffer, int], tuple[Any, ...]]
    #: The function (store, position, end) -> begin and end of the records whose length is at a position. None unless
    #: they, and the constant bytes after them, reach to the end of the request. None for less than a batch header.
    find_records: FindRecords

    def __init__(self, frame: Buffer, shape: Shape) -> None:
        """Use `learn`."""
        _, body_at = decode_request_header(frame)
        places = shape.moved(body_at)
        self.records_at = body_at + len(shape.before)
        #: API key and version as one number.
        self.start: int = _length(frame)[0]
        #: The constant bytes from HEAD_AT to the first open field.
        self.head = bytes(frame[HEAD_AT : places[0][0] if places else self.records_at])
        constants, values = _readers(places, self.records_at)
        self._read_constants = constants.unpack_from
        self._constants = constants.unpack_from(frame)
        self.values = values.unpack_from
        self.find_records = _records_finder(shape.flexible, shape.after)

    @classmethod
    def learn(
        cls, request: Any, version: int, frame: Buffer, open_fields: tuple[str, ...] = ()
    ) -> RecordsRequestTemplate | None:
        """Return the template of a frame and the request that was decoded from it, as `RequestTemplate.learn` does.

        None, too, unless the request holds records once, after all open fields, no shorter than a batch header.
        """
        shape = _learn(request, version, frame, open_fields, with_records=True)
        return None if shape is None else cls(frame, shape)

    def matches(self, store: Buffer, begin: int, end: int) -> bool:
        """Return whether the request between these positions has the constant bytes, and records that fill the rest."""
        return (
            end - begin >= self.records_at
            and self._read_constants(store, begin) == self._constants
            and self.find_records(store, begin + self.records_at, end) is not None
        )


class AnswerTemplate:
    """Answers that are equal but for the correlation id and the open fields."""

    __slots__ = ("fill",)

    #: fill(correlation_id, *values): the answer, with the int32 length of its frame. struct.error for a value that
    #: its field cannot hold, TypeError for too few or too many.
    fill: Callable[..., bytes]

    def __init__(self, response: Any, version: int, open_fields: tuple[str, ...] = ()) -> None:
        """Encode a response once. Its own values of the open fields do not matter.

        Raises EncodeError for a response that cannot be encoded, TypeError for a path that is no scalar of it.
        """
        shape = shape_of(response, version, open_fields, with_records=False)
        whole, packer, constants, arguments = _pieces(response, version, shape, with_records=False)
        self.fill = _maker(_FILL, arguments)(packer.pack, whole, None, *constants)


class RecordsAnswerTemplate:
    """Answers that hold records once and are equal but for them, the correlation id and the open fields.

    The answer is `head`, the records, however many pieces they are, and `after`.
    """

    __slots__ = ("after", "head")

    #: head(correlation_id, size, *values): the answer up to the records, which are `size` bytes (1 or more) long.
    #: Raises as `AnswerTemplate.fill` does.
    head: Callable[..., bytes]
    #: The bytes after the records.
    after: bytes

    def __init__(self, response: Any, version: int, open_fields: tuple[str, ...] = ()) -> None:
        """Encode a response once. Its records are any bytes, at least one.

        Raises as AnswerTemplate does, and ValueError unless the response holds records once, after all open fields.
        """
        shape = shape_of(response, version, open_fields, with_records=True)
        whole, packer, constants, arguments = _pieces(response, version, shape, with_records=True)
        self.after = shape.after
        text = _HEAD_FLEXIBLE if shape.flexible else _HEAD
        self.head = _maker(text, arguments)(packer.pack, whole, write_unsigned, *constants)


def _learn(
    request: Any, version: int, frame: Buffer, open_fields: tuple[str, ...], *, with_records: bool
) -> Shape | None:
    try:
        header, body_at = decode_request_header(frame)
        shape = shape_of(request, version, open_fields, with_records=with_records)
    except (DecodeError, EncodeError, ValueError):
        return None
    if (header.api_key, header.api_version) != (_api_key(type(request)), version):
        return None
    end = body_at + len(shape.before)
    if frame[:body_at] != encode_request_header(header) or frame[body_at:end] != shape.before:
        return None
    if shape.flexible and has_unknown_tags(request, message_layout(type(request), version)):
        return None
    if not with_records:
        return shape if end == len(frame) else None
    span = _records_finder(shape.flexible, shape.after)(frame, end, len(frame))
    if span is None or frame[end : span[0]] != records_length(shape.flexible, span[1] - span[0]):
        return None
    return shape


def _api_key(cls: type) -> int:
    key = message_info(cls).api_key
    if key is None:
        raise TypeError(f"{cls.__name__} is neither a request nor a response")
    return key


def _readers(places: list[OpenField], end: int) -> tuple[Struct, Struct]:
    """Return a reader of the constant bytes of a request, up to a position, and one of its open fields."""
    constants, values = [">4s4x"], [">8x"]
    position = HEAD_AT
    for at, format_ in places:
        size = calcsize(format_)
        constants.append(f"{at - position}s{size}x" if at > position else f"{size}x")
        values.append(f"{at - position}x{format_[1:]}")
        position = at + size
    constants.append(f"{end - position}s")
    return Struct("".join(constants)), Struct("".join(values))


def _pieces(response: Any, version: int, shape: Shape, *, with_records: bool) -> tuple[int, Struct, list[bytes], str]:
    """Return the length of an answer without its records, its packer, its constant pieces and the packer's arguments.

    An argument is a letter: c for a constant piece, v for a value, - for a value that is not sent. A varint length of
    the records is not counted.
    """
    tail = encode_response_header(_api_key(type(response)), version, 0)[4:]
    body = tail + shape.before
    formats, constants, arguments = [">ii"], list[bytes](), ""

    def put(piece: bytes) -> str:
        if not any(piece):
            formats.append(f"{len(piece)}x")
            return ""
        formats.append(f"{len(piece)}s")
        constants.append(piece)
        return "c"

    position = 0
    for at, format_ in shape.places:
        if format_:
            at += len(tail)
            arguments += put(body[position:at]) + "v"
            formats.append(format_[1:])
            position = at + calcsize(format_)
        else:
            arguments += "-"
    arguments += put(body[position:])
    whole = 4 + len(body) + len(shape.after)
    if with_records and not shape.flexible:
        formats.append("i")
        whole += 4
    return whole, Struct("".join(formats)), constants, arguments


@lru_cache(maxsize=256)
def _maker(text: str, arguments: str) -> Callable[..., Callable[..., bytes]]:
    """Compile the maker of a template's function. With all constants bound, filling is one call of `Struct.pack`."""
    names = [f"{kind}{number}" for number, kind in enumerate(arguments.replace("-", "_"))]
    constants = [name for name in names if name[0] == "c"]
    values = [name for name in names if name[0] != "c"]
    passed = [name for name in names if name[0] != "_"]
    source = text.format(
        constants=", ".join(constants), values=", ".join(values), arguments="".join(f"{name}, " for name in passed)
    )
    made: dict[str, Any] = {}
    exec(source, made)
    maker: Callable[..., Callable[..., bytes]] = made["make"]
    return maker


def _records_finder(flexible: bool, after: bytes) -> FindRecords:
    if not flexible:
        return _find_records
    after_size = len(after)

    def find_flexible(store: Buffer, position: int, end: int) -> Span | None:
        end -= after_size
        if end - position < HEADER_SIZE:
            return None
        try:
            length, begin = read_unsigned(store, position)
        except DecodeError:
            return None
        if end - begin < HEADER_SIZE or length - 1 != end - begin or store[end : end + after_size] != after:
            return None
        return begin, end

    return find_flexible


def _find_records(store: Buffer, position: int, end: int) -> Span | None:
    begin = position + 4
    if end - begin < HEADER_SIZE or _length(store, position)[0] != end - begin:
        return None
    return begin, end
