"""The exchange of tokens by which a client proves who it is, one class for each mechanism.

    step(token) -> bytes            the answer; the client sends another token
                -> Proved           the end: the user, the last answer, and when the proof ends
    raises Refused                  the client is not let in; without words of its own, it learns no reason
           StorageUnavailable, KeysUnavailable, Busy     nobody can tell now; the client comes again

PLAIN has the order and the words of Kafka's PlainSaslServer, SCRAM those of ScramSaslServer. A name that is no user's
goes through the same steps as a wrong password: storage returns a credential for each name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from broker_contract import users_pb2 as pb
from protocol_lib.errors import DecodeError
from protocol_lib.oauthbearer import decode_bearer
from protocol_lib.plain import decode_plain
from protocol_lib.scram import AuthenticationFailed, ScramCredential, ScramMechanism, ScramServer
from service_chassis.bearer_tokens import BearerTokens, InvalidToken
from service_chassis.password_checks import PasswordChecks

from gateway_svc.storage.protocols import Users

_MECHANISMS: Final = {each.value: each for each in ScramMechanism}
_OTHER_USER: Final = "Authentication failed: Client requested an authorization id that is different from username"
_INVALID: Final = json.dumps({"status": "invalid_token"}, separators=(",", ":"))


class Refused(Exception):  # noqa: N818 (reads as what happened)
    """The client is not let in. `text` is for it, `reason` and `user` for the log."""

    def __init__(self, reason: str, *, text: str = "", user: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.text = text
        self.user = user


@dataclass(frozen=True, slots=True)
class Proved:
    """The end of an exchange."""

    user: str
    token: bytes = b""
    #: Seconds since 1970 at which the proof ends; None if it does not.
    expires_at: float | None = None
    #: The revision of the credential that was used; 0 if it is none of ours.
    revision: int = 0


class Exchange(Protocol):
    """One client's exchange. An error ends it."""

    async def step(self, token: bytes) -> bytes | Proved: ...


class PlainExchange:
    """PLAIN: the password is checked against the credential of SCRAM-SHA-256, or else of SCRAM-SHA-512."""

    def __init__(self, users: Users, checks: PasswordChecks) -> None:
        self._users = users
        self._checks = checks

    async def step(self, token: bytes) -> bytes | Proved:
        try:
            given = decode_plain(token)
        except DecodeError as error:
            raise Refused("malformed", text=str(error)) from None
        mechanism, found, revision = await _credential(self._users, given.username, *ScramMechanism)
        fits = partial(found.fits, mechanism, given.password)
        # mutant: plain-password
        if not await self._checks.is_right(given.username, given.password, found.stored_key, fits):
            text = "Authentication failed: Invalid username or password"
            raise Refused("wrong user name or password", text=text, user=given.username)
        if given.authorization_id not in ("", given.username):  # mutant: plain-authorization
            raise Refused("another authorization id", text=_OTHER_USER, user=given.username)
        return Proved(given.username, revision=revision)


class ScramExchange:
    """SCRAM-SHA-256 and SCRAM-SHA-512."""

    def __init__(self, mechanism: ScramMechanism, users: Users) -> None:
        self._mechanism = mechanism
        self._users = users
        self._server = ScramServer(mechanism)
        self._user = ""
        self._revision = 0

    async def step(self, token: bytes) -> bytes | Proved:
        try:
            if self._user:
                return Proved(self._user, self._server.receive_final(token), revision=self._revision)
            first = self._server.receive_first(token)
            self._user = first.username
            if first.is_token:  # mutant: scram-token-refused
                raise Refused("a delegation token", user=first.username)
            _, found, self._revision = await _credential(self._users, first.username, self._mechanism)
            if first.authorization_id not in ("", first.username):
                raise Refused("another authorization id", text=_OTHER_USER, user=first.username)
            return self._server.challenge(found)
        except (AuthenticationFailed, DecodeError) as error:
            raise Refused(str(error), user=self._user) from None


class BearerExchange:
    """OAUTHBEARER."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._tokens = tokens
        #: The reason why the token was not accepted, which the client then acknowledges.
        self._refused: Refused | None = None

    async def step(self, token: bytes) -> bytes | Proved:
        if self._refused is not None:
            raise self._refused
        try:
            given = decode_bearer(token)
        except DecodeError as error:
            raise Refused(str(error)) from None
        if given.extensions:  # mutant: bearer-extensions
            raise Refused("extensions", text="Authentication failed: extensions are not supported by the broker")
        try:
            found = await self._tokens.verify(given.token)
        except InvalidToken as error:
            self._refused = Refused(str(error), text=_INVALID)
            return _INVALID.encode()
        if given.authorization_id not in ("", found.subject):  # mutant: bearer-authorization
            text = "Authentication failed: Client requested an authorization id that is different from the token's user"
            raise Refused("another authorization id", text=text, user=found.subject)
        return Proved(found.subject, b"", found.expires_at)


async def _credential(
    users: Users, name: str, *mechanisms: ScramMechanism
) -> tuple[ScramMechanism, ScramCredential, int]:
    """Return the credential of a name, and its revision. Raises StorageUnavailable."""
    found = await users.find_credential(
        pb.FindCredentialRequest(user=name, mechanisms=[each.value for each in mechanisms])
    )
    credential = ScramCredential(found.salt, found.iterations, found.stored_key, found.server_key)
    return _MECHANISMS[found.mechanism], credential, found.revision
