"""How a Kafka message is declared: one class per struct, for all of its versions.

    @struct
    class FetchPartition:
        partition: Int32
        current_leader_epoch: Int32 = wire("9+", default=-1)
        fetch_offset: Int64

    @message(api_key=1, versions="0-18", flexible="12+")
    class FetchRequest:
        ...

Rules. Field order is wire order. `X | None` is nullable; `nullable="12+"` when only some versions allow null. A field
without `wire(...)` is in every version its struct appears in; a field that some versions lack must name its default,
which a decoder stores there. `tag=0` makes it a tagged field of flexible versions, left out when it equals its
default; a tagged struct is declared `X | None` with default None for "not sent". A struct that may be null has an int8
in front, negative for null; a tagged one only where `nullable` says so. Version ranges are spelled as in Kafka's
message files: "7+", "8-10", "3".

The classes are plain slotted dataclasses, built by keyword. Each also has `unknown_tagged_fields`, the (tag, bytes)
pairs a newer peer sent that this declaration does not know; they are kept and written again. Messages are not frozen
(it triples the cost of a decode): treat them as values.
"""

from collections.abc import Callable, Sized
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Annotated, Any, Final, TypeVar, dataclass_transform

T = TypeVar("T")

UNKNOWN_TAGS: Final = "unknown_tagged_fields"


@dataclass(frozen=True, slots=True)
class Fixed:
    """A scalar of fixed size, by its `struct` format."""

    format: str
    size: int


@dataclass(frozen=True, slots=True)
class Opaque:
    """Bytes with a length in front; `by_reference` values are not copied, neither in nor out."""

    by_reference: bool


Int8 = Annotated[int, Fixed("b", 1)]
Int16 = Annotated[int, Fixed("h", 2)]
Int32 = Annotated[int, Fixed("i", 4)]
Int64 = Annotated[int, Fixed("q", 8)]
UInt16 = Annotated[int, Fixed("H", 2)]
Float64 = Annotated[float, Fixed("d", 8)]
Boolean = Annotated[bool, Fixed("?", 1)]
Uuid = Annotated[bytes, Fixed("16s", 16)]
String = str
Bytes = Annotated[bytes, Opaque(by_reference=False)]
#: Record batches to send: anything with a length, put into `encode_parts`' list by reference.
Records = Annotated[Sized, Opaque(by_reference=True)]
#: Record batches received: a slice of the buffer that was decoded.
RecordBytes = Annotated[bytes | memoryview, Opaque(by_reference=True)]

ZERO_UUID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        first, dash, last = text.removesuffix("+").partition("-")
        if text.endswith("+"):
            return cls(int(first), LAST_VERSION)
        return cls(int(first), int(last) if dash else int(first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


LAST_VERSION: Final = 2**15 - 1
EVERY_VERSION: Final = Versions(0, LAST_VERSION)
NO_VERSION: Final = Versions(LAST_VERSION + 1, LAST_VERSION)


@dataclass(frozen=True, slots=True)
class Wire:
    """The arguments of `wire(...)` for a field."""

    versions: Versions = EVERY_VERSION
    #: The versions in which null is allowed; None: all, but for tagged structs, where null is "not sent".
    nullable: Versions | None = None
    tag: int | None = None


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """The arguments of `@message(...)` for a message."""

    api_key: int | None
    versions: Versions
    flexible: Versions


def wire(
    versions: str = "0+",
    *,
    default: Any = MISSING,
    nullable: str | None = None,
    tag: int | None = None,
    secret: bool = False,
) -> Any:
    """Declare the versions that send a field, its default in the others, and its tag. `repr` does not show a secret."""
    may_be_null = None if nullable is None else Versions.parse(nullable)
    said = Wire(Versions.parse(versions), may_be_null, tag)
    return field(default=default, repr=not secret, metadata={"wire": said})


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def struct(cls: type[T]) -> type[T]:
    """Declare a struct that messages are made of."""
    for name in cls.__annotations__:
        declared = cls.__dict__.get(name)
        if not isinstance(declared, Field):
            continue
        said: Wire = declared.metadata["wire"]
        if declared.default is MISSING and (said.versions != EVERY_VERSION or said.tag is not None):
            raise TypeError(f"{cls.__name__}.{name}: a field that some versions lack needs a default")
    cls.__annotations__[UNKNOWN_TAGS] = tuple[tuple[int, bytes], ...]
    setattr(cls, UNKNOWN_TAGS, ())
    # A program declares hundreds of these at its start. The functions that dataclass compiles for each class would take
    # most of it, so classes share those that can be alike, and no signature is written into a docstring. A program that
    # starts makes objects of few classes: the others never need their constructors.
    cls.__doc__ = cls.__doc__ or cls.__name__
    setattr(cls, "__repr__", _repr)  # noqa: B010
    setattr(cls, "__eq__", _equal)  # noqa: B010
    setattr(cls, "__hash__", None)  # noqa: B010
    setattr(cls, "__init__", _init)  # noqa: B010
    return dataclass(slots=True, kw_only=True, repr=False, eq=False, init=False)(cls)


def _init(self: Any, **values: Any) -> None:
    """Compile the constructor of a class, as dataclass does it, when it makes its first object."""
    cls = type(self)
    made = {f"_{each.name}": each.default for each in fields(cls) if each.default is not MISSING}
    names = [each.name for each in fields(cls)]
    parameters = ", ".join(f"{name}=_{name}" if f"_{name}" in made else name for name in names)
    exec(f"def __init__(self, *, {parameters}): " + "; ".join(f"self.{name} = {name}" for name in names), made)
    made["__init__"].__qualname__ = f"{cls.__qualname__}.__init__"
    setattr(cls, "__init__", made["__init__"])  # noqa: B010
    cls.__init__(self, **values)


def _repr(self: Any) -> str:
    shown = [f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    names = type(self).__slots__
    return all(getattr(self, name) == getattr(other, name) for name in names)


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def message(*, api_key: int | None, versions: str, flexible: str | None) -> Callable[[type[T]], type[T]]:
    """Declare a request or a response: a struct with an API key, its versions and its flexible versions."""
    info = MessageInfo(api_key, Versions.parse(versions), Versions.parse(flexible) if flexible else NO_VERSION)

    def declare(cls: type[T]) -> type[T]:
        declared = struct(cls)
        setattr(declared, "__message__", info)  # noqa: B010 (not a declared attribute: instances never need it)
        return declared

    return declare


def message_info(cls: type) -> MessageInfo:
    info = getattr(cls, "__message__", None)
    if not isinstance(info, MessageInfo):
        raise TypeError(f"{cls.__name__} is not declared with @message")
    return info


def is_struct(cls: object) -> bool:
    return isinstance(cls, type) and hasattr(cls, UNKNOWN_TAGS)
