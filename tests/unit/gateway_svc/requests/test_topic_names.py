"""Names of topics by their ids: learned from storage, bounded, and in order."""

from __future__ import annotations

import asyncio

import pytest
from broker_contract import topics_pb2
from gateway_svc.errors import StorageUnavailable
from gateway_svc.requests import topic_names
from gateway_svc.requests.topic_names import TopicNames

A, B, C = b"a" * 16, b"b" * 16, b"c" * 16


class Topics:
    """A storage with these topics; the first answers come last."""

    def __init__(self, names: dict[bytes, str]) -> None:
        self.names = names
        self.delays = [3, 1]
        self.is_away = False

    async def describe_topics(self, request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
        for _ in range(self.delays.pop(0) if self.delays else 0):
            await asyncio.sleep(0)
        if self.is_away:
            raise StorageUnavailable("away")
        return topics_pb2.DescribeTopicsResponse(
            topics=[
                topics_pb2.Topic(id=each.id, name=self.names[each.id])
                if each.id in self.names
                else topics_pb2.Topic(error_code=100)
                for each in request.topics
            ]
        )


async def test_existing_topics_are_learned() -> None:
    names = TopicNames(Topics({A: "a", B: "b"}))
    assert names.name_of(A) is None
    assert await names.existing([A, C, A], 1) == {A: "a"}
    assert (names.name_of(A), names.name_of(B), names.name_of(C)) == ("a", None, None)
    assert await names.existing([], 1) == {}


async def test_the_revision_moves_when_a_missing_topic_appears() -> None:
    topics = Topics({A: "a"})
    names, changes = TopicNames(topics), []
    names.attach(lambda: changes.append(names.revision))
    await names.existing([A, C], 1)
    names.learn(A, "a")
    names.learn(B, "b")
    assert changes == []
    names.learn(C, "c")
    names.learn(C, "c")
    assert changes == [1]


async def test_a_resolution_learns_the_names() -> None:
    names, ended = TopicNames(Topics({A: "a", B: "b"})), list[Exception | None]()
    names.resolve([A], 1, ended.append)
    while not ended:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert (ended, names.name_of(A)) == ([None], "a")


async def test_a_resolution_without_storage() -> None:
    topics, ended = Topics({}), list[Exception | None]()
    topics.is_away = True
    TopicNames(topics).resolve([A], 1, ended.append)
    while not ended:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert [type(each) for each in ended] == [StorageUnavailable]


def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is learned again is the newest, and none is forgotten for it."""
    monkeypatch.setattr(topic_names, "NAMES_MAX", 3)
    names = TopicNames(Topics({}))
    for topic_id, name in ((A, "a"), (B, "b"), (C, "c"), (B, "b"), (b"d" * 16, "d"), (b"e" * 16, "e")):
        names.learn(topic_id, name)
    assert [names.name_of(each) for each in (A, B, C, b"d" * 16)] == [None, "b", None, "d"]
