"""Writes the text of decode functions: one flat function per struct and version.

    def decode_<Struct>_v<n>(buf, pos, size) -> (value, next pos)

`size` is len(buf). Adjacent scalars, and the length or count that follows them, are read by one `unpack_from`. Values
are stored into a bare instance. Every count is checked against the bytes that are left before anything is allocated.
A slice that runs past the end comes out short and leaves `pos` beyond `size`: the next read fails, or the caller's
check of the end does, so lengths need no check of their own beyond their sign.
"""

from collections.abc import Callable
from struct import Struct, unpack_from
from typing import Any

from protocol_lib.errors import DecodeError
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, fixed_format, layout, size_min
from protocol_lib.schema import UNKNOWN_TAGS, ZERO_UUID, Fixed, Opaque
from protocol_lib.source import Source
from protocol_lib.varint import Buffer, read_unsigned

Reader = Callable[[Buffer, int, int], tuple[Any, int]]


class DecoderText(Source):
    """The text of one decode function."""

    def __init__(self, inside: Layout, nested: Callable[[type], Reader]) -> None:
        super().__init__(
            DecodeError=DecodeError,
            new=object.__new__,
            unpack_from=unpack_from,
            uvarint=read_unsigned,
            view=memoryview,
            read_tags=read_tags,
        )
        self.inside = inside
        self.nested = nested
        self.run: list[tuple[str, int, str]] = []

    # -- pieces ------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Read the scalars collected so far."""
        if not self.run:
            return
        formats = ">" + "".join(piece for piece, _, _ in self.run)
        size = sum(width for _, width, _ in self.run)
        targets = ", ".join(target for _, _, target in self.run)
        if formats == ">B":
            self.emit(f"{targets} = buf[pos]")
        else:
            unpack = self.packer("unpack", formats, Struct(formats).unpack_from)
            self.emit(f"{targets}{',' if len(self.run) == 1 else ''} = {unpack}(buf, pos)")
        self.emit(f"pos += {size}")
        self.run.clear()

    def length(self, format_: str) -> str:
        """Read a length or count; the variable's value is the true one, -1 for null."""
        variable = self.variable("n")
        if self.inside.flexible:
            self.run.append(("B", 1, variable))
            self.flush()
            self.emit(f"if {variable} > 127:")
            self.emit(f"{variable}, pos = uvarint(buf, pos - 1)", 2)
            self.emit(f"{variable} -= 1")
        else:
            self.run.append((format_, 4 if format_ == "i" else 2, variable))
            self.flush()
        return variable

    # -- values ------------------------------------------------------------------------------------------------------

    def call(self, cls: type) -> str:
        """The name of another struct's decode function."""
        function = self.nested(cls)
        return self.name(function.__name__, function)

    def value(self, place: Place, target: str) -> None:
        match place.kind:
            case Fixed():
                self.run.append((place.kind.format, place.kind.size, target))
            case Nested():
                self.nested_struct(place, place.kind, target)
            case Text() | Opaque():
                self.sized(place, target)
            case Array():
                self.array(place, place.kind.element, target)

    def nested_struct(self, place: Place, kind: Nested, target: str) -> None:
        if not place.nullable:
            self.flush()
            self.emit(f"{target}, pos = {self.call(kind.cls)}(buf, pos, size)")
            return
        there = self.variable("n")
        self.run.append(("b", 1, there))
        self.flush()
        self.emit(f"if {there} < 0:")
        self.emit(f"{target} = None", 2)
        self.emit("else:")
        self.emit(f"{target}, pos = {self.call(kind.cls)}(buf, pos, size)", 2)

    def sized(self, place: Place, target: str) -> None:
        variable = self.length("h" if isinstance(place.kind, Text) else "i")
        depth = self.unless_null(place, variable, target)
        self.emit(f"end = pos + {variable}", depth)
        self.emit(f"{target} = {_slice(place.kind)}", depth)
        self.emit("pos = end", depth)

    def unless_null(self, place: Place, variable: str, target: str) -> int:
        """Open the branch for a value that is there; returns its depth."""
        if not place.nullable:
            self.emit(f"if {variable} < 0:")
            self.emit(f"raise DecodeError('{place.name} is null')", 2)
            return 1
        self.emit(f"if {variable} == -1:")
        self.emit(f"{target} = None", 2)
        if not self.inside.flexible:  # a compact length cannot be below -1
            self.emit(f"elif {variable} < 0:")
            self.emit(f"raise DecodeError('{place.name} has a negative length')", 2)
        self.emit("else:")
        return 2

    def array(self, place: Place, element: Kind, target: str) -> None:
        version, flexible = self.inside.version, self.inside.flexible
        variable = self.length("i")
        depth = self.unless_null(place, variable, target)
        fewest = size_min(element, version, flexible)
        if fewest == 0:
            raise TypeError(f"{self.inside.label}.{place.name}: elements without bytes cannot be counted safely")
        remaining = f"(size - pos) // {fewest}" if fewest > 1 else "size - pos"
        self.emit(f"if {variable} > {remaining}:", depth)
        self.emit(f"raise DecodeError('{place.name} counts more elements than there are bytes')", depth + 1)
        if isinstance(element, Fixed):
            self.emit(f"{target} = unpack_from(f'>{{{variable}}}{element.format}', buf, pos)", depth)
            self.emit(f"pos += {variable} * {element.size}", depth)
            return
        if isinstance(element, Nested) and self.fixed_elements(element, variable, target, depth):
            return
        self.emit("items = []", depth)
        self.emit(f"for _ in range({variable}):", depth)
        if isinstance(element, Nested):
            function = self.call(element.cls)
            self.emit(f"item, pos = {function}(buf, pos, size)", depth + 1)
            self.emit("items.append(item)", depth + 1)
        else:
            self.elements(element, place.name, depth + 1)
        self.emit(f"{target} = tuple(items)", depth)

    def fixed_elements(self, element: Nested, variable: str, target: str, depth: int) -> bool:
        """Read structs that are nothing but scalars without a call for each."""
        inner = layout(element.cls, self.inside.version, self.inside.flexible)
        formats = fixed_format(inner)
        if formats is None:
            return False
        shape = Struct(formats)
        places = [f"v{index}" for index in range(len(inner.fields))]
        self.emit("items = []", depth)
        self.emit(f"end = pos + {variable} * {shape.size}", depth)
        listed = ", ".join(places) + ("," if len(places) == 1 else "")
        self.emit(f"for {listed} in {self.packer('iter', formats, shape.iter_unpack)}(buf[pos:end]):", depth)
        self.emit(f"item = new({self.name(element.cls.__name__, element.cls)})", depth + 1)
        for place, read in zip(inner.fields, places, strict=True):
            self.emit(f"item.{place.name} = {read}", depth + 1)
        self.defaults(inner, "item", depth + 1)
        self.emit(f"item.{UNKNOWN_TAGS} = ()", depth + 1)
        self.emit("items.append(item)", depth + 1)
        self.emit("pos = end", depth)
        self.emit(f"{target} = tuple(items)", depth)
        return True

    def elements(self, element: Kind, name: str, depth: int) -> None:
        """Read one string or byte string of an array."""
        wide = isinstance(element, Opaque)
        if self.inside.flexible:
            self.emit("n, pos = uvarint(buf, pos)", depth)
            self.emit("n -= 1", depth)
        else:
            format_ = ">i" if wide else ">h"
            self.emit(f"n, = {self.packer('unpack', format_, Struct(format_).unpack_from)}(buf, pos)", depth)
            self.emit(f"pos += {4 if wide else 2}", depth)
        self.emit("if n < 0:", depth)
        self.emit(f"raise DecodeError('{name} holds a null')", depth + 1)
        self.emit("end = pos + n", depth)
        self.emit(f"items.append({_slice(element)})", depth)
        self.emit("pos = end", depth)

    def defaults(self, inner: Layout, owner: str, depth: int = 1) -> None:
        for name, default in inner.absent:
            self.emit(f"{owner}.{name} = {self.constant(default)}", depth)

    def constant(self, value: Any) -> str:
        if value == ZERO_UUID:
            return self.name("ZERO_UUID", ZERO_UUID)
        return repr(value)

    # -- functions ---------------------------------------------------------------------------------------------------

    def struct(self) -> Reader:
        """Compile the function that reads the whole struct."""
        inside = self.inside
        head = f"def decode_{inside.label}(buf, pos, size):"
        self.lines.append(head)
        self.emit(f"o = new({self.name(inside.cls.__name__, inside.cls)})")
        for place in inside.fields:
            self.value(place, f"o.{place.name}")
        if inside.flexible:
            self.run.append(("B", 1, "tags"))
        self.flush()
        self.defaults(inside, "o")
        for place in inside.tagged:
            self.emit(f"o.{place.name} = {self.constant(place.default)}")
        self.emit(f"o.{UNKNOWN_TAGS} = ()")
        if inside.flexible:
            readers = ", ".join(f"{place.tag}: ({place.name!r}, {self.tagged(place)})" for place in inside.tagged)
            self.lines.insert(self.lines.index(head), f"known_tags = {{{readers}}}\n")
            self.emit("if tags:")
            self.emit("pos = read_tags(o, buf, pos - 1, size, known_tags)", 2)
        self.emit("return o, pos")
        return self.compiled(f"decode_{inside.label}")

    def tagged(self, place: Place) -> str:
        """The name of the function that reads one tagged field's value."""
        if isinstance(place.kind, Nested) and not place.nullable:
            return self.call(place.kind.cls)
        function = f"decode_{self.inside.label}_{place.name}"
        text = DecoderText(self.inside, self.nested)
        text.names = self.names
        text.lines.append(f"def {function}(buf, pos, size):")
        text.value(place, "value")
        text.flush()
        text.emit("return value, pos\n")
        self.lines[:0] = text.lines
        return function


def _slice(kind: Kind) -> str:
    if isinstance(kind, Text):
        return "str(buf[pos:end], 'utf-8')"
    if isinstance(kind, Opaque) and kind.by_reference:
        return "view(buf)[pos:end]"
    return "bytes(buf[pos:end])"


def read_tags(owner: Any, buf: Buffer, pos: int, size: int, known: dict[int, tuple[str, Reader]]) -> int:
    """Read a struct's tagged fields: known ones into their slots, others kept as bytes."""
    count, pos = read_unsigned(buf, pos)
    if count > (size - pos) // 2:
        raise DecodeError("more tagged fields than there are bytes")
    unknown: list[tuple[int, bytes]] = []
    last = -1
    for _ in range(count):
        tag, pos = read_unsigned(buf, pos)
        length, pos = read_unsigned(buf, pos)
        end = pos + length
        if end > size:
            raise DecodeError(f"tagged field {tag} is longer than the message")
        if tag <= last:
            raise DecodeError(f"tagged field {tag} after {last}")
        last = tag
        if tag in known:
            name, read = known[tag]
            value, pos = read(buf, pos, size)
            setattr(owner, name, value)
            if pos != end:
                raise DecodeError(f"tagged field {name} is not as long as it says")
        else:
            unknown.append((tag, bytes(buf[pos:end])))
            pos = end
    if unknown:
        setattr(owner, UNKNOWN_TAGS, tuple(unknown))
    return pos
