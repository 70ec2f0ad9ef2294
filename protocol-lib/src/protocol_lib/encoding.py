"""Texts of encode functions: one flat function per struct and version.

    def encode_<Struct>_v<n>(o, put[, refer])

`put` takes the pieces of the message in order; adjacent scalars, and the length or count that follows them, are one
piece. `refer`, there when the struct holds record batches somewhere, takes those, so that they need not be copied.
Tagged fields are written in ascending order of their tags, known and unknown ones together, and only when they differ
from their defaults.
"""

from collections.abc import Callable, Sequence
from struct import Struct, pack
from typing import Any

from protocol_lib.errors import EncodeError
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, carries_references, layout
from protocol_lib.schema import UNKNOWN_TAGS, ZERO_UUID, Fixed, Opaque
from protocol_lib.source import Source
from protocol_lib.varint import SMALL, write_unsigned

Put = Callable[[bytes], None]
Writer = Callable[..., None]


class EncoderText(Source):
    """The text of one encode function."""

    def __init__(self, inside: Layout, nested: Callable[[type], Writer]) -> None:
        super().__init__(EncodeError=EncodeError, SMALL=SMALL, pack=pack, uvarint=write_unsigned, write_tags=write_tags)
        self.inside = inside
        self.nested = nested
        self.run: list[tuple[str, str]] = []

    # -- pieces ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the scalars collected so far."""
        self.write_run(1)
        self.run.clear()

    def write_run(self, depth: int, tail: str = "") -> None:
        if not self.run and not tail:
            return
        formats = ">" + "".join(piece for piece, _ in self.run) + tail
        values = ", ".join(value for _, value in self.run)
        self.emit(f"put({self.packer('pack', formats, Struct(formats).pack)}({values}))", depth)

    def length(self, variable: str, format_: str) -> None:
        """Write a length or count; null is -1."""
        if self.inside.flexible:
            self.flush()
            self.emit(f"put(SMALL[{variable} + 1] if {variable} < 127 else uvarint({variable} + 1))")
        else:
            self.run.append((format_, variable))
            self.flush()

    # -- values ------------------------------------------------------------------------------------------------------

    def value(self, place: Place, source: str) -> None:
        match place.kind:
            case Fixed():
                if place.kind.format == "16s":  # which `struct` would cut or fill up without a word
                    self.emit(f"if len({source}) != 16:")
                    self.emit(f"raise EncodeError('{place.name} is not 16 bytes')", 2)
                self.run.append((place.kind.format, source))
            case Nested():
                self.nested_struct(place, place.kind, source)
            case Text() | Opaque():
                self.sized(place, place.kind, source)
            case Array():
                self.array(place, place.kind.element, source)

    def nested_struct(self, place: Place, kind: Nested, source: str) -> None:
        if not place.nullable:
            self.flush()
            self.emit(self.call(kind.cls, source))
            return
        there = self.variable("s")
        self.emit(f"{there} = {source}")
        self.run.append(("b", f"-1 if {there} is None else 1"))
        self.flush()
        self.emit(f"if {there} is not None:")
        self.emit(self.call(kind.cls, there), 2)

    def call(self, cls: type, source: str) -> str:
        inner = layout(cls, self.inside.version, self.inside.flexible)
        refer = ", refer" if carries_references(inner) else ""
        function = self.nested(cls)
        return f"{self.name(function.__name__, function)}({source}, put{refer})"

    def sized(self, place: Place, kind: Text | Opaque, source: str) -> None:
        data, length = self.variable("s"), self.variable("n")
        self.emit(f"{data} = {source}")
        if place.nullable:
            self.emit(f"if {data} is None:")
            self.emit(f"{length} = -1", 2)
            self.emit("else:")
        else:
            self.not_null(place, data)
        depth = 2 if place.nullable else 1
        if isinstance(kind, Text):
            self.emit(f"{data} = {data}.encode()", depth)
        self.emit(f"{length} = len({data})", depth)
        self.length(length, "h" if isinstance(kind, Text) else "i")
        self.emit(f"if {length} > 0:")
        by_reference = isinstance(kind, Opaque) and kind.by_reference
        self.emit(f"{'refer' if by_reference else 'put'}({data})", 2)

    def not_null(self, place: Place, variable: str) -> None:
        self.emit(f"if {variable} is None:")
        self.emit(f"raise EncodeError('{place.name} is null')", 2)

    def array(self, place: Place, element: Kind, source: str) -> None:
        items, length = self.variable("a"), self.variable("n")
        self.emit(f"{items} = {source}")
        if place.nullable:
            self.emit(f"{length} = -1 if {items} is None else len({items})")
        else:
            self.not_null(place, items)
            self.emit(f"{length} = len({items})")
        self.length(length, "i")
        self.emit(f"if {length} > 0:")
        if isinstance(element, Fixed):
            many = (
                f"'>' + '{element.format}' * {length}"
                if len(element.format) > 1
                else f"f'>{{{length}}}{element.format}'"
            )
            self.emit(f"put(pack({many}, *{items}))", 2)
            return
        self.emit(f"for item in {items}:", 2)
        if isinstance(element, Nested):
            self.emit(self.call(element.cls, "item"), 3)
            return
        if isinstance(element, Text):
            self.emit("item = item.encode()", 3)
        if self.inside.flexible:
            self.emit("put(uvarint(len(item) + 1))", 3)
        else:
            format_ = ">h" if isinstance(element, Text) else ">i"
            self.emit(f"put({self.packer('pack', format_, Struct(format_).pack)}(len(item)))", 3)
        self.emit("put(item)", 3)

    def constant(self, value: Any) -> str:
        return self.name("ZERO_UUID", ZERO_UUID) if value == ZERO_UUID else repr(value)

    # -- functions ---------------------------------------------------------------------------------------------------

    def struct(self) -> Writer:
        """Compile the function that writes the whole struct."""
        inside = self.inside
        refer = ", refer" if carries_references(inside) else ", refer=None"
        self.lines.append(f"def encode_{inside.label}(o, put{refer}):")
        for place in inside.fields:
            self.value(place, f"o.{place.name}")
        if inside.tagged:
            self.flush()
            self.tags()
        elif inside.flexible:
            self.emit(f"if o.{UNKNOWN_TAGS}:")
            self.write_run(2)
            self.emit(f"write_tags(o.{UNKNOWN_TAGS}, put)", 2)
            self.emit("else:")
            self.write_run(2, tail="x")
        else:
            self.flush()
        if len(self.lines) == 1:
            self.emit("pass")
        return self.compiled(f"encode_{inside.label}")

    def tags(self) -> None:
        self.emit(f"tags = list(o.{UNKNOWN_TAGS})")
        for place in self.inside.tagged:
            data = self.variable("t")
            self.emit(f"{data} = o.{place.name}")
            if place.default is None:
                self.emit(f"if {data} is not None:")
            elif place.default == () and not place.nullable:
                self.emit(f"if {data}:")
            else:
                self.emit(f"if {data} != {self.constant(place.default)}:")
            self.emit("pieces = []", 2)
            self.emit(f"{self.tagged(place)}({data}, pieces.append)", 2)
            self.emit(f"tags.append(({place.tag}, b''.join(pieces)))", 2)
        self.emit("if tags:")
        self.emit("write_tags(sorted(tags), put)", 2)
        self.emit("else:")
        self.emit("put(b'\\0')", 2)

    def tagged(self, place: Place) -> str:
        """Return the name of the function that writes one tagged field's value."""
        if isinstance(place.kind, Nested) and not place.nullable:
            writer = self.nested(place.kind.cls)
            return self.name(writer.__name__, writer)
        function = f"encode_{self.inside.label}_{place.name}"
        text = EncoderText(self.inside, self.nested)
        text.names = self.names
        text.lines.append(f"def {function}(value, put):")
        text.value(place, "value")
        text.flush()
        self.lines[:0] = [*text.lines, ""]
        return function


def write_tags(tags: Sequence[tuple[int, bytes]], put: Put) -> None:
    """Write tagged fields, which are in ascending order already."""
    put(write_unsigned(len(tags)))
    for tag, value in tags:
        put(write_unsigned(tag))
        put(write_unsigned(len(value)))
        put(value)
