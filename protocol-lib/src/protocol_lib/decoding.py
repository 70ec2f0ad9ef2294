"""Texts of decode functions: one flat function per struct and version.

    def decode_<Struct>_v<n>(buf, pos, size) -> (value, next pos)
    def count_<Struct>_v<n>(buf, pos, size, left) -> (value, next pos, left)

`size` is len(buf). `left` is the number of elements that the message may still have, in all of its arrays and tagged
fields together; a short message needs no counting. Adjacent scalars, and the length or count that follows them, are
read by one `unpack_from`. Values are stored into a bare instance. Structs in arrays are read in the loop itself, a call
for each would cost a fifth of the time, unless arrays of structs are stacked deeper in them. Every count is checked
against the bytes that are left before anything is allocated. A slice that runs past the end comes out short and leaves
`pos` beyond `size`: the next read fails, or the caller's check of the end does, so that of a length only the sign is
checked.
"""

from collections.abc import Callable, Mapping
from functools import cache
from struct import Struct, unpack_from
from types import MappingProxyType
from typing import Any, Final

from protocol_lib.errors import DecodeError, TooManyElements
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, fixed_format, layout, levels, size_min
from protocol_lib.schema import UNKNOWN_TAGS, ZERO_UUID, Fixed, Opaque
from protocol_lib.source import Source
from protocol_lib.varint import Buffer, read_unsigned

#: Either of the two functions.
Reader = Callable[..., tuple[Any, ...]]

#: Arrays of so few scalars are read by a ready made function.
FEW: Final = 16
#: Structs with at most this number of levels of arrays of structs are read in the loop over their array.
LEVELS_IN_LOOP: Final = 1
NO_TAGS: Final[Mapping[int, tuple[str, Reader]]] = MappingProxyType({})


class DecoderText(Source):
    """The text of one decode function."""

    def __init__(self, inside: Layout, nested: Callable[[type], Reader], *, counted: bool) -> None:
        super().__init__(
            DecodeError=DecodeError,
            TooManyElements=TooManyElements,
            new=object.__new__,
            unpack_from=unpack_from,
            uvarint=read_unsigned,
            read_tags=read_tags,
            count_tags=count_tags,
            view=memoryview,
        )
        self.inside = inside
        self.nested = nested
        self.counted = counted
        self.left = ", left" if counted else ""
        self.run: list[tuple[str, int, str]] = []
        #: the lines above the function
        self.above: list[str] = []
        #: whether a value is a part of the buffer
        self.refers = False

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
        """Return the name of another struct's decode function."""
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
            self.emit(f"{target}, pos{self.left} = {self.call(kind.cls)}(buf, pos, size{self.left})")
            return
        there = self.variable("n")
        self.run.append(("b", 1, there))
        self.flush()
        self.emit(f"if {there} < 0:")
        self.emit(f"{target} = None", 2)
        self.emit("else:")
        self.emit(f"{target}, pos{self.left} = {self.call(kind.cls)}(buf, pos, size{self.left})", 2)

    def sized(self, place: Place, target: str) -> None:
        variable = self.length("h" if isinstance(place.kind, Text) else "i")
        depth = self.unless_null(place, variable, target)
        self.emit(f"end = pos + {variable}", depth)
        self.emit(f"{target} = {self.slice(place.kind)}", depth)
        self.emit("pos = end", depth)

    def slice(self, kind: Kind) -> str:
        """Return the text of the value between `pos` and `end`."""
        if isinstance(kind, Text):
            return "str(buf[pos:end], 'utf-8')"
        if isinstance(kind, Opaque) and kind.by_reference:
            self.refers = True
            return "whole[pos:end]"
        return "bytes(buf[pos:end])"

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
        fewest = size_min(element, self.inside.version, self.inside.flexible)
        if fewest == 0:
            raise TypeError(f"{self.inside.label}.{place.name}: elements without bytes cannot be counted safely")
        count = self.length("i")
        if isinstance(element, Fixed):
            self.few_scalars(element, count, target)
        else:
            self.emit(f"if not {count}:")
            self.emit(f"{target} = ()", 2)
        self.emit(f"elif {count} > 0:")
        remaining = f"(size - pos) // {fewest}" if fewest > 1 else "size - pos"
        self.emit(f"if {count} > {remaining}:", 2)
        self.emit(f"raise DecodeError('{place.name} counts more elements than there are bytes')", 3)
        self.count_down(place.name, count)
        if isinstance(element, Fixed):
            self.emit(f"{target} = unpack_from({_many(element, count)}, buf, pos)", 2)
            self.emit(f"pos += {count} * {element.size}", 2)
        elif isinstance(element, Nested):
            self.structs(element, count, target)
        else:
            self.strings(element, place.name, count, target)
        if place.nullable:
            self.emit(f"elif {count} == -1:" if not self.inside.flexible else "else:")
            self.emit(f"{target} = None", 2)
        if not (place.nullable and self.inside.flexible):  # a compact count cannot be below -1
            self.emit("else:")
            self.emit(
                f"raise DecodeError('{place.name} {'has a negative length' if place.nullable else 'is null'}')", 2
            )

    def count_down(self, name: str, count: str) -> None:
        if self.counted:
            self.emit(f"left -= {count}", 2)
            self.emit("if left < 0:", 2)
            self.emit(f"raise TooManyElements('{name}')", 3)

    def few_scalars(self, element: Fixed, count: str, target: str) -> None:
        name = f"few_{element.format.replace('?', 'o')}"
        self.names.setdefault(name, few_unpackers(element.format))
        self.emit(f"if 0 <= {count} < {FEW}:")
        self.count_down(element.format, count)
        self.emit(f"{target} = {name}[{count}](buf, pos)", 2)
        self.emit(f"pos += {count} * {element.size}", 2)

    def structs(self, element: Nested, count: str, target: str) -> None:
        inner = layout(element.cls, self.inside.version, self.inside.flexible)
        if self.fixed_elements(element, inner, count, target):
            return
        items, item = self.variable("items"), self.variable("item")
        self.emit(f"{items} = []", 2)
        self.emit(f"for _ in range({count}):", 2)
        if levels(inner) <= LEVELS_IN_LOOP:
            self.loops += 2
            self.body(inner, item)
            self.loops -= 2
        else:
            self.emit(f"{item}, pos{self.left} = {self.call(element.cls)}(buf, pos, size{self.left})", 3)
        self.emit(f"{items}.append({item})", 3)
        self.emit(f"{target} = tuple({items})", 2)

    def fixed_elements(self, element: Nested, inner: Layout, count: str, target: str) -> bool:
        """Read structs that are nothing but scalars all at once."""
        formats = fixed_format(inner)
        if formats is None:
            return False
        shape = Struct(formats)
        places = [f"v{index}" for index in range(len(inner.fields))]
        items = self.variable("items")
        self.emit(f"{items} = []", 2)
        self.emit(f"end = pos + {count} * {shape.size}", 2)
        listed = ", ".join(places) + ("," if len(places) == 1 else "")
        self.emit(f"for {listed} in {self.packer('iter', formats, shape.iter_unpack)}(buf[pos:end]):", 2)
        self.emit(f"item = new({self.name(element.cls.__name__, element.cls)})", 3)
        for place, read in zip(inner.fields, places, strict=True):
            self.emit(f"item.{place.name} = {read}", 3)
        self.defaults(inner, "item", 3)
        self.emit(f"item.{UNKNOWN_TAGS} = ()", 3)
        self.emit(f"{items}.append(item)", 3)
        self.emit("pos = end", 2)
        self.emit(f"{target} = tuple({items})", 2)
        return True

    def strings(self, element: Kind, name: str, count: str, target: str) -> None:
        """Read an array of strings or byte strings."""
        wide = isinstance(element, Opaque)
        items = self.variable("items")
        self.emit(f"{items} = []", 2)
        self.emit(f"for _ in range({count}):", 2)
        if self.inside.flexible:
            self.emit("n = buf[pos]", 3)
            self.emit("pos += 1", 3)
            self.emit("if n > 127:", 3)
            self.emit("n, pos = uvarint(buf, pos - 1)", 4)
            self.emit("n -= 1", 3)
        else:
            format_ = ">i" if wide else ">h"
            self.emit(f"n, = {self.packer('unpack', format_, Struct(format_).unpack_from)}(buf, pos)", 3)
            self.emit(f"pos += {4 if wide else 2}", 3)
        self.emit("if n < 0:", 3)
        self.emit(f"raise DecodeError('{name} holds a null')", 4)
        self.emit("end = pos + n", 3)
        self.emit(f"{items}.append({self.slice(element)})", 3)
        self.emit("pos = end", 3)
        self.emit(f"{target} = tuple({items})", 2)

    def defaults(self, inner: Layout, owner: str, depth: int = 1) -> None:
        for name, default in inner.absent:
            self.emit(f"{owner}.{name} = {self.constant(default)}", depth)

    def constant(self, value: Any) -> str:
        if value == ZERO_UUID:
            return self.name("ZERO_UUID", ZERO_UUID)
        return repr(value)

    # -- functions ---------------------------------------------------------------------------------------------------

    @property
    def verb(self) -> str:
        """The first word of the names of its functions."""
        return "count" if self.counted else "decode"

    def struct(self) -> Reader:
        """Compile the function that reads the whole struct."""
        name = f"{self.verb}_{self.inside.label}"
        self.body(self.inside, "o")
        self.emit(f"return o, pos{self.left}")
        self.lines = self.function(name)
        return self.compiled(name)

    def function(self, name: str) -> list[str]:
        """Return the lines so far as the body of a function, after the lines that must be above it."""
        head = [f"def {name}(buf, pos, size{self.left}):"]
        if self.refers:
            head.append("    whole = view(buf)")
        return [*self.above, *head, *self.lines]

    def body(self, inside: Layout, owner: str) -> None:
        """Read a struct into a variable."""
        self.emit(f"{owner} = new({self.name(inside.cls.__name__, inside.cls)})")
        for place in inside.fields:
            self.value(place, f"{owner}.{place.name}")
        if inside.flexible:
            self.run.append(("B", 1, "tags"))
        self.flush()
        self.defaults(inside, owner)
        for place in inside.tagged:
            self.emit(f"{owner}.{place.name} = {self.constant(place.default)}")
        self.emit(f"{owner}.{UNKNOWN_TAGS} = ()")
        if inside.flexible:
            self.emit("if tags:")
            arguments = f"{owner}, buf, pos - 1, size, {self.known_tags(inside)}{self.left}"
            self.emit(f"pos{self.left} = {'count' if self.counted else 'read'}_tags({arguments})", 2)

    def known_tags(self, inside: Layout) -> str:
        """Return the name of the table of a struct's tagged fields."""
        if not inside.tagged:
            return self.name("NO_TAGS", NO_TAGS)
        name = f"tags_of_{inside.cls.__name__}"
        readers = ", ".join(f"{place.tag}: ({place.name!r}, {self.tagged(place, inside)})" for place in inside.tagged)
        self.above.append(f"{name} = {{{readers}}}\n")
        return name

    def tagged(self, place: Place, inside: Layout) -> str:
        """Return the name of the function that reads one tagged field's value."""
        if isinstance(place.kind, Nested) and not place.nullable:
            return self.call(place.kind.cls)
        function = f"{self.verb}_{inside.label}_{place.name}"
        text = DecoderText(self.inside, self.nested, counted=self.counted)
        text.names = self.names
        text.value(place, "value")
        text.flush()
        text.emit(f"return value, pos{self.left}\n")
        self.above += text.function(function)
        return function


@cache
def few_unpackers(format_: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """Return functions that read 0, 1, 2 … scalars of a format."""
    return tuple(Struct(f">{format_ * count}").unpack_from for count in range(FEW))


def _many(element: Fixed, count: str) -> str:
    """Return the text of the `struct` format of a number of scalars."""
    if len(element.format) > 1:
        return f"'>' + '{element.format}' * {count}"
    return f"f'>{{{count}}}{element.format}'"


def read_tags(owner: Any, buf: Buffer, pos: int, size: int, known: Mapping[int, tuple[str, Reader]]) -> int:
    """Read a struct's tagged fields: known ones into their slots, others kept as bytes."""
    count, pos = _tag_count(buf, pos, size)
    return _read_tags(owner, buf, pos, size, count, known, ())[0]


def count_tags(
    owner: Any, buf: Buffer, pos: int, size: int, known: Mapping[int, tuple[str, Reader]], left: int
) -> tuple[int, int]:
    """Read as `read_tags` does, and count the fields and their elements."""
    count, pos = _tag_count(buf, pos, size)
    left -= count
    if left < 0:
        raise TooManyElements("tagged fields")
    pos, (left,) = _read_tags(owner, buf, pos, size, count, known, (left,))
    return pos, left


def _tag_count(buf: Buffer, pos: int, size: int) -> tuple[int, int]:
    count, pos = read_unsigned(buf, pos)
    if count > (size - pos) // 2:
        raise DecodeError("more tagged fields than there are bytes")
    return count, pos


def _read_tags(
    owner: Any,
    buf: Buffer,
    pos: int,
    size: int,
    count: int,
    known: Mapping[int, tuple[str, Reader]],
    left: tuple[int, ...],
) -> tuple[int, tuple[int, ...]]:
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
            value, pos, *rest = read(buf, pos, size, *left)
            left = tuple(rest)
            setattr(owner, name, value)
            if pos != end:
                raise DecodeError(f"tagged field {name} is not as long as it says")
        else:
            unknown.append((tag, bytes(buf[pos:end])))
            pos = end
    if unknown:
        setattr(owner, UNKNOWN_TAGS, tuple(unknown))
    return pos, left
