"""Logins of users that a service knows otherwise than by its tokens file: the Protocol that it gives to the ring.

    Authorization: Basic …      user and password       RFC 7617, in UTF-8
    Authorization: Bearer …     a token of an issuer
    a cookie                    the session of a person who logged in

An unknown user and a wrong password take the same time. What cannot be decided now is an ApiError 503.
"""

from __future__ import annotations

import base64
import binascii
from typing import Protocol


class Logins(Protocol):
    """Each method returns the name of the user, or None if the proof is none."""

    async def of_password(self, user: str, password: str) -> str | None: ...

    async def of_token(self, token: str) -> str | None: ...

    async def of_session(self, session: str) -> str | None: ...


def read_basic(credentials: str) -> tuple[str, str] | None:
    """Return user and password of the text after `Basic`, None if it is malformed."""
    try:
        user, colon, password = base64.b64decode(credentials, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (user, password) if colon and user else None
