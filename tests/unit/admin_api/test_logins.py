"""Logins of the cluster's users at real sockets: passwords, OAuth tokens, tokens with a role, sessions of a page."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import jwt
import pytest
from admin_api.sessions import SESSION_S, SESSIONS_MAX, Sessions
from cryptography.hazmat.primitives.asymmetric import ec
from service_chassis import logs
from service_chassis.http import access
from service_chassis.password_checks import PasswordChecks

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import OwnStorage, Stack

SECRET = "größe: 3, of Alice"
READER = "read-0123456789abcdef"
ISSUER, AUDIENCE = "https://id.example", "millrace"
KEY, OTHER_KEY = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
CLUSTERS, ME, SESSION = "/v3/clusters", "/api/v1/me", "/api/v1/session"
WRONG = "The token, or the user name and the password, are not ones that this server accepts."
PAGE = {"x-requested-by": "console"}
BASIC_AND_BEARER = 'Basic realm="administration", charset="UTF-8", Bearer'


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def oauth(key: Any = KEY, **claims: Any) -> str:
    now = int(time.time())  # wall clock: of tokens
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "olga", "iat": now - 10, "exp": now + 600, **claims}
    return jwt.encode(body, key, "ES256", headers={"kid": "k"})


def refusal(answer: httpx.Response) -> tuple[int, int, str]:
    return answer.status_code, answer.json()["error_code"], answer.json()["message"]


@pytest.fixture
def start(stack: Stack, admin: Callable[..., httpx.Client], tmp_path: Path) -> Callable[..., httpx.Client]:
    """Starts an admin-api that asks for logins, with a tokens file and the keys of an issuer."""
    tokens, keys = tmp_path / "tokens", tmp_path / "keys.json"
    tokens.write_text(f"reader read {READER}\n")
    listed = jwt.get_algorithm_by_name("ES256").to_jwk(KEY.public_key(), as_dict=True)
    keys.write_text(json.dumps({"keys": [{**listed, "kid": "k"}]}))
    assert stack.http.put("/api/v1/users/alice", json={"password": SECRET}).status_code == 204

    def begin(**settings: Any) -> httpx.Client:
        chosen = {
            "admin_auth": "users",
            "admin_tokens_file": str(tokens),
            "sasl_oauthbearer_jwks_endpoint_url": keys.as_uri(),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": AUDIENCE,
        }
        return admin(stack.storage_address, **{**chosen, **settings})

    return begin


def test_each_kind_of_login(start: Callable[..., httpx.Client]) -> None:
    client = start()
    may = [*("ALTER", "ALTER_CONFIGS", "CLUSTER_ACTION", "CREATE", "DESCRIBE", "DESCRIBE_CONFIGS", "IDEMPOTENT_WRITE")]
    everything = {"has_authorizer": False, "is_super_user": True, "cluster_operations": may, "read_only": False}
    everything["has_schema_registry"] = False
    for headers, name, role in (
        (basic("alice", SECRET), "alice", "admin"),
        (bearer(oauth()), "olga", "admin"),
        (bearer(READER), "reader", "read"),
    ):
        assert client.get(CLUSTERS, headers=headers).status_code == 200
        expected = {"principal": f"User:{name}", "name": name, "role": role, **everything}
        assert client.get(ME, headers=headers).json() == expected
    # The role of a token bounds it.
    create = {"topic_name": "of-a-reader"}
    refused = (403, 40301, "This needs the role write, not read.")
    assert refusal(client.post("/v3/clusters/-/topics", json=create, headers=bearer(READER))) == refused
    assert client.get("/healthz").status_code == client.get("/console/").status_code == 200


def test_without_a_login(start: Callable[..., httpx.Client]) -> None:
    client = start()
    for path in (CLUSTERS, ME, "/metrics", "/nowhere"):
        answer = client.get(path)
        assert refusal(answer) == (401, 40101, "A login is required: Authorization: Basic …, or Bearer …")
        assert answer.headers["www-authenticate"] == BASIC_AND_BEARER
        # A browser would ask in its own window.
        assert client.get(path, headers=PAGE).headers["www-authenticate"] == "Bearer"
    stranger = {"login": "users", "is_logged_in": False, "name": None, "role": "public", "read_only": False}
    assert client.get(SESSION).json() == stranger


@pytest.mark.parametrize(
    "headers",
    [
        basic("alice", SECRET + "x"),
        basic("alice", ""),
        basic("nobody", SECRET),
        basic("", SECRET),
        basic("Alice", SECRET),
        {"authorization": "Basic alice"},
        {"authorization": "Basic " + base64.b64encode(b"alice").decode()},
        {"authorization": "Basic " + base64.b64encode(b"alice:\xff").decode()},
        {"authorization": f"Digest {READER}"},
        bearer(oauth(OTHER_KEY)),
        bearer(oauth(exp=1_700_000_000)),
        bearer(oauth(aud="another")),
        bearer(oauth(iss="https://evil.example")),
        bearer(jwt.encode({"sub": "alice"}, None, "none")),
        bearer("x" * 32),
    ],
)
def test_wrong_logins_have_one_answer(start: Callable[..., httpx.Client], headers: dict[str, str]) -> None:
    client = start()
    answer = client.get(CLUSTERS, headers=headers)
    assert refusal(answer) == (401, 40101, WRONG)
    assert answer.headers["www-authenticate"] == BASIC_AND_BEARER


def test_two_logins_are_none(start: Callable[..., httpx.Client]) -> None:
    (one,) = basic("alice", SECRET).items()
    assert start().get(CLUSTERS, headers=[one, one]).status_code == 401


def test_an_unknown_user_costs_the_work_of_a_wrong_password(
    own_storage: OwnStorage, admin: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = admin(own_storage.address, authorizer="acl", super_users="User:ANONYMOUS")
    assert client.put("/api/v1/users/alice", json={"password": SECRET}).status_code == 204
    checked: list[str] = []
    is_right = PasswordChecks.is_right

    async def noted(self: PasswordChecks, user: str, password: str, credential: bytes, fits: Any) -> bool:
        found = await is_right(self, user, password, credential, fits)
        checked.append(
            f"{user} {len(credential)} {fits.args[0].mechanism_name} {fits.func.__self__.iterations} {found}"
        )
        return found

    monkeypatch.setattr(PasswordChecks, "is_right", noted)
    for user in ("alice", "nobody"):
        client.get(CLUSTERS, headers=basic(user, "wrong"))
    assert checked == ["alice 32 SCRAM-SHA-256 8192 False", "nobody 32 SCRAM-SHA-256 8192 False"]


def test_a_changed_password_counts_at_once(stack: Stack, start: Callable[..., httpx.Client]) -> None:
    client = start()
    stack.http.put("/api/v1/users/bob", json={"password": "old"})
    assert client.get(CLUSTERS, headers=basic("bob", "old")).status_code == 200
    stack.http.put("/api/v1/users/bob", json={"password": "new"})
    assert client.get(CLUSTERS, headers=basic("bob", "old")).status_code == 401
    assert client.get(CLUSTERS, headers=basic("bob", "new")).status_code == 200
    stack.http.delete("/api/v1/users/bob")
    assert client.get(CLUSTERS, headers=basic("bob", "new")).status_code == 401


def test_an_address_that_fails_too_often_waits(start: Callable[..., httpx.Client]) -> None:
    client = start()
    answers = [client.get(CLUSTERS, headers=basic("alice", f"guess {n}")) for n in range(access.FAILURES_AT_ONCE + 1)]
    assert [each.status_code for each in answers[:-1]] == [401] * access.FAILURES_AT_ONCE
    # A second passes at most once in a while on a busy machine.
    late = answers[-1] if answers[-1].status_code == 429 else client.get(CLUSTERS, headers=basic("alice", "again"))
    assert refusal(late) == (429, 42901, "Too many failed logins of this client.")
    assert late.headers["retry-after"] == "1"
    # The right password does not help, and tokens of the file are not guessed.
    assert client.get(CLUSTERS, headers=basic("alice", SECRET)).status_code == 429
    assert client.get(CLUSTERS, headers=bearer(READER)).status_code == 200


def test_what_storage_cannot_tell_is_no_refusal(
    admin: Callable[..., httpx.Client], start: Callable[..., httpx.Client], tmp_path: Path
) -> None:
    away = admin("unix:/nowhere/s", admin_auth="users")
    assert refusal(away.get(ME, headers=basic("alice", SECRET))) == (503, 50302, "Storage cannot be reached.")
    client = start(sasl_oauthbearer_jwks_endpoint_url=(tmp_path / "absent.json").as_uri())
    unread = (503, 503, "The keys of the issuer of tokens cannot be read now.")
    assert refusal(client.get(ME, headers=bearer(oauth()))) == unread


def test_a_page_logs_in_with_a_password(stack: Stack, start: Callable[..., httpx.Client]) -> None:
    client = start()
    stack.http.put("/api/v1/users/carl", json={"password": "first"})
    given = {"user": "carl", "password": "first"}
    assert refusal(client.post(SESSION, headers=PAGE, json={**given, "password": "x"})) == (401, 40101, WRONG)
    answer = client.post(SESSION, headers=PAGE, json=given)
    carl = {"login": "users", "is_logged_in": True, "name": "carl", "role": "admin", "read_only": False}
    assert (answer.status_code, answer.json()) == (200, carl)
    cookie, attributes = answer.headers["set-cookie"].split("; ", 1)
    assert attributes == "Path=/; HttpOnly; SameSite=Strict"
    assert cookie.startswith("millrace_token=session.")
    client.cookies.clear()
    with_it = {"cookie": cookie}
    assert client.get(SESSION, headers=with_it).json() == carl
    assert client.get(ME, headers=with_it).json()["principal"] == "User:carl"
    # A change needs the header of a page.
    assert client.delete("/api/v1/users/none", headers=with_it).status_code == 403
    assert client.delete("/api/v1/users/none", headers={**PAGE, **with_it}).status_code == 404
    # It ends with the password.
    stack.http.put("/api/v1/users/carl", json={"password": "second"})
    assert client.get(CLUSTERS, headers=with_it).status_code == 401
    assert client.get(SESSION, headers=with_it).json()["is_logged_in"] is False


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_page_s_session_ends_with_the_user(stack: Stack, start: Callable[..., httpx.Client], mechanism: str) -> None:
    client = start()
    stack.http.put("/api/v1/users/dora", json={"password": "first"})
    answer = client.post(SESSION, headers=PAGE, json={"user": "dora", "password": "first"})
    with_it = {"cookie": answer.headers["set-cookie"].split(";")[0]}
    client.cookies.clear()
    assert client.get(CLUSTERS, headers=with_it).status_code == 200
    assert stack.http.delete("/api/v1/users/dora", params={"mechanism": mechanism}).status_code == 204
    assert client.get(CLUSTERS, headers=with_it).status_code == 401


@pytest.mark.parametrize("login", ["password", "session", "logged out"])
def test_a_stream_ends_with_its_login(
    stack: Stack, start: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    monkeypatch.setattr(access, "CHECKED_EVERY_S", 0.0)
    client, topic, user = (
        start(admin_gateways=stack.kafka),
        f"streamed-{login.replace(' ', '-')}",
        {"password": "first"},
    )
    stack.create_topic(topic)
    stack.http.put("/api/v1/users/fred", json=user)
    headers = basic("fred", "first")
    if login in ("session", "logged out"):
        opened = client.post(SESSION, headers=PAGE, json={"user": "fred", **user})
        headers = {"cookie": opened.headers["set-cookie"].split(";")[0]}
        client.cookies.clear()
    with client.stream("GET", f"/api/v1/topics/{topic}/tail", headers=headers) as answer:
        lines = answer.iter_lines()
        stack.append(topic, 0, 1)
        assert [line for line in itertools.islice(lines, 3) if line.startswith("data:")] != []
        if login == "logged out":
            with httpx.Client(base_url=client.base_url) as other:
                assert other.delete(SESSION, headers={**PAGE, **headers}).status_code == 204
        else:
            stack.http.put("/api/v1/users/fred", json={"password": "second"})
        stack.append(topic, 0, 1)
        rest = [line for line in lines if line]
    error = f'{{"error_code":40101,"message":"{WRONG}"}}'
    assert [line for line in rest if "id:" not in line] == ["event: error", f"data: {error}"]


def test_a_stream_of_produced_records_ends_with_its_login(
    stack: Stack, start: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "CHECKED_EVERY_S", 0.0)
    client = start(admin_gateways=stack.kafka)
    stack.create_topic("written-by-greta")
    stack.http.put("/api/v1/users/greta", json={"password": "first"})
    record = b'{"value": {"type": "STRING", "data": "v"}}'

    def records() -> Iterator[bytes]:
        yield record
        while stack.get("/topics/written-by-greta/partitions/0/offset")["latest_offset"] == 0:
            time.sleep(0.01)
        stack.http.put("/api/v1/users/greta", json={"password": "second"})
        yield record

    answer = client.post(
        "/v3/clusters/-/topics/written-by-greta/records",
        content=records(),
        headers={"content-type": "application/json", **basic("greta", "first")},
    )
    assert [json.loads(line)["error_code"] for line in answer.text.splitlines()] == [200, 40101]


def test_a_password_that_changes_during_a_login_opens_no_session(
    stack: Stack, start: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start()
    stack.http.put("/api/v1/users/emil", json={"password": "first"})
    is_right = PasswordChecks.is_right

    async def slow(self: PasswordChecks, user: str, *rest: Any) -> bool:
        found = await is_right(self, user, *rest)
        # Between the check of the login and its session.
        await asyncio.to_thread(stack.http.put, "/api/v1/users/emil", json={"password": "second"})
        return found

    monkeypatch.setattr(PasswordChecks, "is_right", slow)
    answer = client.post(SESSION, headers=PAGE, json={"user": "emil", "password": "first"})
    assert (refusal(answer), "set-cookie" in answer.headers) == ((401, 40101, WRONG), False)


def test_logging_out_ends_the_session(start: Callable[..., httpx.Client]) -> None:
    client = start()
    for given in ({"user": "alice", "password": SECRET}, {"token": oauth()}):
        answer = client.post(SESSION, headers=PAGE, json=given)
        with_it = {"cookie": answer.headers["set-cookie"].split(";")[0], **PAGE}
        client.cookies.clear()
        assert client.get(CLUSTERS, headers=with_it).status_code == 200
        assert client.delete(SESSION, headers=with_it).status_code == 204
        assert client.get(CLUSTERS, headers=with_it).status_code == 401


@pytest.mark.parametrize(
    "given", [{}, {"user": "alice"}, {"password": SECRET}, {"token": READER, "user": "a", "password": "b"}]
)
def test_half_a_login(start: Callable[..., httpx.Client], given: dict[str, str]) -> None:
    answer = start().post(SESSION, headers=PAGE, json=given)
    assert refusal(answer) == (400, 400, "body: a token, or user and password")


def test_a_login_is_taken_where_none_is_wanted(start: Callable[..., httpx.Client]) -> None:
    """On a loopback address with an authorizer, which decides by the principal."""
    client = start(admin_auth="", admin_tokens_file="", authorizer="acl", super_users="User:alice")
    anyone = client.get(ME).json()
    assert (anyone["principal"], anyone["name"], anyone["is_super_user"]) == ("User:ANONYMOUS", None, False)
    alice = client.get(ME, headers=basic("alice", SECRET)).json()
    assert (alice["principal"], alice["is_super_user"]) == ("User:alice", True)
    assert client.get(ME, headers=basic("alice", "wrong")).status_code == 401
    session = client.get(SESSION).json()
    assert (session["login"], session["is_logged_in"]) == ("users", False)


def test_nothing_is_looked_at_without_authentication(start: Callable[..., httpx.Client]) -> None:
    client = start(admin_auth="none", authorizer="acl")
    assert client.get(ME, headers=basic("alice", "wrong")).json()["principal"] == "User:ANONYMOUS"


def test_no_secret_is_in_a_line_or_an_answer(
    start: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    for level in ("debug", "info", "warning", "error", "exception"):
        monkeypatch.setattr(
            logs.Logger, level, lambda log, event, **fields: lines.append(f"{log.name} {event} {fields}")
        )
    monkeypatch.setattr(logs.Logger, "debug_enabled", property(lambda _: True))
    client = start()
    good, bad = oauth(), oauth(OTHER_KEY)
    opened = client.post(SESSION, headers=PAGE, json={"user": "alice", "password": SECRET})
    cookie = opened.headers["set-cookie"].split(";")[0].partition("=")[2]
    shown = [
        opened,
        client.get(ME, headers=basic("alice", SECRET)),
        client.get(ME, headers=basic("alice", SECRET + "-wrong")),
        client.get(ME, headers=bearer(good)),
        client.get(ME, headers=bearer(bad)),
        client.post(SESSION, headers=PAGE, json={"user": "alice", "password": SECRET + "-wrong"}),
        client.post(SESSION, headers=PAGE, json={"token": bad}),
        client.delete(SESSION, headers={**PAGE, "cookie": f"millrace_token={cookie}"}),
    ]
    assert [each.status_code for each in shown] == [200, 200, 401, 200, 401, 401, 401, 204]
    encoded = basic("alice", SECRET)["authorization"].split()[1]
    secrets = [SECRET, encoded[:20], good, bad, good.split(".")[2], bad.split(".")[2], cookie]
    texts = [each.text for each in shown] + lines
    assert [text for text in texts if any(secret in text for secret in secrets)] == []
    assert [line for line in lines if "login refused" in line] == [
        "admin_api.logins login refused {'user': 'alice', 'reason': 'wrong user name or password'}",
        "admin_api.logins login refused {'reason': 'token: InvalidSignatureError'}",
    ] * 2


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_ends_of_sessions() -> None:
    clock = Clock()
    sessions = Sessions(clock)
    long, short = sessions.open("ann", 7), sessions.open("olga", for_s=60)
    found = sessions.find(long)
    assert found is not None
    assert (found.user, found.revision) == ("ann", 7)
    clock.now += 60
    assert sessions.find(short) is None
    assert sessions.find(long) is found
    clock.now += SESSION_S - 60
    assert sessions.find(long) is None
    assert len(sessions) == 0
    first = sessions.open("ann")
    for _ in range(SESSIONS_MAX):
        last = sessions.open("bob")
    assert (sessions.find(first), len(sessions)) == (None, SESSIONS_MAX)
    assert sessions.find(last) is not None
