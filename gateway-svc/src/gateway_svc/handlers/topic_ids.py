"""Names of topics that a client called by their ids, where storage wants names."""

from __future__ import annotations

from collections.abc import Iterable

from broker_contract import topics_pb2

from gateway_svc.requests.call import Call, Services


async def names_by_id(call: Call, topic_ids: Iterable[bytes], services: Services) -> dict[bytes, str]:
    """The names of those that exist. Asked anew each time: a topic may have been deleted and made again."""
    wanted = list(dict.fromkeys(topic_ids))
    if not wanted:
        return {}
    answer = await services.storage.topics.describe_topics(
        topics_pb2.DescribeTopicsRequest(
            correlation_id=call.correlation_id, topics=[topics_pb2.TopicRef(id=each) for each in wanted]
        )
    )
    return {
        topic_id: topic.name
        for topic_id, topic in zip(wanted, answer.topics, strict=True)
        if not topic.error_code and topic.name
    }
