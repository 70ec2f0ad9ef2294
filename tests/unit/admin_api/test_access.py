"""Access to every route at real sockets: tokens and their roles, read-only servers, rates, and the audit log."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api import roles
from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.roles import Role
from admin_api.settings import AdminSettings
from admin_api.storage import Storage as StorageClient
from fastapi.routing import APIRoute
from service_chassis import logs
from service_chassis.http import access
from service_chassis.rates import Rates

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

READER, WRITER, ADMIN = "read-0123456789abcdef", "write-0123456789abcdef", "admin-0123456789abcdef"
TOKENS = {Role.READ: READER, Role.WRITE: WRITER, Role.ADMIN: ADMIN}
FILE = f"# holders\nann read {READER}\n\nwim write {WRITER}\n  ada  admin  {ADMIN}\n"
Lines = list[tuple[str, dict[str, Any]]]


@pytest.fixture
def tokens_file(tmp_path: Path) -> str:
    path = tmp_path / "tokens"
    path.write_text(FILE)
    return str(path)


@pytest.fixture
def guarded(stack: Stack, admin: Callable[..., httpx.Client], tokens_file: str) -> httpx.Client:
    return admin(stack.storage_address, admin_auth="token", admin_tokens_file=tokens_file)


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """The lines of the audit log, each with the name of its logger."""
    lines: Lines = []

    def info(log: logs.Logger, event: str, **fields: object) -> None:
        if log.name.startswith("admin_api.audit"):
            lines.append((log.name, {"event": event, **fields}))

    monkeypatch.setattr(logs.Logger, "info", info)
    return lines


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def routes() -> list[tuple[str, APIRoute]]:
    """Return every method of every route of the application."""
    app = create_app(AdminSettings(), StorageClient.__new__(StorageClient), KafkaClients.__new__(KafkaClients))
    found = []
    for route in app.routes:
        assert isinstance(route, APIRoute), f"{route} has no dependencies"
        found += [(method, route) for method in sorted(route.methods)]
    return found


ROUTES = [(method, route.path) for method, route in routes()]
#: The routes that everyone may use.
PUBLIC = {
    *("/", "/console", "/console/", "/console/{path:path}", "/docs", "/docs/", "/docs/{asset}"),
    *("/healthz", "/readyz", "/version", "/openapi.json", "/api/v1/session"),
}


def filled(path: str) -> str:
    """Return a path that fits the template, of things that do not exist."""
    return re.sub(r"\{[^}]*(_id|offset)\}", "0", path.replace("{cluster_id}", "none")).replace("{", "").replace("}", "")


def test_every_route_is_authorized() -> None:
    assert [
        route.path
        for _, route in routes()
        if not any(each.call is access.authorize for each in route.dependant.dependencies)
    ] == []


def test_every_route_requires_its_role(guarded: httpx.Client) -> None:
    for method, path in ROUTES:
        role = roles.required(method, path)
        expected_role = Role.ADMIN if method == "DELETE" else Role.READ if method in ("GET", "HEAD") else role
        assert role is (Role.PUBLIC if path in PUBLIC else expected_role), (method, path)
        url = filled(path)
        stranger = guarded.request(method, url, headers={})
        assert (stranger.status_code == 401) is (role > Role.PUBLIC), (method, path)
        for held, token in TOKENS.items():
            answer = guarded.request(method, url, headers=bearer(token), json=None if method == "GET" else {})
            assert (answer.status_code == 403) is (held < role), (method, path, answer.text)
            assert answer.status_code != 401, (method, path)


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/", Role.PUBLIC),
        ("HEAD", "/docs", Role.PUBLIC),
        ("GET", "/docs/docs.js", Role.PUBLIC),
        ("GET", "/docs/a/b", Role.READ),
        ("GET", "/console/vendor/uplot.js", Role.PUBLIC),
        ("GET", "/consoles", Role.READ),
        ("POST", "/console/index.html", Role.WRITE),
        ("POST", "/docs", Role.WRITE),
        ("GET", "/metrics", Role.READ),
        ("GET", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs", Role.READ),
        ("POST", "/v3/clusters/{cluster_id}/topics", Role.WRITE),
        ("PATCH", "/v3/clusters/{cluster_id}/topics/{topic_name}", Role.WRITE),
        ("POST", "/v3/clusters/{cluster_id}/topics/{topic_name}/records", Role.WRITE),
        ("POST", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs:alter", Role.ADMIN),
        ("PUT", "/v3/clusters/{cluster_id}/topics/{topic_name}/configs/{name}", Role.ADMIN),
        ("POST", "/v3/clusters/{cluster_id}/broker-configs:alter", Role.ADMIN),
        ("PUT", "/v3/clusters/{cluster_id}/brokers/{broker_id}/configs/{name}", Role.ADMIN),
        ("POST", "/v3/clusters/{cluster_id}/acls:batch", Role.ADMIN),
        ("POST", "/v3/clusters/{cluster_id}/topics/configs-of-mine/records", Role.WRITE),
        ("DELETE", "/v3/clusters/{cluster_id}/topics/{topic_name}", Role.ADMIN),
        ("POST", "/api/v1/topics/{topic_name}/records:truncate", Role.ADMIN),
        ("POST", "/api/v1/topics:create", Role.WRITE),
        ("POST", "/api/v1/topics:delete", Role.ADMIN),
        ("POST", "/api/v1/transactions/{transactional_id}/abort", Role.ADMIN),
        ("POST", "/api/v1/topics/{topic_name}/transactions:abort", Role.ADMIN),
        ("POST", "/api/v1/configs/{resource_type}/{resource_name}", Role.ADMIN),
        ("POST", "/api/v1/consumer-groups/{consumer_group_id}/offsets:reset", Role.WRITE),
    ],
)
def test_the_table_of_roles(method: str, path: str, role: Role) -> None:
    assert roles.required(method, path) is role


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "A token is required: Authorization: Bearer …"),
        ({"authorization": f"Bearer {READER}x"}, "The token is not one that this server accepts."),
        ({"authorization": "Bearer"}, "The token is not one that this server accepts."),
        ({"authorization": f"Basic {READER}"}, "The token is not one that this server accepts."),
        ({"authorization": READER}, "The token is not one that this server accepts."),
    ],
)
def test_without_a_good_token(guarded: httpx.Client, headers: dict[str, str], message: str) -> None:
    answer = guarded.get("/v3/clusters", headers=headers)
    assert (answer.status_code, answer.json()) == (401, {"error_code": 40101, "message": message})
    assert answer.headers["www-authenticate"] == "Bearer"
    # The body of such a request is not read as JSON, and a path that leads nowhere says no more.
    assert guarded.post("/v3/clusters", headers=headers, content=b"{").json()["error_code"] == 40101
    assert guarded.get("/nowhere", headers=headers).json()["error_code"] == 40101


def test_two_tokens_are_none(guarded: httpx.Client) -> None:
    twice = [("authorization", f"Bearer {ADMIN}"), ("authorization", f"Bearer {ADMIN}")]
    assert guarded.get("/v3/clusters", headers=twice).status_code == 401


def test_a_role_that_does_not_suffice(stack: Stack, guarded: httpx.Client) -> None:
    stack.create_topic("kept")
    path = f"{stack.cluster}/topics/kept"
    answer = guarded.delete(path, headers=bearer(WRITER))
    assert (answer.status_code, answer.json()) == (
        403,
        {"error_code": 40301, "message": "This needs the role admin, not write."},
    )
    assert guarded.get(path, headers=bearer(READER)).status_code == 200
    assert guarded.delete(path, headers={"authorization": f"bearer {ADMIN}"}).status_code == 204


def test_probes_need_no_token_and_metrics_do(guarded: httpx.Client) -> None:
    assert guarded.get("/healthz").json() == {"live": True}
    assert guarded.get("/healthz", headers=bearer("wrong")).json() == {"live": True}
    assert guarded.get("/metrics").status_code == 401
    assert guarded.get("/metrics", headers=bearer(READER)).status_code == 200


def test_a_read_only_server(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    stack.create_topic("unchanged")
    client = admin(stack.storage_address, admin_read_only=True)
    assert client.get(f"{stack.cluster}/topics/unchanged").status_code == 200
    refused = {"error_code": 40301, "message": "This server is read-only (MILLRACE_ADMIN_READ_ONLY)."}
    answer = client.delete(f"{stack.cluster}/topics/unchanged")
    assert (answer.status_code, answer.json()) == (403, refused)
    answer = client.post(f"{stack.cluster}/topics", json={"topic_name": "unwanted"})
    assert (answer.status_code, answer.json()) == (403, refused)
    assert stack.http.get(f"{stack.cluster}/topics/unwanted").status_code == 404
    assert stack.http.get(f"{stack.cluster}/topics/unchanged").status_code == 200


def test_too_many_requests_of_one_client(
    stack: Stack, admin: Callable[..., httpx.Client], tokens_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(access, "Rates", lambda rate: Rates(rate, lambda: now))
    client = admin(stack.storage_address, admin_auth="token", admin_tokens_file=tokens_file, admin_rate_limit=0.4)
    # Ten seconds' worth at 0.4 a second; another token has another bucket, as has the address.
    assert [client.get("/v3/clusters", headers=bearer(READER)).status_code for _ in range(5)] == [200] * 4 + [429]
    answer = client.get("/v3/clusters", headers=bearer(READER))
    assert answer.json() == {"error_code": 42901, "message": "Too many requests of this client."}
    assert answer.headers["retry-after"] == "3"
    assert client.get("/v3/clusters", headers=bearer(ADMIN)).status_code == 200
    assert [client.get("/v3/clusters").status_code for _ in range(5)] == [401] * 4 + [429]
    assert client.get("/v3/clusters", headers=bearer("wrong")).status_code == 429
    assert client.get("/healthz").status_code == 200
    now += 2.5
    assert [client.get("/v3/clusters", headers=bearer(READER)).status_code for _ in range(2)] == [200, 429]


def test_a_line_for_each_change(stack: Stack, guarded: httpx.Client, audited: Lines) -> None:
    stack.http.get(f"{stack.cluster}/topics")
    audited.clear()
    path = f"{stack.cluster}/topics"
    body = {"topic_name": "audited", "configs": [{"name": "retention.ms", "value": "77777"}]}
    guarded.get(path, headers=bearer(READER))
    guarded.post(path, headers={**bearer(WRITER), "x-request-id": "one"}, json=body)
    guarded.post(path, headers={**bearer(WRITER), "x-request-id": "two"}, json=body)
    guarded.delete(f"{path}/audited", headers={**bearer(WRITER), "x-request-id": "three"})
    guarded.delete(f"{path}/audited", headers={**bearer(ADMIN), "x-request-id": "four"})
    guarded.delete(f"{path}/audited", headers={**bearer("wrong"), "x-request-id": "five"})
    guarded.get("/healthz")  # the line of a request is written before the next one begins
    common = {"event": "change", "client": "127.0.0.1"}
    create = {"method": "POST", "operation": "createKafkaTopic", "path": path}
    create |= {"topic": "audited", "validate_only": False}
    delete = {"method": "DELETE", "operation": "deleteKafkaTopic", "path": f"{path}/audited"}
    wim, ada, nobody = {"sender": "wim"}, {"sender": "ada"}, {"sender": "anonymous"}
    assert [line for _, line in audited] == [
        {**common, **create, **wim, "status": 201, "outcome": "done", "request_id": "one"},
        {**common, **create, **wim, "status": 400, "outcome": "refused", "request_id": "two"},
        {**common, **delete, **wim, "status": 403, "outcome": "refused", "request_id": "three"},
        {**common, **delete, **ada, "status": 204, "outcome": "done", "request_id": "four"},
        {**common, **delete, **nobody, "operation": "", "status": 401, "outcome": "refused", "request_id": "five"},
    ]
    assert [name for name, _ in audited] == ["admin_api.audit"] * 4 + ["admin_api.audit.refused"]
    assert "77777" not in str(audited)
    assert all(token not in str(audited) for token in TOKENS.values())


def test_long_names_are_cut_in_the_audit_log(stack: Stack, audited: Lines) -> None:
    stack.http.delete(f"{stack.cluster}/topics/{'x' * 2000}")
    stack.http.get("/healthz")
    assert [len(line["path"]) for _, line in audited] == [512]
