"""Any message, as hypothesis draws and shrinks it, from the annotations of its declaration."""

from functools import cache
from typing import Any

from hypothesis import strategies as st
from protocol_lib.layout import Array, Kind, Layout, Nested, Place, Text, layout, message_layout
from protocol_lib.schema import Fixed, Opaque

_SCALARS: dict[str, st.SearchStrategy[Any]] = {
    "b": st.integers(-(2**7), 2**7 - 1),
    "h": st.integers(-(2**15), 2**15 - 1),
    "H": st.integers(0, 2**16 - 1),
    "i": st.integers(-(2**31), 2**31 - 1),
    "q": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}
_UNKNOWN_TAGS = st.dictionaries(st.integers(1000, 2**31 - 1), st.binary(max_size=9), max_size=2).map(
    lambda tags: tuple(sorted(tags.items()))
)


def messages(cls: type, version: int) -> st.SearchStrategy[Any]:
    return _struct(message_layout(cls, version))


@cache
def _struct(inside: Layout) -> st.SearchStrategy[Any]:
    fields = {place.name: _place(place, inside) for place in inside.fields + inside.tagged}
    if not inside.flexible:
        return st.builds(inside.cls, **fields)
    return st.builds(_with_tags, st.builds(inside.cls, **fields), _UNKNOWN_TAGS)


def _with_tags(value: Any, tags: tuple[tuple[int, bytes], ...]) -> Any:
    value.unknown_tagged_fields = tags
    return value


def _place(place: Place, inside: Layout) -> st.SearchStrategy[Any]:
    value = _value(place.kind, inside)
    if place.tag is not None:
        value = st.just(place.default) | value
    return st.none() | value if place.nullable else value


def _value(kind: Kind, inside: Layout) -> st.SearchStrategy[Any]:
    match kind:
        case Fixed():
            return _SCALARS[kind.format]
        case Text():
            return st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
        case Opaque():
            return st.binary(max_size=200)
        case Nested():
            return _struct(layout(kind.cls, inside.version, inside.flexible))
        case Array():
            return st.lists(_value(kind.element, inside), max_size=3).map(tuple)
