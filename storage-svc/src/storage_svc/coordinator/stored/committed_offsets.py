"""The offsets one group has committed: the durable ones, which are visible, and those on their way.

The log orders commits and tombstones as they are written. An offset that is forgotten must also be forgotten of commits
under way, or memory would differ from the log after a restart. Those of open transactions are on their way until the
transaction ends (open_commits.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.stored.open_commits import OpenCommits
from storage_svc.topic_partition import TopicPartition

#: The number of the first commit of this process: each is later than the records that were loaded, by their offsets.
_FIRST_NUMBER: Final = 1 << 62


class CommittedOffsets:
    """The offsets of one group. Owned by the group's host."""

    __slots__ = ("_group_id", "_next", "_open", "_pending", "durable")

    def __init__(
        self, durable: dict[TopicPartition, OffsetCommitValue], group_id: str = "", opened: OpenCommits | None = None
    ) -> None:
        """Start with these durable offsets; `opened` is the one of the group's partition of the offsets topic."""
        self.durable = durable
        self._group_id = group_id
        self._open = OpenCommits() if opened is None else opened
        #: Commits that are appended and not durable yet, by number.
        self._pending: dict[int, dict[TopicPartition, OffsetCommitValue]] = {}
        self._next = _FIRST_NUMBER

    def __bool__(self) -> bool:
        return bool(self.durable or self._pending or self.unstable)

    @property
    def unstable(self) -> Mapping[TopicPartition, int]:
        """The keys that open transactions have committed."""
        return self._open.of_group(self._group_id)

    def begin(self, offsets: dict[TopicPartition, OffsetCommitValue]) -> int:
        """Return the number, for `end`, of a commit that is about to be appended."""
        number = self._next
        self._next += 1
        self._pending[number] = dict(offsets)
        return number

    def end(self, number: int, *, is_durable: bool) -> None:
        offsets = self._pending.pop(number)
        if is_durable:
            self.durable.update(offsets)
            if self._open:
                for key in offsets:
                    self._open.outdate((self._group_id, key), number)  # mutant: later-offset-wins

    def begin_open(self, producer_id: int, offsets: Mapping[TopicPartition, OffsetCommitValue]) -> Callable[[], None]:
        """Hold back a transaction's commit that is about to be appended; return the way to take it back."""
        number = self._next
        self._next += 1
        group_id, opened = self._group_id, self._open
        before = {key: opened.add(producer_id, (group_id, key), number, value) for key, value in offsets.items()}

        def take_back() -> None:
            for key, replaced in before.items():
                opened.take_back(producer_id, (group_id, key), number, replaced)

        return take_back

    def apply(self, offsets: Mapping[TopicPartition, OffsetCommitValue]) -> None:
        """Show the offsets of a transaction that is committed."""
        self.durable.update(offsets)

    def is_pending(self, key: TopicPartition) -> bool:
        return key in self.unstable or any(key in offsets for offsets in self._pending.values())

    def keys(self) -> list[TopicPartition]:
        """Return the keys that are durable or on their way, each once."""
        every = (self.durable, *self._pending.values(), self.unstable)
        return list(dict.fromkeys(key for offsets in every for key in offsets))

    def stale(self, is_current: Callable[[TopicPartition, OffsetCommitValue], bool]) -> list[TopicPartition]:
        """Return the keys of which no offset is current, durable or on its way, each once."""
        if not self._pending and not self.unstable:
            return [key for key, offset in self.durable.items() if not is_current(key, offset)]
        everything = [each for offsets in (self.durable, *self._pending.values()) for each in offsets.items()]
        everything += self._open.values(self._group_id)
        current = {key for key, offset in everything if is_current(key, offset)}
        return [key for key in dict.fromkeys(key for key, _ in everything) if key not in current]

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            for offsets in (self.durable, *self._pending.values()):
                offsets.pop(key, None)
            self._open.drop((self._group_id, key))
