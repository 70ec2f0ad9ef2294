"""The session of a client that has logged in: its user, its mechanism, and its end (KIP-368).

    SaslHandshake before the end     another login, over the same connection; once a second at most
    SaslHandshake after the end      the same
    any other request after the end  the connection closes, without an answer

A session without an end is not renewed: SaslHandshake is answered ILLEGAL_SASL_STATE. A session that ends has the
requests of its connection replaced, so no request is slower for it.

A session also ends when its user is altered or deleted (`Sessions`). One that was checked by a credential of ours has
the revision of that credential. Storage sends the revisions of users (`FollowedRules`), and a session with another one
ends, whatever was asked first. A login that was under way then is refused at its end. A request of the session that
waits, for records or for a group, ends with its connection: its answer would have what came later.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection
from struct import Struct
from typing import Any, Final

from broker_contract.user_revisions import UserRevisions
from protocol_lib.api import ApiKey
from service_chassis import logs

from gateway_svc.clients.pipeline import CONTROL, Kind
from gateway_svc.errors import RequestRefused
from gateway_svc.requests.call import Call
from gateway_svc.requests.login import Arrival
from gateway_svc.requests.path import RequestPath

#: Seconds between two logins over one connection.
RENEWAL_S: Final = 1.0

#: Characters of a user's name in a log line.
_SHOWN: Final = 100

_key_of: Final = Struct(">h").unpack_from

log = logs.get(__name__)


class Sessions:
    """The sessions of one gateway that were checked by credentials of ours. Only the event loop uses it."""

    def __init__(self, revisions: UserRevisions) -> None:
        self._revisions = revisions
        self._by_user: dict[str, set[Session]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_user.values()))

    def is_current(self, user: str, revision: int) -> bool:
        """Return whether a login with this revision is good, as far as is known here."""
        return self._revisions.is_current(user, revision)

    def add(self, session: Session) -> None:
        self._by_user.setdefault(session.user, set()).add(session)

    def remove(self, session: Session) -> None:
        """Forget a session, if it is known."""
        own = self._by_user.get(session.user, set())
        own.discard(session)
        if not own:
            self._by_user.pop(session.user, None)

    def end(self, users: Collection[str] | None) -> None:
        """End the sessions of these users that are not current any more; with None, those of any user."""
        for user in [*self._by_user] if users is None else users:
            own = self._by_user.get(user, ())
            over = [each for each in own if not self.is_current(user, each.revision)]  # mutant: only-older-sessions-end
            for session in over:
                session.end()
                session.drop_parked()  # mutant: parked-read-of-ended-session
            if over:
                log.info("sessions ended: their user was altered or deleted", user=user[:_SHOWN], sessions=len(over))


class Session:
    """One client's session. The handler of SaslHandshake finds it among the states of the connection."""

    def __init__(
        self,
        arrival: Arrival,
        sessions: Sessions,
        user: str,
        mechanism: str,
        log_in_again: Callable[[Session, Call, Any], None],
    ) -> None:
        self._arrival = arrival
        self._sessions = sessions
        self.user = user
        self.mechanism = mechanism
        self._log_in_again = log_in_again
        #: The revision of the credential by which the last login was checked; 0 if it was none of ours.
        self.revision = 0
        #: Whether the session has an end.
        self.ends = False
        self._renewed_at = -math.inf

    @property
    def principal(self) -> str:
        return f"User:{self.user}"

    def begin(self, lifetime_s: float | None, revision: int) -> None:
        """Serve the client as its user, for so many seconds or for ever. Called at each login."""
        arrival = self._arrival
        self.ends = lifetime_s is not None
        self.revision = revision
        timer = None
        if lifetime_s is not None:
            timer = asyncio.get_running_loop().call_later(lifetime_s, self.end)
        if revision:
            self._sessions.add(self)  # its path removes it, which may be closed at once
        arrival.client.serve(_SessionPath(arrival, timer, self))
        arrival.client.handler_states[ApiKey.SASL_HANDSHAKE] = self

    def left(self) -> None:
        """Note that requests of the session are not served any more."""
        self._sessions.remove(self)

    def end(self) -> None:
        """Serve nothing but another login from the next request on."""
        self._arrival.client.serve(_Ended(self._arrival, self))

    def drop_parked(self) -> None:
        """Close the connection if a request waits there, after the answers to others."""
        client = self._arrival.client
        if client.has_parked:
            client.end_with(RequestRefused("session_ended"))

    def renew(self, call: Call, request: Any) -> bool:
        """Begin another login with a SaslHandshake; return False if it is not the time for one."""
        now = asyncio.get_running_loop().time()
        if not self.ends or now - self._renewed_at < RENEWAL_S:  # mutant: renewals-bounded
            return False
        self._renewed_at = now
        self._log_in_again(self, call, request)
        return True


class _SessionPath(RequestPath):
    """The requests of a session, with the timer of its end."""

    __slots__ = ("_session", "_timer")

    def __init__(self, arrival: Arrival, timer: asyncio.TimerHandle | None, session: Session) -> None:
        super().__init__(arrival.client, arrival.context, arrival.pipeline, arrival.shared)
        self._timer = timer
        self._session = session

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._session.left()
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
