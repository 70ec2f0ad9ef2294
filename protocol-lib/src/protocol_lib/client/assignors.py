"""How a group's leader shares the partitions out: Kafka's range and roundrobin assignors, whose outcome is the same
whichever client leads.

An assignor is told how many partitions each topic has and what each member said when it joined; it returns each
member's partitions. Members are taken in the order of their group instance ids, then of their member ids (Kafka's
AbstractPartitionAssignor.MemberInfo).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from protocol_lib.client.metadata import TopicPartition

Assignments = dict[str, list[TopicPartition]]


class RebalanceProtocol(Enum):
    """What members do before they join: give up every partition, or keep them until they are told (KIP-429)."""

    EAGER = "eager"
    COOPERATIVE = "cooperative"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """What a member said when it joined."""

    member_id: str
    topics: frozenset[str]
    group_instance_id: str | None = None
    owned: tuple[TopicPartition, ...] = ()
    #: of the assignment that `owned` is from; -1 when not said
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
    """Of each topic every member gets a run of partitions; the first members one more when they do not divide."""

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
    """All partitions of all topics are dealt out one by one, past members that do not want the topic."""

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
