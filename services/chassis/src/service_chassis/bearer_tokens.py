"""JSON Web Tokens of clients (RFC 7519), checked with the keys that their issuer publishes (RFC 7517).

    refused: no or another issuer or audience · no exp, iat or subject · expired, or issued in the future
             algorithm `none`, an HMAC, or another one than the key's type has · a key that the issuer does not list

A key's type decides on the algorithms: a token that names another one (a public key as the secret of an HMAC) has no
key. The keys are read from an https address or a file, and again when they are old. A token with an unknown key id has
them read again, once a minute at most. Redirects are not followed, and no address is taken from a token.

The methods wait for the issuer: a thread calls them. The settings are Kafka's `sasl.oauthbearer.…`.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any, Final
from urllib.parse import urlsplit

from service_chassis import logs
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


class KeysUnavailable(Exception):  # noqa: N818 (reads as what happened)
    """The keys have never been read: the token may be good or bad."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    subject: str
    #: Seconds since 1970 at which the token ends.
    expires_at: float


class BearerTokens:
    """The check of tokens of one issuer. Any thread may call."""

    def __init__(
        self,
        settings: BearerSettings,
        *,
        clock: Callable[[], float] = time.time,  # wall clock: of tokens
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._audience = [
            each.strip() for each in settings.sasl_oauthbearer_expected_audience.split(",") if each.strip()
        ]
        self._keys = _Keys(
            settings.sasl_oauthbearer_jwks_endpoint_url,
            settings.sasl_oauthbearer_jwks_endpoint_refresh_ms / 1000,
            monotonic,
        )
        self._clock = clock

    def verify(self, token: str) -> VerifiedToken:
        """Return the user of a token, and its end.

        Raises:
            InvalidToken: it is not accepted.
            KeysUnavailable: the issuer cannot be asked.
        """
        import jwt  # which takes 50 ms, for those alone that have tokens

        if len(token) > TOKEN_MAX:
            raise InvalidToken("the token is too long")
        settings = self._settings
        try:
            header = jwt.get_unverified_header(token)
            key = self._keys.find(header.get("kid"), header.get("alg"))
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


class _Keys:
    """The keys of an issuer, by their id."""

    def __init__(self, address: str, refresh_s: float, monotonic: Callable[[], float]) -> None:
        self._address = address
        self._refresh_s = refresh_s
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._keys: dict[str | None, _Key] | None = None
        #: The time at which they are read again.
        self._due = 0.0
        #: The time from which on an unknown id may have them read again.
        self._may_ask_at = 0.0

    def find(self, key_id: object, algorithm: object) -> Any:
        """Return the key of this id, which signs by this algorithm. Raises InvalidToken or KeysUnavailable."""
        if key_id is not None and not isinstance(key_id, str):
            raise InvalidToken("a key id that is no text")
        with self._lock:
            if self._monotonic() >= self._due:
                self._read()
            found = self._found(key_id)
            if found is None and self._may_ask():
                self._read()
                found = self._found(key_id)
            if found is None:
                if self._keys is None:
                    raise KeysUnavailable("the keys of the issuer cannot be read")
                raise InvalidToken("the issuer lists no such key")
        key, algorithms = found
        if algorithm not in algorithms:  # mutant: token-algorithm
            raise InvalidToken("another algorithm than the key's")
        return key

    def _found(self, key_id: str | None) -> _Key | None:
        keys = self._keys or {}
        if key_id is None and len(keys) == 1:  # an issuer with one key need not name it
            return next(iter(keys.values()))
        return keys.get(key_id)

    def _may_ask(self) -> bool:
        """Return whether an unknown id may have the keys read again: one a minute, whatever ids clients make up."""
        now = self._monotonic()
        if now < self._may_ask_at:
            return False  # mutant: unknown-keys-bounded
        self._may_ask_at = now + _UNKNOWN_S
        return True

    def _read(self) -> None:
        """Read the keys, and keep the old ones on an error."""
        self._due = self._monotonic() + _RETRY_S  # mutant: failed-keys-not-read-again
        try:
            self._keys = _keys_of(_fetched(self._address))
            self._due = self._monotonic() + self._refresh_s
        except _NO_LIST as error:
            log.warning(
                "keys of OAuth tokens not read", address=self._address, error=f"{type(error).__name__}: {error}"
            )


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
