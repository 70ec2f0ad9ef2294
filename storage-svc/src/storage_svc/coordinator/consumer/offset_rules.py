"""Whether a consumer group (KIP-848) lets an offset be committed, fetched or deleted. Pure; Kafka: ConsumerGroup.

commit, epoch < 0, no members          allowed            fetch, no member id, epoch < 0   allowed
commit by no member                    25                 fetch by no member               25
below OffsetCommit 9, KIP-848 member   35
epoch above the member's               113 (classic 22)   any other epoch                  113 (classic 22)
epoch below the member's               113 (classic 22) unless every partition is held, and was assigned in that
                                       epoch or before (KIP-1251): work done before a rebalance is kept
"""

from __future__ import annotations

from collections.abc import Iterable

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.consumer.member import ConsumerMember
from storage_svc.topic_partition import TopicPartition


def commit_fault(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[TopicPartition],
    topics: Topics,
    *,
    knows_epochs: bool,
) -> ErrorCode:
    """Return the reason why nothing of this commit is accepted.

    Args:
        knows_epochs: the commit is of OffsetCommit 9 or newer.
    """
    if epoch < 0 and not group.members:
        return ErrorCode.NONE
    member = group.members.get(member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and not knows_epochs:
        return ErrorCode.UNSUPPORTED_VERSION
    if epoch == member.epoch:
        return ErrorCode.NONE
    if epoch < member.epoch and all(_was_assigned(member, epoch, each, topics) for each in partitions):
        return ErrorCode.NONE
    return _stale(member)


def _was_assigned(member: ConsumerMember, epoch: int, partition: TopicPartition, topics: Topics) -> bool:
    name, index = partition
    topic = topics.get(name)
    if topic is None:
        return False
    since = member.assigned.get(topic.id, {}).get(index)
    if since is None:
        since = member.revoking.get(topic.id, {}).get(index)
    return since is not None and since <= epoch


def fetch_fault(group: ConsumerGroup, member_id: str | None, epoch: int) -> ErrorCode:
    if member_id is None and epoch < 0:
        return ErrorCode.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if epoch == member.epoch else _stale(member)


def _stale(member: ConsumerMember) -> ErrorCode:
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
