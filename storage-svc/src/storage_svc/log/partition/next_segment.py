"""The segment that follows a log's active one, and what must be synced with it."""

from __future__ import annotations

from service_chassis import logs

from storage_svc.log.errors import NotNow, StorageFailure
from storage_svc.log.partition.state import LogState
from storage_svc.log.producers.snapshots import ProducerSnapshots
from storage_svc.log.segment.open_segments import OpenSegments
from storage_svc.log.segment.segment import Segment

_log = logs.get(__name__)


def settle_active(state: LogState) -> None:
    """Prepare the active segment for its successor: no bytes of a failed write are left, and what must be is synced.

    Raises:
        StorageFailure: unless it is Refused, the segment cannot be trusted with more.
    """
    old = state.segments.active
    if old.uncut:
        old.cut()
    if state.roll_syncs:
        old.sync(state.files)


def next_segment(
    state: LogState, open_segments: OpenSegments, snapshots: ProducerSnapshots, now_ms: int
) -> tuple[Segment, list[str]]:
    """Create the segment that begins at the log's end, complete the files of the active one, and return the new one
    with the paths to sync.

    Raises:
        StorageFailure: there is no new segment.
    """
    old = state.segments.active
    begun = state.files, state.folder, state.log_end_offset, state.config, now_ms
    try:
        segment = Segment.create(*begun)
    except NotNow:
        if not open_segments.release_some():
            raise
        segment = Segment.create(*begun)
    to_sync = [state.folder]  # mutant: new-segment-folder-synced
    try:
        old.finish()
        # The sync of the segment covers its indexes: if they lost their ends, they may agree by chance.
        to_sync += old.index_paths()  # mutant: finished-indexes-synced
        to_sync += snapshots.store(state.producers, state.log_end_offset)
    except StorageFailure as error:  # both are rebuilt from the log when they are needed
        _log.warning("index or producer snapshot not written", segment=old.relative_path, reason=str(error))
    return segment, to_sync
