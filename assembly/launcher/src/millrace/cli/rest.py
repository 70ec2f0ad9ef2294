"""Requests to admin-api's REST API over one connection of the standard library, which imports fast."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import SplitResult, parse_qsl, quote, urlencode, urlsplit

from millrace.cli.errors import USAGE, CliError
from millrace.cli.profile import current

#: Seconds until an address counts as one that does not answer.
CONNECT_TIMEOUT_S = 3.0
#: Seconds for the answer to a request.
ANSWER_TIMEOUT_S = 30.0
_PAGE_SIZE = 1000
_HOST = re.compile(r"[^\x00-\x20.]+(\.[^\x00-\x20.]+)*\.?")
_TOKEN = re.compile(r"[!-~]+")


class RestClient:
    """One connection to the REST API of a cluster. Methods raise CliError with the reason of a refusal."""

    def __init__(self, address: str | None) -> None:
        profile = current()
        given = profile.rest if address is None else address  # mutant: empty-address-kept
        url, port = _split(given)
        self.address = given
        self._base = url.path.rstrip("/")
        self._headers = {"Accept": "application/json"}
        if profile.token_file:
            try:
                token = Path(profile.token_file).read_text(encoding="utf-8", errors="replace").strip()
            except OSError as error:
                raise CliError(f"token file {profile.token_file}: {error.strerror}") from error
            if not _TOKEN.fullmatch(token):
                raise CliError(f"token file {profile.token_file}: not one token of visible ASCII characters")
            self._headers["Authorization"] = f"Bearer {token}"
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(str(url.hostname), port, timeout=CONNECT_TIMEOUT_S)
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
            self._connection.sock.settimeout(CONNECT_TIMEOUT_S)
            try:
                self._cluster = str(self.request("GET", "/v3/clusters")["data"][0]["cluster_id"])
            except (LookupError, TypeError) as error:
                raise CliError(f"{self.address} names no cluster; is it the REST API?") from error
            self._connection.sock.settimeout(ANSWER_TIMEOUT_S)
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
        """Return the JSON of an answer, None for one without content."""
        content = None if body is None else json.dumps(body).encode()
        headers = self._headers if body is None else {**self._headers, "Content-Type": "application/json"}
        try:
            self._connection.request(method, self._base + target, content, headers)
            answer = self._connection.getresponse()
            received = answer.read()
        except TimeoutError as error:
            raise CliError(f"the REST API at {self.address} does not answer") from error
        except (OSError, http.client.HTTPException) as error:
            raise CliError(f"no REST API answers at {self.address}: {error or type(error).__name__}") from error
        try:
            parsed = json.loads(received) if received else None
        except ValueError as error:
            raise CliError(f"the answer of {self.address} is not JSON; is it the REST API?") from error
        if answer.status >= 400:
            message = parsed.get("message") if isinstance(parsed, dict) else None
            raise CliError(str(message or f"HTTP {answer.status} {answer.reason}"))
        return parsed


def _split(given: str) -> tuple[SplitResult, int | None]:
    """Return an address as a URL, and its port. Raises CliError for another text."""
    if not given:
        raise CliError("--rest: the address is empty; is a shell variable not set?", USAGE)
    try:
        url = urlsplit(given if "://" in given else f"http://{given}")
        port, host = url.port, url.hostname or ""
        host.encode("idna")
        if _HOST.fullmatch(host) and url.scheme in ("http", "https") and not url.query:
            return url, port
    except ValueError:
        pass
    raise CliError(f"--rest: {given!r} is not host:port or a URL", USAGE)


def _joined(*parts: str) -> str:
    if "" in parts:
        raise CliError("a name is empty; is a shell variable not set?", USAGE)
    return "/".join(quote(part, safe="") for part in parts)
