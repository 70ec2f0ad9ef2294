"""The segments of one log: in order of their base offsets, never none, without gaps; the last one is active.

Batches are appended to the active segment only. Segments open themselves when they are used; open_segments.py closes
those that are not.

    bases [0, 300, 700]   index_of(299) = 0   index_of(300) = 1   index_of(5000) = 2, the active one
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import Refused
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX
from storage_svc.log.segment.open_segments import OpenSegments
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import DELETED_SUFFIX, file_stem


class Segments:
    """The segments of one log, owned by its PartitionLog."""

    __slots__ = ("_open", "_ordered", "active", "bases")

    def __init__(self, segments: list[Segment], open_segments: OpenSegments) -> None:
        self._ordered = segments
        self._open = open_segments
        for segment in segments:
            self._register(segment)
        #: The base offset of each, for searching.
        self.bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]

    def __len__(self) -> int:
        return len(self._ordered)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._ordered)

    def __getitem__(self, index: int) -> Segment:
        return self._ordered[index]

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self._ordered)

    def index_of(self, offset: int) -> int:
        """Return the index of the segment that holds an offset, or would."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def starting_with(self, offset: int) -> list[Segment]:
        """Return the segment that holds an offset, or would, and all later ones."""
        return self._ordered[self.index_of(offset) :]

    def older_segments(self) -> list[Segment]:
        """Return all but the active one: nothing is appended to them any more."""
        return self._ordered[:-1]

    def end_of(self, index: int, log_end_offset: int) -> int:
        """Return the offset at which the segment of this index ends."""
        return self.bases[index + 1] if index + 1 < len(self.bases) else log_end_offset

    def add(self, segment: Segment) -> None:
        """Add a segment, which becomes the active one."""
        self._register(segment)
        self._ordered.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment

    def _register(self, segment: Segment) -> None:
        segment.registry = self._open
        if segment.descriptor >= 0:
            self._open.add(segment)

    def take_oldest(self, count: int) -> list[Segment]:
        """Remove the oldest segments from the log, never all of them, and return them."""
        taken = self._ordered[:count]
        self._ordered, self.bases = self._ordered[count:], self.bases[count:]
        return taken

    def replace(self, old: list[Segment], new: Segment) -> None:
        """Put a segment in the place of neighbours older than the active one, which are removed from the log."""
        start = self._ordered.index(old[0])
        self._ordered[start : start + len(old)] = [new]
        self.bases[start : start + len(old)] = [new.base_offset]
        self._register(new)

    def configure(self, config: LogConfig) -> None:
        """Use these settings for every segment."""
        for segment in self._ordered:
            segment.configure(config)

    def move(self, folder: str) -> None:
        """Note that the segments' folder has another path from now on."""
        for segment in self._ordered:
            segment.move(folder)

    def close(self) -> None:
        """Release every segment."""
        for segment in self._ordered:
            segment.release()

    def check_invariants(self) -> None:
        """Raise AssertionError unless the state is consistent."""
        assert self.bases == [segment.base_offset for segment in self._ordered], self.bases
        assert self.bases == sorted(set(self.bases)), self.bases
        assert self.active is self._ordered[-1], self.bases


def set_aside(files: Files, segment: Segment, renamed: list[str], *, snapshot: bool = True) -> None:
    """Rename the files of a segment that is removed from its log, so that a start removes the rest; add the new paths
    to `renamed`.

    With `snapshot` the snapshot of its base offset goes as well. The `.log` comes first: after a crash in between, a
    segment is there with its transaction index or not at all. A file that cannot be renamed because the disk is full,
    as the longer name needs space, is deleted at once.

    Raises:
        StorageFailure: this file and later ones still have their names.
    """
    segment.gone = True
    segment.release()
    paths = segment.paths()[::-1]  # mutant: deletion-order
    if snapshot:
        paths.append(f"{segment.folder}/{file_stem(segment.base_offset)}{SNAPSHOT_SUFFIX}")
    for path in paths:
        if files.exists(path):
            try:
                files.rename(path, path + DELETED_SUFFIX)
            except Refused:
                files.unlink(path)
            else:
                renamed.append(path + DELETED_SUFFIX)
