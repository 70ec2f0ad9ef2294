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

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.machine.group_kind import GroupKind
from storage_svc.topic_partition import TopicPartition


def expired(
    group: GroupKind, offsets: Mapping[TopicPartition, OffsetCommitValue], retention_ms: int, now_ms: int
) -> list[TopicPartition]:
    """Return the offsets that are due now."""
    in_use, since_ms = group.topics_in_use(), group.empty_since_ms
    if in_use is None:
        return []
    return [
        key
        for key, offset in offsets.items()
        if key[0] not in in_use and _is_due(offset, since_ms, retention_ms, now_ms)
    ]


def _is_due(offset: OffsetCommitValue, since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    if offset.expire_timestamp >= 0:
        return now_ms >= offset.expire_timestamp
    start_ms = offset.commit_timestamp if since_ms is None else max(since_ms, offset.commit_timestamp)
    return now_ms - start_ms >= retention_ms
