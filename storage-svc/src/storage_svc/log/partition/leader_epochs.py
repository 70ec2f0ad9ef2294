"""The leader epochs of a partition and the offset each began at (`leader-epoch-checkpoint`).

E.g. [(0, 0), (3, 1042)]: records 0-1041 were appended under epoch 0, later ones under epoch 3. Epochs and start offsets
rise. The file is rewritten whenever the list changes. Batches carry their epoch too, so a file that is lost or does not
agree with them is rebuilt (`agree`, `rebuild`). The list begins at the log start, as Kafka's does: batches that begin
before it are no contradiction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from protocol_lib.records.header import HEADER_SIZE
from service_chassis import logs

from storage_svc.log.batch.header import Header, headers
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.segment.positions import position_before
from storage_svc.log.segment.segment import Segment

_log = logs.get(__name__)


class LeaderEpochs:
    """The leader epochs of one log, owned by its PartitionLog."""

    __slots__ = ("_entries", "_files", "_log_start", "found", "latest", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path
        self._entries: list[tuple[int, int]] = []
        self._log_start = 0
        #: The newest epoch, -1 when there is none.
        self.latest = -1
        #: Whether there was a file that could be read.
        self.found = False

    def at(self, offset: int) -> int:
        """Return the epoch under which an offset was appended, -1 when it is not known."""
        return max((epoch for epoch, start in self._entries if start <= offset), default=-1)

    def begins_after(self, offset: int, epoch: int) -> bool:
        """Return whether a batch of this epoch at this offset is older than the list, which begins at the log start."""
        if offset >= self._log_start or not self._entries:  # mutant: epochs-from-log-start
            return False
        first_epoch, start = self._entries[0]
        return offset < start and epoch <= first_epoch

    def end_of(self, epoch: int) -> tuple[int, int] | None:
        """Return (newest epoch not newer than this one, start of the next newer one); None without a newer one."""
        newer = next((start for entry, start in self._entries if entry > epoch), None)
        if newer is None:
            return None
        return max((entry for entry, _ in self._entries if entry <= epoch), default=epoch), newer

    def next_start(self, offset: int) -> int:
        """Return the start of the first epoch that begins after an offset; 2^63 - 1 without one."""
        return next((start for _, start in self._entries if start > offset), 2**63 - 1)

    @property
    def entries(self) -> list[tuple[int, int]]:
        """(epoch, start offset), oldest first."""
        return list(self._entries)

    def load(self, log_start: int = 0) -> None:
        """Read the file; one that cannot be read, or whose entries do not rise, counts as empty.

        The list need not know the batches that begin below `log_start`.
        """
        self._log_start = log_start
        data = self._files.read_file(self.path)
        if data is None:
            return
        try:
            entries = checkpoints.decode_epochs(data)
        except checkpoints.UnreadableCheckpoint as error:
            _log.warning("leader epochs unreadable", path=self.path, reason=str(error))
            return
        if all(low[0] < high[0] and low[1] < high[1] for low, high in pairwise([(-1, -1), *entries])):
            self._keep(entries)
            self.found = bool(entries)
        else:
            _log.warning("leader epochs out of order", path=self.path, entries=entries)

    # -- comparison with the batches
    # -------------------------------------------------------------------------------------

    def agree(self, segments: Sequence[Segment], edges: tuple[Header | None, Header | None] | None = None) -> bool:
        """Return whether the list is true of the first batch of all, and of the first and last one of the last segment.

        `edges` are the headers of the latter two, if they are known.

        Raises:
            StorageFailure: the disk did not answer.
        """
        looked_at = edges or (_first(self._files, segments[-1]), _last(self._files, segments[-1]))
        if len(segments) > 1 and not self._agrees(_first(self._files, segments[0])):
            return False
        return all(self._agrees(header) for header in looked_at)

    def _agrees(self, header: Header | None) -> bool:
        if header is None or header.leader_epoch < 0:
            return True
        offset, epoch = header.base_offset, header.leader_epoch
        return self.at(offset) == epoch or self.begins_after(offset, epoch)

    def rebuild(self, segments: Sequence[Segment]) -> None:
        """Make the list again from the batches. Epochs rise, so a segment is walked only if one begins inside it.

        Raises:
            StorageFailure: the disk did not answer.
        """
        self._keep([])
        firsts = [_first(self._files, segment) for segment in segments]
        for segment, first, following in zip(segments, firsts, [*firsts[1:], None], strict=True):
            if first is None:
                continue
            self.assign(first.leader_epoch, first.base_offset)
            if following is not None and following.leader_epoch == first.leader_epoch:
                continue
            was_open = segment.descriptor >= 0
            segment.open()
            for _, header in headers(self._files, segment.descriptor, 0, segment.size):
                self.assign(header.leader_epoch, header.base_offset)
            if not was_open:
                segment.close()

    # -- changes ------------------------------------------------------------------------------------------------------

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that records from this offset on belong to this epoch; return whether that is new. `store` must
        follow.
        """
        if epoch <= self.latest:
            return False
        self._keep([*(entry for entry in self._entries if entry[1] < start_offset), (epoch, start_offset)])
        return True

    def truncate(self, end_offset: int) -> bool:
        """Note that the records at and after the offset are gone; return whether that changes the list.

        The newest epoch stays, though no record has it: clients may know it, and refuse an older one.
        """
        kept = [entry for entry in self._entries if entry[1] < end_offset]
        if self._entries and (not kept or kept[-1][0] < self.latest):
            kept.append((self.latest, end_offset))
        return self._keep(kept)

    def advance(self, start_offset: int) -> bool:
        """Note that the records before the offset are gone; return whether that changes the list."""
        self._log_start = max(self._log_start, start_offset)
        before = [entry for entry in self._entries if entry[1] <= start_offset]
        after = [entry for entry in self._entries if entry[1] > start_offset]
        kept = [(before[-1][0], max(before[-1][1], start_offset)), *after] if before else after
        return self._keep(kept)

    def _keep(self, entries: list[tuple[int, int]]) -> bool:
        """Replace the entries; return whether they differ."""
        changed = entries != self._entries
        self._entries = entries
        self.latest = entries[-1][0] if entries else -1
        return changed

    def store(self, *, sync: bool) -> None:
        """Write the file."""
        self._files.replace_file(self.path, checkpoints.encode_epochs(self._entries), sync=sync)

    def store_if_possible(self) -> bool:
        """Write the file without a sync; return whether that worked. The batches carry the epochs: a start can rebuild
        the list.
        """
        try:
            self.store(sync=False)
        except StorageFailure as error:
            _log.warning("leader epochs not stored", path=self.path, reason=str(error))
            return False
        return True


def _first(files: Files, segment: Segment) -> Header | None:
    was_open = segment.descriptor >= 0
    segment.open()
    found = next(headers(files, segment.descriptor, 0, segment.size, HEADER_SIZE), None)
    if not was_open:
        segment.close()
    return found[1] if found else None


def _last(files: Files, active: Segment) -> Header | None:
    """Return the header of the last batch of the active segment, which is open."""
    last = None
    for _, header in headers(files, active.descriptor, position_before(active, 2**63 - 1), active.size):
        last = header
    return last
