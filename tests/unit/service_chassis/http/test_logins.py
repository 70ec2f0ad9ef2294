"""Logins of a service's users: the text of Basic, and which requests are whose."""

from __future__ import annotations

import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from service_chassis.http import access
from service_chassis.http.access import Access
from service_chassis.http.errors import ApiError
from service_chassis.http.logins import read_basic
from starlette.datastructures import Headers

from tests.unit.service_chassis.http.conftest import RULES, SETTINGS, Role

OWNER = "owner-0123456789abcdef"


def _encoded(text: bytes) -> str:
    return base64.b64encode(text).decode()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (_encoded(b"ann:secret"), ("ann", "secret")),
        (_encoded("ännä:größe:2".encode()), ("ännä", "größe:2")),
        (_encoded(b"ann:"), ("ann", "")),
        (_encoded(b":secret"), None),
        (_encoded(b"ann"), None),
        (_encoded(b"ann:\xff"), None),
        (_encoded(b"ann:secret").rstrip("="), None),
        ("ann:secret", None),
        ("\u00e4", None),
        ("", None),
    ],
)
def test_the_text_of_basic(text: str, found: tuple[str, str] | None) -> None:
    assert read_basic(text) == found


class People:
    """Ann has a password, a token and a session."""

    def __init__(self) -> None:
        self.asked = 0

    async def of_password(self, user: str, password: str) -> str | None:
        self.asked += 1
        return user if (user, password) == ("ann", "secret") else None

    async def of_token(self, token: str) -> str | None:
        return "ann" if token == "a.b.c" else None

    async def of_session(self, session: str) -> str | None:
        return "ann" if session == "session.1" else None


async def _sender(found: Access, **headers: str) -> tuple[str, int, bool]:
    scope: dict[str, Any] = {"path": "/images", "method": "GET", "client": ("192.0.2.1", 1)}
    await found.admit(scope, Headers(headers))
    principal = access.caller(scope)
    return principal.name, principal.role, principal.is_anonymous


async def test_who_makes_a_request(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"otto pull {OWNER}\n")
    rules = replace(RULES, cookie="kept", has_users=True)
    settings = replace(SETTINGS, auth="users", tokens_file=str(tokens))
    found = Access(rules, settings, People())
    ann = ("ann", Role.OWNER, False)
    assert await _sender(found, authorization=f"Basic {_encoded(b'ann:secret')}") == ann
    assert await _sender(found, authorization="bearer a.b.c") == ann
    assert await _sender(found, cookie="kept=session.1") == ann
    assert await _sender(found, authorization=f"Bearer {OWNER}") == ("otto", Role.PULL, False)
    assert await _sender(found, cookie=f"kept={OWNER}") == ("otto", Role.PULL, False)
    for headers in ({}, {"cookie": "kept=session.2"}, {"authorization": "Bearer x"}, {"authorization": "Basic x"}):
        with pytest.raises(ApiError) as refused:
            await _sender(found, **headers)
        assert refused.value.status_code == 401


async def test_an_offered_login_where_none_is_wanted() -> None:
    found = Access(replace(RULES, has_users=True), SETTINGS, People())
    assert not found.needs_login
    assert await _sender(found) == ("anonymous", Role.OWNER, True)
    assert await _sender(found, authorization="Bearer a.b.c") == ("ann", Role.OWNER, False)
    with pytest.raises(ApiError):
        await _sender(found, authorization="Bearer x")


async def test_after_ten_failures_an_address_waits() -> None:
    now = 1000.0
    people = People()
    found = Access(replace(RULES, has_users=True), replace(SETTINGS, auth="users"), people)
    found._failures._clock = lambda: now
    right = f"Basic {_encoded(b'ann:secret')}"
    for _ in range(3):  # successes do not count
        assert (await _sender(found, authorization=right))[0] == "ann"
    for number in range(access.FAILURES_AT_ONCE + 2):
        with pytest.raises(ApiError) as refused:
            await _sender(found, authorization=f"Basic {_encoded(b'ann:%d' % number)}")
        assert refused.value.status_code == (401 if number < access.FAILURES_AT_ONCE else 429)
    assert people.asked == 3 + access.FAILURES_AT_ONCE
    now += 1
    assert (await _sender(found, authorization=right))[0] == "ann"
