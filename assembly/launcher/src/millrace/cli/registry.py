"""The schema registry at the command line: MILLRACE_SCHEMA_REGISTRY, and records that are encoded and decoded by it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from admin_api.registry.calls import ENCODE
from admin_api.registry.codec import Call, CodecError
from admin_api.registry.decoding import Decoded, Part, decoded, sentence
from admin_api.registry.frames import frame
from admin_api.registry.schemas import Schemas
from service_chassis.schema_registry.schema import RegistryError, Schema
from service_chassis.schema_registry.settings import RegistrySettings
from service_chassis.settings import SettingsError

from millrace.cli.errors import USAGE, CliError
from millrace.cli.output import note
from millrace.cli.record_format import DecodedRecord, NewRecord, ShownRecord

#: Longest wait for an answer, where the settings have none: a person waits longer than a page.
_TIMEOUT_S = 10.0
#: Records that are decoded together.
_RECORDS_MAX = 100
#: Reasons that are told, once each: no more than these.
_REASONS_MAX = 20


@contextlib.asynccontextmanager
async def opened() -> AsyncIterator[Schemas]:
    """Yield the registry of the settings. Raises CliError without one, and for its errors within the block."""
    given = {} if "MILLRACE_SCHEMA_REGISTRY_TIMEOUT_S" in os.environ else {"schema_registry_timeout_s": _TIMEOUT_S}
    try:
        schemas = Schemas(RegistrySettings(**given))
    except SettingsError as error:
        raise CliError(str(error), USAGE) from None
    if not schemas.are_set:
        raise CliError("no schema registry is set: MILLRACE_SCHEMA_REGISTRY=http://localhost:8081", USAGE)
    try:
        yield schemas
    except RegistryError as error:
        raise CliError(sentence(str(error))) from None
    finally:
        await schemas.close()


def place(text: str) -> tuple[str, int | None]:
    """Return the subject and version of SUBJECT[:VERSION]; None is the latest. Raises CliError."""
    subject, colon, version = text.rpartition(":")
    if not colon or not (version == "latest" or (version.isascii() and version.isdecimal())):
        subject, version = text, "latest"
    if not subject or not subject.isprintable():
        raise CliError(f"{text!r} is not SUBJECT or SUBJECT:VERSION", USAGE)
    if version == "latest":
        return subject, None
    if not 0 < len(version) < 10 or int(version) == 0:
        raise CliError(f"{text!r}: versions are numbers from 1", USAGE)
    return subject, int(version)


class Encoder:
    """The schemas of keys and values of new records: one for each part, as SUBJECT[:VERSION]."""

    def __init__(self, schemas: Schemas, wanted: Mapping[str, str]) -> None:
        self._schemas = schemas
        self._places = {part: place(text) for part, text in wanted.items()}
        self._by_part: dict[str, Schema] = {}

    async def start(self) -> None:
        """Look up the schemas. Raises CliError."""
        client = await self._schemas.client()
        for part, (subject, version) in self._places.items():
            try:
                self._by_part[part] = await client.by_version(subject, "latest" if version is None else version)
            except RegistryError as error:
                if error.status != 404:
                    raise
                which = "" if version is None else f"version {version} of "
                raise CliError(f"the schema registry has no {which}{subject}") from None

    async def encoded(self, records: Sequence[NewRecord], number: int) -> tuple[list[NewRecord], CliError | None]:
        """Return records with the frames of their schemas, up to the first that does not fit, and why it does not.

        `number` is that of the first record's line.
        """
        calls: list[tuple[int, str, Call]] = []
        for at, record in enumerate(records):
            for part, schema in self._by_part.items():
                data = record.key if part == "key" else record.value
                if data is not None:
                    calls.append((at, part, Call(ENCODE, schema, data)))
        made = list(records)
        answers = await self._schemas.codec.run([call for _, _, call in calls])
        for (at, part, call), answer in zip(calls, answers, strict=True):
            if isinstance(answer, CodecError):
                return made[:at], CliError(f"line {number + at} is not of schema {call.schema.id}: {answer}")
            content = frame(call.schema.id, answer)
            made[at] = replace(made[at], key=content) if part == "key" else replace(made[at], value=content)
        return made, None


class Decoder:
    """The way of records to people: what names no schema, or does not fit, stays as it is; the reason is a remark."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas
        self._told: set[str] = set()

    async def decoded(self, records: Sequence[ShownRecord]) -> list[ShownRecord]:
        shown: list[ShownRecord] = []
        for begin in range(0, len(records), _RECORDS_MAX):
            shown += await self._decoded(records[begin : begin + _RECORDS_MAX])
        return shown

    async def _decoded(self, records: Sequence[ShownRecord]) -> list[ShownRecord]:
        parts = {
            (at, name): Part(record.topic, name, data, record.headers)
            for at, record in enumerate(records)
            for name, data in (("key", record.key), ("value", record.value))
            if data is not None
        }
        texts: list[dict[str, bytes]] = [{} for _ in records]
        for (at, name), answer in (await decoded(parts, self._schemas)).items():
            if isinstance(answer, Decoded):
                texts[at][name] = answer.text
            else:
                self._tell(records[at], name, answer)
        return [DecodedRecord.of(record, text) for record, text in zip(records, texts, strict=True)]

    def _tell(self, record: ShownRecord, name: str, reason: str) -> None:
        if name == "key" and reason == "it names no schema":  # most keys are plain
            return
        if reason not in self._told and len(self._told) < _REASONS_MAX:
            self._told.add(reason)
            note(f"{record.topic}-{record.partition} offset {record.offset}, {name} not decoded: {reason}")
