"""Pages in a browser: how their requests are known, and the cookie of their login."""

from __future__ import annotations

import pytest
from service_chassis.http import pages
from starlette.datastructures import Headers


@pytest.mark.parametrize(
    ("headers", "is_page"),
    [
        ({}, False),
        ({"x-requested-by": "console"}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_requests_of_pages(headers: dict[str, str], is_page: bool) -> None:
    assert pages.is_page(Headers(headers)) is is_page


@pytest.mark.parametrize(
    ("cookies", "token"),
    [
        ([], ""),
        (["a=b"], ""),
        (["token=0123456789abcdef=="], "0123456789abcdef=="),
        (["a=b;token=t; c"], "t"),
        (["a=b", "token=t"], "t"),
        (["xtoken=t"], ""),
        (["token=t; token=u"], ""),
        (["token=t; pad=" + "x" * 16_384], ""),
    ],
)
def test_the_token_of_a_cookie(cookies: list[str], token: str) -> None:
    headers = Headers(raw=[(b"cookie", each.encode()) for each in cookies])
    assert pages.token_of(headers, "token") == token
    assert pages.token_of(headers, "") == ""


def test_a_cookie_is_for_no_script_and_no_other_site() -> None:
    kept = pages.cookie("token", "t", path="/base", is_secure=True)
    assert kept == "token=t; Path=/base; HttpOnly; SameSite=Strict; Secure"
    deleted = pages.cookie("token", "", path="/", is_secure=False)
    assert deleted == "token=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict"
