"""Consumer groups over HTTP: states, members, assignments that cannot be read, lag with and without commits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

NOT_FOUND = {"error_code": 40405, "message": "Consumer group id not found."}


def test_a_group_that_only_commits(stack: Stack) -> None:
    stack.create_topic("simple-topic", 3)
    stack.append("simple-topic", 0, 10)
    stack.append("simple-topic", 2, 3)
    stack.commit("simple", {("simple-topic", 0): 4, ("simple-topic", 2): 3})
    group = stack.get("/consumer-groups/simple")
    assert group["is_simple"] is True
    assert (group["state"], group["partition_assignor"]) == ("EMPTY", "")
    assert stack.get("/consumer-groups/simple/consumers")["data"] == []

    lags = stack.get("/consumer-groups/simple/lags")["data"]
    rows = [(row["partition_id"], row["current_offset"], row["log_end_offset"], row["lag"]) for row in lags]
    assert rows == [(0, 4, 10, 6), (2, 3, 3, 0)]  # no row for partition 1, where nothing was committed
    assert {(row["consumer_id"], row["client_id"], row["instance_id"]) for row in lags} == {("", "", None)}
    summary = stack.get("/consumer-groups/simple/lag-summary")
    assert (summary["max_lag"], summary["total_lag"]) == (6, 6)
    assert (summary["max_lag_topic_name"], summary["max_lag_partition_id"]) == ("simple-topic", 0)
    assert (summary["max_lag_consumer_id"], summary["max_lag_consumer"]) == ("", None)


def test_lags_are_largest_first_and_in_pages_by_partition(stack: Stack) -> None:
    stack.create_topic("ordered", 3)
    for partition, count in enumerate((2, 9, 5)):
        stack.append("ordered", partition, count)
    stack.commit("ordered", {("ordered", partition): 0 for partition in range(3)})
    whole = stack.get("/consumer-groups/ordered/lags")["data"]
    assert [(row["partition_id"], row["lag"]) for row in whole] == [(1, 9), (2, 5), (0, 2)]
    page = stack.get("/consumer-groups/ordered/lags", page_size=2)
    assert [row["partition_id"] for row in page["data"]] == [0, 1]
    rest = stack.http.get(page["metadata"]["next"]).json()
    assert [row["partition_id"] for row in rest["data"]] == [2]
    assert rest["metadata"]["next"] is None


def test_a_commit_beyond_the_end_is_no_lag(stack: Stack) -> None:
    stack.create_topic("anew")
    stack.append("anew", 0, 3)
    stack.commit("ahead", {("anew", 0): 3})
    assert stack.http.delete(f"{stack.cluster}/topics/anew").status_code == 204
    stack.create_topic("anew")
    stack.commit("ahead", {("anew", 0): 100})
    row = stack.get("/consumer-groups/ahead/lags/anew/partitions/0")
    assert (row["current_offset"], row["log_end_offset"], row["lag"]) == (100, 0, 0)


@pytest.mark.parametrize(
    "assignment",
    [
        b"",
        b"\xff",
        bytes.fromhex("0001 7fffffff"),
        bytes.fromhex("ffff 00000000"),
        bytes.fromhex("0000 00000001 0001 61 00000001 ffffffff ffffffff"),
    ],
)
def test_an_assignment_that_cannot_be_read(stack: Stack, assignment: bytes) -> None:
    group_id = f"unreadable-{assignment.hex()}"
    member_id = stack.join(group_id, "odd", assignment)
    assert stack.get(f"/consumer-groups/{group_id}/consumers/{member_id}/assignments")["data"] == []
    assert stack.get(f"/consumer-groups/{group_id}")["state"] == "STABLE"


def test_a_member_without_commits_has_no_lag(stack: Stack) -> None:
    stack.join("fresh", "new", b"")
    for path in ("lags", "lag-summary"):
        answer = stack.http.get(f"{stack.cluster}/consumer-groups/fresh/{path}")
        assert answer.status_code == 404
        assert answer.json() == {"error_code": 404, "message": "Consumer group offsets could not be found."}


@pytest.mark.parametrize("group_id", ["etl/flights", "50%", "a b", "été", "a%2Fb", "//", "?#"])
def test_ids_of_any_characters(stack: Stack, group_id: str) -> None:
    if stack.http.get(f"{stack.cluster}/topics/any").status_code == 404:
        stack.create_topic("any")
    stack.commit(group_id, {("any", 0): 0})
    group = stack.get(f"/consumer-groups/{quote(group_id, safe='')}")
    assert group["consumer_group_id"] == group_id
    assert stack.http.get(group["metadata"]["self"]).json() == group
    assert stack.http.get(group["lag_summary"]["related"]).status_code == 200
    assert group_id in [row["consumer_group_id"] for row in stack.get("/consumer-groups")["data"]]


def test_a_group_of_kip_848(stack: Stack) -> None:
    stack.create_topic("modern", 2)
    member_id = stack.enter("modern", "reader", "modern")
    group = stack.get("/consumer-groups/modern")
    assert (group["type"], group["state"], group["partition_assignor"]) == ("CONSUMER", "STABLE", "uniform")
    assert (group["is_simple"], group["is_mixed_consumer_group"]) == (False, False)
    assert "modern" in [row["consumer_group_id"] for row in stack.get("/consumer-groups")["data"]]
    (consumer,) = stack.get("/consumer-groups/modern/consumers")["data"]
    assert (consumer["consumer_id"], consumer["client_id"], consumer["instance_id"]) == (member_id, "reader", None)
    rows = stack.get(f"/consumer-groups/modern/consumers/{member_id}/assignments")["data"]
    assert [(row["topic_name"], row["partition_id"]) for row in rows] == [("modern", 0), ("modern", 1)]
