"""The records of consumer groups in `__consumer_offsets` (keys 3 to 8 and 16), as Kafka 4.3 writes them.

    3  the group's epoch and the hash of its topics        6  the epoch of the target assignment
    5  a member's subscription and settings                7  the partitions a member shall have
    8  the partitions a member has                        16  the topics a pattern matched

Kafka 4.0 wrote key 4 in place of the hash: it is read, so that it can be deleted, and never written. A change of a
group is one batch: it is there as a whole or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from protocol_lib.internal import consumer_group as kinds
from protocol_lib.internal import record
from protocol_lib.internal.group_metadata import GroupMetadataKey, GroupMetadataValue

from storage_svc.coordinator.consumer.member import (
    ConsumerMember,
    Held,
    MemberState,
    Partitions,
    ResolvedPattern,
)
from storage_svc.coordinator.machine.outcome import Record

KEY_VERSIONS: Final[Mapping[type, int]] = {
    kinds.ConsumerGroupMetadataKey: 3,
    kinds.ConsumerGroupPartitionMetadataKey: 4,
    kinds.ConsumerGroupMemberMetadataKey: 5,
    kinds.ConsumerGroupTargetAssignmentMetadataKey: 6,
    kinds.ConsumerGroupTargetAssignmentMemberKey: 7,
    kinds.ConsumerGroupCurrentMemberAssignmentKey: 8,
    kinds.ConsumerGroupRegularExpressionKey: 16,
}
VALUE_VERSION: Final = 0
#: The versions of the keys above.
CONSUMER_KEYS: Final = frozenset(KEY_VERSIONS.values())


def is_consumer_key(key: object) -> bool:
    return type(key) in KEY_VERSIONS


def value_kind(key: object) -> type:
    """Return the class of the values under a key."""
    return record.OFFSETS_TOPIC[KEY_VERSIONS[type(key)]][1]


# --- from the machine to records --------------------------------------------------------------------------------------


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> Record:
    value = kinds.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return kinds.ConsumerGroupMetadataKey(group_id=group_id), value


def subscription_record(group_id: str, member: ConsumerMember) -> Record:
    value = kinds.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.pattern,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=member.classic,
    )
    return kinds.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id), value


def assignment_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> Record:
    value = kinds.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=timestamp_ms)
    return kinds.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), value


def target_record(group_id: str, member_id: str, partitions: Partitions) -> Record:
    rows = tuple(
        kinds.TargetTopicPartitions(topic_id=topic_id, partitions=tuple(sorted(each)))
        for topic_id, each in sorted(partitions.items())
    )
    value = kinds.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=rows)
    return kinds.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value


def current_record(group_id: str, member: ConsumerMember) -> Record:
    value = kinds.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_rows(member.assigned),
        partitions_pending_revocation=_rows(member.revoking),
    )
    return kinds.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id), value


def _rows(held: Held) -> tuple[kinds.CurrentTopicPartitions, ...]:
    return tuple(
        kinds.CurrentTopicPartitions(
            topic_id=topic_id,
            partitions=tuple(sorted(epochs)),
            assignment_epochs=tuple(epochs[partition] for partition in sorted(epochs)),
        )
        for topic_id, epochs in sorted(held.items())
    )


def pattern_record(group_id: str, pattern: str, resolved: ResolvedPattern) -> Record:
    value = kinds.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return kinds.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), value


def classic_record(group_id: str, value: GroupMetadataValue | None) -> Record:
    return GroupMetadataKey(group=group_id), value


# --- tombstones -------------------------------------------------------------------------------------------------------


def member_tombstones(group_id: str, member_id: str) -> list[Record]:
    return [
        (kinds.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), None),
        (kinds.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), None),
        (kinds.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), None),
    ]


def pattern_tombstone(group_id: str, pattern: str) -> Record:
    return kinds.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern), None


def partition_metadata_tombstone(group_id: str) -> Record:
    return kinds.ConsumerGroupPartitionMetadataKey(group_id=group_id), None


def group_tombstones(group_id: str, member_ids: Iterable[str], patterns: Iterable[str]) -> list[Record]:
    """Return the tombstones of everything that may be in the log of a group, in Kafka's order."""
    tombstones = [each for member_id in member_ids for each in member_tombstones(group_id, member_id)]
    tombstones.append((kinds.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), None))
    tombstones.extend(pattern_tombstone(group_id, pattern) for pattern in patterns)
    tombstones.append(partition_metadata_tombstone(group_id))
    tombstones.append((kinds.ConsumerGroupMetadataKey(group_id=group_id), None))
    return tombstones


# --- and back ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class StoredConsumerGroup:
    """The records of one group in the log: the last value of each key that was not deleted."""

    values: dict[Any, Any] = field(default_factory=dict)

    def apply(self, key: Any, value: Any | None) -> None:
        name = (type(key), getattr(key, "member_id", getattr(key, "regular_expression", "")))
        if value is None:
            self.values.pop(name, None)
        else:
            self.values[name] = value

    def __bool__(self) -> bool:
        return bool(self.values)

    def of(self, kind: type) -> dict[str, Any]:
        """Return the values under keys of a kind, by member id or pattern."""
        return {name: value for (key_kind, name), value in self.values.items() if key_kind is kind}

    def one(self, kind: type) -> Any | None:
        return self.values.get((kind, ""))

    def members(self) -> dict[str, ConsumerMember]:
        current = self.of(kinds.ConsumerGroupCurrentMemberAssignmentKey)
        return {
            member_id: restored_member(member_id, value, current.get(member_id))
            for member_id, value in self.of(kinds.ConsumerGroupMemberMetadataKey).items()
        }


def restored_member(
    member_id: str,
    settings: kinds.ConsumerGroupMemberMetadataValue,
    current: kinds.ConsumerGroupCurrentMemberAssignmentValue | None,
) -> ConsumerMember:
    return ConsumerMember(
        member_id=member_id,
        epoch=0 if current is None else current.member_epoch,
        previous_epoch=-1 if current is None else current.previous_member_epoch,
        state=MemberState.STABLE if current is None else MemberState(current.state),
        instance_id=settings.instance_id,
        rack_id=settings.rack_id,
        rebalance_timeout_ms=settings.rebalance_timeout_ms,
        client_id=settings.client_id,
        client_host=settings.client_host,
        topics=frozenset(settings.subscribed_topic_names),
        pattern=settings.subscribed_topic_regex or "",
        assignor=settings.server_assignor,
        assigned={} if current is None else _held(current.assigned_partitions, current.member_epoch),
        revoking={} if current is None else _held(current.partitions_pending_revocation, current.member_epoch),
        classic=settings.classic_member_metadata,
    )


def _held(rows: Iterable[kinds.CurrentTopicPartitions], member_epoch: int) -> Held:
    """Return the partitions by topic. Before 4.3 no epochs were written: the member's stands for them."""
    held: dict[bytes, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs or ()
        if len(epochs) != len(row.partitions):
            epochs = (member_epoch,) * len(row.partitions)
        held[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return held


def restored_partitions(value: kinds.ConsumerGroupTargetAssignmentMemberValue) -> Partitions:
    return {row.topic_id: frozenset(row.partitions) for row in value.topic_partitions}
