"""Keys and values of new records by schemas of the registry, with the frame that Confluent's serializers write.

    {"schema_id": 3, "data": …}        of a version of the subject: that of an id,
    {"schema_version": 2, "data": …}   of a number,
    {"data": …}                        or the latest one
    {"type": "AVRO", "schema": "…", "data": …}      registers the schema under the subject, if it is not there

The subject is that of the topic, the one that the caller names, or one by the name of the schema's record. Data are
encoded before a schema is registered: data that do not fit register nothing.

    400     data that are not of the schema, or a version that does not exist
    42205   a schema that is none
    42207   the registry does not have it, refuses it, or cannot be asked
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from service_chassis.schema_registry.schema import RegistryError, Schema

from admin_api import errors
from admin_api.new_records import json_text
from admin_api.registry.calls import ENCODE, NAME
from admin_api.registry.codec import Call, CodecError
from admin_api.registry.frames import frame
from admin_api.registry.schemas import Schemas, within
from admin_api.schemas.produce import PLAIN_TYPES, ProduceRequest, ProduceRequestData

if TYPE_CHECKING:
    from service_chassis.schema_registry.client import RegistryClient

#: Times that a request waits longer than for one answer: for its schemas, and for their registration.
_LONGER: Final = 1.5
_REGISTRATION_LONGER: Final = 3
#: Schemas of records that are encoded together.
_SCHEMAS_MAX: Final = 100
#: The registry's names of types.
TYPES: Final = {"AVRO": "AVRO", "JSONSCHEMA": "JSON", "PROTOBUF": "PROTOBUF"}

#: The index of a record, and `key` or `value`.
Place = tuple[int, str]


class Encoded(NamedTuple):
    """A key or value in its frame, and its schema."""

    content: bytes
    schema: Schema


class _Wanted(NamedTuple):
    """The schema that a caller describes."""

    #: The subject of the topic.
    usual: str
    #: None: the name of the schema's record, after `prefix`.
    subject: str | None
    prefix: str
    type: str | None
    id: int | None
    version: int | None
    text: str | None


Failure = errors.ApiError
_Found = Mapping[_Wanted, "Schema | Exception"]


async def encoded(
    given: Sequence[ProduceRequest | Failure],
    topic: str,
    schemas: Schemas,
    may_register: Callable[[str], Awaitable[None]],
) -> dict[Place, Encoded | Failure]:
    """Return the keys and values that are by a schema. `may_register` raises ApiError for a subject."""
    wanted: dict[Place, _Wanted] = {}
    texts: dict[Place, bytes] = {}
    done: dict[Place, Encoded | Failure] = {}
    for index, record in enumerate(given):
        for part in ("key", "value") if isinstance(record, ProduceRequest) else ():
            data: ProduceRequestData | None = getattr(record, part)
            if data is not None and data.data is not None and data.type not in PLAIN_TYPES:
                try:
                    wanted[index, part] = _wanted(data, topic, part)
                    texts[index, part] = json_text(data.data)
                except Failure as error:
                    done[index, part] = error
    if not texts:
        return done
    try:
        client = await schemas.client()
    except RegistryError as error:
        return done | dict.fromkeys(texts, _failure(error))
    found = await _looked_up(client, {wanted[place] for place in texts})
    answers, names = await _called(schemas, found, [(wanted[place], text) for place, text in texts.items()])
    # mutant: fitting-data-registered
    good = {wanted[place] for place, answer in zip(texts, answers, strict=True) if isinstance(answer, bytes)}
    settled = await _settled(client, found, names, good, may_register)
    for place, answer in zip(texts, answers, strict=True):
        schema = settled.get(wanted[place], found[wanted[place]])
        if isinstance(answer, bytes) and isinstance(schema, Schema):
            done[place] = Encoded(frame(schema.id, answer), schema)
        else:
            done[place] = _failure(answer if isinstance(answer, Exception) else schema)
    return done


def _wanted(given: ProduceRequestData, topic: str, part: str) -> _Wanted:
    usual, strategy = f"{topic}-{part}", given.subject_name_strategy or "TOPIC_NAME"
    subject = given.subject or (usual if strategy == "TOPIC_NAME" else None)
    if subject is None and given.schema_id is None and given.schema_text is None:
        message = f"Bad Request: Cannot use schema_subject_strategy={strategy} without schema_id or schema."
        raise errors.of_status(400, message)
    return _Wanted(
        usual,
        subject,
        f"{topic}-" if strategy == "TOPIC_RECORD_NAME" else "",
        None if given.type is None else TYPES[given.type],
        given.schema_id,
        given.schema_version,
        given.schema_text,
    )


async def _looked_up(client: RegistryClient, wanted: set[_Wanted]) -> dict[_Wanted, Schema | Exception]:
    """Return the schemas by which data are encoded: those that are to be registered have no id yet."""
    found: dict[_Wanted, Schema | Exception] = {}
    asked: dict[_Wanted, Coroutine[Any, Any, Schema]] = {}
    for each in wanted:
        if len(asked) == _SCHEMAS_MAX:
            found[each] = RegistryError(f"more than {_SCHEMAS_MAX} schemas at once")
        else:
            asked[each] = _look_up(client, each)
    found |= await within(_LONGER * client.timeout_s, asked)
    for each, schema in found.items():
        if isinstance(schema, Schema) and each.type not in (None, schema.type):
            found[each] = errors.of_status(400, f"Bad Request: the schema is of the type {shown_type(schema)}.")
    return found


async def _look_up(client: RegistryClient, wanted: _Wanted) -> Schema:
    if wanted.text is not None:
        assert wanted.type is not None
        return client.draft(wanted.type, wanted.text)
    if wanted.id is not None:
        found = await client.of_subject(wanted.id, wanted.subject or wanted.usual)
        return found if wanted.subject is None else _in_subject(found, wanted.subject)
    assert wanted.subject is not None
    try:
        return await client.known_version(wanted.subject, wanted.version)
    except RegistryError as error:
        if error.status != 404 or wanted.version is None:
            raise
        place = f"subject: {wanted.subject}, version: {wanted.version}"
        raise errors.of_status(400, f"Bad Request: Schema does not exist for {place}") from None


async def _called(
    schemas: Schemas, found: _Found, texts: Sequence[tuple[_Wanted, bytes]]
) -> tuple[list[bytes | Exception], dict[_Wanted, bytes | CodecError]]:
    """Return the bytes of data, or why there are none; and the names of records that subjects have."""
    named = [each for each, schema in found.items() if each.subject is None and isinstance(schema, Schema)]
    calls = [Call(NAME, schema, b"") for each in named if isinstance(schema := found[each], Schema)]
    for each, text in texts:
        if isinstance(schema := found[each], Schema):
            calls.append(Call(ENCODE, schema, text))
    answers = iter(await schemas.codec.run(calls))
    names = {each: next(answers) for each in named}
    data: list[bytes | Exception] = []
    for each, _ in texts:
        schema = found[each]
        data.append(schema if isinstance(schema, Exception) else next(answers))
    return data, names


async def _settled(
    client: RegistryClient,
    found: _Found,
    names: Mapping[_Wanted, bytes | CodecError],
    good: set[_Wanted],
    may_register: Callable[[str], Awaitable[None]],
) -> _Found:
    """Return the schemas that are not settled before data are encoded: those of new texts, and of records' names."""

    async def settle(wanted: _Wanted, draft: Schema) -> Schema:
        subject, name = wanted.subject, names.get(wanted)
        if isinstance(name, CodecError):
            raise name
        if name is not None:
            subject = wanted.prefix + name.decode()
        assert subject is not None
        if wanted.text is None:
            return _in_subject(await client.of_subject(draft.id, subject), subject)
        await may_register(subject)  # mutant: registration-needs-rights
        return await client.registered(draft, subject)

    pending = {
        each: settle(each, schema)
        for each in good
        if isinstance(schema := found[each], Schema) and (each.text is not None or each.subject is None)
    }
    return await within(_REGISTRATION_LONGER * client.timeout_s, pending)


def _in_subject(schema: Schema, subject: str) -> Schema:
    if schema.subject not in (None, subject):
        raise RegistryError(f"schema {schema.id} is not a version of the subject {subject}")
    return schema


def _failure(error: Schema | Exception) -> Failure:
    if isinstance(error, Failure):
        return error
    if isinstance(error, CodecError):
        if error.of_schema:
            return Failure(422, 42205, f"Invalid schema: {error}.")
        return errors.of_status(400, f"Bad Request: {error}.")
    if isinstance(error, RegistryError):
        message = str(error)
        return Failure(422, 42207, f"Error serializing message. {message[:1].upper()}{message[1:]}.")
    assert isinstance(error, Exception)
    raise error


def shown_type(schema: Schema) -> str:
    """Return Confluent's name of a schema's type."""
    return next(name for name, kind in TYPES.items() if kind == schema.type)
