"""Admission of requests: bearer tokens, their roles, the rate of each client, and the read-only server.

    none     every request may do everything
    token    `Authorization: Bearer …` of the tokens file; 401 without one, 403 if its role does not suffice.
             A page may have the token in a cookie (see `pages`)
    users    the service's own users, too (see `logins`), with the highest role: the service's rights bound them

Where no login is wanted (a loopback address), one that is offered counts if the service has users.

Each line of the tokens file is `NAME ROLE TOKEN`, with the roles of the service but its lowest, in lower case; `#`
begins a comment line. Only digests of the tokens stay in memory. The file is read once, at the start.

After FAILURES_AT_ONCE failed logins an address may try once a second.

`Access.admit` runs before the body is read, and `authorize` is a dependency of every route.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
import time
from collections.abc import Awaitable, Callable
from enum import IntEnum
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.datastructures import Headers
from starlette.types import Scope

from service_chassis import address
from service_chassis.http import pages
from service_chassis.http.errors import ApiError
from service_chassis.http.logins import Logins, read_basic
from service_chassis.http.origins import PROBES
from service_chassis.http.rules import PUBLIC, READ, Rules
from service_chassis.http.settings import HttpSettings
from service_chassis.rates import BURST_S, Rates

#: The keys, in the ASGI scope, of the Principal, of its client, of the Access that admitted it, and of its cookie.
_PRINCIPAL = "service_chassis.http.principal"
_CLIENT = "service_chassis.http.client"
_ACCESS = "service_chassis.http.access"
_COOKIE = "service_chassis.http.cookie"
#: The key, in the ASGI scope, of whether a page of ours makes the request.
PAGE_KEY = "service_chassis.http.page"
FILE_BYTES_MAX = 65_536
TOKENS_MAX = 256
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: RFC 6750's b64token: 16 characters of hexadecimal digits have 64 bits.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,256}=*")
#: Failed logins of an address: per second, and at once.
FAILURES_PER_S = 1.0
FAILURES_AT_ONCE = int(FAILURES_PER_S * BURST_S)
#: Bits of an IPv6 address that one client usually has to itself.
_IPV6_CLIENT_BITS = 64
#: Seconds between two checks of the login of a request that lasts.
CHECKED_EVERY_S = 1.0


class AccessError(ValueError):
    """Settings of access that cannot be used; the message names the setting, never a token."""


class Principal(NamedTuple):
    """The sender of a request, as audit lines name it."""

    name: str
    role: int
    #: Whether nobody has logged in.
    is_anonymous: bool = False


_STRANGER = Principal("anonymous", PUBLIC, is_anonymous=True)


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: str, roles: type[IntEnum], variable: str) -> None:
        """Read the file that a variable names. Raises AccessError that names the line, if it cannot be used."""
        self._roles = {role.name.lower(): role for role in roles if role != PUBLIC}
        self._variable = variable
        try:
            with Path(path).open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise self._wrong(f"cannot read {path}: {error.strerror}") from None
        if len(content) > FILE_BYTES_MAX:
            raise self._wrong(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        self._holders: dict[bytes, Principal] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._add(line.split(), f"line {number} of {path}")
        if not self._holders:
            raise self._wrong(f"{path} has no token")

    def holder(self, token: str) -> Principal | None:
        """Return the holder of a token. The time does not depend on the token's characters."""
        offered = _digest(token)
        found = None
        for digest, principal in self._holders.items():
            if hmac.compare_digest(digest, offered):
                found = principal
        return found

    def _add(self, words: list[str], place: str) -> None:
        if len(words) != 3:
            raise self._wrong(f"{place} is not NAME ROLE TOKEN")
        name, role, token = words
        if not _NAME.fullmatch(name):
            raise self._wrong(f"{place}: a name has 1 to 64 letters, digits, '.', '_' and '-'")
        if role not in self._roles:
            raise self._wrong(f"{place}: the role is not one of {', '.join(self._roles)}")
        if not _TOKEN.fullmatch(token):
            raise self._wrong(f"{place}: a token has 16 to 256 letters, digits and characters of -._~+/")
        digest = _digest(token)
        if digest in self._holders:
            raise self._wrong(f"{place} repeats a token")
        if len(self._holders) == TOKENS_MAX:
            raise self._wrong(f"more than {TOKENS_MAX} tokens")
        self._holders[digest] = Principal(name, self._roles[role])

    def _wrong(self, reason: str) -> AccessError:
        return AccessError(f"{self._variable}: {reason}")


class Access:
    """The admission of one server."""

    def __init__(self, rules: Rules, settings: HttpSettings, logins: Logins | None = None) -> None:
        """Raise AccessError if the settings leave it open by mistake, or if the tokens cannot be used.

        `logins`: those of the service's users, if it has some.
        """
        auth, tokens = f"{settings.prefix}AUTH", f"{settings.prefix}TOKENS_FILE"
        if not settings.auth and not address.is_loopback(settings.listens_at.host):  # mutant: open-address-decided
            raise AccessError(
                f"{auth}: other machines can reach {settings.listens_at}; set it to token with a {tokens},"
                f"{' to users,' if rules.has_users else ''} or to none if anyone may administer the cluster"
            )
        if not settings.auth and settings.tokens_file:
            raise AccessError(f"{auth}: set it to token, since there is a {tokens}")
        if settings.auth == "token" and not settings.tokens_file:
            raise AccessError(f"{tokens}: not set, and {auth} is token")
        self.rules = rules
        has_tokens = settings.auth in ("token", "users") and settings.tokens_file
        self._tokens = Tokens(settings.tokens_file, rules.roles, tokens) if has_tokens else None
        self._logins = logins if settings.auth in ("", "users") else None
        #: Whether senders without a login may only use what is public.
        self.needs_login = settings.auth in ("token", "users")
        self._failures = Rates(FAILURES_PER_S)
        self._rates = Rates(settings.rate_limit) if settings.rate_limit else None
        self._highest = max(rules.roles)
        self._anyone = Principal("anonymous", self._highest, is_anonymous=True)
        self._read_only = f"{settings.prefix}READ_ONLY" if settings.read_only else ""

    async def admit(self, scope: Scope, headers: Headers) -> None:
        """Note the sender of a request in its scope. Raises ApiError 429, 401, 403 or 503."""
        scope[_ACCESS] = self
        scope[PAGE_KEY] = pages.is_page(headers)
        if scope["path"] in PROBES:
            scope[_PRINCIPAL] = _STRANGER
            return
        offered = headers.getlist("authorization")
        scope[_COOKIE] = pages.token_of(headers, self.rules.cookie)
        cookie = "" if offered else scope[_COOKIE]
        at = _address(scope)
        # A page whose cookie is old logs in again.
        principal = await self._of_cookie(cookie) if cookie else await self._holder(offered, at)
        is_known = principal is not None and not principal.is_anonymous
        client = f"name {principal.name}" if principal and is_known else f"at {at}"
        if scope[PAGE_KEY]:  # mutant: pages-have-a-rate
            client = f"page {client}"
        scope[_CLIENT] = client
        if self._rates is not None:
            wait_s = self._rates.wait_s(client)
            if wait_s:
                headers_ = {"retry-after": str(math.ceil(wait_s))}
                raise self.rules.refusal(429, "Too many requests of this client.", headers_)
        if principal is None:
            raise self._unauthorized(headers, self.wrong)
        if principal.role == PUBLIC and self.rules.required(scope["method"], scope["path"]) != PUBLIC:
            raise self._unauthorized(headers)
        # mutant: cookie-needs-header
        if cookie and is_known and scope["method"] not in pages.SAFE_METHODS and pages.HEADER not in headers:
            raise self.rules.refusal(403, "A change with the cookie of a login needs the header X-Requested-By.")
        scope[_PRINCIPAL] = principal

    async def check_again(self, scope: Scope, headers: Headers) -> None:
        """Check the login of an admitted request again. Raises ApiError 401, 429 or 503."""
        offered = headers.getlist("authorization")
        cookie = "" if offered else scope[_COOKIE]
        found = await self._of_cookie(cookie) if cookie else await self._holder(offered, _address(scope))
        if found != scope[_PRINCIPAL]:
            raise self._unauthorized(headers, self.wrong)

    @property
    def has_users(self) -> bool:
        """Whether users of the service log in, too."""
        return self._logins is not None

    @property
    def wrong(self) -> str:
        """The answer to a wrong login, whatever is wrong about it."""
        if self._logins is None:
            return "The token is not one that this server accepts."
        return "The token, or the user name and the password, are not ones that this server accepts."

    @property
    def is_read_only(self) -> bool:
        return bool(self._read_only)

    def holder(self, token: str) -> Principal | None:
        """Return the holder of a token of the tokens file."""
        return None if self._tokens is None else self._tokens.holder(token)

    async def user_of_token(self, token: str, scope: Scope) -> Principal | None:
        """Return the user that a token of an issuer names. Raises ApiError 429 or 503."""
        logins = self._logins
        return None if logins is None else await self._checked(lambda: logins.of_token(token), _address(scope))

    async def user_of_password(self, user: str, password: str, scope: Scope) -> Principal | None:
        """Return the user whose password this is. Raises ApiError 429 or 503."""
        logins = self._logins
        if logins is None:
            return None
        return await self._checked(lambda: logins.of_password(user, password), _address(scope))

    async def _of_cookie(self, cookie: str) -> Principal:
        if not self.needs_login and self._logins is None:
            return self._anyone
        found = self.holder(cookie)
        if found is None and self._logins is not None and (user := await self._logins.of_session(cookie)) is not None:
            found = Principal(user, self._highest)
        return found or self._without()

    async def _holder(self, offered: list[str], at: str) -> Principal | None:
        """Return the sender, None with a wrong login."""
        if not offered or not (self.needs_login or self._logins is not None):
            return self._without()
        scheme, _, text = offered[0].partition(" ")
        text = text.strip()
        if len(offered) != 1:
            return None
        logins = self._logins
        if scheme.lower() == "bearer":
            found = self.holder(text)
            if found is None and logins is not None:
                found = await self._checked(lambda: logins.of_token(text), at)
            return found
        if scheme.lower() == "basic" and logins is not None and (given := read_basic(text)) is not None:
            return await self._checked(lambda: logins.of_password(*given), at)
        return None

    def _without(self) -> Principal:
        """Return the sender of a request without a login."""
        return _STRANGER if self.needs_login else self._anyone  # mutant: token-demanded

    async def _checked(self, check: Callable[[], Awaitable[str | None]], at: str) -> Principal | None:
        """Return the user of a login. Raises ApiError 429 if the address has failed too often."""
        wait_s = self._failures.due_s(at)
        if wait_s:  # mutant: failed-logins-bounded
            headers = {"retry-after": str(math.ceil(wait_s))}
            raise self.rules.refusal(429, "Too many failed logins of this client.", headers)
        user = await check()
        if user is None:
            self._failures.wait_s(at)
            return None
        return Principal(user, self._highest)

    def authorize(self, method: str, path: str, held: int, headers: Headers) -> None:
        """Raise ApiError 401 or 403 if a role may not use a route."""
        role = self.rules.required(method, path)
        if held == PUBLIC and role != PUBLIC:
            raise self._unauthorized(headers)
        if held < role:  # mutant: role-checked
            name = self.rules.roles(held).name.lower()
            raise self.rules.refusal(403, f"This needs the role {role.name.lower()}, not {name}.")
        if self._read_only and role > READ:
            raise self.rules.refusal(403, f"This server is read-only ({self._read_only}).")

    def _unauthorized(self, headers: Headers, message: str = "") -> ApiError:
        if self._logins is None:
            message = message or "A token is required: Authorization: Bearer …"
            return self.rules.refusal(401, message, {"www-authenticate": "Bearer"})
        message = message or "A login is required: Authorization: Basic …, or Bearer …"
        # A browser would ask for the password in its own window. Our page has one.
        challenge = "Bearer" if pages.is_page(headers) else 'Basic realm="administration", charset="UTF-8", Bearer'
        return self.rules.refusal(401, message, {"www-authenticate": challenge})


def caller(scope: Scope) -> Principal:
    """Return the sender of a request; a stranger if the request was refused before it was known."""
    principal: Principal = scope.get(_PRINCIPAL, _STRANGER)
    return principal


def lasting_login(request: Request) -> Callable[[], Awaitable[None]]:
    """Return a function that raises ApiError once the login of a request counts no more. It checks once a second."""
    access: Access = request.scope[_ACCESS]
    checked_at = time.monotonic()

    async def check() -> None:
        nonlocal checked_at
        if time.monotonic() - checked_at >= CHECKED_EVERY_S:
            checked_at = time.monotonic()
            await access.check_again(request.scope, request.headers)  # mutant: rest-stream-login

    return check


def cookie_of(scope: Scope) -> str:
    """Return the cookie in which a page keeps a login; empty without one."""
    cookie: str = scope.get(_COOKIE, "")
    return cookie


def client_of(scope: Scope) -> str:
    """Return the client of an admitted request, whose requests are limited together: a token's name, or an address."""
    client: str = scope[_CLIENT]
    return client


async def authorize(
    request: Request,
    _bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> None:
    """Raise ApiError if the sender may not use the route. Every route depends on this."""
    access: Access = request.scope[_ACCESS]
    access.authorize(request.method, request.scope["route"].path, caller(request.scope).role, request.headers)


def _address(scope: Scope) -> str:
    """Return the client's address; of IPv6 the network, of which a client has all addresses."""
    host: str = scope["client"][0] if scope.get("client") else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_CLIENT_BITS), strict=False))
    except ValueError:
        return host


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
