"""Subjects and versions of a registry, as it lists them: each call asks it. Calls raise RegistryError."""

from __future__ import annotations

from typing import Any, Final, NamedTuple
from urllib.parse import quote

from service_chassis.schema_registry.connection import SCHEMA_BYTES_MAX, Connection, odd
from service_chassis.schema_registry.schema import RegistryError

TYPES = frozenset(("AVRO", "JSON", "PROTOBUF"))
#: A registry is not asked for longer names: servers refuse the URLs, which would look like a registry that is away.
_SUBJECT_LENGTH_MAX: Final = 2000
_NUMBER_MAX: Final = 2**31 - 1


class Reference(NamedTuple):
    """The name by which a schema refers to another one, and the place of that one."""

    name: str
    subject: str
    version: int


class Text(NamedTuple):
    """A schema as a registry has it."""

    #: AVRO, JSON or PROTOBUF.
    type: str
    text: str
    references: tuple[Reference, ...] = ()


class Version(NamedTuple):
    """A version of a subject."""

    subject: str
    number: int
    id: int
    schema: Text


async def subjects(connection: Connection) -> list[str]:
    answer = await connection.get("/subjects")
    if not isinstance(answer, list) or not all(map(is_text, answer)):
        raise odd()
    return sorted(answer)


async def versions(connection: Connection, subject: str) -> list[int]:
    answer = await connection.get(f"{_path(subject)}/versions")
    if not isinstance(answer, list) or not all(map(is_number, answer)):
        raise odd()
    return sorted(answer)


async def version(connection: Connection, subject: str, number: int | None) -> Version:
    """Return a version, without a number the latest one."""
    answer = await connection.get(f"{_path(subject)}/versions/{'latest' if number is None else number}")
    found = text_of(answer)
    if not is_number(answer.get("id")) or not is_number(answer.get("version")):
        raise odd()
    return Version(subject, answer["version"], answer["id"], found)


async def place(connection: Connection, subject: str, schema: Text) -> Version | None:
    """Return the version of a subject that has exactly this schema; None if there is none."""
    try:
        answer = await connection.post(_path(subject), _body(schema))
    except RegistryError as error:
        if error.status == 404:
            return None
        raise
    if not isinstance(answer, dict) or not is_number(answer.get("id")) or not is_number(answer.get("version")):
        raise odd()
    return Version(subject, answer["version"], answer["id"], schema)


async def register(connection: Connection, subject: str, schema: Text) -> int:
    """Register a schema as the next version of a subject, or find it there; return its id."""
    answer = await connection.post(f"{_path(subject)}/versions", _body(schema))
    if not isinstance(answer, dict) or not is_number(answer.get("id")):
        raise odd()
    number: int = answer["id"]
    return number


async def objections(connection: Connection, subject: str, schema: Text) -> list[str] | None:
    """Return why a schema does not fit the latest version of a subject; None if it fits, or the subject is new."""
    path = f"/compatibility{_path(subject)}/versions/latest?verbose=true"
    try:
        answer = await connection.post(path, _body(schema))
    except RegistryError as error:
        if error.status == 404:
            return None
        raise
    if not isinstance(answer, dict) or not isinstance(answer.get("is_compatible"), bool):
        raise odd()
    said = answer.get("messages")
    return None if answer["is_compatible"] else [str(each) for each in (said if isinstance(said, list) else ())]


def text_of(answer: Any) -> Text:
    """Return the schema in an answer."""
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise odd()
    kind, references = answer.get("schemaType") or "AVRO", answer.get("references") or []
    if not isinstance(kind, str) or kind not in TYPES:
        raise RegistryError("it is of a type that is not known here")
    if len(answer["schema"]) > SCHEMA_BYTES_MAX:
        raise too_large()
    if not isinstance(references, list) or not all(
        isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("subject"), str)
        and is_number(each.get("version"))
        for each in references
    ):
        raise odd()
    found = tuple(Reference(each["name"], each["subject"], each["version"]) for each in references)
    if not all(map(is_text, (answer["schema"], *(text for each in found for text in each[:2])))):
        raise RegistryError("its text has halves of characters")
    return Text(kind, answer["schema"], found)


def too_large() -> RegistryError:
    return RegistryError(f"it has more than {SCHEMA_BYTES_MAX} bytes with its references")


def _path(subject: str) -> str:
    """Return the path of a subject. A URL cannot have some names."""
    if subject in ("", ".", "..") or len(subject) > _SUBJECT_LENGTH_MAX or not is_text(subject):
        raise RegistryError("The schema registry does not have it", 404, 40401)
    return f"/subjects/{quote(subject, safe='')}"


def _body(schema: Text) -> dict[str, Any]:
    body: dict[str, Any] = {"schema": schema.text, "schemaType": schema.type}
    if schema.references:
        body["references"] = [each._asdict() for each in schema.references]
    return body


def is_number(value: object) -> bool:
    """Return whether a value is an id or a version."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _NUMBER_MAX


def is_text(value: object) -> bool:
    """Return whether a value is a text. JSON has texts with halves of characters, which nothing can encode."""
    return isinstance(value, str) and (value.isascii() or not any("\ud800" <= each <= "\udfff" for each in value))
