"""The validity of the answers that readers of one log got in advance.

Each log has a slot in the Revisions of its data folder. An answer that was sent ahead is valid while the number in the
slot stays the same, so every change that a reader may see moves the number before any caller learns of the change.
"""

from __future__ import annotations

from broker_contract.revisions import Revisions


class ReadAheadRevision:
    """The slot of one log, owned by its LogState."""

    __slots__ = ("_has_readers", "_revisions", "slot")

    def __init__(self, revisions: Revisions) -> None:
        self._revisions = revisions
        self.slot = revisions.new_slot()
        self._has_readers = False

    def current(self) -> tuple[int, int]:
        """Return the slot and its number, for an answer that is sent ahead now."""
        self._has_readers = True
        return self.slot, self._revisions[self.slot]

    def invalidate(self) -> None:
        """Withdraw the answers that were sent ahead."""
        if self._has_readers:
            self._has_readers = False
            self._revisions.move(self.slot)
