"""Sessions of people who logged in with a browser, in this process's memory: after a restart they log in again.

A cookie has a random id, and here is its digest alone. A session ends after SESSION_S, at its log out, and when more
than SESSIONS_MAX newer ones have begun. No input or output.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SESSION_S: Final = 12 * 3600.0
SESSIONS_MAX: Final = 4096
#: The beginning of ids, which tells them from tokens.
PREFIX: Final = "session."


@dataclass(frozen=True, slots=True)
class Session:
    user: str
    #: The revision of the credential by which the login was checked; 0 for a login by a token.
    revision: int
    #: Seconds of the clock.
    ends_at: float


class Sessions:
    """Owner: the event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, user: str, revision: int = 0, *, for_s: float = SESSION_S) -> str:
        """Return the id of a new session."""
        session_id = PREFIX + secrets.token_urlsafe(32)
        self._sessions[_digest(session_id)] = Session(user, revision, self._clock() + min(for_s, SESSION_S))
        if len(self._sessions) > SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        return session_id

    def find(self, session_id: str) -> Session | None:
        """Return the session of an id, unless it is over."""
        digest = _digest(session_id)
        found = self._sessions.get(digest)
        if found is not None and found.ends_at <= self._clock():
            del self._sessions[digest]
            return None
        return found

    def close(self, session_id: str) -> None:
        """End a session, if there is one of this id."""
        self._sessions.pop(_digest(session_id), None)


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogateescape")).digest()
