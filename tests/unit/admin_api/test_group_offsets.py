"""Committed offsets moved, copied and deleted over HTTP: every target, exact offsets, and the groups that refuse it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from admin_api import offset_targets
from admin_api.errors import ApiError
from admin_api.schemas.administration import ResetRequest
from admin_api.schemas.requests import Request
from admin_api.storage import Storage
from broker_contract import administration_pb2
from pydantic import ValidationError

from tests.unit.admin_api.conftest import FLIGHTS_0_AND_1

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

#: Milliseconds of the only timestamp of the records.
AT_MS = 1_700_000_000_000
NO_TIME = "body.value: not a time as 2026-01-31T12:00:00Z"
TOO_EARLY = "body.value: the time is before 1970, or too late"


@pytest.fixture(scope="module", autouse=True)
def topic(stack: Stack) -> None:
    """Two partitions, of which one has the offsets from 0 to 10 and the other has none."""
    stack.create_topic("moved", 2)
    stack.append("moved", 0, 10)
    stack.create_topic("other", 1)
    stack.append("other", 0, 4)


def reset(stack: Stack, group: str, **body: Any) -> Any:
    answer = stack.http.post(f"/api/v1/consumer-groups/{group}/offsets:reset", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def committed(stack: Stack, group: str) -> dict[tuple[str, int], int]:
    answer = stack.http.get(f"{stack.cluster}/consumer-groups/{group}/lags")
    return {(row["topic_name"], row["partition_id"]): row["current_offset"] for row in answer.json().get("data", [])}


def moves(answer: Any) -> list[tuple[str, int, int | None, int]]:
    return [(row["topic_name"], row["partition_id"], row["before"], row["after"]) for row in answer["data"]]


@pytest.mark.parametrize(
    ("to", "value", "after"),
    [
        ("earliest", None, (0, 0)),
        ("latest", None, (10, 0)),
        ("current", None, (4, 0)),
        ("offset", 7, (7, 0)),
        ("offset", -3, (0, 0)),
        ("offset", 2**40, (10, 0)),
        ("timestamp", AT_MS, (0, 0)),
        ("timestamp", AT_MS + 1, (10, 0)),
        ("timestamp", "2023-11-14T22:13:20Z", (0, 0)),
        ("timestamp", "2023-11-14T22:13:20.001", (10, 0)),
        ("timestamp", "2023-11-14T23:13:20+01:00", (0, 0)),
        ("duration", "PT1M", (10, 0)),
        ("duration", "P9000DT1H2M3.5S", (0, 0)),
    ],
)
def test_every_target(stack: Stack, to: str, value: int | str | None, after: tuple[int, int]) -> None:
    stack.commit("targets", {("moved", 0): 4})
    answer = reset(stack, "targets", topic="moved", to=to, value=value, dry_run=True)
    assert (answer["consumer_group_id"], answer["dry_run"]) == ("targets", True)
    assert moves(answer) == [("moved", 0, 4, after[0]), ("moved", 1, None, after[1])]
    assert committed(stack, "targets") == {("moved", 0): 4}, "a dry run changes nothing"


@pytest.mark.parametrize(("by", "after"), [(-1, 3), (-100, 0), (3, 7), (100, 10)])
def test_shifts(stack: Stack, by: int, after: int) -> None:
    stack.commit("shifted", {("moved", 0): 4})
    answer = reset(stack, "shifted", topic="moved", partitions=[0], to="shift-by", value=by)
    assert moves(answer) == [("moved", 0, 4, after)]
    assert committed(stack, "shifted") == {("moved", 0): after}


def test_a_shift_of_nothing(stack: Stack) -> None:
    stack.commit("half", {("moved", 0): 4})
    body = {"topic": "moved", "to": "shift-by", "value": 1}
    answer = stack.http.post("/api/v1/consumer-groups/half/offsets:reset", json=body)
    assert (answer.status_code, answer.json()) == (
        400,
        {"error_code": 40002, "message": "Partition 1 of moved has no committed offset to shift."},
    )


def test_a_reset_of_every_topic_of_a_group(stack: Stack) -> None:
    stack.commit("all-topics", {("moved", 0): 4, ("other", 0): 1})
    answer = reset(stack, "all-topics", to="latest")
    assert moves(answer) == [("moved", 0, 4, 10), ("other", 0, 1, 4)]
    assert committed(stack, "all-topics") == {("moved", 0): 10, ("other", 0): 4}


def test_a_reset_makes_a_group(stack: Stack) -> None:
    assert moves(reset(stack, "made", topic="moved", to="latest")) == [("moved", 0, None, 10), ("moved", 1, None, 0)]
    assert committed(stack, "made") == {("moved", 0): 10, ("moved", 1): 0}


def test_a_group_with_members_is_left_alone(stack: Stack) -> None:
    stack.commit("targets", {("moved", 0): 4})
    member = stack.join("busy", "client", FLIGHTS_0_AND_1)
    stack.commit("busy", {("moved", 0): 4}, member)
    message = "The consumer group is STABLE with 1 members: stop them first."
    for body in ({"topic": "moved", "to": "latest"}, {"topic": "moved", "to": "latest", "dry_run": True}):
        answer = stack.http.post("/api/v1/consumer-groups/busy/offsets:reset", json=body)
        assert (answer.status_code, answer.json()) == (409, {"error_code": 40901, "message": message})
    answer = stack.http.post("/api/v1/consumer-groups/targets/offsets:copy", json={"to": "busy"})
    assert (answer.status_code, answer.json()) == (409, {"error_code": 40901, "message": message})
    answer = stack.http.delete("/api/v1/consumer-groups/busy")
    assert (answer.status_code, answer.json()) == (
        409,
        {"error_code": 40901, "message": "The consumer group is not empty: stop its members first."},
    )
    assert committed(stack, "busy") == {("moved", 0): 4}


def test_storage_refuses_offsets_of_a_group_with_members(stack: Stack) -> None:
    """A member may join between the look at the group and the commit: storage alone knows."""
    stack.join("raced", "client", FLIGHTS_0_AND_1)

    async def alter() -> None:
        storage = Storage(stack.storage_address, timeout_s=60)
        try:
            offset = administration_pb2.AlterOffsetsRequest.Offset(topic="moved", offset=1, leader_epoch=-1)
            await storage.calls(1).alter_offsets("raced", [offset])
        finally:
            await storage.close()

    with pytest.raises(ApiError) as raised:
        stack.loop.run(alter())
    assert (raised.value.status_code, raised.value.message) == (409, "The consumer group has members: stop them first.")
    assert committed(stack, "raced") == {}


def test_copies(stack: Stack) -> None:
    stack.commit("source", {("moved", 0): 4, ("other", 0): 1})
    stack.commit("target", {("moved", 0): 9})
    answer = stack.http.post(
        "/api/v1/consumer-groups/source/offsets:copy", json={"to": "target", "dry_run": True}
    ).json()
    assert (answer["consumer_group_id"], answer["dry_run"]) == ("target", True)
    assert moves(answer) == [("moved", 0, 9, 4), ("other", 0, None, 1)]
    assert committed(stack, "target") == {("moved", 0): 9}
    answer = stack.http.post(
        "/api/v1/consumer-groups/source/offsets:copy", json={"to": "target", "topic": "other"}
    ).json()
    assert moves(answer) == [("other", 0, None, 1)]
    assert committed(stack, "target") == {("moved", 0): 9, ("other", 0): 1}


def test_deletions(stack: Stack) -> None:
    stack.commit("doomed", {("moved", 0): 4, ("other", 0): 1})
    path = "/api/v1/consumer-groups/doomed"
    assert stack.http.delete(f"{path}/offsets/moved").status_code == 204
    assert committed(stack, "doomed") == {("other", 0): 1}
    answer = stack.http.delete(f"{path}/offsets/moved")
    assert (answer.status_code, answer.json()["message"]) == (404, "The consumer group has committed no offset there.")
    assert stack.http.delete(path).status_code == 204
    assert stack.http.delete(path).json() == {"error_code": 40405, "message": "Consumer group id not found."}
    assert stack.http.get(f"{stack.cluster}/consumer-groups/doomed").status_code == 404


@pytest.mark.parametrize(
    ("group", "body", "status", "error_code", "message"),
    [
        ("absent", {"to": "latest"}, 404, 40405, "Consumer group id not found."),
        ("x", {"topic": "nowhere", "to": "latest"}, 404, 40403, "This server does not host this topic-partition."),
        ("x", {"topic": "moved", "partitions": [2], "to": "latest"}, 404, 40402, "Partition not found."),
        ("x", {"topic": "moved", "partitions": [-1], "to": "latest"}, 404, 40402, "Partition not found."),
        ("x", {"partitions": [0], "to": "latest"}, 400, 400, "body.partitions: name the topic too"),
        ("x", {"topic": "moved", "to": "offset"}, 400, 400, "body.value: offset needs a number"),
        ("x", {"topic": "moved", "to": "shift-by", "value": "1"}, 400, 400, "body.value: shift-by needs a number"),
        ("x", {"topic": "moved", "to": "latest", "value": 1}, 400, 400, "body.value: latest has none"),
        ("x", {"topic": "moved", "to": "duration", "value": "P1Y"}, 400, 400, "body.value: not a duration as P1DT12H"),
        ("x", {"topic": "moved", "to": "duration", "value": "PT"}, 400, 400, "body.value: not a duration as P1DT12H"),
        ("x", {"topic": "moved", "to": "timestamp", "value": "soon"}, 400, 400, NO_TIME),
        ("x", {"topic": "moved", "to": "timestamp", "value": -1}, 400, 400, TOO_EARLY),
        ("x", {"topic": "moved", "to": "duration", "value": "P999999999D"}, 400, 400, TOO_EARLY),
    ],
)  # fmt: skip
def test_requests_that_mean_nothing(
    stack: Stack, group: str, body: dict[str, Any], status: int, error_code: int, message: str
) -> None:
    answer = stack.http.post(f"/api/v1/consumer-groups/{group}/offsets:reset", json=body)
    assert (answer.status_code, answer.json()) == (status, {"error_code": error_code, "message": message})


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT0S", 0),
        ("P1D", 86_400_000),
        ("PT1H", 3_600_000),
        ("PT1.5S", 1500),
        ("P1DT-1H", 82_800_000),
        ("-PT1M", -60_000),
        ("p2dt3h4m5s", 183_845_000),
    ],
)
def test_durations_as_java_reads_them(text: str, milliseconds: int) -> None:
    given = ResetRequest(topic="t", to="duration", value=text)
    assert offset_targets._timestamp(given, 10**12) == 10**12 - milliseconds


@pytest.mark.parametrize("value", [1.5, True, {}, "x" * 65, 2**63])
def test_a_value_of_another_type_is_named_in_plain_words(stack: Stack, value: Any) -> None:
    path = "/api/v1/consumer-groups/g/offsets:reset"
    answer = stack.http.post(path, json={"to": "offset", "value": value, "dry_run": True})
    kind = "a whole number of 64 bits or a text of at most 64 characters"
    assert (answer.status_code, answer.json()["message"]) == (400, f"body.value: Input should be {kind}")


def _kinds_of_requests(kind: type[Request] = Request) -> Iterator[type[Request]]:
    for each in kind.__subclasses__():
        yield each
        yield from _kinds_of_requests(each)


@pytest.mark.parametrize("kind", {each.__name__: each for each in _kinds_of_requests()}.values())
def test_no_error_of_a_body_names_code(kind: type[Request]) -> None:
    """The place of a fault in a union has pydantic's name of a validator, perhaps with an address of memory."""
    for name in kind.model_fields:
        for value in (None, 1.5, True, "x" * 1000, 2**64, {}, [], [{}], [1.5], {"x": {"y": 1.5}}):
            try:
                kind.model_validate_json(json.dumps({name: value}))
            except ValidationError as error:
                for fault in error.errors():
                    assert all(re.fullmatch(r"\d+|[a-z]\w*", str(part)) for part in fault["loc"]), fault["loc"]
                    assert " at 0x" not in fault["msg"]


def test_saved_offsets_are_put_back(stack: Stack) -> None:
    stack.commit("saved", {("moved", 0): 4, ("other", 0): 1})
    path = "/api/v1/consumer-groups/saved/offsets"
    listed = stack.http.get(path).json()
    ages = [row.pop("lag_seconds") for row in listed["data"]]
    assert all(age is None or age >= 0 for age in ages)
    assert listed["consumer_group_id"] == "saved"
    ends = {"moved": 10, "other": 4}
    assert listed["data"] == [
        {
            "topic_name": topic,
            "partition_id": 0,
            "offset": offset,
            "leader_epoch": -1,
            "metadata": "",
            "log_start_offset": 0,
            "log_end_offset": ends[topic],
            "lag": ends[topic] - offset,
        }
        for topic, offset in (("moved", 4), ("other", 1))
    ]
    reset(stack, "saved", to="latest")
    kept = ("topic_name", "partition_id", "offset", "leader_epoch", "metadata")
    body = {"offsets": [{name: row[name] for name in kept} for row in listed["data"]]}
    answer = stack.http.post(f"{path}:restore", json={**body, "dry_run": True})
    assert moves(answer.json()) == [("moved", 0, 10, 4), ("other", 0, 4, 1)]
    assert committed(stack, "saved") == {("moved", 0): 10, ("other", 0): 4}
    assert stack.http.post(f"{path}:restore", json=body).status_code == 200
    again = stack.http.get(path).json()
    for row in again["data"]:
        del row["lag_seconds"]
    assert again == listed
    twice = {"offsets": [{"topic_name": "moved", "partition_id": 0, "offset": each} for each in (1, 2)]}
    assert stack.http.post(f"{path}:restore", json=twice).status_code == 400
    assert stack.http.get("/api/v1/consumer-groups/none/offsets").status_code == 404
    member = stack.join("reading", "client", FLIGHTS_0_AND_1)
    assert member
    refused = stack.http.post("/api/v1/consumer-groups/reading/offsets:restore", json=body)
    assert (refused.status_code, refused.json()["error_code"]) == (409, 40901)
