"""Logins of the cluster's users: by the password of a SCRAM credential, by an OAuth token, or by a session of those.

Storage gives the credential of one name at a time, and a made-up one for a name that is no user's. Passwords and tokens
are checked in threads. So an unknown user and a wrong password have the same answer after the same time.
"""

from __future__ import annotations

import time
from functools import partial

from broker_contract import users_pb2 as pb
from service_chassis import logs
from service_chassis.bearer_tokens import BearerTokens, InvalidToken, KeysUnavailable, VerifiedToken
from service_chassis.password_checks import Busy, CheckThreads, PasswordChecks

from admin_api import errors
from admin_api.sessions import PREFIX, Sessions
from admin_api.settings import AdminSettings
from admin_api.storage import Storage
from admin_api.users import MECHANISMS

_SHOWN = 100

log = logs.get(__name__)


class ClusterLogins:
    """The `Logins` of the chassis. Owner: the event loop; `close` must follow. It starts no thread before its use."""

    def __init__(self, settings: AdminSettings, storage: Storage) -> None:
        self._storage = storage
        self._passwords = PasswordChecks()
        #: Threads that hash new passwords.
        self.threads = CheckThreads("hash")
        self._tokens = BearerTokens(settings) if settings.sasl_oauthbearer_jwks_endpoint_url else None
        self._sessions = Sessions(time.monotonic)

    async def of_password(self, user: str, password: str) -> str | None:
        return None if await self._checked(user, password) is None else user

    async def _checked(self, user: str, password: str) -> int | None:
        """Return the revision of the credential that a password fits; None if it is wrong. Raises ApiError."""
        from protocol_lib.scram import ScramCredential, ScramMechanism  # no passwords, no memory for it

        found = await self._credential(user)
        credential = ScramCredential(found.salt, found.iterations, found.stored_key, found.server_key)
        fits = partial(credential.fits, ScramMechanism(found.mechanism), password)
        try:
            is_right = await self._passwords.is_right(user, password, found.stored_key, fits)
        except Busy:
            raise errors.busy() from None
        if not is_right:
            log.info("login refused", user=user[:_SHOWN], reason="wrong user name or password")
            return None
        return found.revision

    async def of_token(self, token: str) -> str | None:
        found = await self._verified(token)
        return None if found is None else found.subject

    async def of_session(self, session: str) -> str | None:
        found = self._sessions.find(session) if session.startswith(PREFIX) else None
        if found is None:
            return None
        # mutant: session-ends-with-password
        if found.revision and (await self._credential(found.user)).revision != found.revision:
            self._sessions.close(session)
            return None
        return found.user

    async def open_session(self, user: str, *, token: str = "", password: str = "") -> str | None:
        """Return the id of a session of a user who has just logged in by this token or password.

        None if the password has just been changed: the session belongs to the credential that it was checked by.
        """
        if token:
            found = await self._verified(token)
            # wall clock: of tokens
            return self._sessions.open(user, for_s=0.0 if found is None else max(0.0, found.expires_at - time.time()))
        revision = await self._checked(user, password)  # mutant: session-of-checked-credential
        return None if revision is None else self._sessions.open(user, revision)

    def close_session(self, session: str) -> None:
        self._sessions.close(session)

    async def _verified(self, token: str) -> VerifiedToken | None:
        if self._tokens is None:
            return None
        try:
            return await self._tokens.verify(token)
        except InvalidToken as error:
            log.info("login refused", reason=f"token: {error}")
            return None
        except KeysUnavailable:
            raise errors.of_status(503, "The keys of the issuer of tokens cannot be read now.") from None
        except Busy:
            raise errors.busy() from None

    async def _credential(self, name: str) -> pb.FindCredentialResponse:
        """Return the credential of a name, or a made-up one. Raises ApiError."""
        request = pb.FindCredentialRequest(user=name, mechanisms=MECHANISMS.values())
        return await self._storage.calls(0).ask(lambda storage: storage.users.FindCredential, request)

    def close(self) -> None:
        self._passwords.close()
        self.threads.close()
        if self._tokens is not None:
            self._tokens.close()
