"""The data folder: its lock, identity, checkpoints and clean-shutdown marker, and every partition's log in it.

    .lock                                  held by flock while the folder is open
    meta.properties                        version, cluster.id, node.id, directory.id; .copy with a checksum
    .system-run                            the run of the system in which the folder was last used (system_run.py)
    .kafka_cleanshutdown                   there after a clean stop; deleted at start, before anything is loaded
    recovery-point-offset-checkpoint       synced up to here
    log-start-offset-checkpoint
    cleaner-offset-checkpoint              compacted up to here
    last-scrub                             when everything was last read and checked (scrubber.py), in ms since 1970
    replication-offset-checkpoint          high watermarks
    space-reserve                          space for the records of deletions on a full disk (space_reserve.py)
    <checkpoint>.crc32c                    the checksum without which a checkpoint is not believed (checkpoint_seal.py)
    <topic>-<partition>/                   one log
    <topic>-<partition>.<uuid>-delete/     a deleted one, until its files are unlinked (deleted_folders.py)

Checkpoints are written every minute and at a clean stop. Recovery points decide how much a start after a crash has to
check. They are written five seconds after they moved, or once 128 MB were appended. Retention, compaction, the scrub
and the expiry of producers run in maintenance.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from broker_contract.revisions import Revisions
from service_chassis import logs

from storage_svc.log.batch.room import Room
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.later_deletion import LaterDeletion
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder import system_run
from storage_svc.log.folder.checkpoint_store import RECOVERY_POINT_CHECK_MS, CheckpointStore
from storage_svc.log.folder.deleted_folders import DeletedFolders
from storage_svc.log.folder.periodic_work import PeriodicWork
from storage_svc.log.folder.startup import identify, open_logs
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.flusher import Flusher
from storage_svc.log.partition.leader_epochs import LeaderEpochs
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.pending_sync import Syncable
from storage_svc.log.partition.state import LogState
from storage_svc.log.producers.state import ProducerState
from storage_svc.log.recovery.partition_folder import is_partition
from storage_svc.log.recovery.recovery import Known, Recovery
from storage_svc.log.segment.open_segments import OpenSegments, open_segments_max
from storage_svc.log.segment.segment import Segment
from storage_svc.topic_partition import TopicPartition

#: The age at which useless snapshots are deleted. Making files right after thousands of deletions is slow, and a start
#: is often followed by a stop, which makes a snapshot of each partition.
_STRAYS_DELAY_MS: Final = 600_000

#: Deleting a partition takes 0.15 ms: these hold up the event loop for 2 ms.
_DELETED_AT_ONCE: Final = 10

_log = logs.get(__name__)


def wall_clock_ms() -> int:
    """Return the system's time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000  # wall clock: handed on; each part that reads it says what for


class DataFolder:
    """The open data folder, owned by the event loop's thread.

    `open` and `create` block. After `start` the threads of two flushers sync: one the logs under flush.policy=group,
    the other those under os.
    """

    def __init__(self, root: str, settings: LogSettings, files: Files, clock: Callable[[], int]) -> None:
        self.root = root
        self.settings = settings
        self.files = files
        self.clock = clock
        self.policy = settings.flush_policy
        self.open_segments = OpenSegments(settings.open_segments_max or open_segments_max())
        self.revisions = Revisions()
        #: The records that the event loop may still check in this turn.
        self.room = Room()
        self.flusher = Flusher(files)
        self.background = Flusher(files)
        #: The flusher of each log. It stays the same: only syncs that follow each other say how far a log is durable.
        self._flushers: dict[Syncable, Flusher] = {}
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.checkpoints = CheckpointStore(files, root, self.logs)
        self.cluster_id = ""
        self.recovery_seconds = 0.0
        self.truncated_bytes = 0
        self.quarantined_bytes = 0
        #: Places in segments that the start found damaged.
        self.damaged_places = 0
        #: Bytes of the segments that were removed since the start.
        self.deleted_bytes = dict.fromkeys(DeletionReason, 0)
        #: The callback for a log in which a damaged batch was found.
        self.on_suspect: Callable[[PartitionLog], None] = _nothing
        #: Waits until no task rewrites segments of a log that is marked as deleted.
        self.release_segments: Callable[[PartitionLog], Awaitable[None]] = _nothing_to_release
        self._lock = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work = PeriodicWork()
        self._threads = Threads("folder", 1)
        self._deletion = LaterDeletion(files)
        self._strays: list[str] = []
        self._deleted_folders = DeletedFolders(files, root, self._deletion)

    # -- opening ------------------------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        path: Path,
        settings: LogSettings,
        *,
        cluster_id: str | None = None,
        files: Files | None = None,
        clock: Callable[[], int] = wall_clock_ms,
        configs: Callable[[], Mapping[str, LogConfig]] = dict,
    ) -> DataFolder:
        """Lock the folder (made if need be), recover and open every log.

        `configs` is asked for the topics' settings once the folder is locked; the logs of other topics get Kafka's
        defaults. `log.configure(…)` gives a log other settings afterwards.

        Raises:
            DataFolderInUse: another process has it.
            DataFolderError: it belongs to another cluster.
            StorageFailure: it cannot be read or written.
        """
        files = files or Files()
        directory = cls(str(path), settings, files, clock)
        files.reserve()
        files.make_folder(directory.root)
        directory._lock = files.lock(directory._path(checkpoints.LOCK))
        try:
            directory.cluster_id = identify(files, directory.root, cluster_id)
            directory._load(configs())
        except BaseException:
            directory.release()
            raise
        return directory

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _load(self, configs: Mapping[str, LogConfig]) -> None:
        started = time.perf_counter()
        opened = open_logs(self, self.root, self.checkpoints, self.logs, configs)
        self.truncated_bytes, self.quarantined_bytes = opened.truncated_bytes, opened.quarantined_bytes
        self.damaged_places = opened.damaged_places
        self._strays = opened.strays
        if not opened.clean:
            # mutant: scrub-after-crash
            self.files.unlink(self._path(checkpoints.LAST_SCRUB))  # the scrub is due: recovery did not read everything
            # A partition's folder may have been made by a process that died before it had synced this one.
            self.sync_folders()  # mutant: data-folder-synced-after-crash
            self.sync_recovered()
        if all(log.offline is None for log in self.logs.values()):
            system_run.note(self.files, self.root)
        self.recovery_seconds = time.perf_counter() - started
        _log.info("data folder open", path=self.root, logs=len(self.logs), clean=opened.clean)

    def sync_recovered(self) -> None:
        """Sync the recovered records of every log whose policy promises that readable records are synced.

        Called before `start`, and again when the logs have their own settings.
        """
        self.flusher.sync_now(lambda log: log.policy is FlushPolicy.GROUP)

    # -- LogEnvironment -----------------------------------------------------------------------------------------------

    def mark(self, log: Syncable) -> None:
        """Put the log on its flusher's list."""
        (self._flushers.get(log) or self._choose_flusher(log)).mark(log)

    def mark_later(self, log: Syncable, delay_ms: int) -> None:
        """Have the log's flusher ask it for a sync when the delay is over."""
        (self._flushers.get(log) or self._choose_flusher(log)).mark_later(log, delay_ms)

    def _choose_flusher(self, log: Syncable) -> Flusher:
        """Return the flusher that syncs the log from now on.

        Logs whose writers wait for syncs do not wait for those of the others too. Before `start` logs do not have
        their own settings yet, and one flusher gathers for all.
        """
        if self._loop is None:
            return self.flusher
        self._flushers[log] = chosen = self.flusher if log.policy is FlushPolicy.GROUP else self.background
        return chosen

    def suspect(self, key: TopicPartition) -> None:
        """Pass the log of this partition on to `on_suspect`."""
        if (log := self.logs.get(key)) is not None:
            self.on_suspect(log)

    def note_failed_write(self) -> None:
        """Let the next start expect the traces of a power cut."""
        system_run.forget(self.files, self.root)

    def note_deleted(self, size: int, reason: DeletionReason) -> None:
        """Add to `deleted_bytes`."""
        self.deleted_bytes[reason] += size

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        """Delete files when the delay is over."""
        self._deletion.unlink(paths, delay_ms)

    # -- partitions ---------------------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """Return the log of a partition, after making it if need be. One that belongs to another topic id is replaced.

        Raises:
            StorageFailure: the disk refused.
        """
        return self.create_many(topic, (partition,), topic_id, config)[0]

    def create_many(
        self, topic: str, partitions: Iterable[int], topic_id: bytes, config: LogConfig
    ) -> list[PartitionLog]:
        """Return the logs of several partitions of one topic, as `create` does.

        A new folder's entries are synced before the first record in it counts as durable, not here.
        """
        wanted = list(partitions)
        for partition in wanted:
            log = self.logs.get((topic, partition))
            if log is not None and log.topic_id not in (topic_id, bytes(16)):
                self.delete(topic, partition)
        self.checkpoints.forget((topic, partition) for partition in wanted if (topic, partition) not in self.logs)
        created = []
        for partition in wanted:
            log = self.logs.get((topic, partition))
            if log is None:
                log = self._create(topic, partition, topic_id, config)
            else:
                if log.topic_id != topic_id:
                    self.identify(topic, partition, topic_id)
                log.configure(config)
            created.append(log)
        return created

    def _create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        folder = self._path(f"{topic}-{partition}")
        self._deleted_folders.make_way((topic, partition))
        if is_partition(self.files, folder):
            raise StorageFailure(f"{folder} holds a partition that the broker does not serve: move it away")
        existed = self.files.exists(folder)
        self.files.make_folder(folder)
        try:
            identity = self._write_identity(folder, topic_id)
            # wall clock: the age of a segment, which outlives the process
            segment = Segment.create(self.files, folder, 0, config, self.clock())
        except StorageFailure:
            self._remove_half_made(folder, config, existed=existed)
            raise
        state = LogState.at_end(
            self,
            folder,
            topic,
            partition,
            topic_id,
            [segment],
            log_start_offset=0,
            log_end_offset=0,
            producers=ProducerState(),
            epochs=LeaderEpochs(self.files, f"{folder}/{checkpoints.LEADER_EPOCHS}"),
            config=config,
        )
        log = PartitionLog(self, state)
        log.sync_paths(identity, folder, self.root)
        self.logs[topic, partition] = log
        return log

    def _remove_half_made(self, folder: str, config: LogConfig, *, existed: bool) -> None:
        """Remove the files of a partition that could not be made; files of others may be in a folder that existed."""
        try:
            if not existed:
                self.files.remove_tree(folder)
                return
            self.files.unlink(f"{folder}/{checkpoints.PARTITION_METADATA}")
            for path in Segment(self.files, folder, 0, config, 0).own_paths():
                self.files.unlink(path)
        except StorageFailure as error:
            _log.error("half-made folder not removed", path=folder, reason=str(error))

    def make_missing(self, topic: str, partitions: Iterable[int], topic_id: bytes, config: LogConfig) -> None:
        """Create partitions that a start did not find. One that cannot be made is offline until the next start."""
        for partition in partitions:
            try:
                self.create(topic, partition, topic_id, config)
            except StorageFailure as error:
                folder = self._path(f"{topic}-{partition}")
                log = Recovery(self, folder, topic, partition, config, Known(clean=False)).unusable(str(error))
                log.identify(topic_id)
                self.logs[topic, partition] = log

    def identify(self, topic: str, partition: int, topic_id: bytes) -> None:
        """Note that the log, whose folder names no topic, belongs to this one. If the disk refuses to store that, the
        next start tries again.
        """
        log = self.logs[topic, partition]
        log.identify(topic_id)
        try:
            log.sync_paths(self._write_identity(log.folder, topic_id), log.folder)
        except StorageFailure as error:
            _log.warning("topic id not stored", log=log.folder, reason=str(error))
        else:
            self.mark(log)

    def _write_identity(self, folder: str, topic_id: bytes) -> str:
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        self.files.replace_file(path, checkpoints.encode_partition_metadata(topic_id), sync=False)
        return path

    def delete(self, topic: str, partition: int) -> None:
        """Forget a partition. Its folder is renamed at once, its files are unlinked later, waiting callers get error 3.

        No task may be rewriting its segments; `delete_many` waits for that.

        Raises:
            StorageFailure: the folder has its old name still; the partition is deleted all the same.
        """
        if (log := self._withdraw((topic, partition))) is not None:
            self._deleted_folders.rename(log)

    def delete_at_once(self, partitions: Collection[TopicPartition]) -> set[str]:
        """Forget several partitions, as `delete` does; return the names of topics of which a start would find some.

        For a start, or a topic that is only half made: no task rewrites segments then.
        """
        failed = set()
        for topic, partition in partitions:
            try:
                self.delete(topic, partition)
                if is_partition(self.files, self._path(f"{topic}-{partition}")):
                    failed.add(topic)
            except StorageFailure as error:
                _log.error("partition not deleted", topic=topic, partition=partition, reason=str(error))
                failed.add(topic)
        return failed if self._sync_deletion() else {topic for topic, _ in partitions}

    async def delete_many(self, partitions: Sequence[TopicPartition]) -> set[str]:
        """Forget several partitions, some at a time, as `delete` does; return the names of topics of which a start
        would find some.

        The new names of the folders are synced once. The checkpoints are written again without the partitions, too. If
        that fails, `create_many` does it.
        """
        failed = set()
        for first in range(0, len(partitions), _DELETED_AT_ONCE):
            if first:
                await asyncio.sleep(0)
            for key in partitions[first : first + _DELETED_AT_ONCE]:
                log = self._withdraw(key)
                try:
                    if log is None:
                        if is_partition(
                            self.files, self._path(f"{key[0]}-{key[1]}")
                        ):  # mutant: half-made-not-forgotten
                            failed.add(key[0])
                        continue
                    if log.compaction.running:  # mutant: rename-after-compaction
                        await self.release_segments(log)
                    self._deleted_folders.rename(log)
                except StorageFailure:
                    failed.add(key[0])
        synced = await self._threads.run(self._sync_deletion)
        await self.checkpoints.store()
        return failed if synced else {topic for topic, _ in partitions}

    def _sync_deletion(self) -> bool:
        try:
            self.sync_folders()  # mutant: deletion-synced
        except StorageFailure as error:
            _log.warning("deletion not synced", reason=str(error))
            return False
        return True

    def _withdraw(self, key: TopicPartition) -> PartitionLog | None:
        """Remove a log from the folder and mark it as deleted; return it, or None if there is none."""
        log = self.logs.pop(key, None)
        if log is not None:
            self._flushers.pop(log, None)
            self.flusher.forget(log)
            self.background.forget(log)
            log.mark_deleted()
        return log

    def sync_folders(self) -> None:
        """Sync the names of the partitions' folders.

        Raises:
            StorageFailure: the disk refused.
        """
        self.files.sync_path(self.root)

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the flushers and the writing of checkpoints."""
        self._loop = loop
        self.checkpoints.start(loop)
        self._deletion.start(loop)
        self._deletion.unlink(self._strays, _STRAYS_DELAY_MS)
        gathered = self.flusher.withdraw()
        self.flusher.start(loop)
        self.background.start(loop)
        for log in gathered:
            self.mark(log)
        every, stored = self._work.every, self.checkpoints
        every(loop, "checkpoints", self.settings.checkpoint_interval_ms, stored.write_all)
        every(loop, "recovery points", RECOVERY_POINT_CHECK_MS, stored.freshen_recovery_points)

    async def close(self) -> None:
        """Sync, complete the indexes, store producer state and checkpoints; the marker comes last, if all went well."""
        self._work.stop()
        await self._deletion.stop()
        await asyncio.gather(self.flusher.stop(), self.background.stop())
        await self.checkpoints.stop()
        self._loop = None
        if self._lock >= 0:
            await asyncio.to_thread(self._close_logs)  # default threads: nothing is served any more
            self.release()

    def _close_logs(self) -> None:
        for log in self.logs.values():
            if log.recovery_point < log.log_end_offset:
                log.request_sync()
        self.flusher.sync_now()
        self.background.sync_now()
        clean = True
        for log in self.logs.values():
            try:
                log.close()
            except StorageFailure as error:
                _log.error("log not closed cleanly", log=log.folder, reason=str(error))
                clean = False
            clean = clean and log.offline is None and log.recovery_point >= log.log_end_offset
        if self.checkpoints.store_all() and clean:
            self.files.replace_file(self._path(checkpoints.CLEAN_SHUTDOWN), checkpoints.CLEAN_SHUTDOWN_CONTENT)
        _log.info("data folder closed", path=self.root, clean=clean)

    def release(self) -> None:
        """Close every file and give up the lock; nothing is synced or completed, so the next start recovers."""
        self.flusher.close()
        self.background.close()
        for log in self.logs.values():
            log.segments.close()
        self.revisions.close()
        if self._lock >= 0:
            self.files.unlock(self._lock)
            self._lock = -1
        self.files.give_back_reserve()

    def check_invariants(self) -> None:
        """Raise AssertionError unless every log's state is consistent."""
        for log in self.logs.values():
            log.check_invariants()


def _nothing(_log: PartitionLog) -> None:
    """Ignore the log: there is no scrub."""


async def _nothing_to_release(_log: PartitionLog) -> None:
    """Return at once: no task rewrites segments."""
