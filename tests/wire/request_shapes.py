"""Requests of every shape that the declaration of an API allows and no client needs: all structure, or all one value.

    many      one array, at any depth, is as long as the size allows; the arrays around it have one element
    pairs     the array that holds an array is as long as the size allows, and the inner ones have one element
    long      one string or byte string fills the request
    tags      tagged fields of numbers that nobody knows

The names in an array are all the same name of something that exists, or all different and of nothing. The elements are
the smallest that name something.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from protocol_lib.api import APIS
from protocol_lib.codec import encode
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, layout, message_layout
from protocol_lib.schema import Fixed, Opaque
from protocol_lib.varint import write_unsigned

from tests.wire.conftest import batch

TOPIC: Final = "wide"
GROUP: Final = "g"
#: A string of a version that is not flexible is at most this long, less one.
_STRING_MAX: Final = 1 << 15
_NUMBERS: Final = {"resource_type": 2, "acks": 1, "timestamp": -2, "max_bytes": 1 << 20, "partition_max_bytes": 1 << 10}
_MINUS_ONE: Final = frozenset(
    {"session_epoch", "current_leader_epoch", "generation_id_or_member_epoch", "num_partitions"}
)
#: The largest fields that a version does not make smaller, for a request whose arrays are long.
_Path = tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """One request."""

    api_key: int
    version: int
    name: str
    body: bytes
    elements: int

    @property
    def label(self) -> str:
        return f"{APIS[self.api_key].name} v{self.version} {self.name}"


class _Builder:
    """Builds one request whose arrays on a path are long."""

    def __init__(
        self, counts: dict[_Path, int], *, distinct: bool, topic_id: bytes, long: _Path = (), size: int = 0
    ) -> None:
        self._counts = counts
        self._distinct = distinct
        self._topic_id = topic_id
        self._long = long
        self._size = size
        self._number = 0
        self.elements = 0

    def struct(self, inside: Layout, path: _Path) -> Any:
        values = {place.name: self._value(inside, place, place.kind, (*path, place.name)) for place in inside.fields}
        return inside.cls(**dict(inside.absent), **values)

    def _value(self, inside: Layout, place: Place, kind: Kind, path: _Path) -> Any:
        match kind:
            case Array():
                return self._array(inside, place, kind, path)
            case Nested():
                return None if place.nullable else self.struct(layout(kind.cls, inside.version, inside.flexible), path)
            case Text() | Opaque() if path == self._long:
                size = self._size if inside.flexible or isinstance(kind, Opaque) else min(self._size, _STRING_MAX - 1)
                return "x" * size if isinstance(kind, Text) else bytes(size)
            case Text():
                return self._text(place)
            case Opaque():
                return None if place.nullable else b""
            case Fixed() if kind.size == 16:
                return self._id()
            case Fixed() if kind.format == "?":
                return True
            case _:
                return self._integer(place)

    def _array(self, inside: Layout, place: Place, kind: Array, path: _Path) -> Any:
        count = self._counts.get(path, 0)
        if not count:
            return None if place.nullable else ()
        self.elements += count
        element = kind.element
        if isinstance(element, Nested):
            inner = layout(element.cls, inside.version, inside.flexible)
            if not self._distinct and not any(
                name[: len(path)] == path and len(name) > len(path) for name in self._counts
            ):
                return (self.struct(inner, path),) * count
            return tuple(self.struct(inner, path) for _ in range(count))
        if isinstance(element, Text):
            return tuple(self._text(place) for _ in range(count))
        if isinstance(element, Opaque):
            return (b"",) * count
        # a byte has 128 different values at most
        values = 128 if element.size == 1 else 2**31
        return tuple(
            self._id() if element.size == 16 else index % values if self._distinct else 0 for index in range(count)
        )

    def _integer(self, place: Place) -> int:
        if place.name in _MINUS_ONE:
            return -1
        if place.name in ("partition_index", "index", "partition") and self._distinct:
            self._number += 1
            return self._number
        return _NUMBERS.get(place.name, 0)

    def _text(self, place: Place) -> str | None:
        name = place.name
        is_group = "group" in name or "key" in name
        is_topic = "topic" in name or name in ("name", "resource_name")
        if not is_group and not is_topic:
            return None if place.nullable else ""
        if self._distinct:
            self._number += 1
            return f"{self._number:x}"
        return GROUP if is_group else TOPIC

    def _id(self) -> bytes:
        if self._distinct:
            self._number += 1
            return self._number.to_bytes(16, "big")
        return self._topic_id


def _arrays(inside: Layout, path: _Path = ()) -> Iterator[_Path]:
    """Return the path of each array, each after those around it."""
    for place in inside.fields:
        here = (*path, place.name)
        if isinstance(place.kind, Array):
            yield here
            if isinstance(place.kind.element, Nested):
                yield from _arrays(layout(place.kind.element.cls, inside.version, inside.flexible), here)
        elif isinstance(place.kind, Nested) and not place.nullable:
            yield from _arrays(layout(place.kind.cls, inside.version, inside.flexible), here)


def _texts(inside: Layout) -> Iterator[_Path]:
    for place in inside.fields:
        if isinstance(place.kind, Text | Opaque):
            yield (place.name,)


def shapes(api_key: int, version: int, size: int, elements_max: int, topic_id: bytes) -> Iterator[Shape]:
    """Return the requests of one version, of about `size` bytes; if that is too many elements, one with the most."""
    inside = message_layout(APIS[api_key].request, version)

    def built(
        counts: dict[_Path, int], *, distinct: bool = False, long: _Path = (), length: int = 0
    ) -> tuple[bytes, int]:
        builder = _Builder(counts, distinct=distinct, topic_id=topic_id, long=long, size=length)
        return encode(builder.struct(inside, ()), version), builder.elements

    def long_array(
        name: str, around: dict[_Path, int], path: _Path, *, distinct: bool, inner: dict[_Path, int]
    ) -> Iterator[Shape]:
        few, many = (len(built({**around, path: n, **inner}, distinct=distinct)[0]) for n in (1000, 2000))
        count = size * 1000 // (many - few)
        each = 1 + len(inner)
        counts = {count, min(count, (elements_max - len(around)) // each)}
        for n in sorted(counts):
            body, elements = built({**around, path: n, **inner}, distinct=distinct)
            yield Shape(api_key, version, f"{name} {'.'.join(path)} x {n}", body, elements)

    every = list(_arrays(inside))
    for path in every:
        around = {other: 1 for other in every if other == path[: len(other)] and other != path}
        for distinct in (False, True):
            kind = "different" if distinct else "same"
            yield from long_array(kind, around, path, distinct=distinct, inner={})
            inner = next((other for other in every if len(other) > len(path) and other[: len(path)] == path), None)
            if inner is not None:
                yield from long_array(f"{kind} pairs", around, path, distinct=distinct, inner={inner: 1})
    for path in _texts(inside):
        body, elements = built({}, long=path, length=size)
        yield Shape(api_key, version, f"long {path[0]}", body, elements)
    if inside.flexible:
        body, _ = built({})
        for count in sorted({size // 4, min(size // 4, elements_max)}):
            tags = b"".join(write_unsigned(1000 + tag) + b"\0" for tag in range(count))
            yield Shape(api_key, version, f"tags x {count}", body[:-1] + write_unsigned(count) + tags, count)


def with_batches(version: int, count: int, topic_id: bytes) -> Shape:
    """Return a Produce request with a record batch for the same partition, this number of times."""
    inside = message_layout(APIS[0].request, version)
    request = _Builder(
        {("topic_data",): 1, ("topic_data", "partition_data"): count}, distinct=False, topic_id=topic_id
    ).struct(inside, ())
    for each in request.topic_data[0].partition_data:
        each.records = batch(b"")
    return Shape(0, version, f"batches x {count}", encode(request, version), count + 1)
