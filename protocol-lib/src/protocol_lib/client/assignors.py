"""Assignors, with which a group's leader shares the partitions out: Kafka's range and roundrobin.

The outcome is the same with every client as the leader. An assignor gets the number of partitions of each topic and
the subscription of each member; it returns each member's partitions. Members are ordered by their group instance ids,
then by their member ids (Kafka's AbstractPartitionAssignor.MemberInfo).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from protocol_lib.client.metadata import TopicPartition

Assignments = dict[str, list[TopicPartition]]


class RebalanceProtocol(Enum):
    """Behaviour of members before they join: give up every partition, or keep them until asked for them (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """Subscription of one member, as its JoinGroup carried it."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    #: generation of the assignment that `owned` is from; -1 when unknown
    generation_id: int = -1

    @property
    def order(self) -> tuple[bool, str]:
        if self.group_instance_id is not None:
            return False, self.group_instance_id
        return True, self.member_id


class Assignor(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def protocol(self) -> RebalanceProtocol: ...

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments: ...


class RangeAssignor:
    """Assignor that gives every member a run of each topic's partitions, the first members one more if need be."""

    name = "range"
    protocol = RebalanceProtocol.EAGER

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        for topic, count in sorted(partitions.items()):
            interested = sorted((m for m in members if topic in m.topics), key=lambda member: member.order)
            begin = 0
            for index, member in enumerate(interested):
                share = count // len(interested) + (index < count % len(interested))
                assigned[member.member_id] += [TopicPartition(topic, number) for number in range(begin, begin + share)]
                begin += share
        return assigned


class RoundRobinAssignor:
    """Assignor that deals out all partitions of all topics one by one, past members that do not want the topic."""

    name = "roundrobin"
    protocol = RebalanceProtocol.EAGER

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        ring = sorted(members, key=lambda member: member.order)
        turn = 0
        for topic, count in sorted(partitions.items()):
            if not any(topic in member.topics for member in ring):
                continue
            for number in range(count):
                while topic not in ring[turn % len(ring)].topics:
                    turn += 1
                assigned[ring[turn % len(ring)].member_id].append(TopicPartition(topic, number))
                turn += 1
        return assigned
