"""The session of a client that has logged in: its user, its mechanism, and its end (KIP-368).

    SaslHandshake before the end     another login, over the same connection; once a second at most
    SaslHandshake after the end      the same
    any other request after the end  the connection closes, without an answer

A session without an end is not renewed: SaslHandshake is answered ILLEGAL_SASL_STATE. A timer replaces the requests of
the connection when the session ends, so no request is slower for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from protocol_lib.api import ApiKey

from gateway_svc.clients.pipeline import CONTROL, Kind
from gateway_svc.errors import RequestRefused
from gateway_svc.requests.call import Call
from gateway_svc.requests.login import Arrival
from gateway_svc.requests.path import RequestPath

#: Seconds between two logins over one connection.
RENEWAL_S: Final = 1.0

_key_of: Final = Struct(">h").unpack_from


class Session:
    """One client's session. The handler of SaslHandshake finds it among the states of the connection."""

    def __init__(
        self, arrival: Arrival, principal: str, mechanism: str, log_in_again: Callable[[Session, Call, Any], None]
    ) -> None:
        self._arrival = arrival
        self.principal = principal
        self.mechanism = mechanism
        self._log_in_again = log_in_again
        #: Whether the session has an end.
        self.ends = False
        self._renewed_at = -math.inf

    def begin(self, lifetime_s: float | None) -> None:
        """Serve the client as its user, for so many seconds or for ever. Called at each login."""
        arrival = self._arrival
        self.ends = lifetime_s is not None
        timer = None
        if lifetime_s is not None:
            timer = asyncio.get_running_loop().call_later(lifetime_s, self.end)
        arrival.client.serve(_TimedPath(arrival, timer))
        arrival.client.handler_states[ApiKey.SASL_HANDSHAKE] = self

    def end(self) -> None:
        """Serve nothing but another login from the next request on."""
        self._arrival.client.serve(_Ended(self._arrival, self))

    def renew(self, call: Call, request: Any) -> bool:
        """Begin another login with a SaslHandshake; return False if it is not the time for one."""
        now = asyncio.get_running_loop().time()
        if not self.ends or now - self._renewed_at < RENEWAL_S:  # mutant: renewals-bounded
            return False
        self._renewed_at = now
        self._log_in_again(self, call, request)
        return True


class _TimedPath(RequestPath):
    """The requests of a session, with the timer of its end."""

    __slots__ = ("_timer",)

    def __init__(self, arrival: Arrival, timer: asyncio.TimerHandle | None) -> None:
        super().__init__(arrival.client, arrival.context, arrival.pipeline, arrival.shared)
        self._timer = timer

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().close()


class _Ended:
    """The requests of a session that has ended (`clients.resources.Requests`)."""

    frame_bytes_max: Final = None
    deadline_s: Final = math.inf
    is_login: Final = False

    def __init__(self, arrival: Arrival, session: Session) -> None:
        self._arrival = arrival
        self._session = session

    def kind(self, store: bytes | bytearray, begin: int) -> Kind:  # noqa: ARG002
        return CONTROL

    def check_long(self, start: bytes | memoryview, size: int) -> None:  # noqa: ARG002
        raise RequestRefused("session_ended")

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:  # noqa: ARG002
        arrival = self._arrival
        (key,) = _key_of(store, begin)
        if key != ApiKey.SASL_HANDSHAKE or not self._session.ends:  # mutant: ended-session
            raise RequestRefused("session_ended", api_key=key)
        call, request = arrival.open(bytes(memoryview(store)[begin:frame_end]))
        if not self._session.renew(call, request):
            call.close_refused("session_ended")
        return frame_end

    def client_left(self) -> None: ...

    def close(self) -> None: ...
