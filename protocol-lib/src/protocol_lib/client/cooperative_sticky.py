"""The cooperative-sticky assignor (KIP-54, KIP-429): shares that differ by as little as possible, and few moves.

Members keep the partitions that they own; partitions without an owner go to the members that have least. Then
partitions move from larger to smaller shares while that makes shares more equal. A partition that moves is assigned to
nobody at first: its owner gives it up in this rebalance, and in the next one, which follows at once, it is free. So
members go on reading all they keep.

    owned     A: 0 1 2 3          assigned   A: 0 1     the next rebalance   A: 0 1
              B joins                        B:                              B: 2 3

Topics with the same subscribers form a pool, and a partition may move to any subscriber of its pool. A heap for each
pool finds the smallest share, so the work grows with the numbers of partitions and of subscriptions, times a logarithm.
"""

from collections.abc import Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace

from protocol_lib.client.assignors import Assignments, GroupMember, RebalanceProtocol, subscribers
from protocol_lib.client.metadata import TopicPartition


class CooperativeStickyAssignor:
    name = "cooperative-sticky"
    protocol = RebalanceProtocol.COOPERATIVE

    def assign(self, partitions: Mapping[str, int], members: list[GroupMember]) -> Assignments:
        owners = _owners(partitions, members)
        shares = _Shares(partitions, members, owners)
        shares.deal_out()
        shares.balance()
        return {
            member_id: sorted(each for each in held if owners.get(each, member_id) == member_id)
            for member_id, held in shares.by_member()
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


class _Pool:
    """Topics with the same subscribers. Members are numbers, by their order."""

    def __init__(self, subscribers: tuple[int, ...]) -> None:
        self.topics: list[str] = []
        self.subscribers = subscribers
        #: (size, member) of subscribers, smallest first; sizes may be out of date
        self.smallest: list[tuple[int, int]] = []
        #: partitions by member: (whether the member owns it, partition), those that are not owned first
        self.held: dict[int, list[tuple[bool, TopicPartition]]] = {}


#: An entry of a member's heap of pools: (whether it owns the next partition, smallest size in the pool, pool number).
_Entry = tuple[bool, int, int]


class _Shares:
    """The partitions of each member while they are dealt out and balanced."""

    def __init__(
        self, partitions: Mapping[str, int], members: list[GroupMember], owners: Mapping[TopicPartition, str]
    ) -> None:
        self._partitions = partitions
        self._owners = owners
        self._ids = [member.member_id for member in sorted(members, key=lambda member: member.order)]
        self._sizes = [0] * len(self._ids)
        numbers = {member_id: number for number, member_id in enumerate(self._ids)}
        pools: dict[tuple[int, ...], _Pool] = {}
        pool_of: dict[str, _Pool] = {}
        for topic, wanting in subscribers(partitions, members).items():
            key = tuple(numbers[member.member_id] for member in wanting)
            pool_of[topic] = pools.setdefault(key, _Pool(key))
            pool_of[topic].topics.append(topic)
        #: pools with few subscribers first: the others can make up for their partitions
        self._pools = sorted((pool for pool in pools.values() if pool.subscribers), key=lambda p: len(p.subscribers))
        self._pools_of: list[list[int]] = [[] for _ in self._ids]
        for index, pool in enumerate(self._pools):
            for member in pool.subscribers:
                self._pools_of[member].append(index)
        for topic_partition, owner in owners.items():
            self._give(pool_of[topic_partition.topic], numbers[owner], True, topic_partition)

    def by_member(self) -> Iterator[tuple[str, list[TopicPartition]]]:
        """Yield each member's id and partitions."""
        held: list[list[TopicPartition]] = [[] for _ in self._ids]
        for pool in self._pools:
            for member, partitions in pool.held.items():
                held[member] += [topic_partition for _, topic_partition in partitions]
        return zip(self._ids, held, strict=True)

    def deal_out(self) -> None:
        """Give partitions without an owner to the members that have least."""
        for pool in self._pools:
            pool.smallest = [(self._sizes[member], member) for member in pool.subscribers]
            heapify(pool.smallest)
            for topic in pool.topics:
                for number in range(self._partitions[topic]):
                    topic_partition = TopicPartition(topic, number)
                    if topic_partition not in self._owners:
                        self._give(pool, self._smallest(pool), False, topic_partition)

    def balance(self) -> None:
        """Move partitions to members that have at least two less than their holder, until there is none.

        Each move makes the sum of squared sizes smaller, so they come to an end."""
        while self._balance_once():
            pass

    def _balance_once(self) -> bool:
        """Move partitions, from the largest share first. Returns whether there were moves.

        A member that gave some may be the smallest of another pool at the end, and one that got some may be able to
        give in another pool. The next call finds both."""
        entries = self._entries()
        holders = [(-self._sizes[member], member) for member in entries]
        heapify(holders)
        givers: set[int] = set()
        while holders:
            negative, holder = heappop(holders)
            if -negative != self._sizes[holder]:
                continue  # out of date: there is another entry
            index = self._movable(holder, entries[holder])
            if index is None:
                continue
            pool = self._pools[index]
            taker = self._smallest(pool)
            _, topic_partition = heappop(pool.held[holder])
            self._sizes[holder] -= 1
            self._give(pool, taker, self._owners.get(topic_partition) == self._ids[taker], topic_partition)
            givers.add(holder)
            for member in (holder, taker):
                if pool.held[member]:
                    heappush(entries.setdefault(member, []), self._entry(member, index))
                heappush(holders, (-self._sizes[member], member))
        for member in givers:
            for index in self._pools_of[member]:
                heappush(self._pools[index].smallest, (self._sizes[member], member))
        return bool(givers)

    def _entries(self) -> dict[int, list[_Entry]]:
        """Return each holder's heap of pools."""
        entries: dict[int, list[_Entry]] = {}
        for index, pool in enumerate(self._pools):
            for member, held in pool.held.items():
                if held:
                    entries.setdefault(member, []).append(self._entry(member, index))
        for heap in entries.values():
            heapify(heap)
        return entries

    def _entry(self, member: int, index: int) -> _Entry:
        pool = self._pools[index]
        return pool.held[member][0][0], self._sizes[self._smallest(pool)], index

    def _movable(self, holder: int, entries: list[_Entry]) -> int | None:
        """Return the pool from which a holder gives a partition next, without its entry; None when it keeps all."""
        while entries:
            entry = heappop(entries)
            index = entry[2]
            if not self._pools[index].held[holder]:
                continue
            now = self._entry(holder, index)
            if now != entry:
                heappush(entries, now)
            elif self._sizes[holder] - entry[1] >= 2:
                return index
        return None

    def _give(self, pool: _Pool, member: int, is_owner: bool, topic_partition: TopicPartition) -> None:
        heappush(pool.held.setdefault(member, []), (is_owner, topic_partition))
        self._sizes[member] += 1

    def _smallest(self, pool: _Pool) -> int:
        """Return the subscriber of a pool with the smallest share, the first one of several."""
        heap = pool.smallest
        while True:
            size, member = heap[0]
            if size == self._sizes[member]:
                return member
            heapreplace(heap, (self._sizes[member], member))
