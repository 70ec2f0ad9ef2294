"""Rights of one client, and the verdict on its requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from operator import attrgetter
from typing import Any

import pytest
from gateway_svc.requests import rights as module
from gateway_svc.requests.resources import (
    ALL_CLUSTER_OPERATIONS,
    ALL_TOPIC_OPERATIONS,
    Operation,
    Resource,
    ResourceType,
    cluster,
    group,
    topic_of,
)
from gateway_svc.requests.rights import (
    TOTAL,
    Rights,
    Rows,
    cluster_operations,
    judge,
    named_twice,
    topic_operations,
)
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_offsets import ListOffsetsRequest, ListOffsetsTopic

Asked = tuple[Operation, ResourceType, str | None]
ROWS = Rows("topics", "topics", topic_of(Operation.DESCRIBE))


def asking(allowed: Callable[[Operation, ResourceType, str | None], bool]) -> tuple[Rights, list[Asked]]:
    asked: list[Asked] = []

    def decide(*right: Any) -> bool:
        asked.append(right)
        return allowed(*right)

    return Rights(decide), asked


def offsets(*names: str) -> ListOffsetsRequest:
    topics = tuple(ListOffsetsTopic(name=name, partitions=()) for name in names)
    return ListOffsetsRequest(replica_id=-1, topics=topics)


def test_a_right_is_decided_once_and_kept_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_MAX", 2)
    rights, asked = asking(lambda operation, kind, name: name == "a")
    for _ in range(3):
        assert rights.may(Operation.READ, ResourceType.TOPIC, "a")
        assert not rights.may(Operation.READ, ResourceType.TOPIC, "b")
    assert len(asked) == 2
    rights.may(Operation.READ, ResourceType.TOPIC, "c")
    rights.may(Operation.READ, ResourceType.TOPIC, "a")
    assert len(asked) == 4


def test_an_alternative_suffices_and_any_one_of_a_type_is_asked_for_without_a_name() -> None:
    any_topic = Resource(ResourceType.TOPIC, "", Operation.WRITE, is_any=True)
    rights, asked = asking(lambda operation, kind, name: kind is ResourceType.TOPIC)
    assert rights.allow(cluster(Operation.IDEMPOTENT_WRITE, alternative=any_topic))
    assert asked[-1] == (Operation.WRITE, ResourceType.TOPIC, None)
    assert not rights.allow(cluster(Operation.ALTER))
    assert TOTAL.allow(cluster(Operation.ALTER))


def test_operations_are_the_bits_of_those_that_are_allowed() -> None:
    rights, _ = asking(lambda operation, kind, name: operation in (Operation.READ, Operation.DESCRIBE))
    assert topic_operations(rights, "a") == 1 << 3 | 1 << 8
    assert cluster_operations(rights) == 1 << 8
    nothing, _ = asking(lambda operation, kind, name: operation is Operation.ALTER)
    assert cluster_operations(nothing) == 0
    assert (topic_operations(TOTAL, "a"), cluster_operations(TOTAL)) == (ALL_TOPIC_OPERATIONS, ALL_CLUSTER_OPERATIONS)


@pytest.mark.parametrize(
    ("names", "served", "denied", "error"),
    [
        (("a", "b", "a"), ("a", "a"), ("b",), 0),
        (("a",), ("a",), (), 0),
        (("b", "c"), ("b", "c"), (), ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ((), (), (), 0),
    ],
)
def test_rows_are_split(names: tuple[str, ...], served: tuple[str, ...], denied: tuple[str, ...], error: int) -> None:
    rights, _ = asking(lambda operation, kind, name: name == "a")
    verdict = judge(rights, offsets(*names), (), ROWS, lambda topic_id: None)
    assert (tuple(topic.name for topic in verdict.request.topics), verdict.error) == (served, error)
    assert [(tuple(topic.name for topic in part.topics), code) for part, code in verdict.denied] == (
        [(denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)] if denied else []
    )


def test_entries_that_are_wrong_whatever_the_rights_are_left_to_the_handler() -> None:
    """No right is asked for them, so that none is logged as missing."""
    rights, asked = asking(lambda operation, kind, name: name == "a")
    rows = replace(ROWS, unjudged=named_twice(attrgetter("name")))
    verdict = judge(rights, offsets("b", "a", "c", "b"), (), rows, lambda topic_id: None)
    assert [topic.name for topic in verdict.request.topics] == ["b", "a", "b"]
    assert [[topic.name for topic in part.topics] for part, _ in verdict.denied] == [["c"]]
    assert [name for _, _, name in asked] == ["a", "c"]
    assert [each.name for each in verdict.missing] == ["c"]


def test_what_the_whole_request_needs_comes_first() -> None:
    rights, asked = asking(lambda operation, kind, name: False)
    verdict = judge(rights, offsets("a"), [group(Operation.READ, "g")], ROWS, lambda topic_id: None)
    assert (verdict.error, verdict.denied) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, ())
    assert asked == [(Operation.READ, ResourceType.GROUP, "g")]
