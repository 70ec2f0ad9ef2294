"""Access control lists over HTTP, with storage's Access service behind: as Confluent's API has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from broker_contract import access_pb2
from service_chassis import logs

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

ACLS = "/v3/clusters/-/acls"
ROW = {
    "resource_type": "TOPIC",
    "resource_name": "orders/ä",
    "pattern_type": "LITERAL",
    "principal": "User:alice",
    "host": "*",
    "operation": "READ",
    "permission": "ALLOW",
}
EVERY = {"resource_type": "ANY", "pattern_type": "ANY", "operation": "ANY", "permission": "ANY"}


@pytest.fixture
def http(stack: Stack, admin: Callable[..., httpx.Client]) -> Iterator[httpx.Client]:
    client = admin(stack.storage_address, authorizer="acl", super_users="User:ANONYMOUS")
    yield client
    assert client.delete(ACLS, params=EVERY).status_code == 200


def rows(client: httpx.Client, **wanted: str) -> list[dict[str, Any]]:
    answer = client.get(ACLS, params=wanted)
    assert answer.status_code == 200, answer.text
    return [{name: each[name] for name in ROW} for each in answer.json()["data"]]


def refusal(answer: httpx.Response) -> tuple[int, int, str]:
    return answer.status_code, answer.json()["error_code"], answer.json()["message"]


def test_created_found_and_deleted(stack: Stack, http: httpx.Client) -> None:
    created = http.post(ACLS, json=ROW)
    assert (created.status_code, created.content) == (201, b"")
    assert http.post(ACLS, json=ROW).status_code == 201  # it is there already
    url = created.headers["location"]
    cluster_id = stack.cluster.rpartition("/")[2]
    row = {
        "kind": "KafkaAcl",
        "metadata": {"self": url, "resource_name": f"crn:///kafka={cluster_id}"},
        "cluster_id": cluster_id,
        **ROW,
    }
    base = f"{http.base_url}/v3/clusters/{cluster_id}/acls"
    listed = {"kind": "KafkaAclList", "metadata": {"self": base, "next": None}, "data": [row]}
    assert http.get(url).json() == listed
    assert url == (
        f"{base}?resource_type=TOPIC&resource_name=orders%2F%C3%A4&pattern_type=LITERAL&principal=User%3Aalice"
        "&host=%2A&operation=READ&permission=ALLOW"
    )
    deleted = http.delete(url)
    assert (deleted.status_code, deleted.json()) == (200, {"data": [row]})
    assert http.delete(url).json() == {"data": []}
    assert rows(http) == []


def test_they_are_storages_rows(stack: Stack, http: httpx.Client) -> None:
    """What a gateway would follow."""
    http.post(ACLS, json={**ROW, "resource_name": "o", "pattern_type": "PREFIXED", "permission": "DENY"})
    request = access_pb2.DescribeAclsRequest(
        filter=access_pb2.AclFilter(type=2, name="orders", pattern=2, operation=1, permission=1)
    )
    (found,) = stack.loop.run(stack.core.access.describe_acls(request)).acls
    assert (found.name, found.pattern, found.principal, found.operation, found.permission) == (
        "o",
        4,
        "User:alice",
        3,
        2,
    )


def test_searches(http: httpx.Client) -> None:
    wide = {**ROW, "resource_name": "ord", "pattern_type": "PREFIXED", "principal": "User:*"}
    every = {**ROW, "resource_name": "*", "operation": "DESCRIBE"}
    group = {**ROW, "resource_type": "GROUP", "host": "10.0.0.1"}
    other = {**ROW, "operation": "WRITE", "permission": "DENY"}
    answer = http.post(f"{ACLS}:batch", json={"data": [ROW, wide, every, group, other]})
    assert (answer.status_code, answer.content) == (201, b"")
    assert rows(http) == [every, wide, ROW, other, group]
    assert rows(http, **EVERY) == rows(http, principal="", resource_name="", host="") == rows(http)
    assert rows(http, pattern_type="MATCH", resource_name="orders/ä", resource_type="TOPIC") == [
        every,
        wide,
        ROW,
        other,
    ]
    assert rows(http, pattern_type="ANY", resource_name="orders/ä", resource_type="TOPIC") == [ROW, other]
    assert rows(http, pattern_type="PREFIXED") == [wide]
    assert rows(http, principal="User:*") == [wide]
    assert rows(http, host="10.0.0.1") == [group]
    assert rows(http, operation="WRITE") == rows(http, permission="DENY") == [other]
    first = http.get(ACLS, params={"page_size": 2}).json()
    second = http.get(first["metadata"]["next"]).json()
    assert [each["operation"] for each in first["data"] + second["data"]] == ["DESCRIBE", "READ", "READ", "WRITE"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"resource_type": "ANY"}, (400, 400, "resource_type cannot be ANY")),
        ({"pattern_type": "MATCH"}, (400, 400, "pattern_type cannot be MATCH")),
        ({"operation": "UNKNOWN"}, (400, 400, "operation cannot be UNKNOWN")),
        ({"permission": "ANY"}, (400, 400, "permission cannot be ANY")),
        ({"resource_name": ""}, (400, 40002, "Resource name should not be empty")),
        (
            {"resource_type": "CLUSTER"},
            (400, 40002, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ),
        (
            {"principal": "alice"},
            (
                400,
                40002,
                "Could not parse principal from `alice` (no colon is present separating the principal type from the"
                " principal name)",
            ),
        ),
    ],
)
def test_rows_that_there_cannot_be(http: httpx.Client, change: dict[str, str], expected: tuple[int, int, str]) -> None:
    assert refusal(http.post(ACLS, json={**ROW, **change})) == expected
    # Of a batch none is made.
    assert refusal(http.post(f"{ACLS}:batch", json={"data": [ROW, {**ROW, **change}]})) == expected
    assert rows(http) == []


def test_filters_that_name_unknown(http: httpx.Client) -> None:
    for name in EVERY:
        expected = (400, 400, f"{name} cannot be UNKNOWN")
        assert refusal(http.get(ACLS, params={name: "UNKNOWN"})) == expected
        assert refusal(http.delete(ACLS, params={**EVERY, name: "UNKNOWN"})) == expected


def test_each_changed_row_is_in_the_log(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, str, dict[str, object]]] = []
    monkeypatch.setattr(logs.Logger, "info", lambda log, event, **fields: lines.append((log.name, event, fields)))
    http.post(f"{ACLS}:batch", json={"data": [ROW, {**ROW, "operation": "WRITE"}]}, headers={"x-request-id": "R"})
    http.delete(ACLS, params={**EVERY, "operation": "WRITE"}, headers={"x-request-id": "S"})
    # The line of a request follows its answer.
    until_ready(lambda: sum(name == "admin_api.audit" for name, _, _ in lines) == 2)
    of_rows = [(event, fields) for name, event, fields in lines if name == "admin_api.routers.acls"]
    common = {"sender": "anonymous", "resource": "TOPIC:LITERAL:orders/ä"}
    assert of_rows == [
        ("created an ACL", {**common, "acl": "ALLOW READ to User:alice from *", "request_id": "R"}),
        ("created an ACL", {**common, "acl": "ALLOW WRITE to User:alice from *", "request_id": "R"}),
        ("deleted an ACL", {**common, "acl": "ALLOW WRITE to User:alice from *", "request_id": "S"}),
    ]
    audited = [(fields["operation"], fields["acls"]) for name, _, fields in lines if name == "admin_api.audit"]
    assert audited == [("batchCreateKafkaAcls", 2), ("deleteKafkaAcls", 1)]


def test_without_an_authorizer(stack: Stack) -> None:
    cluster_id = stack.cluster.rpartition("/")[2]
    expected = (400, 40002, f"No Authorizer is configured on the brokers of cluster {cluster_id}.")
    assert refusal(stack.http.get(ACLS)) == expected
    assert refusal(stack.http.post(ACLS, json=ROW)) == expected
    assert refusal(stack.http.delete(ACLS, params=EVERY)) == expected
    assert refusal(stack.http.post(f"{ACLS}:batch", json={"data": [ROW]})) == expected
