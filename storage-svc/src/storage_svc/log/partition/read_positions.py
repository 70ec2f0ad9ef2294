"""The positions of batches that readers will probably ask for next.

Two kinds: the batch after the last one that became readable, and the batch after the last one that was read. So readers
that follow a log are answered without a look-up in its index.
"""

from __future__ import annotations

from typing import Final

from storage_svc.log.segment.segment import Segment

#: Readers that follow the end of a log are few batches away from each other.
_POSITIONS_MAX: Final = 32


class ReadPositions:
    """The positions of one log, owned by its PartitionLog. The newest ones are kept, the oldest forgotten."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Segment, int]] = {}

    def note(self, offset: int, segment: Segment, position: int) -> None:
        """Remember that the batch with this offset, once there is one, begins at this position."""
        known = self._known
        known[offset] = segment, position
        if len(known) > _POSITIONS_MAX:
            del known[next(iter(known))]

    def find(self, offset: int, segment: Segment) -> int | None:
        """Return the position of a batch in this segment, which may be a newer one than was noted; None if unknown."""
        known = self._known.get(offset)
        return known[1] if known is not None and known[0] is segment and known[1] < segment.size else None
