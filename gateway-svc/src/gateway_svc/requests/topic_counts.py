"""The counts of a topic that a request calls by its name or by its id."""

from __future__ import annotations

from gateway_svc.metrics import OTHER_TOPICS, GatewayMetrics, TopicCounts
from gateway_svc.requests.topic_names import TopicNames


def topic_counts(metrics: GatewayMetrics, names: TopicNames, name: str, topic_id: bytes) -> TopicCounts:
    """Return the counts of an existing topic, called by id where the name is empty."""
    return metrics.topics.get(name) or metrics.topic(name or names.name_of(topic_id) or OTHER_TOPICS)
