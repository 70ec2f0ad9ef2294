"""The layout of a declared struct in one version: its fields, in order, and their kinds.

A kind is one of `Fixed`, `Opaque` (both from schema), `Text`, `Array` and `Nested`. Everything here is computed once
per (struct, version), when a codec for it is compiled.
"""

import dataclasses
import types
import typing
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final

from protocol_lib.schema import UNKNOWN_TAGS, Fixed, Opaque, Wire, is_struct, message_info


@dataclass(frozen=True, slots=True)
class Text:
    """UTF-8 with a length in front."""


@dataclass(frozen=True, slots=True)
class Nested:
    """Another struct, in place."""

    cls: type


@dataclass(frozen=True, slots=True)
class Array:
    """A count, then that many elements."""

    element: "Fixed | Text | Opaque | Nested"


Kind = Fixed | Text | Opaque | Nested | Array


@dataclass(frozen=True, slots=True)
class Place:
    """One field in one version."""

    name: str
    kind: Kind
    nullable: bool
    tag: int | None
    default: Any


@dataclass(frozen=True, slots=True)
class Layout:
    """One struct in one version."""

    cls: type
    version: int
    flexible: bool
    #: sent in place, in this order
    fields: tuple[Place, ...]
    #: sent as tagged fields, by ascending tag
    tagged: tuple[Place, ...]
    #: name and value of each field that this version does not send
    absent: tuple[tuple[str, Any], ...]

    @property
    def label(self) -> str:
        return f"{self.cls.__name__}_v{self.version}"


_ALWAYS: Final = Wire()


def _kind(annotation: Any, owner: str) -> tuple[Kind, bool]:
    """Return the kind an annotation stands for, and whether it allows None."""
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        members = [member for member in typing.get_args(annotation) if member is not type(None)]
        if len(members) == 1:
            return _kind(members[0], owner)[0], True
    if typing.get_origin(annotation) is Annotated:
        marker = annotation.__metadata__[0]
        if isinstance(marker, Fixed | Opaque):
            return marker, False
    if annotation is str:
        return Text(), False
    if typing.get_origin(annotation) is tuple:
        element, nullable = _kind(typing.get_args(annotation)[0], owner)
        if not nullable and not isinstance(element, Array):
            return Array(element), False
    if is_struct(annotation):
        return Nested(annotation), False
    raise TypeError(f"{owner}: {annotation!r} is nothing Kafka can carry")


@cache
def layout(cls: type, version: int, flexible: bool) -> Layout:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: list[Place] = []
    tagged: list[Place] = []
    absent: list[tuple[str, Any]] = []
    for declared in dataclasses.fields(cls):
        if declared.name == UNKNOWN_TAGS:
            continue
        said: Wire = declared.metadata.get("wire", _ALWAYS)
        if version not in said.versions:
            absent.append((declared.name, declared.default))
            continue
        kind, optional = _kind(hints[declared.name], f"{cls.__name__}.{declared.name}")
        if said.nullable is None:
            nullable = optional and not (isinstance(kind, Nested) and said.tag is not None)
        else:
            nullable = optional and version in said.nullable
        place = Place(declared.name, kind, nullable, said.tag, declared.default)
        if said.tag is None:
            fields.append(place)
        elif flexible:
            tagged.append(place)
        else:
            raise TypeError(
                f"{cls.__name__}.{declared.name}: a tagged field in version {version}, which is not flexible"
            )
    tagged.sort(key=lambda place: place.tag or 0)
    return Layout(cls, version, flexible, tuple(fields), tuple(tagged), tuple(absent))


def message_layout(cls: type, version: int) -> Layout:
    info = message_info(cls)
    if version not in info.versions:
        raise TypeError(f"{cls.__name__} is not declared for version {version}")
    return layout(cls, version, version in info.flexible)


def size_min(kind: Kind, version: int, flexible: bool, nullable: bool = False) -> int:
    """Return the fewest bytes that a value of this kind can take: a bound for hostile counts."""
    match kind:
        case Fixed():
            return kind.size
        case Text():
            return 1 if flexible else 2
        case Nested() if nullable:
            return 1
        case Nested():
            places = layout(kind.cls, version, flexible).fields
            return sum(size_min(place.kind, version, flexible, place.nullable) for place in places) + flexible
        case Opaque() | Array():
            return 1 if flexible else 4


def fixed_format(inside: Layout) -> str | None:
    """Return the `struct` format of a struct that is nothing but scalars in this version, else None."""
    formats = [place.kind.format for place in inside.fields if isinstance(place.kind, Fixed)]
    if inside.flexible or not formats or len(formats) != len(inside.fields):
        return None
    return ">" + "".join(formats)


def levels(inside: Layout) -> int:
    """Return the number of levels of arrays of structs in a struct: 0 when it has none."""
    elements = [place.kind.element for place in inside.fields if isinstance(place.kind, Array)]
    structs = [layout(kind.cls, inside.version, inside.flexible) for kind in elements if isinstance(kind, Nested)]
    return max((1 + levels(inner) for inner in structs), default=0)


def nested_structs(inside: Layout) -> list[Layout]:
    """List the structs a struct is made of, itself last, each once."""
    found: dict[type, Layout] = {}
    for place in inside.fields + inside.tagged:
        kind = place.kind.element if isinstance(place.kind, Array) else place.kind
        if isinstance(kind, Nested):
            for deeper in nested_structs(layout(kind.cls, inside.version, inside.flexible)):
                found[deeper.cls] = deeper
    found[inside.cls] = inside
    return list(found.values())


def carries_references(inside: Layout) -> bool:
    """Return whether a value put out by reference (record batches) is somewhere in this struct."""
    kinds = [place.kind for member in nested_structs(inside) for place in member.fields]
    return any(isinstance(kind, Opaque) and kind.by_reference for kind in kinds)
