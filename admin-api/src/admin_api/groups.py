"""Consumer groups put together from what storage knows: members, what they are assigned, and how far behind they are.

lag = high watermark - committed offset, per partition with a commit; one without has no lag rather than a lag of -1.
A commit beyond the high watermark (the topic was made anew) counts as no lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker_contract import groups_pb2
from service_chassis import logs

from admin_api import errors
from admin_api.consumer_protocol import AssignmentError, assignment
from admin_api.schemas.consumer_groups import ConsumerGroupState
from admin_api.storage import LATEST, StorageCalls

__all__ = [
    "PROTOCOL_TYPE",
    "Group",
    "Lag",
    "Member",
    "assigned",
    "describe",
    "describe_all",
    "is_consumer_group",
    "lags",
]

Group = groups_pb2.DescribeGroupsResponse.Group
Member = groups_pb2.DescribeGroupsResponse.Member
TopicPartition = tuple[str, int]

PROTOCOL_TYPE = "consumer"

_STATES: Mapping[str, ConsumerGroupState] = {
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
}

log = logs.get(__name__)


class Lag(NamedTuple):
    """How far a group is behind in one partition, and the member that reads it."""

    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    member: Member | None

    @property
    def lag(self) -> int:
        return max(0, self.log_end_offset - self.current_offset)


def state(group: Group) -> ConsumerGroupState:
    return _STATES.get(group.state, "UNKNOWN")


def is_consumer_group(protocol_type: str) -> bool:
    """Kafka Connect and others use groups too; a group without a protocol type only commits offsets."""
    return protocol_type in ("", PROTOCOL_TYPE)


async def describe_all(storage: StorageCalls) -> list[Group]:
    """Every consumer group. One that goes away meanwhile is left out."""
    ids = [group.group_id for group in await storage.groups() if is_consumer_group(group.protocol_type)]
    return [group for group in await storage.describe_groups(ids) if _is_there(group)]


async def describe(storage: StorageCalls, group_id: str) -> Group:
    """Raises ApiError when there is no consumer group of this id."""
    (group,) = await storage.describe_groups([group_id])
    if not _is_there(group):
        raise errors.group_not_found()
    return group


def assigned(group: Group, member: Member) -> Sequence[TopicPartition]:
    """What the member may read; nothing when it was assigned nothing, or bytes that are not an assignment."""
    if group.protocol_type != PROTOCOL_TYPE:
        return []
    try:
        return assignment(member.assignment)
    except AssignmentError as error:
        log.warning("unreadable assignment", group_id=group.group_id, member_id=member.member_id, reason=str(error))
        return []


async def lags(storage: StorageCalls, group: Group) -> list[Lag]:
    """Every partition with a committed offset, in the order of topic and partition."""
    (committed,) = await storage.committed_offsets([group.group_id])
    if committed.error_code != errors.GROUP_ID_NOT_FOUND:
        errors.check(committed.error_code)
    offsets = {
        (offset.topic, offset.partition): offset.offset
        for offset in committed.offsets
        if offset.error_code == 0 and offset.offset >= 0
    }
    ends = await log_end_offsets(storage, offsets)
    holders = {pair: member for member in group.members for pair in assigned(group, member)}
    return [
        Lag(*pair, offsets[pair], end, holders.get(pair))
        for pair, end in sorted(ends.items(), key=lambda item: item[0])
    ]


async def log_end_offsets(storage: StorageCalls, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The high watermark of each partition that exists."""
    pairs = list(partitions)
    found = await storage.offsets([(topic, partition, LATEST) for topic, partition in pairs])
    return {pair: latest.offset for pair, latest in zip(pairs, found, strict=True) if latest.error_code == 0}


def _is_there(group: Group) -> bool:
    if group.error_code != errors.GROUP_ID_NOT_FOUND:
        errors.check(group.error_code)
    return group.error_code == 0 and group.state != "Dead" and is_consumer_group(group.protocol_type)
