"""Keys and values of records by their schemas, as members of the record's JSON.

    "value":{"id":1},"value_format":"avro","value_size":7,"value_truncated":false,
    "value_schema_id":3,"value_schema":{"type":"AVRO","subject":"orders-value","version":1}

What cannot be decoded is shown as without a schema, with the reason: `"value_schema_fault":"The schema registry cannot
be reached."`. A request waits for all of its schemas together, for a bounded time.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from service_chassis.schema_registry.schema import RegistryError, Schema

from admin_api.records.conditions import Readable
from admin_api.records.rendering import BySchema, Formats, field, render, schema_id
from admin_api.registry.calls import DECODE
from admin_api.registry.codec import Call, CodecError
from admin_api.registry.frames import Framed, framed
from admin_api.registry.schemas import Schemas, within

#: Times that a request waits longer for its schemas than for one answer.
_LONGER: Final = 1.5
#: Schemas of one page.
_SCHEMAS_MAX: Final = 100
#: Bytes of a key or value that is decoded, and of all texts of a page.
_PAYLOAD_BYTES_MAX: Final = 1024 * 1024
_TEXTS_BYTES_MAX: Final = 4 * 1024 * 1024
_PARTS = ("key", "value")
_FORMATS = {"AVRO": "avro", "JSON": "json", "PROTOBUF": "protobuf"}

#: Partition and record.
Row = tuple[int, Readable]


def by_schema(formats: Formats, topic: str, schemas: Schemas) -> BySchema:
    """Return the function that renders one record."""

    async def one(partition: int, record: Readable) -> str:
        (text,) = await rendered([(partition, record)], formats, topic, schemas)
        return text

    return one


async def rendered(rows: Sequence[Row], formats: Formats, topic: str, schemas: Schemas) -> list[str]:
    """Return each record as `rendering.render` does, with what its schemas say."""
    found: dict[tuple[int, str], Framed | str] = {}
    for number, (_, record) in enumerate(rows):
        for part in formats.by_schema:
            data = record.key if part == "key" else record.value
            if data is not None:
                found[number, part] = _framed(part, data, record, schemas)
    wanted = {(each.schema, part) for (_, part), each in found.items() if isinstance(each, Framed)}
    known = await _looked_up(sorted(wanted, key=str), topic, schemas)
    calls: dict[tuple[int, str], Call] = {}
    faults: dict[tuple[int, str], str] = {}
    for place, each in found.items():
        schema = each if isinstance(each, str) else known[each.schema, place[1]]
        if isinstance(schema, str) or isinstance(each, str):
            faults[place] = str(schema)
        else:
            indexes = each.indexes if each.indexes is not None and schema.type == "PROTOBUF" else b""
            calls[place] = Call(DECODE, schema, indexes + each.payload)
    answers = dict(zip(calls, await schemas.codec.run(list(calls.values())) if calls else (), strict=True))
    texts, left = [], _TEXTS_BYTES_MAX
    for number, (partition, record) in enumerate(rows):
        shown: dict[str, str] = {}
        for part in formats.by_schema:
            place = (number, part)
            answer = answers.get(place)
            if isinstance(answer, CodecError):
                faults[place] = f"schema {calls[place].schema.id}: {answer}"
            elif answer is not None and len(answer) > min(left, formats.bytes_max):
                faults[place] = f"its text has {len(answer)} bytes: ask for this record alone"
            elif answer is not None:
                left -= len(answer)
                shown[part] = _decoded(part, record, calls[place].schema, answer)
            if place in faults:
                shown[part] = _undecoded(part, record, formats, faults[place])
        texts.append(render(partition, record, formats, shown))
    return texts


def _framed(part: str, data: bytes, record: Readable, schemas: Schemas) -> Framed | str:
    """Return the schema and payload of a key or value, or why there is none."""
    if not schemas.are_set:
        return "no schema registry is set (MILLRACE_SCHEMA_REGISTRY)"
    if len(data) > _PAYLOAD_BYTES_MAX:
        return f"it has more than {_PAYLOAD_BYTES_MAX} bytes"
    return framed(part, data, record.headers) or "it names no schema"


async def _looked_up(
    wanted: Sequence[tuple[int | str, str]], topic: str, schemas: Schemas
) -> dict[tuple[int | str, str], Schema | str]:
    """Return each schema, or why it is not there."""
    found: dict[tuple[int | str, str], Schema | str] = {}
    for each in wanted[_SCHEMAS_MAX:]:
        found[each] = f"a page shows at most {_SCHEMAS_MAX} schemas"
    if not wanted:
        return found
    try:
        client = await schemas.client()
    except RegistryError as error:
        return dict.fromkeys(wanted, str(error))
    asked = {each: client.by_id(each[0], topic, each[1]) for each in wanted[:_SCHEMAS_MAX]}
    for each, answer in (await within(_LONGER * client.timeout_s, asked)).items():
        if not isinstance(answer, Schema | RegistryError):
            raise answer
        found[each] = answer if isinstance(answer, Schema) else f"schema {each[0]}: {answer}"
    return found


def _decoded(part: str, record: Readable, schema: Schema, text: bytes) -> str:
    data = record.key if part == "key" else record.value
    assert data is not None
    place = {"type": schema.type, "subject": schema.subject, "version": schema.version}
    number = f'"{part}_schema_id":{schema.id},' if schema.id >= 0 else ""
    return (
        f'"{part}":{text.decode()},"{part}_format":"{_FORMATS[schema.type]}","{part}_size":{len(data)},'
        f'"{part}_truncated":false,{number}"{part}_schema":{json.dumps(place, separators=(",", ":"))}'
    )


def _undecoded(part: str, record: Readable, formats: Formats, reason: str) -> str:
    data = record.key if part == "key" else record.value
    sentence = f"{reason[:1].upper()}{reason[1:]}."
    shown = field(part, data, "auto", formats.bytes_max) + schema_id(part, data)
    return f'{shown},"{part}_schema_fault":{json.dumps(sentence, ensure_ascii=False)}'
