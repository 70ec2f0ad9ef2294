"""A consumer group (KIP-848): its epochs, its members, their target assignments and the topics of their patterns.

    group epoch        raised when a member's subscription or a topic it reads changes
    assignment epoch   the group epoch the target assignment was computed for
    member epoch       the assignment epoch a member has reached

    no member -> EMPTY; group epoch > assignment epoch -> ASSIGNING; a member is not there yet -> RECONCILING;
    else STABLE

A group changes only through a `Draft`, which works on a copy and keeps the records of every change. When the log
accepts them the draft's group replaces the group, and when it does not nothing has happened. Kafka: ConsumerGroup.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum
from typing import ClassVar, Protocol

from protocol_lib.consumer_protocol import PROTOCOL_TYPE
from protocol_lib.errors import ErrorCode
from protocol_lib.internal import consumer_group as kinds

from storage_svc.coordinator.consumer import records as records
from storage_svc.coordinator.consumer.member import ConsumerMember, MemberState, Partitions, ResolvedPattern
from storage_svc.coordinator.consumer.records import StoredConsumerGroup
from storage_svc.coordinator.machine.outcome import Record


class ConsumerGroupState(Enum):
    """A state's value is Kafka's name for it."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class TopicInfo(Protocol):
    @property
    def id(self) -> bytes: ...
    @property
    def partition_count(self) -> int: ...


class Topics(Protocol):
    """The topics there are now."""

    @property
    def version(self) -> int:
        """A number that every creation, deletion and change of a partition count raises."""
        ...

    def get(self, name: str) -> TopicInfo | None: ...
    def name_of(self, topic_id: bytes) -> str | None: ...
    def names(self) -> Iterable[str]: ...


#: No version of the topics: the group has to read the topics again.
NEVER = -1


class ConsumerGroup:
    #: Kafka's name of the kind.
    type_name: ClassVar[str] = "consumer"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 1
        #: The hash of the topics the group reads; see `metadata_hash`.
        self.metadata_hash = 0
        self.assignment_epoch = 0
        #: Wall clock time of the target assignment; 0 when not known.
        self.assignment_timestamp_ms = 0
        self.members: dict[str, ConsumerMember] = {}
        #: group instance id -> member id.
        self.static: dict[str, str] = {}
        #: member id -> the partitions it shall have.
        self.target: dict[str, Partitions] = {}
        self.patterns: dict[str, ResolvedPattern] = {}
        #: The log holds a record of key 4, from Kafka 4.0.
        self.has_old_metadata = False
        # The attributes below are in no record.
        #: The versions of the topics for which the hash, and the patterns, were computed.
        self.hashed_version = NEVER
        self.resolved_version = NEVER
        #: member id -> the connection over which it was last sent its assignment. An answer over another connection may
        #: be lost, and so may one that storage could not finish.
        self.informed_over: dict[str, int] = {}

    @classmethod
    def migrated(
        cls, group_id: str, members: Iterable[ConsumerMember], generation_id: int, topics: Topics
    ) -> ConsumerGroup:
        """Return the group that a classic group turns into: every member shall have its present assignment."""
        group = cls(group_id)
        group.epoch = group.assignment_epoch = generation_id
        for member in members:
            group.put(member)
            group.target[member.member_id] = {topic_id: frozenset(held) for topic_id, held in member.assigned.items()}
        group.metadata_hash = metadata_hash(group.subscribed_topics(), topics)
        return group

    @classmethod
    def restore(cls, group_id: str, stored: StoredConsumerGroup) -> ConsumerGroup:
        group = cls(group_id)
        if (epoch := stored.one(kinds.ConsumerGroupMetadataKey)) is not None:
            group.epoch, group.metadata_hash = epoch.epoch, epoch.metadata_hash
        if (assigned := stored.one(kinds.ConsumerGroupTargetAssignmentMetadataKey)) is not None:
            group.assignment_epoch = assigned.assignment_epoch
            group.assignment_timestamp_ms = assigned.assignment_timestamp
        for member in stored.members().values():
            group.put(member)
        for member_id, value in stored.of(kinds.ConsumerGroupTargetAssignmentMemberKey).items():
            if member_id in group.members:
                group.target[member_id] = records.restored_partitions(value)
        for pattern, value in stored.of(kinds.ConsumerGroupRegularExpressionKey).items():
            group.patterns[pattern] = ResolvedPattern(frozenset(value.topics), value.version, value.timestamp)
        group.has_old_metadata = stored.one(kinds.ConsumerGroupPartitionMetadataKey) is not None
        return group

    def copy(self) -> ConsumerGroup:
        other = ConsumerGroup.__new__(ConsumerGroup)
        other.__dict__.update(self.__dict__)
        other.members, other.static = dict(self.members), dict(self.static)
        other.target, other.patterns = dict(self.target), dict(self.patterns)
        other.informed_over = dict(self.informed_over)
        return other

    def answers_again(self, version: int, member_id: str, connection_id: int) -> bool:
        """Return whether a repeated heartbeat of a member gets the same answer, as long as the group is this object.

        Args:
            version: the present version of the topics.
        """
        return self.hashed_version == version and self.informed_over.get(member_id) == connection_id

    def note(self, hashed_version: int | None, resolved_version: int | None, informed: tuple[str, int] | None) -> None:
        """Keep facts that are in no record; None leaves one as it is. For the group's machine.

        Args:
            informed: a member's id and the connection over which it is sent its assignment.
        """
        if hashed_version is not None:
            self.hashed_version = hashed_version
        if resolved_version is not None:
            self.resolved_version = resolved_version
        if informed is not None and informed[0] in self.members:
            self.informed_over[informed[0]] = informed[1]

    def put(self, member: ConsumerMember) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def drop(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.instance_id is not None and self.static.get(member.instance_id) == member_id:
            del self.static[member.instance_id]
        self.target.pop(member_id, None)
        self.informed_over.pop(member_id, None)

    def by_instance(self, instance_id: str) -> ConsumerMember | None:
        member_id = self.static.get(instance_id)
        return None if member_id is None else self.members[member_id]

    @property
    def state(self) -> ConsumerGroupState:
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return ConsumerGroupState.STABLE
        return ConsumerGroupState.RECONCILING

    def is_taken(self, member_id: str, topic_id: bytes, partition: int) -> bool:
        """Return whether another member than this one holds the partition."""
        return any(
            partition in held.get(topic_id, ())
            for other_id, other in self.members.items()
            if other_id != member_id
            for held in (other.assigned, other.revoking)
        )

    # --- subscriptions --------------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        """The protocol type that ListGroups names."""
        return PROTOCOL_TYPE

    @property
    def is_stored(self) -> bool:
        """Whether the log may hold records of the group: its first member writes some."""
        return True

    def is_idle(self) -> bool:
        """Return whether forgetting the group would lose nothing but its committed offsets."""
        return not self.members

    def deletion_fault(self) -> ErrorCode:
        """Return NONE: the topics of all members are known."""
        return ErrorCode.NONE

    def topics_in_use(self) -> set[str]:
        """Return the topics of which committed offsets do not expire."""
        return self.subscribed_topics()

    @property
    def empty_since_ms(self) -> int | None:
        """None: offsets expire by the time of their commit."""
        return None

    def subscribed_patterns(self) -> set[str]:
        return {member.pattern for member in self.members.values() if member.pattern}

    def subscribed_topics(self) -> set[str]:
        return {topic for member in self.members.values() for topic in member.subscription(self.patterns)}

    def is_homogeneous(self) -> bool:
        return len({(member.pattern, member.topics) for member in self.members.values()}) <= 1

    def topic_ids(self, member: ConsumerMember, topics: Topics) -> frozenset[bytes]:
        """Return the existing topics a member subscribes to."""
        found = (topics.get(name) for name in member.subscription(self.patterns))
        return frozenset(topic.id for topic in found if topic is not None)

    def prevailing_assignor(self, preference: Iterable[str]) -> str:
        """Return the assignor most members ask for; the first by preference where several have as many votes, or none
        has any."""
        order = list(preference)
        votes = [member.assignor for member in self.members.values() if member.assignor in order]
        return max(order, key=votes.count)

    # --- records of the group as a whole --------------------------------------------------------------------------

    def tombstones(self) -> list[Record]:
        return records.group_tombstones(self.group_id, self.members, self.patterns)

    def all_records(self) -> list[Record]:
        members = list(self.members.values())
        return [
            *(records.subscription_record(self.group_id, member) for member in members),
            records.epoch_record(self.group_id, self.epoch, self.metadata_hash),
            *(records.target_record(self.group_id, each.member_id, self.target[each.member_id]) for each in members),
            records.assignment_epoch_record(self.group_id, self.assignment_epoch, self.assignment_timestamp_ms),
            *(records.current_record(self.group_id, member) for member in members),
        ]

    def check_invariants(self) -> None:
        """Check the facts that hold between events. For tests."""
        held = [partition for member in self.members.values() for partition in member.holds()]
        assert len(held) == len(set(held)), "a partition is held twice"
        static = {each.instance_id: each.member_id for each in self.members.values() if each.instance_id is not None}
        assert static == self.static, (static, self.static)
        assert self.target.keys() <= self.members.keys()
        assert self.assignment_epoch <= self.epoch
        assert set(self.patterns) <= self.subscribed_patterns()
        wanted = [
            (topic_id, each) for target in self.target.values() for topic_id, all_ in target.items() for each in all_
        ]
        assert len(wanted) == len(set(wanted)), "a partition shall be had twice"
        for member in self.members.values():
            assert member.epoch <= self.assignment_epoch
            assert bool(member.revoking) == (member.state is MemberState.UNREVOKED_PARTITIONS) or member.epoch < 0


def metadata_hash(names: Iterable[str], topics: Topics) -> int:
    """Return a hash of the names, ids and partition counts of the existing topics among these: another hash, another
    assignment."""
    digest = hashlib.blake2b(digest_size=8)
    is_empty = True
    for name in sorted(names):
        topic = topics.get(name)
        if topic is not None:
            is_empty = False
            digest.update(b"%b\0%b%d\0" % (name.encode(), topic.id, topic.partition_count))
    return 0 if is_empty else int.from_bytes(digest.digest(), "big", signed=True)


class Draft:
    """Changes to a group, each with its record. Until there is one, `group` is the group itself."""

    def __init__(self, group: ConsumerGroup, written: Iterable[Record] = ()) -> None:
        self.group = group
        self.records: list[Record] = list(written)
        self._is_copied = False

    def _write(self, *written: Record) -> ConsumerGroup:
        if not self._is_copied:
            self.group = self.group.copy()
            self._is_copied = True
        self.records.extend(written)
        return self.group

    def renew(self) -> None:
        """Make the same group another object: answers that refer to the old one do not hold any more."""
        self._write()

    def put_subscription(self, member: ConsumerMember) -> None:
        self._write(records.subscription_record(self.group.group_id, member)).put(member)

    def put_current(self, member: ConsumerMember) -> None:
        self._write(records.current_record(self.group.group_id, member)).put(member)

    def put_target(self, member_id: str, partitions: Partitions) -> None:
        group = self._write(records.target_record(self.group.group_id, member_id, partitions))
        group.target[member_id] = partitions

    def remove(self, member_id: str) -> None:
        self._write(*records.member_tombstones(self.group.group_id, member_id)).drop(member_id)

    def replace(self, previous: ConsumerMember, member: ConsumerMember) -> None:
        """Put a static member under a new id, with the target of the old one."""
        target = self.group.target.get(previous.member_id, {})
        self.remove(previous.member_id)
        self.put_subscription(member)
        self.put_target(member.member_id, target)
        self.put_current(member)

    def put_epoch(self, epoch: int, metadata_hash: int) -> None:
        group = self._write(records.epoch_record(self.group.group_id, epoch, metadata_hash))
        group.epoch, group.metadata_hash = epoch, metadata_hash
        if group.has_old_metadata:
            self._write(records.partition_metadata_tombstone(group.group_id))
            group.has_old_metadata = False

    def put_assignment_epoch(self, epoch: int, timestamp_ms: int) -> None:
        group = self._write(records.assignment_epoch_record(self.group.group_id, epoch, timestamp_ms))
        group.assignment_epoch, group.assignment_timestamp_ms = epoch, timestamp_ms

    def put_pattern(self, pattern: str, resolved: ResolvedPattern) -> None:
        group = self._write(records.pattern_record(self.group.group_id, pattern, resolved))
        group.patterns[pattern] = resolved

    def forget_unused_patterns(self) -> None:
        """Forget patterns that no member subscribes to, as Kafka does."""
        for pattern in sorted(self.group.patterns.keys() - self.group.subscribed_patterns()):
            self._write(records.pattern_tombstone(self.group.group_id, pattern)).patterns.pop(pattern)
