"""Records of a group that are on their way to the log, with the decisions that wait for them.

A group numbers its writes from 1. The log finishes each of them once, with or without success, in any order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from storage_svc.coordinator.classic.member import Member


@dataclass(frozen=True, slots=True)
class Assignments:
    """The leader's assignment of a generation; when it is durable the group is stable."""

    generation_id: int
    assignments: Mapping[str, bytes]


@dataclass(frozen=True, slots=True)
class Replacement:
    """The return of a static member under a new id while the group is stable; it is answered once that is durable."""

    generation_id: int
    member_id: str
    previous: Member
    previous_leader: str
    supports_skipping_assignment: bool


@dataclass(frozen=True, slots=True)
class Emptied:
    """The end of the last membership. No call waits for this write."""


Write = Assignments | Replacement | Emptied


class PendingWrites:
    """The unfinished writes of one group, which owns them."""

    __slots__ = ("_next", "_writes")

    def __init__(self) -> None:
        self._writes: dict[int, Write] = {}
        self._next = 1

    def __bool__(self) -> bool:
        return bool(self._writes)

    def begin(self, write: Write) -> int:
        """Return the number of a write that begins."""
        number = self._next
        self._next += 1
        self._writes[number] = write
        return number

    def end(self, number: int) -> Write:
        return self._writes.pop(number)

    def has_assignments(self, generation_id: int) -> bool:
        return any(
            isinstance(write, Assignments) and write.generation_id == generation_id for write in self._writes.values()
        )

    def replacing(self) -> set[str]:
        """Return the new ids of the static members that wait."""
        return {write.member_id for write in self._writes.values() if isinstance(write, Replacement)}
