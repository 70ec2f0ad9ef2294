"""A schema registry over HTTP, by Confluent's API: bounded, and asked once for each id.

Schemas of ids never change, so they are kept. A failure of one id is remembered for FAILURE_S. A registry that cannot
be reached, or does not answer in time, is not asked again for as long: each look-up fails at once.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Literal
from urllib.parse import quote

import httpx

from service_chassis.schema_registry.schema import RegistryError, Schema
from service_chassis.schema_registry.settings import RegistrySettings

#: Seconds for which a failure is remembered.
FAILURE_S: Final = 5.0
#: Bytes of an answer, and of a schema with its references.
SCHEMA_BYTES_MAX: Final = 512 * 1024
_ANSWER_BYTES_MAX: Final = 2 * SCHEMA_BYTES_MAX
#: References of a schema, and the references of references of each.
_REFERENCES_MAX: Final = 64
_DEPTH_MAX: Final = 16
#: Schemas that are kept, and bytes of their texts.
_KEPT_MAX: Final = 1000
_KEPT_BYTES_MAX: Final = 8 * 1024 * 1024
_FAILURES_MAX: Final = 1000
_SECRET_BYTES_MAX: Final = 16 * 1024
_TYPES = frozenset(("AVRO", "JSON", "PROTOBUF"))
_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryClient:
    """One registry; `close` it. Methods raise RegistryError."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self.timeout_s = settings.schema_registry_timeout_s
        self._http: httpx.AsyncClient | None = None
        self._keys = itertools.count(1)
        self._kept: OrderedDict[object, Schema] = OrderedDict()
        self._kept_bytes = 0
        self._failures: OrderedDict[object, tuple[float, RegistryError]] = OrderedDict()
        self._under_way: dict[object, asyncio.Task[Schema]] = {}
        self._away: tuple[float, RegistryError] | None = None

    async def by_id(self, schema: int | str, topic: str, part: str) -> Schema:
        """Return the schema of an id or GUID, with the subject and version that the topic's `key` or `value` has."""
        wanted = f"{topic}-{part}"
        return await self._once((schema, wanted), lambda: self._by_id(schema, wanted))

    async def by_version(self, subject: str, version: int | Literal["latest"]) -> Schema:
        """Return a version of a subject, as the registry has it now."""
        return await self._schema(await self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}"))

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def _once(self, name: object, look_up: Callable[[], Awaitable[Schema]]) -> Schema:
        """Return a kept schema, or look it up: once for all that ask at a time. Failures are kept for a while."""
        if name in self._kept:
            self._kept.move_to_end(name)
            return self._kept[name]
        for until, error in filter(None, (self._failures.get(name), self._away)):
            if time.monotonic() < until:
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
        self._kept[name] = found
        self._kept_bytes += _size(found)
        while len(self._kept) > _KEPT_MAX or (self._kept_bytes > _KEPT_BYTES_MAX and len(self._kept) > 1):
            self._kept_bytes -= _size(self._kept.popitem(last=False)[1])
        return found

    async def _by_id(self, schema: int | str, wanted: str) -> Schema:
        base = f"/schemas/ids/{schema}" if isinstance(schema, int) else f"/schemas/guids/{schema}"
        answer = await self._ask(base)
        subject, version = None, None
        if isinstance(schema, int):
            answer = {**answer, "id": schema} if isinstance(answer, dict) else answer
            subject, version = await self._place(f"{base}/versions", wanted)
        return await self._schema(answer, subject, version)

    async def _place(self, path: str, wanted: str) -> tuple[str | None, int | None]:
        """Return the subject and version of an id: of the topic's own subject if it is there, else of the first."""
        try:
            answer = await self._ask(path)
        except RegistryError as error:
            if error.status == 404:
                return None, None
            raise
        found = {
            each["subject"]: each["version"]
            for each in (answer if isinstance(answer, list) else ())
            if isinstance(each, dict) and isinstance(each.get("subject"), str) and isinstance(each.get("version"), int)
        }
        if not found:
            return None, None
        subject = wanted if wanted in found else min(found)
        return subject, found[subject]

    async def _schema(self, answer: Any, subject: str | None = None, version: int | None = None) -> Schema:
        """Return the schema of an answer, with the texts of its references."""
        text, kind, references = _read(answer)
        texts: dict[str, str] = {}
        await self._add_references(references, texts, (), len(text))
        number, subject, version = answer.get("id"), subject or answer.get("subject"), version or answer.get("version")
        return Schema(
            key=next(self._keys),
            id=number if isinstance(number, int) else -1,
            type=kind,
            text=text,
            references=tuple(texts.items()),
            subject=subject if isinstance(subject, str) else None,
            version=version if isinstance(version, int) else None,
        )

    async def _add_references(
        self, references: list[dict[str, Any]], texts: dict[str, str], path: tuple[tuple[str, int], ...], size: int
    ) -> None:
        for each in references:
            name, place = each["name"], (each["subject"], each["version"])
            if place in path:
                raise RegistryError("its references form a circle")
            if name in texts:
                continue
            if len(texts) >= _REFERENCES_MAX or len(path) >= _DEPTH_MAX:
                raise RegistryError(f"it has more than {_REFERENCES_MAX} references, or {_DEPTH_MAX} below each other")
            answer = await self._ask(f"/subjects/{quote(place[0], safe='')}/versions/{place[1]}")
            text, _, further = _read(answer)
            await self._add_references(further, texts, (*path, place), size)
            texts[name] = text
            if size + sum(map(len, texts.values())) > SCHEMA_BYTES_MAX:
                raise _too_large()

    async def _ask(self, path: str) -> Any:
        if self._away is not None and time.monotonic() < self._away[0]:
            raise self._away[1]
        try:
            async with asyncio.timeout(self.timeout_s):
                status, content = await self._answer(path)
        except (TimeoutError, httpx.TimeoutException):
            raise self._gone(f"The schema registry did not answer within {self.timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise self._gone("The schema registry cannot be reached") from None
        except (OSError, ValueError) as error:  # a file of the settings
            raise self._gone(f"The login to the schema registry cannot be read: {error}") from None
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            raise _refusal(status, answer)
        if answer is None:
            raise _odd()
        return answer

    async def _answer(self, path: str) -> tuple[int, bytes]:
        if self._http is None:
            self._http = await asyncio.to_thread(self._opened)
        url = self._settings.schema_registry.rstrip("/") + path
        headers = {"accept": f"{_MEDIA_TYPE}, application/json"}
        auth: httpx.BasicAuth | None = None
        if self._settings.schema_registry_token_file:
            headers["authorization"] = f"Bearer {_secret(self._settings.schema_registry_token_file)}"
        elif self._settings.schema_registry_user:
            password = _secret(self._settings.schema_registry_password_file)
            auth = httpx.BasicAuth(self._settings.schema_registry_user, password)
        found = bytearray()
        async with self._http.stream("GET", url, headers=headers, auth=auth) as response:
            async for part in response.aiter_raw():
                found += part
                if len(found) > _ANSWER_BYTES_MAX:
                    raise _too_large()
        return response.status_code, bytes(found)

    def _opened(self) -> httpx.AsyncClient:
        context = ssl.create_default_context(cafile=self._settings.schema_registry_ca_file or None)
        return httpx.AsyncClient(
            verify=context,
            timeout=self.timeout_s,
            trust_env=False,
            headers={"accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
        )

    def _gone(self, message: str) -> RegistryError:
        error = RegistryError(message, is_away=True)
        self._away = (time.monotonic() + FAILURE_S, error)
        return error


def _read(answer: Any) -> tuple[str, str, list[dict[str, Any]]]:
    """Return the text, the type and the references of a schema in an answer. Raises RegistryError."""
    if not isinstance(answer, dict) or not isinstance(answer.get("schema"), str):
        raise _odd()
    kind, references = answer.get("schemaType") or "AVRO", answer.get("references") or []
    if kind not in _TYPES:
        raise RegistryError("it is of a type that is not known here")
    if len(answer["schema"]) > SCHEMA_BYTES_MAX:
        raise _too_large()
    if not isinstance(references, list) or not all(
        isinstance(each, dict)
        and isinstance(each.get("name"), str)
        and isinstance(each.get("subject"), str)
        and isinstance(each.get("version"), int)
        for each in references
    ):
        raise _odd()
    return answer["schema"], kind, references


def _refusal(status: int, answer: Any) -> RegistryError:
    if status in (401, 403):
        return RegistryError(f"The schema registry refuses the login ({status})", status, is_away=True)
    given = answer if isinstance(answer, dict) else {}
    code = given.get("error_code") if isinstance(given.get("error_code"), int) else status
    if status == 404:
        known = isinstance(code, int) and code > 40_000  # else the path is wrong, or a proxy answers
        return RegistryError("The schema registry does not have it", status, code or status, is_away=not known)
    said = given.get("message")
    reason = f": {' '.join(said.split())[:300]}" if isinstance(said, str) else ""
    return RegistryError(
        f"The schema registry answers {status}{reason}", status, code or status, is_away=status == 429 or status >= 500
    )


def _odd() -> RegistryError:
    return RegistryError("The schema registry answers with something else than a schema", is_away=True)


def _too_large() -> RegistryError:
    return RegistryError(f"it has more than {SCHEMA_BYTES_MAX} bytes with its references")


def _size(schema: Schema) -> int:
    return len(schema.text) + sum(len(text) for _, text in schema.references)


def _secret(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline(_SECRET_BYTES_MAX).rstrip("\r\n")
