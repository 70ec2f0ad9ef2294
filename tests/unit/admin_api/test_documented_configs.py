"""Configurations of topics, groups and brokers with their defaults and meanings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


def configs(stack: Stack, resource: str) -> dict[str, Any]:
    answer = stack.http.get(f"/api/v1/configs/{resource}")
    assert answer.status_code == 200, answer.text
    return {row["name"]: row for row in answer.json()["data"]}


def test_a_topic(stack: Stack) -> None:
    stack.create_topic("documented", 1, retention_ms="1000")
    found = configs(stack, "topic/documented")
    assert list(found) == sorted(found)
    retention = found["retention.ms"]
    assert (retention["value"], retention["default"], retention["type"]) == ("1000", "604800000", "LONG")
    assert (retention["source"], retention["is_default"]) == ("DYNAMIC_TOPIC_CONFIG", False)
    assert retention["documentation"]
    policy = found["cleanup.policy"]
    assert (policy["value"], policy["default"], policy["is_default"]) == ("delete", "delete", True)
    assert stack.http.get("/api/v1/configs/topic/absent").status_code == 404


def test_a_group_is_changed_and_reset(stack: Stack) -> None:
    name, path = "consumer.session.timeout.ms", "/api/v1/configs/group/configured"
    before = configs(stack, "group/configured")[name]
    assert before["is_default"] is True
    body = {"data": [{"name": name, "value": "50000"}]}
    assert stack.http.post(path, json={**body, "validate_only": True}).status_code == 204
    assert configs(stack, "group/configured")[name] == before
    assert stack.http.post(path, json=body).status_code == 204
    changed = configs(stack, "group/configured")[name]
    assert (changed["value"], changed["source"]) == ("50000", "DYNAMIC_GROUP_CONFIG")
    assert changed["default"] == before["value"]
    assert stack.http.post(path, json={"data": [{"name": name, "operation": "DELETE"}]}).status_code == 204
    assert configs(stack, "group/configured")[name] == before


def test_all_brokers(stack: Stack) -> None:
    body = {"data": [{"name": "message.max.bytes", "value": "1048577"}]}
    assert stack.http.post("/api/v1/configs/broker/-", json=body).status_code == 204
    row = configs(stack, "broker/-")["message.max.bytes"]
    assert (row["value"], row["source"]) == ("1048577", "DYNAMIC_DEFAULT_BROKER_CONFIG")
    body = {"data": [{"name": "message.max.bytes", "operation": "DELETE"}]}
    assert stack.http.post("/api/v1/configs/broker/-", json=body).status_code == 204
    assert "message.max.bytes" not in configs(stack, "broker/-")


@pytest.mark.parametrize("change", [{"name": "retention.ms", "value": "x"}, {"name": "no.such", "value": "1"}])
def test_a_refused_change(stack: Stack, change: dict[str, str]) -> None:
    stack.create_topic(f"kept-{change['name']}", 1)
    answer = stack.http.post(f"/api/v1/configs/topic/kept-{change['name']}", json={"data": [change]})
    assert (answer.status_code, answer.json()["error_code"]) == (400, 40002)
