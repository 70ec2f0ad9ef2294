"""Consumer groups, assembled from storage's answers: members, their assignments, and their lag.

lag = high watermark - committed offset, per partition with a commit; one without has no lag rather than a lag of -1. A
commit beyond the high watermark (the topic was created again) counts as no lag.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from broker_contract import groups_pb2
from service_chassis import logs

from admin_api import errors
from admin_api.schemas.consumer_groups import ConsumerGroupState, ConsumerGroupType
from admin_api.storage import LATEST, StorageCalls

TopicPartition = tuple[str, int]

PROTOCOL_TYPE = "consumer"
#: The type of groups of KIP-848, as storage lists them.
_KIP_848 = "consumer"

_STATES: Mapping[str, ConsumerGroupState] = {
    "PreparingRebalance": "PREPARING_REBALANCE",
    "CompletingRebalance": "COMPLETING_REBALANCE",
    "Assigning": "ASSIGNING",
    "Reconciling": "RECONCILING",
    "Stable": "STABLE",
    "Empty": "EMPTY",
    "Dead": "DEAD",
}

log = logs.get(__name__)


class Member(NamedTuple):
    member_id: str
    instance_id: str | None
    client_id: str
    #: The member's partitions. Empty if it has none, or if its bytes are not an assignment.
    assigned: Sequence[TopicPartition]
    #: Whether it speaks the classic protocol.
    is_classic: bool


class Group(NamedTuple):
    """A group of either protocol, classic or KIP-848's."""

    group_id: str
    state: ConsumerGroupState
    #: Empty while there was no member: it only commits offsets.
    protocol_type: str
    #: The assignor that its members agreed on, or that most of them request.
    assignor: str
    members: Sequence[Member]
    type: ConsumerGroupType

    @property
    def is_mixed(self) -> bool:
        """Whether its members speak both protocols, because a migration is under way."""
        return len({member.is_classic for member in self.members}) == 2


class Lag(NamedTuple):
    """The lag of a group in one partition, and the member that reads it."""

    topic: str
    partition: int
    current_offset: int
    log_end_offset: int
    member: Member | None

    @property
    def lag(self) -> int:
        return max(0, self.log_end_offset - self.current_offset)


def is_consumer_group(protocol_type: str) -> bool:
    """Return whether this is a consumer group. A group without a protocol type only commits offsets.

    Kafka Connect and others have groups of other types.
    """
    return protocol_type in ("", PROTOCOL_TYPE)


async def types(storage: StorageCalls) -> dict[str, str]:
    """Return the ids of all consumer groups, each with its type as storage lists it."""
    listed = await storage.groups()
    return {group.group_id: group.type for group in listed if is_consumer_group(group.protocol_type)}


async def describe_some(storage: StorageCalls, listed: Mapping[str, str]) -> list[Group]:
    """Return these groups of `types`, except groups that have disappeared since."""
    classic = [group_id for group_id, kind in listed.items() if kind != _KIP_848]
    others = [group_id for group_id, kind in listed.items() if kind == _KIP_848]
    found = [_classic(group) for group in await storage.describe_groups(classic)]
    found += [_consumer(group) for group in await storage.describe_consumer_groups(others)]
    return [group for group in found if group is not None]


async def describe(storage: StorageCalls, group_id: str) -> Group:
    """Return the consumer group of this id. Raises ApiError if there is none."""
    (classic,) = await storage.describe_groups([group_id])
    found = _classic(classic)
    if found is None:
        (consumer,) = await storage.describe_consumer_groups([group_id])
        found = _consumer(consumer)
    if found is None:
        raise errors.group_not_found()
    return found


def _classic(group: groups_pb2.DescribeGroupsResponse.Group) -> Group | None:
    if group.error_code != errors.GROUP_ID_NOT_FOUND:
        errors.check(group.error_code)
    if group.error_code or group.state == "Dead" or not is_consumer_group(group.protocol_type):
        return None
    members = [
        Member(
            member.member_id,
            member.group_instance_id if member.HasField("group_instance_id") else None,
            member.client_id,
            _assigned(group, member),
            True,
        )
        for member in group.members
    ]
    state = _STATES.get(group.state, "UNKNOWN")
    return Group(group.group_id, state, group.protocol_type, group.protocol_name, members, "CLASSIC")


def _assigned(
    group: groups_pb2.DescribeGroupsResponse.Group, member: groups_pb2.DescribeGroupsResponse.Member
) -> Sequence[TopicPartition]:
    if group.protocol_type != PROTOCOL_TYPE:
        return []
    if not member.assignment:
        return []
    from protocol_lib.consumer_protocol import decode_assignment  # a server of no groups does without protocol_lib
    from protocol_lib.errors import DecodeError

    try:
        topics = decode_assignment(member.assignment).assigned_partitions
    except DecodeError as error:
        log.warning("unreadable assignment", group_id=group.group_id, member_id=member.member_id, reason=str(error))
        return []
    return sorted({(each.topic, partition) for each in topics for partition in each.partitions if partition >= 0})


def _consumer(group: groups_pb2.DescribeConsumerGroupsResponse.Group) -> Group | None:
    if group.error_code == errors.GROUP_ID_NOT_FOUND:
        return None
    errors.check(group.error_code)
    members = [
        Member(
            member.member_id,
            member.group_instance_id if member.HasField("group_instance_id") else None,
            member.client_id,
            [(row.topic, partition) for row in member.assigned for partition in row.partitions],
            member.is_classic,
        )
        for member in group.members
    ]
    state = _STATES.get(group.state, "UNKNOWN")
    return Group(group.group_id, state, PROTOCOL_TYPE, group.assignor, members, "CONSUMER")


async def lags(storage: StorageCalls, group: Group) -> list[Lag]:
    """Return the lag of every partition with a committed offset, in the order of topic and partition."""
    (committed,) = await storage.committed_offsets([group.group_id])
    if committed.error_code != errors.GROUP_ID_NOT_FOUND:
        errors.check(committed.error_code)
    offsets = {
        (offset.topic, offset.partition): offset.offset
        for offset in committed.offsets
        if offset.error_code == 0 and offset.offset >= 0
    }
    ends = await log_end_offsets(storage, offsets)
    holders = {pair: member for member in group.members for pair in member.assigned}
    return [
        Lag(*pair, offsets[pair], end, holders.get(pair))
        for pair, end in sorted(ends.items(), key=lambda item: item[0])
    ]


async def log_end_offsets(storage: StorageCalls, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the high watermark of each partition that exists."""
    pairs = list(partitions)
    found = await storage.offsets([(topic, partition, LATEST) for topic, partition in pairs])
    return {pair: latest.offset for pair, latest in zip(pairs, found, strict=True) if latest.error_code == 0}
