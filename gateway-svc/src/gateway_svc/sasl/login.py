"""The login of a client by SASL (Kafka's SaslServerAuthenticator): what serves its connection until its user is known.

    START ─ ApiVersions ─ VERSIONS_KNOWN ─ SaslHandshake ┬ v1 ─ TOKENS ─ SaslAuthenticate … ─ Session
          └ SaslHandshake ───────────────────────────────┴ v0 ─ RAW_TOKENS ─ length and token … ┘

    a request that the state does not expect       the connection closes; ApiVersions and SaslHandshake among TOKENS are
                                                   answered ILLEGAL_SASL_STATE before
    an unknown mechanism                           33 with the list, and the connection closes
    a wrong proof                                  58 with a text, raw tokens nothing, and the connection closes

An answer that closes comes 100 ms late, as in Kafka. Other requests are not decoded. The login of a session that goes
on (KIP-368) begins with its SaslHandshake. With another mechanism than before, its first token closes the connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from enum import Enum
from functools import partial
from struct import Struct
from typing import Any, ClassVar, Final

from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeResponse
from service_chassis import logs
from service_chassis.bearer_tokens import KeysUnavailable
from service_chassis.password_checks import Busy

from gateway_svc.clients.pipeline import CONTROL, Kind, Pending
from gateway_svc.clients.resources import Requests
from gateway_svc.errors import RequestRefused, StorageUnavailable
from gateway_svc.requests.call import Call
from gateway_svc.requests.login import Arrival
from gateway_svc.sasl.exchanges import Exchange, Proved, Refused
from gateway_svc.sasl.mechanisms import Mechanisms
from gateway_svc.sasl.session import Session

#: Seconds by which an answer that closes the connection is late (connection.failed.authentication.delay.ms).
FAILURE_DELAY_S: Final = 0.1

#: Characters of a user's name in a log line.
_SHOWN: Final = 100

_key_of: Final = Struct(">h").unpack_from
_LENGTH: Final = Struct(">i")

log = logs.get(__name__)


class State(Enum):
    """The place of a client in its login; see above."""

    START = "start"
    VERSIONS_KNOWN = "versions known"
    TOKENS = "tokens"
    RAW_TOKENS = "raw tokens"
    #: The mechanism is another one than that of the session. The first token closes the connection.
    OTHER_MECHANISM = "other mechanism"


_EXPECTED: Final = {
    State.START: (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE),
    State.VERSIONS_KNOWN: (ApiKey.SASL_HANDSHAKE,),
    State.TOKENS: (ApiKey.SASL_AUTHENTICATE,),
    State.OTHER_MECHANISM: (),
}
#: The requests that are answered among tokens: by an error.
_REFUSED_AMONG_TOKENS: Final = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)


class SaslLogin:
    """One login. A `gateway_svc.clients.resources.Requests` until its client is known."""

    frame_bytes_max: ClassVar = 65_536
    deadline_s: ClassVar = 10.0
    is_login: ClassVar = True

    def __init__(self, mechanisms: Mechanisms, arrival: Arrival, session: Session | None = None) -> None:
        """Begin a login, or another one of a session."""
        self._mechanisms = mechanisms
        self._arrival = arrival
        self._session = session
        self._state = State.START
        self._mechanism = ""
        self._exchange: Exchange | None = None
        #: The step of the exchange that is under way.
        self._step: asyncio.Task[None] | None = None

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:  # noqa: ARG002
        return CONTROL

    def check_long(self, start: bytes | memoryview, size: int) -> None: ...

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:  # noqa: ARG002
        frame = bytes(memoryview(store)[begin:frame_end])
        if self._state is State.RAW_TOKENS:
            self._receive_raw(frame)
            return frame_end
        key = _key_of(frame)[0] if len(frame) >= 8 else -1
        expected = _EXPECTED[self._state]
        if key not in expected and not (self._state is State.TOKENS and key in _REFUSED_AMONG_TOKENS):
            raise RequestRefused("login_expected", api_key=key)  # mutant: login-first
        arrival = self._arrival
        call, request = arrival.open(frame)
        if key not in expected:
            refuse = partial(arrival.context.dispatcher.refuse, call, request, ErrorCode.ILLEGAL_SASL_STATE)
            self._close_late(refuse)
        elif key == ApiKey.API_VERSIONS:
            call.subject.complete = self._versions_answered
            arrival.context.dispatcher.serve(call, request)
        elif key == ApiKey.SASL_HANDSHAKE:
            self.choose(call, request)
        else:
            self._receive(call, bytes(request.auth_bytes))
        return frame_end

    def _versions_answered(self, response: Any, error: int) -> tuple[Any, int]:
        """Note an answer to ApiVersions. After an error the client asks again, in another version."""
        if not error:
            self._state = State.VERSIONS_KNOWN
        return response, error

    def choose(self, call: Call, request: Any) -> None:
        """Answer a SaslHandshake."""
        arrival = self._arrival
        names, name = self._mechanisms.of(arrival.client.listener), request.mechanism
        if name not in names:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._note_failure("an unknown mechanism", mechanism=name[:_SHOWN])
            answer = partial(call.answer, SaslHandshakeResponse(error_code=error, mechanisms=tuple(names)), error)
            self._close_late(answer)
            return
        self._mechanism = name
        if self._session is not None and self._session.mechanism != name:  # mutant: renewal-same-mechanism
            self._state = State.OTHER_MECHANISM
        else:
            self._exchange = self._mechanisms.exchange(name)
            self._state = State.TOKENS if call.version >= 1 else State.RAW_TOKENS  # KIP-152
        call.answer(SaslHandshakeResponse(error_code=0, mechanisms=tuple(names)))

    def _receive(self, call: Call, token: bytes) -> None:
        def answer(token: bytes, lifetime_ms: int) -> None:
            call.answer(_authenticated(token=token, lifetime_ms=lifetime_ms))

        def refuse(text: str) -> None:
            error = ErrorCode.SASL_AUTHENTICATION_FAILED
            call.answer(_authenticated(error, text), error)

        self._begin_step(self._take(token, answer, refuse, call.close_refused))

    def _receive_raw(self, token: bytes) -> None:
        """Receive a token without a request around it, and answer in the same way."""
        arrival = self._arrival
        pending = Pending(CONTROL, len(token))
        arrival.context.memory.take(arrival.client.share, len(token))
        arrival.pipeline.open(pending)

        def answer(token: bytes, _lifetime_ms: int) -> None:
            arrival.client.answered(pending, (_LENGTH.pack(len(token)) + token,))

        def refuse(_text: str) -> None:
            arrival.client.answered(pending, ())

        def close(reason: str, detail: str = "") -> None:
            arrival.client.close_refused(RequestRefused(reason, detail))

        self._begin_step(self._take(token, answer, refuse, close))

    def _begin_step(self, step: Any) -> None:
        self._step = asyncio.get_running_loop().create_task(step, name="login")

    async def _take(
        self,
        token: bytes,
        answer: Callable[[bytes, int], None],
        refuse: Callable[[str], None],
        close: Callable[..., None],
    ) -> None:
        """Take one step of the exchange. `refuse` gets the text of the refusal, `close` the reason."""
        exchange = self._exchange
        assert exchange is not None
        try:
            outcome = await exchange.step(token)
            self._step = None
            if isinstance(outcome, Proved):
                lifetime_ms = self._let_in(outcome)
                answer(outcome.token, lifetime_ms)
            else:
                answer(outcome, 0)
        except Refused as refused:
            text = refused.text or (
                f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                f"{self._mechanism}"
            )
            self._note_failure(refused.reason, user=refused.user[:_SHOWN], mechanism=self._mechanism)
            self._close_late(partial(refuse, text))
        except StorageUnavailable:
            close("storage_unavailable", "the credential of a user")
        except KeysUnavailable as error:
            close("keys_unavailable", str(error))
        except Busy:
            close("login_busy")
        except Exception:
            log.exception("login failed", peer=self._arrival.client.peer, mechanism=self._mechanism)
            close("failed")

    @property
    def _what(self) -> str:
        return "authentication" if self._session is None else "re-authentication"

    def _let_in(self, proved: Proved) -> int:
        """Serve the client as its user; return the milliseconds of its session, or 0. Raises Refused."""
        principal, session, sessions = f"User:{proved.user}", self._session, self._mechanisms.sessions
        # mutant: login-of-altered-user
        if proved.revision and not sessions.is_current(proved.user, proved.revision):
            raise Refused("the user was altered or deleted during the login", user=proved.user)
        if session is not None and session.principal != principal:  # mutant: renewal-same-user
            before, after = (each.replace(":", ".", 1) for each in (session.principal, principal))
            text = f"Cannot change principals during re-authentication from {before}: {after}"
            raise Refused("another user", text=text, user=proved.user)
        limit_ms = self._mechanisms.session_max_ms
        lifetimes = [float(limit_ms)] if limit_ms else []
        if proved.expires_at is not None:
            lifetimes.append((proved.expires_at - time.time()) * 1000)  # wall clock: of the token
        lifetime_ms = max(0, int(min(lifetimes))) if lifetimes else None
        self._mechanisms.metrics.logins[self._mechanism] += 1
        if session is None:
            self._arrival.client.log_in(principal)
            session = Session(self._arrival, sessions, proved.user, self._mechanism, self._log_in_again)
        session.begin(None if lifetime_ms is None else lifetime_ms / 1000, proved.revision)
        return lifetime_ms or 0

    def _log_in_again(self, session: Session, call: Call, request: Any) -> None:
        login = SaslLogin(self._mechanisms, self._arrival, session)
        self._arrival.client.serve(login)
        login.choose(call, request)

    def _note_failure(self, reason: str, **fields: str) -> None:
        client = self._arrival.client
        self._mechanisms.metrics.failed_logins[self._mechanism or "none"] += 1
        log.info("login refused", reason=reason, peer=client.peer, listener=client.listener, **fields)

    def _close_late(self, answer: Callable[[], None]) -> None:
        """Send the last answer after the delay of failures, and close."""

        def send() -> None:
            self._arrival.client.close_when_answered()
            answer()

        asyncio.get_running_loop().call_later(FAILURE_DELAY_S, send)  # mutant: failures-late

    def client_left(self) -> None: ...

    def close(self) -> None:
        """End the step that is under way: the client is gone, or is let in."""
        if self._step is not None:
            self._step.cancel()
            self._step = None


def sasl_login(mechanisms: Mechanisms) -> Callable[[Arrival], Requests]:
    """Return the login of listeners with SASL."""
    return partial(SaslLogin, mechanisms)


def _authenticated(
    error: int = 0, text: str | None = None, token: bytes = b"", lifetime_ms: int = 0
) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=error, error_message=text, auth_bytes=token, session_lifetime_ms=lifetime_ms
    )
