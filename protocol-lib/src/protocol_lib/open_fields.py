"""The shape of a message: its encoded bytes, and where in them the open fields of a template are.

To find the places, the message is encoded twice. The second time, bit 0 of each byte of each open field is flipped: the
two encodings differ in these bytes and in no others.

    plain      00 00 00 07 │ 00 00 00 00 00 00 00 2a │ 00 02 6d 31
    flipped    00 00 00 07 │ 01 01 01 01 01 01 01 2b │ 00 02 6d 31
    exclusive  00 00 00 00 │ 01 01 01 01 01 01 01 01 │ 00 00 00 00     an int64 is open at 4
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from struct import calcsize, pack, unpack
from typing import Any, Final

from protocol_lib.codec import encode, encode_parts
from protocol_lib.layout import Array, Layout, Nested, layout, message_layout
from protocol_lib.schema import UNKNOWN_TAGS, Fixed
from protocol_lib.varint import write_unsigned

_FLIP: Final = bytes(byte ^ 1 for byte in range(256))

#: The open fields of a struct in wire order: None for one that the version does not send.
_Plan = dict[str, "Fixed | _Plan | None"]
#: An open field's place in its message, and its `struct` format; "" and no place for one that is not sent.
OpenField = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Shape:
    """A message, encoded, and its open fields."""

    flexible: bool
    #: The bytes up to the length of the records, or all of them.
    before: bytes
    #: The bytes after the records.
    after: bytes
    places: list[OpenField]

    def moved(self, by: int) -> list[OpenField]:
        """Return the places of the open fields that are sent, in a frame whose body begins at a position."""
        return [(position + by, format_) for position, format_ in self.places if format_]


def shape_of(message: Any, version: int, open_fields: tuple[str, ...], *, with_records: bool) -> Shape:
    """Return the shape of a message; its values of the open fields do not matter.

    Raises EncodeError for a message that cannot be encoded, TypeError for a path that is no scalar of it. With records,
    raises ValueError unless the message holds records once, at least one byte of them, after all open fields.
    """
    inside = message_layout(type(message), version)
    plan = _plan(inside.cls, version, inside.flexible, open_fields)
    before, after = _encoded(message, version, inside.flexible, with_records)
    formats: list[str] = []
    flipped, flipped_after = _encoded(_flipped(message, plan, formats), version, inside.flexible, with_records)
    if flipped_after != after:
        raise ValueError("an open field is after the records")
    differ = int.from_bytes(before, "big") ^ int.from_bytes(flipped, "big")
    mask = differ.to_bytes(len(before), "big")
    places: list[OpenField] = []
    position = 0
    for format_ in formats:
        if format_:
            position = mask.index(1, position)
            places.append((position, format_))
            position += calcsize(format_)
        else:
            places.append((position, ""))
    return Shape(inside.flexible, before, after, places)


def _encoded(message: Any, version: int, flexible: bool, with_records: bool) -> tuple[bytes, bytes]:
    """Return the bytes before the length of the only records and those after them; all, and none, without records."""
    if not with_records:
        return encode(message, version), b""
    before, *rest = encode_parts(message, version)
    if not isinstance(before, bytes) or not 1 <= len(rest) <= 2:
        raise ValueError("not one field of records")
    length = records_length(flexible, len(rest[0]))
    after = rest[1] if len(rest) == 2 else b""
    assert isinstance(after, bytes)
    return before.removesuffix(length), after


@cache
def _plan(cls: type, version: int, flexible: bool, open_fields: tuple[str, ...]) -> _Plan:
    inside = layout(cls, version, flexible)
    inner: dict[str, list[str]] = {}
    for path in open_fields:
        name, _, rest = path.partition(".")
        inner.setdefault(name, []).append(rest)
    plan: _Plan = {}
    kinds = {place.name: place.kind for place in inside.fields}
    absent = dict(inside.absent)
    for name in inside.cls.__dataclass_fields__:  # type: ignore[attr-defined]
        if name not in inner:
            continue
        rests = inner.pop(name)
        kind = kinds.get(name)
        element = kind.element if isinstance(kind, Array) else kind
        if name in absent:
            if rests == [""]:
                plan[name] = None
        elif isinstance(kind, Fixed) and rests == [""]:
            plan[name] = kind
        elif isinstance(element, Nested) and "" not in rests:
            plan[name] = _plan(element.cls, version, flexible, tuple(rests))
        else:
            inner[name] = rests
            break
    if inner:
        raise TypeError(f"{inside.label} has no open scalar {', '.join(inner)}")
    return plan


def _flipped(value: Any, plan: _Plan, formats: list[str]) -> Any:
    """Return a copy of a struct with bit 0 of each byte of its open fields flipped; add their formats in order."""
    changed: dict[str, Any] = {}
    for name, inner in plan.items():
        held = getattr(value, name)
        if inner is None:
            formats.append("")
        elif isinstance(inner, Fixed):
            formats.append(">" + inner.format)
            (changed[name],) = unpack(formats[-1], pack(formats[-1], held).translate(_FLIP))
        elif isinstance(held, tuple | list):
            changed[name] = tuple(_flipped(each, inner, formats) for each in held)
        elif held is not None:
            changed[name] = _flipped(held, inner, formats)
    return replace(value, **changed)


def has_unknown_tags(value: Any, inside: Layout) -> bool:
    """Return whether a struct, or one inside it, holds tagged fields that this package does not know."""
    if getattr(value, UNKNOWN_TAGS):
        return True
    for place in inside.fields + inside.tagged:
        kind = place.kind.element if isinstance(place.kind, Array) else place.kind
        if isinstance(kind, Nested):
            held = getattr(value, place.name)
            inner = layout(kind.cls, inside.version, inside.flexible)
            items = held if isinstance(place.kind, Array) else (held,)
            if any(each is not None and has_unknown_tags(each, inner) for each in items or ()):
                return True
    return False


def records_length(flexible: bool, size: int) -> bytes:
    """Return the length of records as the message holds it."""
    return write_unsigned(size + 1) if flexible else pack(">i", size)
