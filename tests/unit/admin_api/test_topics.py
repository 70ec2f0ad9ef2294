"""Topics over HTTP: created, listed, looked at, deleted; and everything that is refused, with its exact answer."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from admin_api import errors
from admin_api.rights import EVERYTHING
from admin_api.routers import topics
from admin_api.schemas.topics import CreateTopicsRequest, NewTopic, TopicsCreation
from broker_contract import topics_pb2
from starlette.requests import Request

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack


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


def test_topics_are_deleted_together(stack: Stack) -> None:
    for name in ("together-a", "together-b"):
        stack.create_topic(name, 1)
    names = ["together-b", "none", "together-a", "together-b", "__consumer_offsets", "a/b"]
    answer = stack.http.post("/api/v1/topics:delete", json={"topic_names": names})
    absent = {"error_code": 40403, "message": "This server does not host this topic."}
    assert answer.status_code == 200
    deleted = answer.json()
    assert deleted["deleted"] == ["together-b", "together-a"]
    failures = {row.pop("topic_name"): row for row in deleted["failures"]}
    assert list(failures) == ["none", "__consumer_offsets", "a/b"]
    assert [failures["none"], failures["a/b"]["error_code"]] == [absent, 40403]
    assert "together-a" not in [row["topic_name"] for row in stack.get("/topics")["data"]]


def test_topics_are_created_together(stack: Stack) -> None:
    given = [
        {"topic_name": "joint-a", "partitions_count": 3},
        {"topic_name": "a/b"},
        {"topic_name": "joint-c", "partitions_count": 0},
        {"topic_name": "joint-b", "configs": [{"name": "retention.ms", "value": "1000"}]},
        {"topic_name": "joint-d", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"topic_name": "joint-e"},
        {"topic_name": "joint-e", "partitions_count": 2},
    ]
    both = [
        {"topic_name": "joint-a", "partitions_count": 3, "replication_factor": 1},
        {"topic_name": "joint-b", "partitions_count": 2, "replication_factor": 1},  # num.partitions of the fixture
    ]
    for body in ({"validate_only": True}, {}):
        answer = stack.http.post("/api/v1/topics:create", json={"topics": given, **body})
        assert answer.status_code == 200
        assert answer.json()["created"] == both
        failures = {row["topic_name"]: row for row in answer.json()["failures"]}
        assert sorted(failures) == ["a/b", "joint-c", "joint-d", "joint-e"]
        assert {row["error_code"] for row in failures.values()} == {40002}
        assert failures["joint-e"]["message"] == "Duplicate topic name."
        made = [row["topic_name"] for row in stack.get("/topics")["data"] if row["topic_name"].startswith("joint-")]
        assert made == ([] if body else ["joint-a", "joint-b"])
    assert stack.get("/topics/joint-b/configs/retention.ms")["value"] == "1000"
    again = stack.http.post("/api/v1/topics:create", json={"topics": given[:1]}).json()
    message = "Topic 'joint-a' already exists."
    assert again == {
        "created": [],
        "failures": [{"topic_name": "joint-a", "error_code": 40002, "message": message}],
    }


class BusyStorage:
    """Storage that creates the topics of this number of calls."""

    rights = EVERYTHING

    def __init__(self, calls: int) -> None:
        self._left = calls

    async def create_topics(self, topics: list[topics_pb2.NewTopic], *, validate_only: bool) -> Any:
        if not self._left:
            raise errors.ApiError(503, 50003, "Storage did not answer in time.")
        self._left -= 1
        assert not validate_only
        return [topics_pb2.CreatedTopic(partition_count=1, replication_factor=1) for _ in topics]


def test_topics_that_were_created_before_storage_failed_are_named() -> None:
    given = CreateTopicsRequest(topics=[NewTopic(topic_name=f"t{number}") for number in range(150)])

    def created(calls: int) -> TopicsCreation:
        storage: Any = BusyStorage(calls)
        return asyncio.run(topics.create_topics(storage, given, Request({"type": "http"})))

    answer = created(1)
    assert [row.topic_name for row in answer.created] == [f"t{number}" for number in range(100)]
    assert [row.topic_name for row in answer.failures] == [f"t{number}" for number in range(100, 150)]
    assert {row.error_code for row in answer.failures} == {50003}
    with pytest.raises(errors.ApiError, match="did not answer"):
        created(0)


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
    "body",
    [
        {"topic_name": "taken"},
        {"topic_name": ""},
        {"topic_name": "."},
        {"topic_name": ".."},
        {"topic_name": "with space"},
        {"topic_name": "slash/slash"},
        {"topic_name": "nul\0"},
        {"topic_name": "été"},
        {"topic_name": "x" * 250},
        {"topic_name": "a", "partitions_count": 0},
        {"topic_name": "a", "partitions_count": -1},
        {"topic_name": "a", "partitions_count": 2**31 - 1},
        {"topic_name": "a", "replication_factor": 0},
        {"topic_name": "a", "replication_factor": 2},
        {"topic_name": "a", "replication_factor": -2},
        {"topic_name": "a", "replication_factor": 32768},
        {"topic_name": "a", "configs": [{"name": "no.such.config", "value": "1"}]},
        {"topic_name": "a", "configs": [{"name": "retention.ms", "value": "soon"}]},
        {"topic_name": "a", "configs": [{"name": "retention.ms", "value": "1"}] * 2},
        {"topic_name": "a", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1, 2]}]},
        {"topic_name": "a", "replicas_assignments": [{"partition_id": 0, "broker_ids": [1]}] * 2},
        {"topic_name": "a", "replicas_assignments": [{"partition_id": 7, "broker_ids": [1]}]},
    ],
)
def test_topics_that_kafkas_rules_refuse(stack: Stack, body: Any) -> None:
    if body == {"topic_name": "taken"}:
        stack.create_topic("taken")
    answer = stack.http.post(f"{stack.cluster}/topics", json=body)
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"error_code", "message"}
    assert answer.json()["error_code"] == 40002, answer.text
    assert answer.json()["message"]
    assert stack.http.get(f"{stack.cluster}/topics/a").status_code == 404


def test_content_type_may_name_a_charset(stack: Stack) -> None:
    headers = {"content-type": "Application/JSON; charset=utf-8"}
    answer = stack.http.post(f"{stack.cluster}/topics", content=b'{"topic_name": "charset"}', headers=headers)
    assert answer.status_code == 201


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
