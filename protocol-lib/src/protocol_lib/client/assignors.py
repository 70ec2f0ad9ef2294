"""Assignors, with which a group's leader shares the partitions out: Kafka's range and roundrobin.

The outcome is the same with every client as the leader. An assignor gets the number of partitions of each topic and
the subscription of each member; it returns each member's partitions. Members are ordered by their group instance ids,
then by their member ids (Kafka's AbstractPartitionAssignor.MemberInfo).
"""

from bisect import bisect_left
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


def subscribers(partitions: Mapping[str, int], members: list[GroupMember]) -> dict[str, list[GroupMember]]:
    """Return the subscribers of each topic that has partitions: topics by name, members in their order."""
    found: dict[str, list[GroupMember]] = {topic: [] for topic in sorted(partitions)}
    for member in sorted(members, key=lambda member: member.order):
        for topic in member.topics:
            if topic in found:
                found[topic].append(member)
    return found


class RangeAssignor:
    """Assignor that gives every member a run of each topic's partitions, the first members one more if need be."""

    name = "range"
    protocol = RebalanceProtocol.EAGER

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments:
        assigned: Assignments = {member.member_id: [] for member in members}
        for topic, interested in subscribers(partitions, members).items():
            count = partitions[topic]
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
        turns = {member.member_id: turn for turn, member in enumerate(sorted(members, key=lambda member: member.order))}
        turn = 0
        for topic, interested in subscribers(partitions, members).items():
            if not interested:
                continue
            index = bisect_left(interested, turn, key=lambda member: turns[member.member_id])
            for number in range(partitions[topic]):
                member = interested[(index + number) % len(interested)]
                assigned[member.member_id].append(TopicPartition(topic, number))
                turn = (turns[member.member_id] + 1) % len(members)
        return assigned
