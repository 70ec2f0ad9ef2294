"""Admission of requests: bearer tokens, their roles, the rate of each client, and the read-only server.

    none     every request may do everything
    token    `Authorization: Bearer …` of the tokens file; 401 without one, 403 if its role does not suffice

Each line of the tokens file is `NAME ROLE TOKEN`, with the roles read, write and admin; `#` begins a comment line. Only
digests of the tokens stay in memory. The file is read once, at the start.

`Access.admit` runs before the body is read, and `authorize` is a dependency of every route.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import math
import re
from pathlib import Path
from typing import Annotated, NamedTuple

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from service_chassis import address
from starlette.datastructures import Headers
from starlette.types import Scope

from admin_api import errors
from admin_api.origins import PROBES
from admin_api.rates import Rates
from admin_api.roles import Role, required
from admin_api.settings import AdminSettings

__all__ = ["Access", "AccessError", "Principal", "Tokens", "authorize", "caller"]

#: The key of the Principal in the ASGI scope.
_PRINCIPAL = "admin_api.principal"
FILE_BYTES_MAX = 65_536
TOKENS_MAX = 256
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: RFC 6750's b64token: 16 characters of hexadecimal digits have 64 bits.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{16,256}=*")
_ROLES = {"read": Role.READ, "write": Role.WRITE, "admin": Role.ADMIN}
#: Bits of an IPv6 address that one client usually has to itself.
_IPV6_CLIENT_BITS = 64


class AccessError(ValueError):
    """Settings of access that cannot be used; the message names the setting, never a token."""


class Principal(NamedTuple):
    """The sender of a request, as audit lines name it."""

    name: str
    role: Role


_ANYONE = Principal("anonymous", Role.ADMIN)
_STRANGER = Principal("anonymous", Role.PUBLIC)


class Tokens:
    """The tokens of a file."""

    def __init__(self, path: str) -> None:
        """Read the file. Raises AccessError that names the line, if it cannot be used."""
        try:
            with Path(path).open("rb") as file:
                content = file.read(FILE_BYTES_MAX + 1)
        except OSError as error:
            raise _wrong(f"cannot read {path}: {error.strerror}") from None
        if len(content) > FILE_BYTES_MAX:
            raise _wrong(f"{path} is larger than {FILE_BYTES_MAX} bytes")
        self._holders: dict[bytes, Principal] = {}
        for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
            if line.strip() and not line.lstrip().startswith("#"):
                self._add(line.split(), f"line {number} of {path}")
        if not self._holders:
            raise _wrong(f"{path} has no token")

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
            raise _wrong(f"{place} is not NAME ROLE TOKEN")
        name, role, token = words
        if not _NAME.fullmatch(name):
            raise _wrong(f"{place}: a name has 1 to 64 letters, digits, '.', '_' and '-'")
        if role not in _ROLES:
            raise _wrong(f"{place}: the role is not one of {', '.join(_ROLES)}")
        if not _TOKEN.fullmatch(token):
            raise _wrong(f"{place}: a token has 16 to 256 letters, digits and characters of -._~+/")
        digest = _digest(token)
        if digest in self._holders:
            raise _wrong(f"{place} repeats a token")
        if len(self._holders) == TOKENS_MAX:
            raise _wrong(f"more than {TOKENS_MAX} tokens")
        self._holders[digest] = Principal(name, _ROLES[role])


class Access:
    """The rules of one server."""

    def __init__(self, settings: AdminSettings) -> None:
        """Raise AccessError if the settings leave it open by mistake, or if the tokens cannot be used."""
        bound_to = address.parse(settings.admin_http)
        self.is_open = settings.admin_auth != "token"
        if not settings.admin_auth and not address.is_loopback(bound_to.host):  # mutant: open-address-decided
            raise AccessError(
                f"MILLRACE_ADMIN_AUTH: other machines can reach {bound_to}; set it to token with a"
                " MILLRACE_ADMIN_TOKENS_FILE, or to none if anyone may administer the cluster"
            )
        if not settings.admin_auth and settings.admin_tokens_file:
            raise AccessError("MILLRACE_ADMIN_AUTH: set it to token, since there is a MILLRACE_ADMIN_TOKENS_FILE")
        if settings.admin_auth == "token" and not settings.admin_tokens_file:
            raise _wrong("not set, and MILLRACE_ADMIN_AUTH is token")
        self._tokens = Tokens(settings.admin_tokens_file) if settings.admin_auth == "token" else None
        self._rates = Rates(settings.admin_rate_limit) if settings.admin_rate_limit else None
        self.read_only = settings.admin_read_only

    def admit(self, scope: Scope, headers: Headers) -> None:
        """Note the sender of a request in its scope. Raises ApiError 429 or 401."""
        if scope["path"] in PROBES:
            scope[_PRINCIPAL] = _STRANGER
            return
        offered = headers.getlist("authorization")
        principal = self._holder(offered)
        if self._rates is not None:
            known = principal is not None and principal.role is not Role.PUBLIC and not self.is_open
            wait_s = self._rates.wait_s(f"name {principal.name}" if known and principal else f"at {_client(scope)}")
            if wait_s:
                headers_ = {"retry-after": str(math.ceil(wait_s))}
                raise errors.ApiError(429, 42901, "Too many requests of this client.", headers_)
        if principal is None:
            raise _unauthorized("The token is not one that this server accepts.")
        if principal.role is Role.PUBLIC and required(scope["method"], scope["path"]) is not Role.PUBLIC:
            raise _unauthorized("A token is required: Authorization: Bearer …")
        scope[_PRINCIPAL] = principal

    def _holder(self, offered: list[str]) -> Principal | None:
        """Return the sender, _STRANGER without a token, None with a wrong one."""
        if self._tokens is None:
            return _ANYONE
        if not offered:
            return _STRANGER  # mutant: token-demanded
        scheme, _, token = offered[0].partition(" ")
        return self._tokens.holder(token.strip()) if len(offered) == 1 and scheme.lower() == "bearer" else None


def caller(scope: Scope) -> Principal:
    """Return the sender of a request; a stranger if the request was refused before it was known."""
    principal: Principal = scope.get(_PRINCIPAL, _STRANGER)
    return principal


async def authorize(
    request: Request,
    _bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> None:
    """Raise ApiError if the sender may not use the route. Every route depends on this."""
    access: Access = request.app.state.access
    role = required(request.method, request.scope["route"].path)
    held = caller(request.scope).role
    if held is Role.PUBLIC and role is not Role.PUBLIC:
        raise _unauthorized("A token is required: Authorization: Bearer …")
    if held < role:  # mutant: role-checked
        raise errors.ApiError(403, 40301, f"This needs the role {role.name.lower()}, not {held.name.lower()}.")
    if access.read_only and role > Role.READ:
        raise errors.ApiError(403, 40301, "This server is read-only (MILLRACE_ADMIN_READ_ONLY).")


def _client(scope: Scope) -> str:
    """Return the client's address; of IPv6 the network, of which a client has all addresses."""
    host: str = scope["client"][0] if scope.get("client") else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], _IPV6_CLIENT_BITS), strict=False))
    except ValueError:
        return host


def _unauthorized(message: str) -> errors.ApiError:
    return errors.ApiError(401, 40101, message, {"www-authenticate": "Bearer"})


def _wrong(reason: str) -> AccessError:
    return AccessError(f"MILLRACE_ADMIN_TOKENS_FILE: {reason}")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
