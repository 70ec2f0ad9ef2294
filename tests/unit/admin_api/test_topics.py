"""Topics over HTTP: created, listed, looked at, deleted; and everything that is refused, with its exact answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

JSON = {"content-type": "application/json"}


def test_create_look_at_delete(stack: Stack) -> None:
    topics = f"{stack.cluster}/topics"
    created = stack.http.post(topics, json={"topic_name": "life", "partitions_count": 3})
    assert created.status_code == 201
    assert created.headers["location"] == f"{stack.base_url}{topics}/life"
    assert created.json()["partitions_count"] == 3
    assert created.json()["replication_factor"] == 1

    found = stack.http.get(created.headers["location"])
    assert found.status_code == 200
    assert found.json() == created.json()
    assert [row for row in stack.get("/topics")["data"] if row["topic_name"] == "life"] == [created.json()]

    deleted = stack.http.delete(f"{topics}/life")
    assert (deleted.status_code, deleted.content) == (204, b"")
    for gone in (stack.http.get(f"{topics}/life"), stack.http.delete(f"{topics}/life")):
        assert gone.status_code == 404
        assert gone.json()["error_code"] == 40403
    assert "life" not in [row["topic_name"] for row in stack.get("/topics")["data"]]


def test_defaults_are_storages(stack: Stack) -> None:
    answer = stack.http.post(f"{stack.cluster}/topics", json={"topic_name": "defaults"})
    assert answer.status_code == 201
    assert answer.json()["partitions_count"] == 2  # num.partitions of the fixture
    assert answer.json()["replication_factor"] == 1


def test_replication_factor_minus_one_is_the_default(stack: Stack) -> None:
    answer = stack.http.post(f"{stack.cluster}/topics", json={"topic_name": "kafkas-default", "replication_factor": -1})
    assert answer.status_code == 201
    assert answer.json()["replication_factor"] == 1


def test_validate_only_creates_nothing(stack: Stack) -> None:
    body = {"topic_name": "imagined", "partitions_count": 4, "validate_only": True}
    answer = stack.http.post(f"{stack.cluster}/topics", json=body)
    assert answer.status_code == 200
    assert answer.json()["topic_name"] == "imagined"
    assert answer.json()["partitions_count"] == 4
    assert stack.http.get(f"{stack.cluster}/topics/imagined").status_code == 404


def test_configs_are_kept(stack: Stack) -> None:
    configs = [{"name": "cleanup.policy", "value": "compact"}, {"name": "retention.ms", "value": "86400000"}]
    answer = stack.http.post(f"{stack.cluster}/topics", json={"topic_name": "kept", "configs": configs})
    assert answer.status_code == 201
    listed = {row["name"]: row for row in stack.get("/topics/kept/configs")["data"]}
    assert listed["cleanup.policy"]["value"] == "compact"
    assert listed["cleanup.policy"]["source"] == "DYNAMIC_TOPIC_CONFIG"
    assert listed["cleanup.policy"]["is_default"] is False
    assert listed["retention.ms"]["value"] == "86400000"
    assert listed["min.insync.replicas"]["is_default"] is True
    assert stack.get("/topics/kept/configs/retention.ms") == listed["retention.ms"]
    everyones = [row for row in stack.get("/topics/-/configs")["data"] if row["topic_name"] == "kept"]
    assert everyones == sorted(listed.values(), key=lambda row: row["name"])


@pytest.mark.parametrize(
    ("body", "error_code"),
    [
        ({"topic_name": "taken"}, 40002),
        ({"topic_name": ""}, 40002),
        ({"topic_name": "."}, 40002),
        ({"topic_name": ".."}, 40002),
        ({"topic_name": "with space"}, 40002),
        ({"topic_name": "slash/slash"}, 40002),
        ({"topic_name": "nul\0"}, 40002),
        ({"topic_name": "été"}, 40002),
        ({"topic_name": "x" * 250}, 40002),
        ({"topic_name": "a", "partitions_count": 0}, 40002),
        ({"topic_name": "a", "partitions_count": -1}, 40002),
        ({"topic_name": "a", "partitions_count": 2**31 - 1}, 40002),
        ({"topic_name": "a", "replication_factor": 0}, 40002),
        ({"topic_name": "a", "replication_factor": 2}, 40002),
        ({"topic_name": "a", "replication_factor": -2}, 40002),
        ({"topic_name": "a", "replication_factor": 32768}, 40002),
        ({"topic_name": "a", "configs": [{"name": "no.such.config", "value": "1"}]}, 40002),
        ({"topic_name": "a", "configs": [{"name": "retention.ms", "value": "soon"}]}, 40002),
        ({"topic_name": "a", "configs": [{"name": "retention.ms", "value": "1"}] * 2}, 40002),
        ({"topic_name": "a", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1, 2]}]}, 40002),
        ({"topic_name": "a", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}] * 2}, 40002),
        ({"topic_name": "a", "replicas_assignments": [{"partition_id": 7, "broker_ids": [1]}]}, 40002),
        ({}, 400),
        ({"topic_name": None}, 400),
        ({"topic_name": 5}, 400),
        ({"topic_name": "a", "partitions_count": "3"}, 400),
        ({"topic_name": "a", "partitions_count": 1.5}, 400),
        ({"topic_name": "a", "partitions_count": True}, 400),
        ({"topic_name": "a", "partitions_count": 2**31}, 400),
        ({"topic_name": "a", "replication_factor": 2**63}, 400),
        ({"topic_name": "a", "partition_count": 3}, 400),
        ({"topic_name": "a", "validate_only": "yes"}, 400),
        ({"topic_name": "a", "configs": {"retention.ms": "1"}}, 400),
        ({"topic_name": "a", "configs": [{"name": "retention.ms", "value": 1}]}, 400),
        ([], 400),
        ("a", 400),
    ],
)
def test_refused_bodies(stack: Stack, body: Any, error_code: int) -> None:
    if body == {"topic_name": "taken"}:
        stack.create_topic("taken")
    answer = stack.http.post(f"{stack.cluster}/topics", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"error_code", "message"}
    assert answer.json()["error_code"] == error_code, answer.text
    assert answer.json()["message"]
    assert stack.http.get(f"{stack.cluster}/topics/a").status_code == 404


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"topic_name": "a"', "The body is not JSON: Expecting ',' delimiter (character 18)"),
        (b"topic_name=a", "The body is not JSON: Expecting value (character 0)"),
        (b'{"topic_name": "\xff"}', "The body cannot be read as JSON."),
        (b"[" * 4000, "The body cannot be read as JSON."),
        (b'{"topic_name": "a", "partitions_count": ' + b"9" * 5000 + b"}", "The body cannot be read as JSON."),
        (
            b'{"topic_name": "\\ud800"}',
            "body.topic_name: Input should be valid Unicode text",
        ),
        (
            b'{"topic_name": "a", "configs": [{"name": "retention.ms", "value": "\\udfff"}]}',
            "body.configs.0.value: Input should be valid Unicode text",
        ),
        (b"", "body: Field required"),
        (b"null", "body: Input should be a valid dictionary or object to extract fields from"),
    ],
)
def test_bodies_that_are_not_json(stack: Stack, body: bytes, message: str) -> None:
    answer = stack.http.post(f"{stack.cluster}/topics", content=body, headers=JSON)
    assert answer.status_code == 400
    assert answer.json() == {"error_code": 400, "message": message}


@pytest.mark.parametrize(
    "content_type",
    [None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/xml"],
)
def test_what_a_web_page_can_send_is_refused(stack: Stack, content_type: str | None) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    body = b'{"topic_name": "smuggled"}'
    answer = stack.http.post(f"{stack.cluster}/topics", content=body, headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error_code"] == 415
    assert stack.http.get(f"{stack.cluster}/topics/smuggled").status_code == 404


def test_content_type_may_name_a_charset(stack: Stack) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = stack.http.post(f"{stack.cluster}/topics", content=b'{"topic_name": "charset"}', headers=headers)
    assert answer.status_code == 201


@pytest.mark.parametrize(
    ("path", "status", "error_code", "message"),
    [
        ("/topics/none", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/no%20name", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/%FF%00", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/none/configs", 404, 40403, "Topic 'none' does not exist."),
        ("/topics/none/partitions", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/none/partitions/0", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/none/partitions/0/offset", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/none/partitions/-/reassignment", 404, 40403, "This server does not host this topic-partition."),
        ("/topics/there/partitions/2", 404, 40402, "Partition not found."),
        ("/topics/there/partitions/2/offset", 404, 40402, "Partition not found."),
        ("/topics/there/partitions/2147483647/replicas", 404, 40402, "Partition not found."),
        ("/topics/there/configs/no.such", 404, 404, "A topic has no configuration of this name."),
        ("/topics/there/partitions/0/replicas/99", 404, 404, "The partition has no replica on this broker."),
        ("/brokers/99", 404, 404, "Broker 99 cannot be found."),
        ("/brokers/99/configs", 404, 404, "Broker 99 cannot be found."),
        ("/brokers/99/partition-replicas", 404, 404, "Broker 99 cannot be found."),
    ],
)
def test_what_is_not_there(stack: Stack, path: str, status: int, error_code: int, message: str) -> None:
    if stack.http.get(f"{stack.cluster}/topics/there").status_code == 404:
        stack.create_topic("there", 2)
    answer = stack.http.get(stack.cluster + path)
    assert answer.status_code == status
    assert answer.json() == {"error_code": error_code, "message": message}


@pytest.mark.parametrize(
    "path",
    [
        "/topics/there/partitions/abc",
        "/topics/there/partitions/-1",
        "/topics/there/partitions/2147483648",
        "/topics/there/partitions/99999999999999999999",
        "/topics/there/partitions/1.5",
        "/topics/there/partitions/0/offset?offset_type=newest",
        "/brokers/one",
        "/topics?page_size=0",
        "/topics?page_size=1001",
        "/topics?page_size=x",
        "/topics?page_token=%00",
    ],
)
def test_parameters_of_the_wrong_type(stack: Stack, path: str) -> None:
    answer = stack.http.get(stack.cluster + path)
    assert answer.status_code == 400
    assert answer.json().keys() == {"error_code", "message"}
    assert answer.json()["error_code"] == 400


def test_pages_of_topics(stack: Stack) -> None:
    for name in ("page-a", "page-b", "page-c"):
        stack.create_topic(name)
    whole = stack.get("/topics")
    assert whole["metadata"]["next"] is None
    seen, url = [], f"{stack.cluster}/topics?page_size=2"
    while url is not None:
        page = stack.http.get(url).json()
        assert len(page["data"]) <= 2
        seen += page["data"]
        url = page["metadata"]["next"]
    assert seen == whole["data"]
    assert [row["topic_name"] for row in seen] == sorted(row["topic_name"] for row in seen)


def test_offsets(stack: Stack) -> None:
    stack.create_topic("counted", 2)
    stack.append("counted", 1, 7)
    offsets = stack.get("/topics/counted/partitions/1/offset", offset_type="earliest_and_latest")
    assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, 7)
    offsets = stack.get("/topics/counted/partitions/0/offset")
    assert (offsets["earliest_offset"], offsets["latest_offset"]) == (0, 0)
