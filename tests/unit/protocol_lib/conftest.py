"""Values for any declared message, made from its annotations, so that no test is written per API."""

import random
import string
from collections.abc import Callable
from typing import Any

import pytest
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, layout, message_layout
from protocol_lib.schema import Fixed, Opaque

INTEGER_RANGES = {
    "b": range(-(2**7), 2**7),
    "h": range(-(2**15), 2**15),
    "H": range(2**16),
    "i": range(-(2**31), 2**31),
    "q": range(-(2**63), 2**63),
}
FLOATS = (0.0, 1.0, -1.5, 1e300, 5e-324, float("inf"))
TEXTS = ("", "a", "orders", "größer", "日本", "x" * 126, "y" * 127, "z" * 300)

Fill = Callable[..., Any]


class Filler:
    """Random values for one message.

    `plain` keeps to values that every library can hold: real error codes, times, tagged structs not all of defaults.
    `small` keeps byte strings short, for tests that try something at every byte.
    """

    def __init__(self, draw: random.Random, *, plain: bool = False, small: bool = False) -> None:
        self.draw = draw
        self.plain = plain
        self.texts = ("", "a", "größer") if small else TEXTS
        self.blobs = (0, 1, 7) if small else (0, 1, 60, 126, 127, 20_000)

    def message(self, cls: type, version: int) -> Any:
        return self.struct(message_layout(cls, version))

    def struct(self, inside: Layout) -> Any:
        places = inside.fields + inside.tagged
        return inside.cls(**{place.name: self.place(place, inside) for place in places})

    def place(self, place: Place, inside: Layout) -> Any:
        if place.tag is not None and self.draw.random() < 0.4:
            return place.default
        if place.nullable and self.draw.random() < 0.3:
            return None
        value = self.value(place.kind, place.name, inside)
        while self.plain and place.tag is not None and value == type(value)():
            value = self.value(place.kind, place.name, inside)
        return value

    def value(self, kind: Kind, name: str, inside: Layout) -> Any:
        draw = self.draw
        match kind:
            case Fixed(format="?"):
                return draw.random() < 0.5
            case Fixed(format="16s"):
                return draw.randbytes(16) if draw.random() < 0.8 else bytes(16)
            case Fixed(format="d"):
                return draw.choice(FLOATS)
            case Fixed():
                return self.integer(kind, name)
            case Text():
                return draw.choice(self.texts) or "".join(draw.choices(string.ascii_letters, k=draw.randrange(9)))
            case Opaque():
                return draw.randbytes(draw.choice(self.blobs))
            case Nested():
                return self.struct(layout(kind.cls, inside.version, inside.flexible))
            case Array():
                return tuple(self.value(kind.element, name, inside) for _ in range(draw.choice((0, 1, 2, 3))))

    def integer(self, kind: Fixed, name: str) -> int:
        if self.plain and "error_code" in name:
            return self.draw.randrange(-1, 115)
        if self.plain and ("_ms" in name or "timestamp" in name):
            return self.draw.randrange(2**30)
        values = INTEGER_RANGES[kind.format]
        edges = (0, 1, values.stop - 1, *((-1, values.start) if values.start else ()))
        return self.draw.choice((*edges, self.draw.randrange(values.start, values.stop)))


@pytest.fixture(scope="session")
def fill() -> Fill:
    """The function fill(cls, version, draw, plain=False, small=False) -> message."""

    def make(cls: type, version: int, draw: random.Random, *, plain: bool = False, small: bool = False) -> Any:
        return Filler(draw, plain=plain, small=small).message(cls, version)

    return make
