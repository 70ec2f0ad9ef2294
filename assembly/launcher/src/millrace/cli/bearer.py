"""Tokens for `-X sasl.mechanism=OAUTHBEARER`: from a file, or from an issuer for a client's own id (RFC 6749, 4.4).

    sasl.oauthbearer.token.endpoint.url=file:///run/token      the file is read for each connection
    sasl.oauthbearer.token.endpoint.url=https://issuer/token   with sasl.oauthbearer.client.id and .client.secret

The names are librdkafka's, of its method oidc. A token of an issuer serves until most of its time is over. The secret
leaves over TLS only, or to this machine; no message has it, or a token.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from service_chassis.address import is_loopback

from millrace.cli.errors import USAGE, CliError

ENDPOINT: Final = "sasl.oauthbearer.token.endpoint.url"
METHOD, SCOPE = "sasl.oauthbearer.method", "sasl.oauthbearer.scope"
CLIENT_ID, CLIENT_SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
PROPERTIES: Final = (METHOD, ENDPOINT, CLIENT_ID, CLIENT_SECRET, SCOPE)

_BYTES_MAX: Final = 65_536
_TIMEOUT_S: Final = 10.0
#: The part of its time that a token serves, and the seconds where the issuer names none.
_USED: Final = 0.8
_LIFETIME_S: Final = 60.0


def token_source(given: Mapping[str, str]) -> Callable[[], str]:
    """Return the function that gives a token for a connection. Raises CliError for properties that do not fit."""
    if given.get(METHOD, "oidc").lower() != "oidc":
        raise CliError(f"-X: {METHOD} is not oidc", USAGE)
    address = given.get(ENDPOINT, "")
    parts = urlsplit(address)
    if parts.scheme == "file" and not parts.netloc and parts.path:
        return _File(Path(unquote(parts.path)))
    if not parts.hostname or "@" in parts.netloc or parts.scheme not in ("http", "https"):
        raise CliError(f"-X: sasl.mechanism=OAUTHBEARER needs {ENDPOINT}, file:///… or https://…", USAGE)
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise CliError(f"-X: {ENDPOINT}={address} would show the secret to the network; use https", USAGE)
    if not given.get(CLIENT_ID) or not given.get(CLIENT_SECRET):
        raise CliError(f"-X: {ENDPOINT}={address} needs {CLIENT_ID} and {CLIENT_SECRET}", USAGE)
    return _Issuer(address, given[CLIENT_ID], given[CLIENT_SECRET], given.get(SCOPE, ""))


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self) -> str:
        try:
            with self._path.open("rb") as file:
                token = file.read(_BYTES_MAX).decode("ascii").strip()
        except OSError as error:
            raise CliError(f"{self._path}: {error.strerror}") from error
        except UnicodeDecodeError:
            token = ""
        return _checked(token, str(self._path))


class _Issuer:
    """A token that an issuer gave, for most of its time; then another one."""

    def __init__(self, address: str, client_id: str, client_secret: str, scope: str) -> None:
        self._address = address
        login = f"{quote(client_id, safe='')}:{quote(client_secret, safe='')}"
        self._authorization = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._body = urlencode({"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})).encode()
        self._token, self._until = "", 0.0

    def __call__(self) -> str:
        if time.monotonic() >= self._until:
            answer = self._asked()
            lifetime = answer.get("expires_in")
            seconds = float(lifetime) if isinstance(lifetime, int | float) and lifetime > 0 else _LIFETIME_S
            self._token = _checked(answer.get("access_token"), self._address)
            self._until = time.monotonic() + seconds * _USED
        return self._token

    def _asked(self) -> dict[str, Any]:
        from urllib.error import HTTPError
        from urllib.request import HTTPRedirectHandler, Request, build_opener

        class NoRedirects(HTTPRedirectHandler):
            """Let nobody lead the secret elsewhere."""

            def redirect_request(self, *_arguments: Any) -> None:
                return None

        headers = {"Authorization": self._authorization, "Content-Type": "application/x-www-form-urlencoded"}
        request = Request(self._address, self._body, {**headers, "Accept": "application/json"})
        try:
            with build_opener(NoRedirects).open(request, timeout=_TIMEOUT_S) as response:
                answer = json.loads(response.read(_BYTES_MAX))
        except HTTPError as error:
            raise CliError(f"{self._address}: status {error.code}") from None
        except OSError as error:
            raise CliError(f"{self._address}: {getattr(error, 'reason', None) or error}") from None
        except ValueError:
            raise CliError(f"{self._address}: the answer is not JSON") from None
        if not isinstance(answer, dict):
            raise CliError(f"{self._address}: the answer is no token")
        return answer


def _checked(token: Any, source: str) -> str:
    """Return a text that can be a token: no blank or line end may leave it."""
    if not isinstance(token, str) or not token or not all("!" <= each <= "~" for each in token):
        raise CliError(f"{source}: there is no token")
    return token
