"""Series of deleted topics: asked for when storage has deleted any, and kept while storage does not answer."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from broker_contract import topics_pb2
from gateway_svc import deleted_series
from gateway_svc.deleted_series import DeletedSeries
from gateway_svc.metrics import OTHER_TOPICS, GatewayMetrics
from gateway_svc.storage.protocols import Topics
from protocol_lib.errors import ErrorCode


class StoredTopics:
    """The topics of a storage, and the error of its answers while it is away."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.asked: list[list[str]] = []
        self.away: ErrorCode | None = None

    async def describe_topics(self, request: topics_pb2.DescribeTopicsRequest) -> topics_pb2.DescribeTopicsResponse:
        self.asked.append([ref.name for ref in request.topics])
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = [self.away or (0 if ref.name in self.names else unknown) for ref in request.topics]
        return topics_pb2.DescribeTopicsResponse(topics=[topics_pb2.Topic(error_code=code) for code in codes])


async def test_series_are_forgotten_once_storage_has_deleted_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deleted_series, "PAUSE_S", 0.01)
    metrics = GatewayMetrics()
    for name in ("kept", "gone", OTHER_TOPICS):
        metrics.topic(name).produces += 1
    stored = StoredTopics("kept")
    series = DeletedSeries(metrics, cast(Topics, stored))
    running = asyncio.create_task(series.run())
    series.note(0)
    await asyncio.sleep(0)
    assert stored.asked == []
    stored.away = ErrorCode.LEADER_NOT_AVAILABLE
    series.note(1)
    await asyncio.sleep(0.05)
    assert len(stored.asked) > 1
    assert list(metrics.topics) == ["kept", "gone", OTHER_TOPICS]
    stored.away = None
    for _ in range(200):
        if "gone" not in metrics.topics:
            break
        await asyncio.sleep(0.01)
    assert list(metrics.topics) == ["kept", OTHER_TOPICS]
    asked = len(stored.asked)
    series.note(1)
    await asyncio.sleep(0.05)
    assert len(stored.asked) == asked
    running.cancel()
