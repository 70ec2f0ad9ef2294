"""When committed offsets are forgotten (Kafka's OffsetExpirationCondition; KIP-211). Pure.

    group                              an offset expires
    has members, consumer protocol     offsets.retention after its commit, if no member subscribes to its topic
    has members, other protocol        never
    empty, had members                 offsets.retention after the group became empty
    never had members ("simple")       offsets.retention after its commit
    consumer group (KIP-848)           offsets.retention after its commit, if no member subscribes to its topic

A commit that named its own retention time (OffsetCommit v2-4) expires at that time instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from protocol_lib import consumer_protocol
from protocol_lib.errors import ProtocolError
from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.classic.events import GroupState
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.topic_partition import TopicPartition

CONSUMER_PROTOCOL: Final = "consumer"


def expired(
    group: Group | ConsumerGroup, offsets: Mapping[TopicPartition, OffsetCommitValue], retention_ms: int, now_ms: int
) -> list[TopicPartition]:
    """Return the offsets that are due now."""
    if isinstance(group, ConsumerGroup):
        read = group.subscribed_topics()
        return [
            key for key, offset in offsets.items() if key[0] not in read and _is_due(offset, None, retention_ms, now_ms)
        ]
    if group.state is GroupState.EMPTY:
        since_ms = group.state_timestamp_ms if group.protocol_type else None
        candidates = list(offsets)
    elif group.state is GroupState.STABLE and group.protocol_type == CONSUMER_PROTOCOL:
        subscribed = subscribed_topics(group)
        if subscribed is None:
            return []
        since_ms = None
        candidates = [key for key in offsets if key[0] not in subscribed]
    else:
        return []
    return [key for key in candidates if _is_due(offsets[key], since_ms, retention_ms, now_ms)]


def _is_due(offset: OffsetCommitValue, since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    if offset.expire_timestamp >= 0:
        return now_ms >= offset.expire_timestamp
    start_ms = offset.commit_timestamp if since_ms is None else max(since_ms, offset.commit_timestamp)
    return now_ms - start_ms >= retention_ms


def subscribed_topics(group: Group) -> set[str] | None:
    """Return the topics that the members of a consumer group subscribe to; None when nothing may be concluded, because
    a member's metadata cannot be read, or the protocol is not chosen yet."""
    topics: set[str] = set()
    if group.members and group.protocol_name is None:
        return None
    for member in group.members:
        try:
            subscription = consumer_protocol.decode_subscription(member.metadata(group.protocol_name or ""))
        except ProtocolError:
            return None
        topics.update(subscription.topics)
    return topics
