"""The offsets one group has committed: the durable ones, which are visible, and those on their way.

The log orders commits and tombstones as they are written. An offset that is forgotten must also be forgotten of commits
under way, or memory would differ from the log after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.topic_partition import TopicPartition


class CommittedOffsets:
    """The offsets of one group. Owned by the group's host."""

    __slots__ = ("_next", "_pending", "durable")

    def __init__(self, durable: dict[TopicPartition, OffsetCommitValue]) -> None:
        self.durable = durable
        #: Commits that are appended and not durable yet, by number.
        self._pending: dict[int, dict[TopicPartition, OffsetCommitValue]] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self.durable or self._pending)

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

    def is_pending(self, key: TopicPartition) -> bool:
        return any(key in offsets for offsets in self._pending.values())

    def keys(self) -> list[TopicPartition]:
        """Return the keys that are durable or on their way, each once."""
        return list(dict.fromkeys(key for offsets in (self.durable, *self._pending.values()) for key in offsets))

    def stale(self, is_current: Callable[[TopicPartition, OffsetCommitValue], bool]) -> list[TopicPartition]:
        """Return the keys of which no offset is current, durable or on its way, each once."""
        if not self._pending:
            return [key for key, offset in self.durable.items() if not is_current(key, offset)]
        everything = [each for offsets in (self.durable, *self._pending.values()) for each in offsets.items()]
        current = {key for key, offset in everything if is_current(key, offset)}
        return [key for key in dict.fromkeys(key for key, _ in everything) if key not in current]

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        for key in keys:
            for offsets in (self.durable, *self._pending.values()):
                offsets.pop(key, None)
