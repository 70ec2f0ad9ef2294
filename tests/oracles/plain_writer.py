"""A plain writer of messages, field by field from their layouts, which notes the places of lengths and counts.

Tests compare the compiled encoder with it. A test that breaks messages finds its targets by it.
"""

import struct
from dataclasses import dataclass
from typing import Any

from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, layout, message_layout, size_min
from protocol_lib.schema import Fixed, Opaque


def uvarint(value: int) -> bytes:
    pieces = bytearray()
    while value > 127:
        pieces.append(value & 127 | 128)
        value >>= 7
    pieces.append(value)
    return bytes(pieces)


@dataclass(frozen=True)
class Mark:
    """A length, a count, or the byte that says whether a struct is there."""

    name: str
    start: int
    end: int
    #: form of the length or count itself: h, i, compact, or b for a struct
    form: str
    nullable: bool
    #: the fewest bytes of an element, of a count
    element_min: int | None

    def spelled(self, value: int) -> bytes:
        """Return the length or count `value`; -1 is null."""
        return uvarint(value + 1) if self.form == "compact" else struct.pack(f">{self.form}", value)

    @property
    def largest(self) -> int:
        return {"b": 127, "h": 2**15 - 1}.get(self.form, 2**31 - 1)


class PlainWriter:
    """One message being written."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.marks: list[Mark] = []

    def message(self, message: Any, version: int) -> "PlainWriter":
        self.struct(message, message_layout(type(message), version))
        return self

    def struct(self, value: Any, inside: Layout) -> None:
        for place in inside.fields:
            self.place(getattr(value, place.name), place, inside)
        if inside.flexible:
            self.tags(value, inside)

    def tags(self, value: Any, inside: Layout) -> None:
        tags = dict(value.unknown_tagged_fields)
        inner: dict[int, list[Mark]] = {}
        for place in inside.tagged:
            assert place.tag is not None
            field = getattr(value, place.name)
            if field != place.default:
                apart = PlainWriter()
                apart.value(field, place.kind, place, inside)
                tags[place.tag], inner[place.tag] = bytes(apart.data), apart.marks
        self.data += uvarint(len(tags))
        for tag in sorted(tags):
            self.data += uvarint(tag) + uvarint(len(tags[tag]))
            for mark in inner.get(tag, ()):
                moved = mark.start + len(self.data), mark.end + len(self.data)
                self.marks.append(Mark(mark.name, *moved, mark.form, mark.nullable, mark.element_min))
            self.data += tags[tag]

    def place(self, value: Any, place: Place, inside: Layout) -> None:
        if isinstance(place.kind, Nested) and place.nullable:
            self.mark(-1 if value is None else 1, "b", place)
            if value is None:
                return
        self.value(value, place.kind, place, inside)

    def value(self, value: Any, kind: Kind, place: Place, inside: Layout) -> None:
        match kind:
            case Fixed():
                self.data += struct.pack(f">{kind.format}", value)
            case Nested():
                self.struct(value, layout(kind.cls, inside.version, inside.flexible))
            case Array():
                fewest = size_min(kind.element, inside.version, inside.flexible)
                self.count(value, "i", place, inside, fewest)
                for item in value or ():
                    self.element(item, kind.element, place, inside)
            case Text() | Opaque():
                content = value.encode() if isinstance(value, str) else value
                self.count(content, "h" if isinstance(kind, Text) else "i", place, inside)
                self.data += content or b""

    def element(self, value: Any, kind: Kind, place: Place, inside: Layout) -> None:
        self.value(value, kind, Place(place.name, kind, False, None, None), inside)

    def count(self, value: Any, form: str, place: Place, inside: Layout, element_min: int | None = None) -> None:
        self.mark(-1 if value is None else len(value), "compact" if inside.flexible else form, place, element_min)

    def mark(self, value: int, form: str, place: Place, element_min: int | None = None) -> None:
        start = len(self.data)
        mark = Mark(place.name, start, start, form, place.nullable, element_min)
        self.data += mark.spelled(value)
        self.marks.append(Mark(place.name, start, len(self.data), form, place.nullable, element_min))
