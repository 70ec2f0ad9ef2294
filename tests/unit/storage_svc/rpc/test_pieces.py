"""Answers that grow with the stored state are made in pieces: the event loop serves others between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from broker_contract import groups_pb2, topics_pb2
from storage_svc.rpc.groups import GroupsService
from storage_svc.rpc.topics import TopicsService
from storage_svc.topics.topic import Topic


def groups_of(count: int) -> dict[str, Any]:
    state = SimpleNamespace(value="Stable")
    group = SimpleNamespace(state=state, type_name="classic", protocol_type="consumer")
    return {f"group {number:05}": SimpleNamespace(entity=group) for number in range(count)}


class Registry:
    """Topics of some partitions; `looked` is called as each is described."""

    version = 1

    def __init__(self, topics: int, partitions: int) -> None:
        self.topics = {f"t{n:04}": Topic(f"t{n:04}", bytes(16), partitions, {}) for n in range(topics)}
        self.looked: Callable[[], None] = lambda: None

    def names(self) -> list[str]:
        return sorted(self.topics)

    def get(self, name: str) -> Topic | None:
        return self.topics.get(name)

    def leader_epochs(self, topic: Topic) -> list[int]:
        self.looked()
        return [0] * topic.partition_count


def topics_service(registry: Registry) -> TopicsService:
    service = TopicsService.__new__(TopicsService)
    service._registry = registry  # type: ignore[assignment]
    return service


async def longest_of(work: Any, count: Callable[[], int]) -> tuple[Any, int]:
    """Return the outcome of some work, and by how much `count` grew at most between two turns."""
    task, before, longest = asyncio.create_task(work), 0, 0
    while not task.done():
        await asyncio.sleep(0)
        now = count()
        longest, before = max(longest, now - before), now
    return task.result(), longest


class Counted(dict[str, Any]):
    """Groups that count how often one was looked at."""

    looked = 0

    def get(self, *args: Any) -> Any:
        self.looked += 1
        return super().get(*args)


async def test_groups_are_listed_in_pieces() -> None:
    groups = Counted(groups_of(3000))
    service = GroupsService(SimpleNamespace(is_loading=lambda: False, groups=groups))  # type: ignore[arg-type]
    listed, longest = await longest_of(service.list_groups(groups_pb2.ListGroupsRequest()), lambda: groups.looked)
    assert [each.group_id for each in listed.groups] == list(groups)
    assert longest <= 500


async def test_groups_that_are_deleted_meanwhile_are_not_listed() -> None:
    groups = groups_of(600)
    service = GroupsService(SimpleNamespace(is_loading=lambda: False, groups=groups))  # type: ignore[arg-type]
    listing = asyncio.create_task(service.list_groups(groups_pb2.ListGroupsRequest()))
    await asyncio.sleep(0)
    del groups["group 00599"]
    assert [each.group_id for each in (await listing).groups] == list(groups)


async def test_topics_are_described_in_pieces() -> None:
    for request in (
        topics_pb2.DescribeTopicsRequest(all=True),
        topics_pb2.DescribeTopicsRequest(topics=[topics_pb2.TopicRef(name=f"t{n:04}") for n in range(50)]),
    ):
        registry, looked = Registry(50, 200), [0]
        registry.looked = lambda looked=looked: looked.append(looked.pop() + 1)  # type: ignore[misc]
        work = topics_service(registry).describe_topics(request)
        answer, longest = await longest_of(work, lambda looked=looked: looked[0])  # type: ignore[misc]
        assert [each.name for each in answer.topics] == registry.names()
        assert longest <= 1000 // 200


async def test_descriptions_of_all_topics_share_their_turns() -> None:
    registry, looked = Registry(1, 1000), [0]
    registry.looked = lambda: looked.append(looked.pop() + 1)
    service = topics_service(registry)
    many = [service.describe_topics(topics_pb2.DescribeTopicsRequest(all=True)) for _ in range(100)]
    answers, longest = await longest_of(asyncio.wait_for(asyncio.gather(*many), 60), lambda: looked[0])
    assert [len(answer.topics) for answer in answers] == [1] * 100
    assert longest <= 2
