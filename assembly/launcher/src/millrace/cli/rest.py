"""Requests to admin-api's REST API over one connection of the standard library, which imports fast."""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from millrace.cli.addresses import RestAddress
from millrace.cli.errors import USAGE, CliError
from millrace.cli.profile import current

#: Seconds until an address counts as one that does not answer.
CONNECT_TIMEOUT_S = 3.0
#: Seconds for an address while a person waits at the TAB key.
HURRIED_S = 1.0
#: Seconds for the answer to a request.
ANSWER_TIMEOUT_S = 30.0
#: Seconds that one request waits in all for a REST API that asks its clients to be slower.
PATIENCE_S = 60.0
#: Most bytes of an answer: a page of a thousand rows has some megabytes.
ANSWER_BYTES_MAX = 64 << 20
_READ_BYTES = 1 << 16
_TOO_MANY = 429
_PAGE_SIZE = 1000
_TOKEN = re.compile(r"[!-~]+")


class RefusalError(CliError):
    """The REST API refused one request; others may be accepted."""


class RestClient:
    """One connection to the REST API of a cluster. Methods raise CliError with the reason of a refusal."""

    def __init__(self, address: str | None, *, hurried: bool = False) -> None:
        """Prepare a connection. A hurried one has a second for each answer, and gives up where it is to wait."""
        self.address = current().rest if address is None else address  # mutant: empty-address-kept
        place = RestAddress.parse(self.address, _source(address))
        self._base = place.base
        self._headers = {"Accept": "application/json"}
        if token := _token(place):
            self._headers["Authorization"] = f"Bearer {token}"
        kind = http.client.HTTPSConnection if place.scheme == "https" else http.client.HTTPConnection
        self._limit_s = HURRIED_S if hurried else CONNECT_TIMEOUT_S
        self._connection = kind(place.host, place.port, timeout=self._limit_s)
        self._is_hurried = hurried
        self._cluster: str | None = None

    def __enter__(self) -> Self:
        try:
            self._connection.connect()
        except OSError as error:
            reason = error.strerror or str(error)
            raise CliError(f"no REST API answers at {self.address}: {reason}") from error
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._connection.close()

    @property
    def cluster_id(self) -> str:
        """The id of the cluster, which the first access asks for."""
        if self._cluster is None:
            try:
                self._cluster = str(self.request("GET", "/v3/clusters")["data"][0]["cluster_id"])
            except (LookupError, TypeError) as error:
                raise CliError(f"{self.address} names no cluster; is it the REST API?") from error
            self._limit_s = self._limit_s if self._is_hurried else ANSWER_TIMEOUT_S
        return self._cluster

    def call(self, method: str, *path: str, body: object = None) -> Any:
        """Return the answer to a request below the cluster; each part of the path is a name."""
        return self.request(method, f"/v3/clusters/{_joined(self.cluster_id, *path)}", body)

    def rows(self, *path: str) -> list[dict[str, Any]]:
        """Return the rows of a collection below the cluster, from all its pages."""
        found: list[dict[str, Any]] = []
        query = {"page_size": str(_PAGE_SIZE)}
        while True:
            answer = self.request("GET", f"/v3/clusters/{_joined(self.cluster_id, *path)}?{urlencode(query)}")
            found += answer["data"]
            following = answer["metadata"].get("next")
            if not following:
                return found
            query = dict(parse_qsl(urlsplit(following).query))

    def request(self, method: str, target: str, body: object = None) -> Any:
        """Return the JSON of an answer, None for one without content.

        A request that comes too early (429) was not carried out. It is sent again after the answer's Retry-After.
        """
        waited_s = 0.0
        while True:
            answer, received = self._exchange(method, target, body)
            if answer.status != _TOO_MANY:
                break
            pause_s = _retry_after_s(answer)
            waited_s += pause_s
            if self._is_hurried or waited_s > PATIENCE_S:
                break
            self._connection.close()  # the server may close one that is idle
            time.sleep(pause_s)
        try:
            parsed = json.loads(received) if received else None
        except ValueError as error:
            raise CliError(f"the answer of {self.address} is not JSON; is it the REST API?") from error
        if answer.status >= 400:
            message = parsed.get("message") if isinstance(parsed, dict) else None
            raise RefusalError(str(message or f"HTTP {answer.status} {answer.reason}"))
        return parsed

    def _exchange(self, method: str, target: str, body: object) -> tuple[http.client.HTTPResponse, bytes]:
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            if self._connection.sock is None:
                self._connection.connect()
            self._connection.sock.settimeout(self._limit_s)
            self._connection.request(method, self._base + target, content, headers)
            answer = self._connection.getresponse()
            return answer, self._content(answer)
        except TimeoutError as error:
            raise CliError(f"the REST API at {self.address} does not answer") from error
        except (OSError, http.client.HTTPException) as error:
            raise CliError(f"no REST API answers at {self.address}: {error or type(error).__name__}") from error

    def _content(self, answer: http.client.HTTPResponse) -> bytes:
        """Return the content of an answer, which has as long as the answer. Raises TimeoutError, HTTPException."""
        until, content = time.monotonic() + self._limit_s, bytearray()
        while part := answer.read1(_READ_BYTES):
            content += part
            if len(content) > ANSWER_BYTES_MAX:
                raise CliError(f"the answer of {self.address} is too long; is it the REST API?")
            if time.monotonic() > until:
                raise TimeoutError
        answer.read()  # ends the answer; `read1` says nothing about bytes that are missing
        return bytes(content)


def _retry_after_s(answer: http.client.HTTPResponse) -> float:
    """Return the seconds to wait, 1 where the answer names none (RFC 9110, 10.2.3; dates are not understood)."""
    given = answer.headers.get("Retry-After", "").strip()
    return max(0.1, float(given[:9])) if given.isascii() and given.isdecimal() else 1.0


def _source(address: str | None) -> str:
    return "MILLRACE_REST" if address is None and "MILLRACE_REST" in os.environ else "--rest"


def _token(place: RestAddress) -> str | None:
    """Return the token that belongs to an address: $MILLRACE_TOKEN to $MILLRACE_REST, a profile's to its own."""
    if given := os.environ.get("MILLRACE_TOKEN"):
        if "MILLRACE_REST" not in os.environ:
            raise CliError("MILLRACE_TOKEN goes to the address in MILLRACE_REST alone; set that too", USAGE)
        if RestAddress.parse(os.environ["MILLRACE_REST"], "MILLRACE_REST") == place:
            return _checked("MILLRACE_TOKEN", given)
    profile = current()
    # mutant: token-to-its-own-address
    if not profile.token_file or RestAddress.parse(profile.rest) != place:
        return None
    try:
        given = Path(profile.token_file).read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise CliError(f"token file {profile.token_file}: {error.strerror}") from error
    return _checked(f"token file {profile.token_file}", given)


def _checked(source: str, token: str) -> str:
    if not _TOKEN.fullmatch(token):
        raise CliError(f"{source}: not one token of visible ASCII characters")
    return token


def _joined(*parts: str) -> str:
    if "" in parts:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    return "/".join(quote(part, safe="") for part in parts)
