"""A schema registry over HTTP: bounded in time and bytes, and not asked for a while once it is away.

A registry that cannot be reached, or does not answer in time, is not asked again for FAILURE_S: each question fails at
once.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from typing import Any, Final
from urllib.parse import urlsplit

import httpx

from service_chassis.schema_registry.schema import RegistryError
from service_chassis.schema_registry.settings import RegistrySettings

#: Seconds for which a failure is remembered.
FAILURE_S: Final = 5.0
#: Bytes of a schema with its references, and of an answer.
SCHEMA_BYTES_MAX: Final = 512 * 1024
_ANSWER_BYTES_MAX: Final = 2 * SCHEMA_BYTES_MAX
_SECRET_BYTES_MAX: Final = 16 * 1024
#: Answers of a registry about a schema. Other errors are troubles of the registry, or of what is before it.
_VERDICTS: Final = frozenset((400, 409, 413, 422))
_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class Connection:
    """The way to one registry; `close` it. Methods raise RegistryError."""

    def __init__(self, settings: RegistrySettings) -> None:
        self._settings = settings
        self.timeout_s = settings.schema_registry_timeout_s
        self._http: httpx.AsyncClient | None = None
        self._away: tuple[float, RegistryError] | None = None

    def check(self) -> None:
        """Raise the error of a registry that was away a moment ago."""
        if self._away is not None and time.monotonic() < self._away[0]:
            raise self._away[1]

    async def get(self, path: str) -> Any:
        return await self._ask("GET", path)

    async def post(self, path: str, body: dict[str, Any]) -> Any:
        return await self._ask("POST", path, json.dumps(body).encode())

    async def close(self) -> None:
        """Close the connections."""
        if self._http is not None:
            await self._http.aclose()

    async def _ask(self, method: str, path: str, body: bytes | None = None) -> Any:
        self.check()
        try:
            if self._http is None:
                self._http = await asyncio.to_thread(self._opened)
            async with asyncio.timeout(self.timeout_s):
                status, content = await self._answer(self._http, method, path, body)
        except (TimeoutError, httpx.TimeoutException):
            raise self._gone(f"The schema registry did not answer within {self.timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise self._gone("The schema registry cannot be reached") from None
        except OSError as error:  # a file of the settings
            raise self._gone(f"The login to the schema registry cannot be read: {error}") from None
        except ValueError:  # whose message has a part of the secret
            raise self._gone("The login to the schema registry is not of characters that HTTP has") from None
        try:
            answer = json.loads(content)
        except (ValueError, RecursionError):
            answer = None
        if status != 200:
            raise _refusal(status, answer)
        if answer is None:
            raise odd()
        return answer

    async def _answer(self, client: httpx.AsyncClient, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        url = self._settings.schema_registry.rstrip("/") + path
        headers = {"accept": f"{_MEDIA_TYPE}, application/json"}
        if body is not None:
            headers["content-type"] = _MEDIA_TYPE
        auth: httpx.BasicAuth | None = None
        if self._settings.schema_registry_token_file:
            headers["authorization"] = f"Bearer {_secret(self._settings.schema_registry_token_file)}"
        elif self._settings.schema_registry_user:
            password = _secret(self._settings.schema_registry_password_file)
            auth = httpx.BasicAuth(self._settings.schema_registry_user, password)
        found = bytearray()
        async with client.stream(method, url, headers=headers, auth=auth, content=body) as response:
            async for part in response.aiter_raw():
                found += part
                if len(found) > _ANSWER_BYTES_MAX:
                    if response.status_code != 200:  # the page of a proxy
                        break
                    raise RegistryError(f"the answer has more than {_ANSWER_BYTES_MAX} bytes")
        return response.status_code, bytes(found)

    def _opened(self) -> httpx.AsyncClient:
        has_tls = urlsplit(self._settings.schema_registry).scheme != "http"
        ca_file = self._settings.schema_registry_ca_file or None
        return httpx.AsyncClient(
            verify=ssl.create_default_context(cafile=ca_file) if has_tls else False,
            timeout=self.timeout_s,
            trust_env=False,
            headers={"accept-encoding": "identity"},
            limits=httpx.Limits(max_connections=8, max_keepalive_connections=4),
        )

    def _gone(self, message: str) -> RegistryError:
        error = RegistryError(message, is_away=True)
        self._away = (time.monotonic() + FAILURE_S, error)
        return error


def odd() -> RegistryError:
    return RegistryError("The schema registry answers with something else than was asked for", is_away=True)


def _refusal(status: int, answer: Any) -> RegistryError:
    if status in (401, 403):
        return RegistryError(f"The schema registry refuses the login ({status})", status, is_away=True)
    given = answer if isinstance(answer, dict) else {}
    code = given.get("error_code") if isinstance(given.get("error_code"), int) else status
    if status == 404:
        known = isinstance(code, int) and code > 40_000  # else the path is wrong, or a proxy answers
        return RegistryError("The schema registry does not have it", status, code or status, is_away=not known)
    said = given.get("message")
    reason = f": {' '.join(said.encode(errors='replace').decode().split())[:300]}" if isinstance(said, str) else ""
    is_verdict = status in _VERDICTS and "error_code" in given
    message = f"The schema registry answers {status}{reason}"
    return RegistryError(message, status, code or status, is_away=not is_verdict)


def _secret(path: str) -> str:
    with open(path, encoding="utf-8") as file:
        return file.readline(_SECRET_BYTES_MAX).rstrip("\r\n")
