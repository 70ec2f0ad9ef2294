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

from service_chassis.schema_registry.schema import Schema

from admin_api.records.conditions import Readable
from admin_api.records.rendering import BySchema, Formats, field, render, schema_id
from admin_api.registry.decoding import Decoded, Part, decoded, sentence
from admin_api.registry.schemas import Schemas

#: Bytes of all texts of a page.
_TEXTS_BYTES_MAX: Final = 4 * 1024 * 1024
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
    parts: dict[tuple[int, str], Part] = {}
    for number, (_, record) in enumerate(rows):
        for name in formats.by_schema:
            data = record.key if name == "key" else record.value
            if data is not None:
                parts[number, name] = Part(topic, name, data, record.headers)
    answers = await decoded(parts, schemas)
    texts, left = [], _TEXTS_BYTES_MAX
    for number, (partition, record) in enumerate(rows):
        shown: dict[str, str] = {}
        for part in formats.by_schema:
            answer = answers.get((number, part))
            if isinstance(answer, Decoded) and len(answer.text) > min(left, formats.bytes_max):
                answer = f"its text has {len(answer.text)} bytes: ask for this record alone"
            if isinstance(answer, Decoded):
                left -= len(answer.text)
                shown[part] = _decoded(part, record, answer.schema, answer.text)
            elif answer is not None:
                shown[part] = _undecoded(part, record, formats, answer)
        texts.append(render(partition, record, formats, shown))
    return texts


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
    shown = field(part, data, "auto", formats.bytes_max) + schema_id(part, data)
    return f'{shown},"{part}_schema_fault":{json.dumps(sentence(reason), ensure_ascii=False)}'
