"""The first steps with a data folder: check whose it is, and open every partition's log in it.

The clean-shutdown marker goes first, so that a crash from then on counts as one. Then deleted folders go, and
temporary files and half-made folders that a kill left. Each partition is recovered with the offsets that the
checkpoints promise.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os.path import abspath, dirname
from typing import Final

from crc32c import crc32c
from service_chassis import logs

from storage_svc.log.config import LogConfig
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.checkpoint_seal import SEAL_SUFFIX
from storage_svc.log.disk.files import TEMPORARY_SUFFIX, Files
from storage_svc.log.errors import DataFolderError, Refused, StorageFailure
from storage_svc.log.folder import system_run
from storage_svc.log.folder.checkpoint_store import CheckpointStore
from storage_svc.log.folder.deleted_folders import is_deleted
from storage_svc.log.partition.environment import LogEnvironment
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.recovery.partition_folder import is_half_made, is_partitions, listing, partition_of
from storage_svc.log.recovery.recovery import Known, Recovery
from storage_svc.topic_partition import TopicPartition

# Reading from the disk takes most of the time and waits without the interpreter's lock; Kafka has two as well.
_RECOVERY_THREADS: Final = 2
_RECOVERY_SHARE: Final = 4
_COPY_SUFFIX: Final = ".copy"
_CHECKSUM: Final = "crc32c"
_CHECKPOINTS: Final = (
    checkpoints.RECOVERY_POINT,
    checkpoints.LOG_START,
    checkpoints.HIGH_WATERMARK,
    checkpoints.CLEANED,
)
#: The small files of the data folder while they are replaced.
_TEMPORARY: Final = frozenset(
    name + TEMPORARY_SUFFIX
    for name in (
        checkpoints.META_PROPERTIES,
        checkpoints.META_PROPERTIES + _COPY_SUFFIX,
        checkpoints.LAST_SCRUB,
        checkpoints.CLEAN_SHUTDOWN,
        *_CHECKPOINTS,
        *(name + SEAL_SUFFIX for name in _CHECKPOINTS),
    )
)

_log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class Opened:
    """`clean`: the last stop was one."""

    clean: bool
    truncated_bytes: int
    quarantined_bytes: int
    damaged_places: int
    #: Paths of files that are of no use any more.
    strays: list[str]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A folder with the name of a partition."""

    key: TopicPartition
    folder: str
    recovery: Recovery
    is_known_topic: bool
    has_checkpoint: bool


def identify(files: Files, root: str, cluster_id: str | None) -> str:
    """Return the id of the folder's cluster. A new folder becomes that of `cluster_id`, or of a new cluster.

    meta.properties, which is Kafka's, has no checksum. A copy of it has (`meta.properties.copy`); if the two name
    different clusters, the copy is right.

    Raises:
        DataFolderError: it belongs to another cluster.
        StorageFailure: it cannot be read or written.
    """
    path = f"{root}/{checkpoints.META_PROPERTIES}"
    properties = checkpoints.decode_properties(files.read_file(path) or b"")
    copied = copied_properties(files, root) or {}
    found = copied.get("cluster.id", properties.get("cluster.id"))  # mutant: properties-copy-first
    if found is not None:
        if cluster_id not in (None, found):
            raise DataFolderError(f"data folder {root} belongs to cluster {found}, not to {cluster_id}")
        if properties.get("cluster.id") != found:
            _log.error("damaged file replaced by its copy", path=path, was=properties)
            files.replace_file(path, checkpoints.encode_properties(copied))
        elif copied != properties:
            files.replace_file(path + _COPY_SUFFIX, _with_checksum(properties))
        return found
    cluster_id = cluster_id or checkpoints.uuid_text(uuid.uuid4().bytes)
    _sync_above(files, root)  # mutant: parent-folders-synced
    properties = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": "1",
        "directory.id": checkpoints.uuid_text(uuid.uuid4().bytes),
    }
    files.replace_file(path, checkpoints.encode_properties(properties))
    files.replace_file(path + _COPY_SUFFIX, _with_checksum(properties))
    return cluster_id


def _with_checksum(properties: dict[str, str]) -> bytes:
    content = checkpoints.encode_properties(properties)
    return content + b"%s=%08x\n" % (_CHECKSUM.encode(), crc32c(content))


def copied_properties(files: Files, root: str) -> dict[str, str] | None:
    """Return the content of meta.properties.copy; empty if it is damaged, None if there is no copy.

    Raises:
        StorageFailure: it cannot be read.
    """
    content = files.read_file(f"{root}/{checkpoints.META_PROPERTIES}{_COPY_SUFFIX}")
    if content is None:
        return None
    properties = checkpoints.decode_properties(content)
    properties.pop(_CHECKSUM, None)
    return properties if content == _with_checksum(properties) else {}


def _sync_above(files: Files, root: str) -> None:
    """Sync the folders above a new data folder, some of which may be new too: else a power cut could remove it."""
    path = abspath(root)
    while (above := dirname(path)) != path:
        try:
            files.sync_path(above)
        except StorageFailure as error:  # one that we may not open, and so have not made
            _log.debug("folder above the data folder not synced", path=above, reason=str(error))
            return
        path = above


def open_logs(
    environment: LogEnvironment,
    root: str,
    stored: CheckpointStore,
    opened: dict[TopicPartition, PartitionLog],
    configs: Mapping[str, LogConfig],
) -> Opened:
    """Open every partition's log, into `opened`, with its topic's settings. They decide how indexes are rebuilt.

    A log that cannot be read or written is offline (`withheld`); a full disk may have space again soon.

    Raises:
        StorageFailure: the data folder cannot be listed or written.
        Refused: there is no space or descriptor to recover a log; those that could be opened are in `opened`.
    """
    files = environment.files
    marker = f"{root}/{checkpoints.CLEAN_SHUTDOWN}"
    clean = files.exists(marker)
    if clean:  # a crash from here on is an unclean stop
        files.unlink(marker)  # mutant: clean-marker-removed
        files.sync_path(root)
    unsynced_kept = system_run.is_same_run(files, root)
    cleaned = stored.read(checkpoints.CLEANED)
    known = _known(stored, cleaned, clean=clean, unsynced_kept=unsynced_kept)
    candidates: list[_Candidate] = []
    for name, is_folder, _ in files.entries(root):
        if not is_folder:
            if name in _TEMPORARY:
                _remove_temporary(files, f"{root}/{name}")
            continue
        if is_deleted(name):
            _remove_deleted(files, f"{root}/{name}")
            continue
        key = partition_of(files, root, name)
        if key is not None:
            config = configs.get(key[0], LogConfig())
            of_it = known.get(key, Known(clean=clean, unsynced_kept=unsynced_kept))
            recovery = Recovery(environment, f"{root}/{name}", *key, config, of_it)
            candidates.append(_Candidate(key, f"{root}/{name}", recovery, key[0] in configs, key in known))
    recoveries = _recover(files, candidates, opened)
    for key, log in opened.items():
        log.compaction.cleaned_to = cleaned.get(key)
    return Opened(
        clean,
        sum(recovery.truncated_bytes for recovery in recoveries),
        sum(recovery.quarantined_bytes for recovery in recoveries),
        sum(recovery.damaged_places for recovery in recoveries),
        [path for recovery in recoveries for path in recovery.strays],
    )


def _known(
    stored: CheckpointStore, cleaned: Mapping[TopicPartition, int], *, clean: bool, unsynced_kept: bool
) -> dict[TopicPartition, Known]:
    """Return the facts that the checkpoints have of each log."""
    recovery_points = stored.read(checkpoints.RECOVERY_POINT)
    log_starts = stored.read(checkpoints.LOG_START)
    high_watermarks = stored.read(checkpoints.HIGH_WATERMARK)
    return {
        key: Known(
            clean=clean,
            unsynced_kept=unsynced_kept,
            recovery_point=recovery_points.get(key, 0),
            log_start_offset=log_starts.get(key, 0),
            high_watermark=high_watermarks.get(key, 0),
            cleaned_to=cleaned.get(key, 0),
        )
        for key in (*recovery_points, *log_starts, *high_watermarks, *cleaned)
    }


def _remove_deleted(files: Files, folder: str) -> None:
    try:
        files.remove_tree(folder)
    except StorageFailure as error:  # the next start tries again
        _log.error("deleted folder not removed", path=folder, reason=str(error))


def _remove_temporary(files: Files, path: str) -> None:
    try:
        files.unlink(path)
    except StorageFailure as error:  # the next replacement of the file writes it again
        _log.warning("temporary file not removed", path=path, reason=str(error))


def _is_ours(files: Files, candidate: _Candidate, sizes: Mapping[str, int]) -> bool:
    """Return whether a folder with a partition's name is one: it names its topic, has a segment or had one."""
    if is_partitions(sizes) or (candidate.is_known_topic and candidate.has_checkpoint):
        return True
    if candidate.is_known_topic:
        return False
    try:
        if is_half_made(files, candidate.folder):  # mutant: half-made-folder-removed
            files.remove_tree(candidate.folder)
            _log.info("folder of a creation that was cut off removed", path=candidate.folder)
            return False
    except StorageFailure as error:
        _log.error("half-made folder not removed", path=candidate.folder, reason=str(error))
    _log.warning("folder left alone: it holds no partition", path=candidate.folder)
    return False


def _recover(
    files: Files, candidates: Sequence[_Candidate], opened: dict[TopicPartition, PartitionLog]
) -> list[Recovery]:
    """Open the logs of all candidates that are partitions, into `opened`; return their recoveries.

    Raises:
        Refused: some could not be opened now.
    """
    count = _RECOVERY_THREADS if len(candidates) >= _RECOVERY_THREADS * _RECOVERY_SHARE else 1
    ours: list[Recovery] = []
    refusals: list[Refused] = []

    def work(some: Sequence[_Candidate]) -> None:
        for candidate in some:
            try:
                log = _run(files, candidate)
            except Refused as error:
                refusals.append(error)
            else:
                if log is not None:
                    opened[candidate.key] = log
                    ours.append(candidate.recovery)

    if count == 1:
        work(candidates)
    else:
        with ThreadPoolExecutor(count, "millrace-recovery") as pool:
            for _ in pool.map(work, (candidates[number::count] for number in range(count))):
                pass
    if refusals:
        raise refusals[0]
    return ours


def _run(files: Files, candidate: _Candidate) -> PartitionLog | None:
    """Return the log of a folder; None if the folder is no partition.

    A folder of a known topic that cannot be read is one, so that the partition is offline and not made again.
    """
    try:
        sizes = listing(files, candidate.folder)
    except StorageFailure as error:
        _log.error("folder unreadable", path=candidate.folder, reason=str(error))
        if not candidate.is_known_topic:
            return None
        sizes = None
    if sizes is not None and not _is_ours(files, candidate, sizes):
        return None
    recovery = candidate.recovery
    try:
        return recovery.run(sizes)
    except Refused:
        raise
    except StorageFailure as error:  # mutant: unreadable-partition-skipped
        return recovery.unusable(str(error))
    except Exception as error:  # a bug that damage has met; the other partitions are served
        _log.exception("log not opened")
        return recovery.unusable(f"{type(error).__name__}: {error}")
