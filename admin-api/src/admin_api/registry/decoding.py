"""Keys and values as JSON, by the schemas that they name: looked up together, and decoded in one run of the process."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from service_chassis.schema_registry.schema import RegistryError, Schema

from admin_api.registry.calls import DECODE
from admin_api.registry.codec import Call, CodecError
from admin_api.registry.frames import Framed, framed
from admin_api.registry.schemas import Schemas, within

#: Times that a caller waits longer for its schemas than for one answer.
_LONGER: Final = 1.5
#: Schemas of one call, and bytes of a key or value that is decoded.
_SCHEMAS_MAX: Final = 100
_PAYLOAD_BYTES_MAX: Final = 1024 * 1024

Place = TypeVar("Place", bound=Hashable)


class Part(NamedTuple):
    """The `key` or `value` of a record in a topic."""

    topic: str
    name: str
    data: bytes
    headers: Sequence[tuple[str, bytes | None]]


class Decoded(NamedTuple):
    """The text of its JSON, and its schema."""

    text: bytes
    schema: Schema


#: The id or GUID of a schema, the topic, and `key` or `value`.
_Wanted = tuple[int | str, str, str]


async def decoded(parts: Mapping[Place, Part], schemas: Schemas) -> dict[Place, Decoded | str]:
    """Return each part as JSON, or why it cannot be shown by a schema."""
    found = {place: _framed(part, schemas) for place, part in parts.items()}
    wanted = {place: (each.schema, *parts[place][:2]) for place, each in found.items() if isinstance(each, Framed)}
    known = await _looked_up(sorted(set(wanted.values()), key=str), schemas)
    calls: dict[Place, Call] = {}
    done: dict[Place, Decoded | str] = {}
    for place, each in found.items():
        if not isinstance(each, Framed):
            done[place] = each
            continue
        schema = known[wanted[place]]
        if isinstance(schema, str):
            done[place] = schema
        else:
            indexes = each.indexes if each.indexes is not None and schema.type == "PROTOBUF" else b""
            calls[place] = Call(DECODE, schema, indexes + each.payload)
    answers = await schemas.codec.run(list(calls.values())) if calls else []
    for (place, call), answer in zip(calls.items(), answers, strict=True):
        if isinstance(answer, CodecError):
            done[place] = f"schema {call.schema.id}: {answer}"
        else:
            done[place] = Decoded(answer, call.schema)
    return done


def sentence(reason: str) -> str:
    return f"{reason[:1].upper()}{reason[1:]}."


def _framed(part: Part, schemas: Schemas) -> Framed | str:
    """Return the schema and payload of a key or value, or why there is none."""
    if not schemas.are_set:
        return "no schema registry is set (MILLRACE_SCHEMA_REGISTRY)"
    if len(part.data) > _PAYLOAD_BYTES_MAX:
        return f"it has more than {_PAYLOAD_BYTES_MAX} bytes"
    return framed(part.name, part.data, part.headers) or "it names no schema"


async def _looked_up(wanted: Sequence[_Wanted], schemas: Schemas) -> dict[_Wanted, Schema | str]:
    """Return each schema, or why it is not there."""
    found: dict[_Wanted, Schema | str] = {}
    for each in wanted[_SCHEMAS_MAX:]:
        found[each] = f"a page shows at most {_SCHEMAS_MAX} schemas"
    if not wanted:
        return found
    try:
        client = await schemas.client()
    except RegistryError as error:
        return dict.fromkeys(wanted, str(error))
    asked = {each: client.by_id(*each) for each in wanted[:_SCHEMAS_MAX]}
    for each, answer in (await within(_LONGER * client.timeout_s, asked)).items():
        if not isinstance(answer, Schema | RegistryError):
            raise answer
        found[each] = answer if isinstance(answer, Schema) else f"schema {each[0]}: {answer}"
    return found
