"""The numbers of partitions of topics that a request names."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import topics_pb2

from gateway_svc.requests.call import Call
from gateway_svc.requests.services import Services


async def partition_counts(call: Call, services: Services, names: Iterable[str] | None) -> dict[str, int]:
    """Return the number of partitions of each existing topic, in name order for all topics (None)."""
    asked = None if names is None else list(dict.fromkeys(names))
    answer = await services.storage.topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id,
            all=asked is None,
            topics=[topics_pb2.TopicRef(name=name) for name in asked or ()],
        )
    )
    return {found.name: found.partition_count for found in answer.topics if not found.error_code}
