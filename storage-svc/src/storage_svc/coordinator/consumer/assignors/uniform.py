"""The uniform assignor: all members get as many partitions, and each keeps as many of its old ones as possible.

Members that subscribe to the same topics differ by one partition at most (`_homogeneous`). Where subscriptions differ,
the partitions of each topic go to its least loaded subscribers, topics with the most partitions per subscriber first,
and are then moved from its most to its least loaded ones as long as that helps (`_heterogeneous`). Kafka:
UniformAssignor; its limit of 16 rounds is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final

from storage_svc.coordinator.consumer.assignors.group_view import Assignment, GroupView

ROUNDS_MAX: Final = 16

_Shares = dict[str, dict[bytes, set[int]]]


def assign(group: GroupView) -> Assignment:
    if not any(member.topic_ids for member in group.members.values()):
        return {}
    return _homogeneous(group) if group.is_homogeneous else _heterogeneous(group)


# --- one subscription for all -----------------------------------------------------------------------------------------


def _homogeneous(group: GroupView) -> Assignment:
    topic_ids = next(iter(group.members.values())).topic_ids
    total = sum(group.partition_counts[topic_id] for topic_id in topic_ids)
    quota_min, extras = divmod(total, len(group.members))
    kept: _Shares = {}
    had: set[tuple[bytes, int]] = set()
    given_up: list[tuple[bytes, int]] = []
    room: list[tuple[str, int]] = []
    for index, (member_id, member) in enumerate(group.members.items()):
        has_extra = extras > 0
        quota = quota_min + has_extra
        shares = kept[member_id] = {}
        for topic_id, partitions in member.previous.items():
            if topic_id not in topic_ids:
                continue
            # A topic that was made again under the same id has no fewer partitions, but a log may say otherwise.
            valid = sorted(each for each in partitions if each < group.partition_counts[topic_id])
            mine, rest = valid[:quota], valid[quota:]
            quota -= len(mine)
            had.update((topic_id, each) for each in valid)
            given_up.extend((topic_id, each) for each in rest)
            if mine:
                shares[topic_id] = set(mine)
        if quota and has_extra and len(group.members) - index > extras:
            # It would have to be filled up to the larger share: leave that to one that has it already.
            quota -= 1
            has_extra = False
        extras -= has_extra
        if quota:
            room.append((member_id, quota))
    every = ((topic_id, each) for topic_id in sorted(topic_ids) for each in range(group.partition_counts[topic_id]))
    pool = iter([each for each in every if each not in had] + given_up)
    for member_id, quota in room:
        for _, (topic_id, partition) in zip(range(quota), pool, strict=False):
            kept[member_id].setdefault(topic_id, set()).add(partition)
    return kept


# --- different subscriptions ------------------------------------------------------------------------------------------


def _heterogeneous(group: GroupView) -> Assignment:
    balance = _Balance(group)
    for topic_id in balance.topic_order():
        balance.assign_unowned(topic_id)
    reassignable = [each for each in balance.topic_order() if len(balance.subscribers[each]) > 1]
    for _ in range(ROUNDS_MAX):
        moves = [balance.level(topic_id) for topic_id in reassignable]
        if not any(moves):
            break
    return balance.shares()


class _Balance:
    """Owners of all partitions, and how many each member has."""

    def __init__(self, group: GroupView) -> None:
        self._members = group.members
        self.subscribers: dict[bytes, list[str]] = {}
        for member_id, member in group.members.items():
            for topic_id in member.topic_ids:
                self.subscribers.setdefault(topic_id, []).append(member_id)
        self._rank = {member_id: index for index, member_id in enumerate(group.members)}
        self._load = dict.fromkeys(group.members, 0)
        self._owners: dict[bytes, list[str | None]] = {
            topic_id: [None] * group.partition_counts[topic_id] for topic_id in self.subscribers
        }
        for member_id, member in group.members.items():
            for topic_id, partitions in member.previous.items():
                if topic_id in member.topic_ids:
                    self._claim(member_id, topic_id, partitions)

    def _claim(self, member_id: str, topic_id: bytes, partitions: Iterable[int]) -> None:
        owners = self._owners[topic_id]
        for partition in partitions:
            if partition < len(owners) and owners[partition] is None:
                owners[partition] = member_id
                self._load[member_id] += 1

    def topic_order(self) -> list[bytes]:
        """Return the topics, most partitions per subscriber first; then fewest subscribers, then by id."""

        def rank(topic_id: bytes) -> tuple[float, int, bytes]:
            count = len(self.subscribers[topic_id])
            return -len(self._owners[topic_id]) / count, count, topic_id

        return sorted(self.subscribers, key=rank)

    def _entry(self, member_id: str) -> tuple[int, int, str]:
        return self._load[member_id], self._rank[member_id], member_id

    def assign_unowned(self, topic_id: bytes) -> None:
        owners = self._owners[topic_id]
        lightest = [self._entry(member_id) for member_id in self.subscribers[topic_id]]
        heapify(lightest)
        for partition, owner in enumerate(owners):
            if owner is None:
                owners[partition] = member_id = lightest[0][2]
                self._load[member_id] += 1
                heapreplace(lightest, self._entry(member_id))

    def level(self, topic_id: bytes) -> bool:
        """Move the topic's partitions from its most to its least loaded subscribers; return whether any was moved."""
        owners = self._owners[topic_id]
        owned: dict[str, list[int]] = {}
        for partition, owner in enumerate(owners):
            if owner is not None:
                owned.setdefault(owner, []).append(partition)
        # A member that takes a partition is one above the lightest at most: its entry as an owner may stay as it is.
        heaviest = [(-self._load[owner], -self._rank[owner], owner) for owner in owned]
        lightest = [self._entry(member_id) for member_id in self.subscribers[topic_id]]
        heapify(heaviest)
        heapify(lightest)
        is_moved = False
        while heaviest:
            giver = heaviest[0][2]
            while lightest[0][0] != self._load[lightest[0][2]]:
                heappop(lightest)  # it has more or fewer partitions now
            taker = lightest[0][2]
            if self._load[giver] - self._load[taker] <= 1:
                break
            owners[owned[giver].pop()] = taker
            self._load[giver] -= 1
            self._load[taker] += 1
            heappush(lightest, self._entry(giver))
            heappush(lightest, self._entry(taker))
            if owned[giver]:
                heapreplace(heaviest, (-self._load[giver], -self._rank[giver], giver))
            else:
                heappop(heaviest)
            is_moved = True
        return is_moved

    def shares(self) -> _Shares:
        found: _Shares = {member_id: {} for member_id in self._members}
        for topic_id, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                if owner is not None:
                    found[owner].setdefault(topic_id, set()).add(partition)
        return found
