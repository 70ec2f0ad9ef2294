"""The cooperative-sticky assignor (KIP-54, KIP-429): shares that differ by as little as possible, and of all such the
one that moves little.

Members keep what they own; what nobody owns goes to who has least; then partitions move from who has more to who has
less while that makes shares more equal. A partition that moves is given to nobody at first: its owner gives it up in
this rebalance, and in the next one, which follows at once, it is free. So members go on reading all they keep.

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
            member_id: sorted(place for place in share if owners.get(place, member_id) == member_id)
            for member_id, share in shares.items()
        }


def _owners(partitions: Mapping[str, int], members: list[GroupMember]) -> dict[TopicPartition, str]:
    """Who owns what, of what is there and still wanted. Of several that say so the newest generation is right; when
    that is several too, nobody owns it."""
    claims: dict[TopicPartition, list[GroupMember]] = {}
    for member in members:
        for place in set(member.owned):
            if place.topic in member.topics and place.partition < partitions.get(place.topic, 0):
                claims.setdefault(place, []).append(member)
    owners = {}
    for place, claimants in claims.items():
        newest = max(member.generation_id for member in claimants)
        right = [member for member in claimants if member.generation_id == newest]
        if len(right) == 1:
            owners[place] = right[0].member_id
    return owners


def _balanced(
    partitions: Mapping[str, int], members: list[GroupMember], owners: Mapping[TopicPartition, str]
) -> dict[str, set[TopicPartition]]:
    ordered = sorted(members, key=lambda member: member.order)
    wanting = {
        topic: [member.member_id for member in ordered if topic in member.topics] for topic in sorted(partitions)
    }
    shares: dict[str, set[TopicPartition]] = {member.member_id: set() for member in ordered}
    for place, owner in owners.items():
        shares[owner].add(place)
    # First what few members can take: the others can make up for it.
    for topic, candidates in sorted(wanting.items(), key=lambda item: len(item[1])):
        for number in range(partitions[topic] if candidates else 0):
            place = TopicPartition(topic, number)
            if place not in owners:
                shares[min(candidates, key=lambda member_id: len(shares[member_id]))].add(place)
    while _move_one(shares, wanting, owners):
        pass
    return shares


def _move_one(
    shares: dict[str, set[TopicPartition]], wanting: Mapping[str, list[str]], owners: Mapping[TopicPartition, str]
) -> bool:
    """Moves one partition to a member that has at least two less than its holder, from the largest share; whether
    there was one. Each move makes the sum of squared shares smaller, so they come to an end."""
    for holder in sorted(shares, key=lambda member_id: -len(shares[member_id])):
        # What the holder does not own yet costs nothing to move.
        for place in sorted(shares[holder], key=lambda place: (owners.get(place) == holder, place)):
            taker = min(wanting[place.topic], key=lambda member_id: len(shares[member_id]))
            if len(shares[holder]) - len(shares[taker]) >= 2:
                shares[holder].remove(place)
                shares[taker].add(place)
                return True
    return False
