"""The numbers of partitions of topics that a request names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from broker_contract import topics_pb2

from gateway_svc.requests.call import Call
from gateway_svc.requests.turns import in_turns
from gateway_svc.storage.protocols import Topics


async def partition_counts(call: Call, topics: Topics, names: Iterable[str] | None) -> dict[str, int]:
    """Return the number of partitions of each existing topic, in name order for all topics (None)."""
    found: list[topics_pb2.Topic] = []
    if names is None:
        found += await described(call, topics, None)
    else:
        async for piece in in_turns(list(dict.fromkeys(names))):
            found += await described(call, topics, piece)
    return {topic.name: topic.partition_count for topic in found if not topic.error_code}


async def described(call: Call, topics: Topics, names: Sequence[str] | None) -> Sequence[topics_pb2.Topic]:
    """Return the topics of these names in their order, or all topics in name order for None."""
    answer = await topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id,
            all=names is None,
            topics=[topics_pb2.TopicRef(name=name) for name in names or ()],
        )
    )
    return answer.topics
