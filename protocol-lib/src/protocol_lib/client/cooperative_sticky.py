"""The cooperative-sticky assignor (KIP-54, KIP-429): shares that differ by as little as possible, and few moves.

Members keep the partitions that they own; partitions without an owner go to the members that have least. Then
partitions move from larger to smaller shares while that makes shares more equal. A partition that moves is assigned to
nobody at first: its owner gives it up in this rebalance, and in the next one, which follows at once, it is free. So
members go on reading all they keep.

    owned     A: 0 1 2 3          assigned   A: 0 1     the next rebalance   A: 0 1
              B joins                        B:                              B: 2 3
"""

from collections.abc import Mapping

from protocol_lib.client.assignors import Assignments, GroupMember, RebalanceProtocol
from protocol_lib.client.metadata import TopicPartition


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments:
        owners = _owners(partitions, members)
        shares = _balanced(partitions, members, owners)
        return {
            member_id: sorted(
                topic_partition for topic_partition in share if owners.get(topic_partition, member_id) == member_id
            )
            for member_id, share in shares.items()
        }


def _owners(partitions: Mapping[str, int], members: list[GroupMember]) -> dict[TopicPartition, str]:
    """Return the owner of each partition that exists and is still wanted. Among several claims the newest generation
    is right; when several have it, nobody owns the partition."""
    claims: dict[TopicPartition, list[GroupMember]] = {}
    for member in members:
        for topic_partition in set(member.owned):
            if topic_partition.topic in member.topics and topic_partition.partition < partitions.get(
                topic_partition.topic, 0
            ):
                claims.setdefault(topic_partition, []).append(member)
    owners = {}
    for topic_partition, claimants in claims.items():
        newest = max(member.generation_id for member in claimants)
        right = [member for member in claimants if member.generation_id == newest]
        if len(right) == 1:
            owners[topic_partition] = right[0].member_id
    return owners


def _balanced(
    partitions: Mapping[str, int], members: list[GroupMember], owners: Mapping[TopicPartition, str]
) -> dict[str, set[TopicPartition]]:
    ordered = sorted(members, key=lambda member: member.order)
    wanting = {
        topic: [member.member_id for member in ordered if topic in member.topics] for topic in sorted(partitions)
    }
    shares: dict[str, set[TopicPartition]] = {member.member_id: set() for member in ordered}
    for topic_partition, owner in owners.items():
        shares[owner].add(topic_partition)
    # First the partitions that few members can have: the others can make up for it.
    for topic, candidates in sorted(wanting.items(), key=lambda item: len(item[1])):
        for number in range(partitions[topic] if candidates else 0):
            topic_partition = TopicPartition(topic, number)
            if topic_partition not in owners:
                shares[min(candidates, key=lambda member_id: len(shares[member_id]))].add(topic_partition)
    while _move_one(shares, wanting, owners):
        pass
    return shares


def _move_one(
    shares: dict[str, set[TopicPartition]], wanting: Mapping[str, list[str]], owners: Mapping[TopicPartition, str]
) -> bool:
    """Move one partition to a member that has at least two less than its holder, from the largest share. Returns
    whether there was one. Each move makes the sum of squared shares smaller, so they come to an end."""
    for holder in sorted(shares, key=lambda member_id: -len(shares[member_id])):
        # A partition that the holder does not own yet costs nothing to move.
        for topic_partition in sorted(
            shares[holder], key=lambda topic_partition: (owners.get(topic_partition) == holder, topic_partition)
        ):
            taker = min(wanting[topic_partition.topic], key=lambda member_id: len(shares[member_id]))
            if len(shares[holder]) - len(shares[taker]) >= 2:
                shares[holder].remove(topic_partition)
                shares[taker].add(topic_partition)
                return True
    return False
