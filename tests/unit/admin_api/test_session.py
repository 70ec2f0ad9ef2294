"""The login of a person in a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

READER, ADMIN = "read-0123456789abcdef", "admin-0123456789abcd/+=="
SESSION = "/api/v1/session"
PAGE = {"x-requested-by": "console"}


@pytest.fixture
def guarded(stack: Stack, admin: Callable[..., httpx.Client], tmp_path: Path) -> Callable[..., httpx.Client]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"ann read {READER}\nada admin {ADMIN}\n")

    def start(**settings: Any) -> httpx.Client:
        return admin(stack.storage_address, admin_auth="token", admin_tokens_file=str(tokens), **settings)

    return start


def test_no_login_is_needed_without_tokens(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    anyone = {"login": "none", "is_logged_in": True, "name": None, "role": "admin", "read_only": False}
    assert stack.http.get(SESSION).json() == anyone
    assert admin(stack.storage_address, admin_read_only=True).get(SESSION).json() == {**anyone, "read_only": True}
    answer = stack.http.post(SESSION, headers=PAGE, json={"token": ADMIN})
    assert (answer.json(), "set-cookie" in answer.headers) == (anyone, False)


def test_log_in_and_out(guarded: Callable[..., httpx.Client]) -> None:
    client = guarded()
    stranger = {"login": "token", "is_logged_in": False, "name": None, "role": "public", "read_only": False}
    assert client.get(SESSION).json() == stranger
    assert client.get("/v3/clusters").status_code == 401
    logged_in = client.post(SESSION, headers=PAGE, json={"token": ADMIN})
    ada = {"login": "token", "is_logged_in": True, "name": "ada", "role": "admin", "read_only": False}
    assert (logged_in.status_code, logged_in.json()) == (200, ada)
    assert logged_in.headers["set-cookie"] == f"millrace_token={ADMIN}; Path=/; HttpOnly; SameSite=Strict"
    assert logged_in.headers["cache-control"] == "no-store"
    cookie = {"cookie": f"millrace_token={ADMIN}"}
    assert client.get(SESSION, headers=cookie).json() == ada
    assert client.get("/v3/clusters", headers=cookie).status_code == 200
    # A token of the header goes before the cookie.
    bearer = {**cookie, "authorization": f"Bearer {READER}"}
    assert client.get(SESSION, headers=bearer).json()["name"] == "ann"
    client.cookies.clear()
    logged_out = client.delete(SESSION, headers={**PAGE, **cookie})
    assert logged_out.status_code == 204
    assert logged_out.headers["set-cookie"].startswith("millrace_token=; Path=/; Max-Age=0;")


def test_a_wrong_token_and_an_old_cookie(guarded: Callable[..., httpx.Client]) -> None:
    client = guarded(admin_read_only=True)
    answer = client.post(SESSION, headers=PAGE, json={"token": "wrong-0123456789abcdef"})
    refused = {"error_code": 40101, "message": "The token is not one that this server accepts."}
    assert (answer.status_code, answer.json(), "set-cookie" in answer.headers) == (401, refused, False)
    # A page of another site can log nobody in.
    assert client.post(SESSION, headers={"origin": "https://evil.example"}, json={"token": READER}).status_code == 403
    old = {"cookie": "millrace_token=gone-0123456789abcdef"}
    assert client.get("/console/", headers=old).status_code == 200
    assert client.get(SESSION, headers=old).json()["is_logged_in"] is False
    assert client.get("/v3/clusters", headers=old).status_code == 401
    # Logging in changes nothing that a read-only server keeps.
    assert client.post(SESSION, headers={**PAGE, **old}, json={"token": READER}).json()["read_only"] is True


def test_the_cookie_behind_tls_and_a_path(guarded: Callable[..., httpx.Client]) -> None:
    client = guarded(admin_public_url="https://admin.example/base")
    header = client.post(SESSION, headers=PAGE, json={"token": READER}).headers["set-cookie"]
    assert header == f"millrace_token={READER}; Path=/base; HttpOnly; SameSite=Strict; Secure"
    plain = guarded()
    by_https = {**PAGE, "origin": str(plain.base_url).replace("http:", "https:")}
    header = plain.post(SESSION, headers=by_https, json={"token": READER}).headers["set-cookie"]
    assert header.endswith("; Secure")


def test_a_change_with_the_cookie_needs_a_header(stack: Stack, guarded: Callable[..., httpx.Client]) -> None:
    client = guarded()
    stack.create_topic("guarded-by-header")
    path, cookie = f"{stack.cluster}/topics/guarded-by-header", {"cookie": f"millrace_token={ADMIN}"}
    answer = client.delete(path, headers=cookie)
    assert (answer.status_code, answer.json()) == (
        403,
        {"error_code": 40301, "message": "A change with the cookie of a login needs the header X-Requested-By."},
    )
    assert client.get(path, headers=cookie).status_code == 200
    assert client.delete(path, headers={**cookie, **PAGE}).status_code == 204


def test_a_page_has_a_rate_of_its_own(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    client = admin(stack.storage_address, admin_rate_limit=0.1)  # one request in ten seconds
    assert [client.get("/version").status_code for _ in range(2)] == [200, 429]
    assert [client.get("/version", headers=PAGE).status_code for _ in range(2)] == [200, 429]
