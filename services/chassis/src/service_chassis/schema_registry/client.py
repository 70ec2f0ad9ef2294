"""Schemas of a registry, by Confluent's API: asked for once, and kept.

Schemas of ids never change. A failure of one id is remembered for FAILURE_S.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final, Literal

from service_chassis.schema_registry import catalog
from service_chassis.schema_registry.connection import FAILURE_S, SCHEMA_BYTES_MAX, Connection
from service_chassis.schema_registry.schema import RegistryError, Schema
from service_chassis.schema_registry.settings import RegistrySettings

#: References of a schema, and the references of references of each.
_REFERENCES_MAX: Final = 64
_DEPTH_MAX: Final = 16
#: Schemas that are kept, and bytes of their texts.
_KEPT_MAX: Final = 1000
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_FAILURES_MAX: Final = 1000


class RegistryClient:
    """One registry; `close` it. Methods raise RegistryError."""

    def __init__(self, settings: RegistrySettings) -> None:
        self.connection = Connection(settings)
        self._keys = itertools.count(1)
        self._kept: OrderedDict[object, Schema] = OrderedDict()
        self._kept_bytes = 0
        self._failures: OrderedDict[object, tuple[float, RegistryError]] = OrderedDict()
        self._under_way: dict[object, asyncio.Task[Schema]] = {}

    @property
    def timeout_s(self) -> float:
        return self.connection.timeout_s

    async def by_id(self, schema: int | str, topic: str, part: str) -> Schema:
        """Return the schema of an id or GUID, with the subject and version that the topic's `key` or `value` has."""
        return await self.of_subject(schema, f"{topic}-{part}")

    async def of_subject(self, schema: int | str, subject: str) -> Schema:
        """Return the schema of an id or GUID, with its version in a subject, or in another one if it is not there."""
        return await self._once((schema, subject), lambda: self._by_id(schema, subject))

    async def by_version(self, subject: str, version: int | Literal["latest"]) -> Schema:
        """Return a version of a subject, as the registry has it now."""
        found = await self.version(subject, None if version == "latest" else version)
        return await self._schema(found.schema, found.id, subject, found.number)

    async def known_version(self, subject: str, number: int | None) -> Schema:
        """Return a version of a subject, asked for once: without a number the latest of FAILURE_S ago, or later."""
        name = ("version", subject, number or f"latest in {time.monotonic() // FAILURE_S}")
        return await self._once(name, lambda: self._known_version(subject, number))

    def draft(self, kind: str, text: str) -> Schema:
        """Return a schema that has no id yet."""
        name = ("draft", kind, hashlib.sha256(text.encode()).digest())
        if name not in self._kept:
            if len(text) > SCHEMA_BYTES_MAX:
                raise catalog.too_large()
            self._keep(name, Schema(next(self._keys), -1, kind, text))
        self._kept.move_to_end(name)
        return self._kept[name]

    async def registered(self, draft: Schema, subject: str) -> Schema:
        """Return a schema with its id and its version of a subject, of which it becomes the next one if it is new."""
        return await self._once(("registered", subject, draft.key), lambda: self._registered(draft, subject))

    async def subjects(self) -> list[str]:
        return await catalog.subjects(self.connection)

    async def versions(self, subject: str) -> list[int]:
        return await catalog.versions(self.connection, subject)

    async def version(self, subject: str, number: int | None) -> catalog.Version:
        """Return a version of a subject without the texts of its references; without a number the latest one."""
        return await catalog.version(self.connection, subject, number)

    async def register(self, subject: str, schema: catalog.Text) -> tuple[int, int | None]:
        """Return the id and version of a schema in a subject, of which it becomes the next version if it is new.

        The version is None if another instance of the registry answers, which does not know it yet.
        """
        found = await catalog.place(self.connection, subject, schema)
        if found is not None:
            return found.id, found.number
        number = await catalog.register(self.connection, subject, schema)
        found = await catalog.place(self.connection, subject, schema)
        return number, None if found is None else found.number

    async def objections(self, subject: str, schema: catalog.Text) -> list[str] | None:
        """Return why a schema does not fit the latest version of a subject; None if it fits, or the subject is new."""
        return await catalog.objections(self.connection, subject, schema)

    async def close(self) -> None:
        """Close the connections."""
        await self.connection.close()

    async def _once(self, name: object, look_up: Callable[[], Awaitable[Schema]]) -> Schema:
        """Return a kept schema, or look it up: once for all that ask at a time. Failures are kept for a while."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        self.connection.check()
        until, error = self._failures.get(name, (0.0, None))
        if error is not None and time.monotonic() < until:
            raise error
        if name not in self._under_way:
            task = asyncio.create_task(self._looked_up(name, look_up))
            self._under_way[name] = task
            task.add_done_callback(lambda _: self._under_way.pop(name, None))
        return await asyncio.shield(self._under_way[name])

    async def _looked_up(self, name: object, look_up: Callable[[], Awaitable[Schema]]) -> Schema:
        try:
            found = await look_up()
        except RegistryError as error:
            self._failures[name] = (time.monotonic() + FAILURE_S, error)
            while len(self._failures) > _FAILURES_MAX:
                self._failures.popitem(last=False)
            raise
        self._keep(name, found)
        if found.id >= 0 and found.subject is not None:  # records with this id in its subject need no look-up
            self._keep((found.id, found.subject), found)
        return found

    def _keep(self, name: object, found: Schema) -> None:
        if name in self._kept:
            self._kept_bytes -= _size(self._kept.pop(name))
        self._kept[name] = found
        self._kept_bytes += _size(found)
        while len(self._kept) > _KEPT_MAX or (self._kept_bytes > _KEPT_BYTES_MAX and len(self._kept) > 1):
            self._kept_bytes -= _size(self._kept.popitem(last=False)[1])

    async def _by_id(self, schema: int | str, wanted: str) -> Schema:
        base = f"/schemas/ids/{schema}" if isinstance(schema, int) else f"/schemas/guids/{schema}"
        answer = await self.connection.get(base)
        found = catalog.text_of(answer)
        number, subject, version = answer.get("id"), answer.get("subject"), answer.get("version")
        if isinstance(schema, int):
            number = schema
            subject, version = await self._place(f"{base}/versions", wanted)
        return await self._schema(
            found,
            number if catalog.is_number(number) else -1,
            subject if catalog.is_text(subject) else None,
            version if catalog.is_number(version) else None,
        )

    async def _known_version(self, subject: str, number: int | None) -> Schema:
        found = await self.version(subject, number)
        known = self._kept.get(("version", subject, found.number))
        if known is not None and known.id == found.id:
            return known
        schema = await self._schema(found.schema, found.id, subject, found.number)
        if number is None:
            self._keep(("version", subject, found.number), schema)
        return schema

    async def _registered(self, draft: Schema, subject: str) -> Schema:
        number, version = await self.register(subject, catalog.Text(draft.type, draft.text))
        return replace(draft, id=number, subject=subject, version=version)

    async def _place(self, path: str, wanted: str) -> tuple[str | None, int | None]:
        """Return the subject and version of an id: of the topic's own subject if it is there, else of the first."""
        try:
            answer = await self.connection.get(path)
        except RegistryError as error:
            if error.status == 404:
                return None, None
            raise
        found = {
            each["subject"]: each["version"]
            for each in (answer if isinstance(answer, list) else ())
            if isinstance(each, dict)
            and catalog.is_text(each.get("subject"))
            and catalog.is_number(each.get("version"))
        }
        if not found:
            return None, None
        subject = wanted if wanted in found else min(found)
        return subject, found[subject]

    async def _schema(self, found: catalog.Text, number: int, subject: str | None, version: int | None) -> Schema:
        """Return a schema with the texts of its references."""
        texts: dict[str, str] = {}
        await self._add_references(found.references, texts, (), len(found.text))
        references = tuple(texts.items())
        return Schema(next(self._keys), number, found.type, found.text, references, subject, version)

    async def _add_references(
        self, references: tuple[catalog.Reference, ...], texts: dict[str, str], path: tuple[Any, ...], size: int
    ) -> None:
        for name, subject, version in references:
            if (subject, version) in path:
                raise RegistryError("its references form a circle")
            if name in texts:
                continue
            if len(texts) >= _REFERENCES_MAX or len(path) >= _DEPTH_MAX:
                raise RegistryError(f"it has more than {_REFERENCES_MAX} references, or {_DEPTH_MAX} below each other")
            found = (await catalog.version(self.connection, subject, version)).schema
            await self._add_references(found.references, texts, (*path, (subject, version)), size)
            texts[name] = found.text
            if size + sum(map(len, texts.values())) > SCHEMA_BYTES_MAX:
                raise catalog.too_large()


def _size(schema: Schema) -> int:
    return len(schema.text) + sum(len(text) for _, text in schema.references)
