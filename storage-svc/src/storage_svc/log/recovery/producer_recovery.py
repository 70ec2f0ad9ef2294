"""Producer state and aborted transactions when a log is opened: the newest sound snapshot, then the batches after it.

A snapshot knows the last batch of each producer only. The other four that are remembered are found in the log when they
are needed (producer_look_back.py). A snapshot that cannot be read is removed; an older one is used instead, or
everything is replayed. Snapshots that no start needs any more are removed: all but the newest and those where a segment
begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from protocol_lib.errors import DecodeError
from protocol_lib.records.control import ControlType, EndTransactionMarker, read_marker
from protocol_lib.records.header import CONTROL
from protocol_lib.records.record import read_records
from service_chassis import logs

from storage_svc.log.batch.header import Header, headers
from storage_svc.log.disk.files import Buffer, Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX, UnreadableSnapshot, decode_snapshot
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.segment.positions import position_before
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment.transaction_index import AbortedTransaction
from storage_svc.log.segment_names import file_stem

_log = logs.get(__name__)


class ProducerRecovery:
    """The producers of one partition's folder; used by recovery.py."""

    def __init__(self, files: Files, folder: str, snapshots: Iterable[int], now_ms: int) -> None:
        self._files = files
        self._folder = folder
        self._snapshots = sorted(snapshots)
        self._now_ms = now_ms

    def state_at(self, segments: Sequence[Segment], end_offset: int) -> ProducerState:
        """Return the state as of an offset; these segments hold the batches below it.

        Raises:
            StorageFailure: the folder cannot be read or written.
        """
        state = ProducerState()
        start = segments[0].base_offset if segments else end_offset
        for offset in reversed([offset for offset in self._snapshots if start <= offset <= end_offset]):
            path = self._path(offset)
            try:
                state.load(self._files.read_file(path) or b"", offset, self._now_ms)
            except UnreadableSnapshot as error:
                _log.warning("producer snapshot unreadable", path=path, reason=str(error))
                self._files.unlink(path)
                self._snapshots.remove(offset)
            else:
                start = offset
                break
        if start < end_offset:
            self._replay(state, segments, start, end_offset)
        return state

    def _replay(self, state: ProducerState, segments: Sequence[Segment], start: int, end: int) -> None:
        for index, segment in enumerate(segments):
            if index + 1 < len(segments) and segments[index + 1].base_offset <= start:
                continue
            was_open = segment.descriptor >= 0
            segment.open()
            first = position_before(segment, start) if start > segment.base_offset else 0
            for position, header in headers(self._files, segment.descriptor, first, segment.size):
                if header.base_offset >= end:
                    break
                if header.base_offset >= start:
                    self.replay(state, header, partial(segment.read, position, header.size))
            if not was_open:
                segment.release()

    def replay(self, state: ProducerState, header: Header, batch: Callable[[], Buffer]) -> AbortedTransaction | None:
        """Take one batch into the state; the transaction that it aborts, if it does."""
        if header.producer_id < 0:
            return None
        if not header.attributes & CONTROL:
            state.replay(header, self._now_ms)
            return None
        marker = _marker(batch())
        if marker is None:
            return None
        producer_id, offset = header.producer_id, header.last_offset
        first_offset = state.open_since(producer_id)
        stable_offset = state.transactions.stable_without(producer_id, offset)
        state.replay_marker(header, marker, self._now_ms)
        if marker.type is not ControlType.ABORT or first_offset < 0:
            return None
        return AbortedTransaction(producer_id, first_offset, offset, stable_offset)

    def store(self, state: ProducerState, offset: int) -> None:
        """Write the snapshot of where a segment begins, unless a sound one is there."""
        path = self._path(offset)
        try:
            if offset in self._snapshots:
                decode_snapshot(self._files.read_file(path) or b"")
                return
        except UnreadableSnapshot as error:
            _log.warning("producer snapshot unreadable", path=path, reason=str(error))
        try:
            self._files.write_file(path, state.encode())
        except StorageFailure as error:  # a later start replays more
            _log.warning("producer snapshot not written", path=path, reason=str(error))
        else:
            self._snapshots = sorted({*self._snapshots, offset})

    def has_snapshot(self, offset: int) -> bool:
        """Return whether there is a snapshot that reaches to the offset."""
        return offset in self._snapshots

    def remove_stray(self, bases: Iterable[int], end_offset: int) -> list[str]:
        """Remove the snapshots after the end of a log with these segments; return the paths of other useless ones."""
        kept = set(bases)
        for offset in self._snapshots:
            if offset > end_offset:
                self._files.unlink(self._path(offset))
        return [self._path(offset) for offset in self._snapshots if offset not in kept and offset <= end_offset][:-1]

    def _path(self, offset: int) -> str:
        return f"{self._folder}/{file_stem(offset)}{SNAPSHOT_SUFFIX}"


def _marker(batch: Buffer) -> EndTransactionMarker | None:
    """Return the marker in a control batch; None for those that are none of ours, and those that compaction has
    emptied.
    """
    try:
        record = next(read_records(batch), None)
        return None if record is None else read_marker(record)
    except DecodeError as error:
        _log.warning("control record unreadable", reason=str(error))
        return None
