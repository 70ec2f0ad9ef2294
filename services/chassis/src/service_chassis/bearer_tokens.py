"""JSON Web Tokens of clients (RFC 7519), checked with the keys that their issuer publishes (RFC 7517).

    refused: no or another issuer or audience · no exp, iat or subject · expired, or issued in the future
             algorithm `none`, an HMAC, or another one than the key's type has · a key that the issuer does not list

A key's type decides on the algorithms: a token that names another one (a public key as the secret of an HMAC) has no
key. The keys are read from an https address or a file, and again when they are old. A token with an unknown key id has
them read again, once a minute at most. Redirects are not followed, and no address is taken from a token.

Tokens are checked in a few threads, and the keys are read in one of their own, once at a time. A check waits for it
as far as it needs the keys:

    no keys yet, or the keys are old             until they are read, or cannot be: then the old ones count
    the last reading failed                      not at all: the next one runs in the background
    another token has an unknown key id          not at all

The settings are Kafka's `sasl.oauthbearer.…`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from service_chassis import logs
from service_chassis.password_checks import CheckThreads
from service_chassis.settings import Settings, setting

log = logs.get(__name__)

#: Characters of a token: PyJWT decodes it whole.
TOKEN_MAX: Final = 48 * 1024
#: Bytes of a list of keys, keys that are used, and seconds for reading it.
_LIST_BYTES_MAX: Final = 1 << 20
_KEYS_MAX: Final = 256
_READ_S: Final = 5.0
_PIECE_BYTES: Final = 64 * 1024
#: Seconds between two readings that an unknown key id causes, and between two tries after a failure.
_UNKNOWN_S: Final = 60.0
_RETRY_S: Final = 10.0
#: The errors of an issuer that is away, or that answers anything but a list of keys.
_NO_LIST: Final = (
    OSError, HTTPException, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError,
)  # fmt: skip
#: The algorithms of a key, by its type or curve.
_ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "P-256": frozenset({"ES256"}),
    "P-384": frozenset({"ES384"}),
    "P-521": frozenset({"ES512"}),
    "Ed25519": frozenset({"EdDSA"}),
}


def _check_address(text: str) -> None:
    parts = urlsplit(text)
    if text and not (parts.scheme == "https" and parts.hostname) and not (parts.scheme == "file" and parts.path):
        raise ValueError("is neither https://… nor file:///…")


class BearerSettings(Settings):
    """The settings of tokens."""

    sasl_oauthbearer_jwks_endpoint_url: str = setting(
        "",
        check=_check_address,
        description="Address of the keys that sign OAuth tokens (JWKS): https:// or file:///. Empty: no such tokens.",
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "", description="Issuer (`iss`) that an OAuth token must name. Required with the address of the keys."
    )
    sasl_oauthbearer_expected_audience: str = setting(
        "",
        description="Audiences, separated by commas, of which an OAuth token must name one (`aud`). Required with the "
        "address of the keys.",
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sub", description="Claim of an OAuth token that has the name of the user."
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(
        30, ge=0, le=600, description="Seconds by which the clock of the issuer of OAuth tokens may differ."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, ge=10_000, description="Age at which the keys that sign OAuth tokens are read again."
    )

    def check(self) -> None:
        super().check()
        if self.sasl_oauthbearer_jwks_endpoint_url and not (
            self.sasl_oauthbearer_expected_issuer.strip() and self.sasl_oauthbearer_expected_audience.strip(" ,")
        ):
            raise ValueError(
                "OAuth tokens need MILLRACE_SASL_OAUTHBEARER_EXPECTED_ISSUER and "
                "MILLRACE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE: tokens for other services would be accepted"
            )


#: A public key of `cryptography`, and the algorithms by which it signs.
_Key = tuple[Any, frozenset[str]]


class InvalidToken(Exception):  # noqa: N818 (reads as what happened)
    """The token is not accepted. The text is for the log; nothing in it is of the token but its claims' names."""


class _UnknownKey(InvalidToken):
    """The token names a key that is not known here."""


class KeysUnavailable(Exception):  # noqa: N818 (reads as what happened)
    """The keys have never been read: the token may be good or bad."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    subject: str
    #: Seconds since 1970 at which the token ends.
    expires_at: float


class BearerTokens:
    """The check of tokens of one issuer. Owner: the event loop; `close` must follow. No thread starts before use."""

    def __init__(
        self,
        settings: BearerSettings,
        *,
        clock: Callable[[], float] = time.time,  # wall clock: of tokens
        monotonic: Callable[[], float] = time.monotonic,
        threads: CheckThreads | None = None,
    ) -> None:
        self._settings = settings
        self._threads = threads or CheckThreads("token")
        self._audience = [
            each.strip() for each in settings.sasl_oauthbearer_expected_audience.split(",") if each.strip()
        ]
        self._keys = _Keys(
            settings.sasl_oauthbearer_jwks_endpoint_url,
            settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            monotonic,
        )
        self._clock = clock

    async def verify(self, token: str) -> VerifiedToken:
        """Return the user of a token, and its end.

        Raises:
            InvalidToken: it is not accepted.
            KeysUnavailable: the issuer cannot be asked.
            Busy: too many checks wait.
        """
        if len(token) > TOKEN_MAX:
            raise InvalidToken("the token is too long")
        await self._keys.until_known()
        check = partial(self._verified, token)
        try:
            return await self._threads.run(check)
        except _UnknownKey:
            if not await self._keys.read_for_unknown():
                raise
        return await self._threads.run(check)

    def close(self) -> None:
        self._threads.close()
        self._keys.close()

    def _verified(self, token: str) -> VerifiedToken:
        """Return the user of a token by the keys that are known. A thread calls it."""
        import jwt  # which takes 50 ms, for those alone that have tokens

        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            key = _key_for(self._keys.known, header.get("kid"), header.get("alg"))
            claims = jwt.decode(
                token,
                key,
                algorithms=[header["alg"]],  # one of the key's, as `find` has seen
                audience=self._audience,
                issuer=settings.sasl_oauthbearer_expected_issuer.strip(),
                options={"require": ["exp", "iat", "iss", "aud"], "verify_exp": False, "verify_iat": False},
                leeway=settings.sasl_oauthbearer_clock_skew_seconds,
            )
        except (jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise InvalidToken(f"{type(error).__name__}") from None  # its text may have a part of the token
        return self._accepted(claims)

    def _accepted(self, claims: Mapping[str, Any]) -> VerifiedToken:
        settings = self._settings
        name = settings.sasl_oauthbearer_sub_claim_name
        subject, expires_at, issued_at = claims.get(name), claims["exp"], claims["iat"]
        if not isinstance(subject, str) or not subject.strip():  # mutant: token-subject
            raise InvalidToken(f"no {name}")
        if not all(type(each) in (int, float) and abs(each) < 2**53 for each in (expires_at, issued_at)):
            raise InvalidToken("exp and iat must be numbers")
        now, skew_s = self._clock(), settings.sasl_oauthbearer_clock_skew_seconds
        if expires_at + skew_s <= now:  # mutant: token-expiry
            raise InvalidToken("it has expired")
        if issued_at > now + skew_s or issued_at > expires_at:  # mutant: token-issued
            raise InvalidToken("it is issued in the future, or after its end")
        return VerifiedToken(subject.strip(), float(expires_at))


def _key_for(keys: Mapping[str | None, _Key], key_id: object, algorithm: object) -> Any:
    """Return the key of this id, which signs by this algorithm. Raises InvalidToken."""
    if key_id is not None and not isinstance(key_id, str):
        raise InvalidToken("a key id that is no text")
    if key_id is None and len(keys) == 1:  # an issuer with one key need not name it
        found = next(iter(keys.values()))
    elif key_id in keys:
        found = keys[key_id]
    else:
        raise _UnknownKey("the issuer lists no such key")
    key, algorithms = found
    if algorithm not in algorithms:  # mutant: token-algorithm
        raise InvalidToken("another algorithm than the key's")
    return key


class _Keys:
    """The keys of an issuer, by their id. Owner: the event loop; threads use what `known` refers to."""

    def __init__(self, address: str, refresh_s: float, monotonic: Callable[[], float]) -> None:
        self._address = address
        self._refresh_s = refresh_s
        self._monotonic = monotonic
        self._thread = ThreadPoolExecutor(1, "millrace-keys")
        self.known: Mapping[str | None, _Key] = {}
        self._reading: asyncio.Task[None] | None = None
        #: Whether checks by known keys wait for the reading that is under way.
        self._holds = False
        self._has_failed = False
        #: The time at which they are read again.
        self._due = 0.0
        #: The time from which on an unknown id may have them read again.
        self._may_ask_at = 0.0

    async def until_known(self) -> None:
        """Wait for keys, which are read if that is due. Raises KeysUnavailable if there are none."""
        if self._monotonic() >= self._due:
            self._begin(holds=not self._has_failed)
        # mutant: known-keys-do-not-wait
        if self._reading is not None and (self._holds or not self.known):
            await asyncio.wait({self._reading})
        if not self.known:
            raise KeysUnavailable("the keys of the issuer cannot be read")

    async def read_for_unknown(self) -> bool:
        """Have the keys read because of an unknown id, and wait; return False if it is too soon for that.

        One reading a minute, whatever ids clients make up.
        """
        if self._reading is None:
            if self._monotonic() < self._may_ask_at:
                return False  # mutant: unknown-keys-bounded
            self._may_ask_at = self._monotonic() + _UNKNOWN_S
            self._begin(holds=False)
        if self._reading is not None:
            await asyncio.wait({self._reading})
        return True

    def _begin(self, *, holds: bool) -> None:
        if self._reading is None:
            self._holds = holds
            self._due = self._monotonic() + _RETRY_S  # mutant: failed-keys-not-read-again
            self._reading = asyncio.create_task(self._read(), name="keys of tokens")

    async def _read(self) -> None:
        """Read the keys, and keep the old ones on an error."""
        try:
            self.known = await asyncio.get_running_loop().run_in_executor(self._thread, _read, self._address)
            self._due = self._monotonic() + self._refresh_s
            self._has_failed = False
        except _NO_LIST as error:
            self._has_failed = True
            log.warning(
                "keys of OAuth tokens not read", address=self._address, error=f"{type(error).__name__}: {error}"
            )
        finally:
            self._reading = None

    def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


def _read(address: str) -> Mapping[str | None, _Key]:
    """Return the keys at an address. Raises one of _NO_LIST."""
    return _keys_of(_fetched(address))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_given: Any) -> None:
        """Follow no redirect: the error of its status is raised."""


def _fetched(address: str) -> bytes:
    """Return the bytes at an https or file address. Raises OSError or ValueError."""
    handlers = [_NoRedirects(), urllib.request.HTTPSHandler(context=ssl.create_default_context())]
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), *handlers)
    until = time.monotonic() + _READ_S
    data = bytearray()
    try:
        with opener.open(address, timeout=_READ_S) as answer:
            # `timeout` is for each piece: an issuer that sends a byte now and then would hold the thread for days.
            while piece := answer.read1(_PIECE_BYTES):
                data += piece
                if len(data) > _LIST_BYTES_MAX:  # mutant: keys-bounded
                    raise ValueError("the list of keys is too long")
                if time.monotonic() > until:
                    raise TimeoutError("the list of keys took too long")
    except urllib.error.HTTPError as error:
        error.close()
        raise ValueError(f"status {error.code}") from None
    return bytes(data)


def _keys_of(data: bytes) -> dict[str | None, _Key]:
    """Return the keys for signatures in a list, with the algorithms of each. Others are left out."""
    import jwt

    keys: dict[str | None, _Key] = {}
    for each in json.loads(data)["keys"][:_KEYS_MAX]:
        algorithms = _ALGORITHMS.get(each.get("crv") or each.get("kty") or "", frozenset())
        if "alg" in each:
            algorithms &= {each["alg"]}
        if not algorithms or each.get("use", "sig") != "sig" or "d" in each:  # mutant: token-keys
            continue
        try:
            keys[each.get("kid")] = (jwt.PyJWK(each, algorithm=min(algorithms)).key, algorithms)
        except jwt.PyJWTError as error:
            log.warning("a key of OAuth tokens is left out", error=type(error).__name__)
    if not keys:
        raise ValueError("no key for signatures")
    return keys
