"""The leader epochs of a partition and the offset each began at (`leader-epoch-checkpoint`).

E.g. [(0, 0), (3, 1042)]: records 0-1041 were appended under epoch 0, later ones under epoch 3. Epochs and start offsets
rise. The file is rewritten whenever the list changes; batches carry their epoch too, so a lost file can be rebuilt.
"""

from __future__ import annotations

from service_chassis import logs

from storage_svc.log import checkpoints
from storage_svc.log.files import Files

_log = logs.get(__name__)


class LeaderEpochs:
    """Owned by its PartitionLog."""

    __slots__ = ("_entries", "_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._entries: list[tuple[int, int]] = []

    @property
    def latest(self) -> int:
        """The newest epoch, -1 when there is none."""
        return self._entries[-1][0] if self._entries else -1

    def at(self, offset: int) -> int:
        """The epoch that an offset was appended under, -1 when it is not known."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        """(newest epoch not newer than this one, start of the next newer one); None without a newer one."""
        newer = next((start for entry, start in self._entries if entry > epoch), None)
        if newer is None:
            return None
        return max((entry for entry, _ in self._entries if entry <= epoch), default=epoch), newer

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._entries)

    def load(self) -> None:
        """Read the file; one that cannot be read counts as empty."""
        data = self._files.read_file(self.path)
        if data is None:
            return
        try:
            self._entries = checkpoints.decode_epochs(data)
        except checkpoints.UnreadableCheckpoint as error:
            _log.warning("leader epochs unreadable", path=self.path, reason=str(error))

    def assign(self, epoch: int, start_offset: int) -> bool:
        """From this offset on, records belong to this epoch; whether that is news. `store` afterwards."""
        if epoch <= self.latest:
            return False
        while self._entries and self._entries[-1][1] >= start_offset:
            self._entries.pop()
        self._entries.append((epoch, start_offset))
        return True

    def truncate(self, end_offset: int) -> bool:
        """Records at and behind the offset are gone; whether that changes the list.

        The newest epoch stays, though no record has it: clients may know it, and refuse an older one.
        """
        latest = self.latest
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if self._entries and (not kept or kept[-1][0] < latest):
            kept.append((latest, end_offset))
        changed = kept != self._entries
        self._entries = kept
        return changed

    def advance(self, start_offset: int) -> bool:
        """Records before the offset are gone; whether that changes the list."""
        before = [entry for entry in self._entries if entry[1] <= start_offset]
        after = [entry for entry in self._entries if entry[1] > start_offset]
        kept = [(before[-1][0], max(before[-1][1], start_offset)), *after] if before else after
        changed = kept != self._entries
        self._entries = kept
        return changed

    def store(self, *, sync: bool) -> None:
        self._files.replace_file(self.path, checkpoints.encode_epochs(self._entries), sync=sync)
