"""The data folder: its lock, identity, checkpoints and clean-shutdown marker, and every partition's log in it.

    .lock                                  held by flock while the folder is open
    meta.properties                        version, cluster.id, node.id, directory.id
    .kafka_cleanshutdown                   there after a clean stop; deleted at start, before anything is loaded
    recovery-point-offset-checkpoint       synced up to here (kafka-semantics.md §1.1)
    log-start-offset-checkpoint
    cleaner-offset-checkpoint              compacted up to here
    replication-offset-checkpoint          high watermarks
    <topic>-<partition>/                   one log
    <topic>-<partition>.<uuid>-delete/     a deleted one, until its files are unlinked

Checkpoints are written every minute, and at a clean stop; recovery points, which say how much a start after a crash has
to check, five seconds after they moved, or once 128 MB were written. Retention, compaction and the expiry of producers
run here too.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from os.path import abspath, dirname
from pathlib import Path
from typing import Final

from service_chassis import logs

from storage_svc.log import checkpoints
from storage_svc.log.checkpoint_seal import read_sealed, replace_sealed
from storage_svc.log.cleaner import Cleaner
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.errors import DataFolderError, StorageFailure
from storage_svc.log.files import Files
from storage_svc.log.flusher import Flusher
from storage_svc.log.leader_epochs import LeaderEpochs
from storage_svc.log.open_segments import OpenSegments, open_segments_max
from storage_svc.log.partition_folder import partition_of
from storage_svc.log.partition_log import PartitionLog
from storage_svc.log.producer_state import ProducerState
from storage_svc.log.recovery import Known, Recovery
from storage_svc.log.retention import apply_retention
from storage_svc.log.segment import Segment

_DELETED_FOLDER: Final = "-delete"
# Reading from the disk is what takes time and waits without the interpreter's lock; Kafka has two as well.
_RECOVERY_THREADS: Final = 2
_RECOVERY_SHARE: Final = 4

# A start checks about a gigabyte a second.
_RECOVERY_POINT_CHECK_MS: Final = 1_000
_RECOVERY_POINT_AGE_S: Final = 5
_RECOVERY_POINT_BYTES: Final = 128 << 20

_log = logs.get(__name__)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class LogDirectory:
    """Owned by the event loop's thread. `open` and `create` block; after `start` two flushers' threads sync: one the
    logs under flush.policy=group, one those under os."""

    def __init__(self, root: str, settings: LogSettings, files: Files, clock: Callable[[], int]) -> None:
        self.root = root
        self.settings = settings
        self.files = files
        self.clock = clock
        self.policy = settings.flush_policy
        self.open_segments = OpenSegments(settings.open_segments_max or open_segments_max())
        self.flusher = Flusher(files)
        self.background = Flusher(files)
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.cleaner = Cleaner(self)
        self.cluster_id = ""
        self.recovery_seconds = 0.0
        self.truncated_bytes = 0
        self.quarantined_bytes = 0
        self.deleted_bytes = 0
        self._lock = -1
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._storing: asyncio.Future[bool] | None = None
        self._unlinking: dict[asyncio.TimerHandle, Callable[[], None]] = {}
        self._forgetting: asyncio.Task[bool] | None = None
        # The recovery points as they were last stored, when that was, and the bytes that had been appended by then.
        self._stored_points: list[int] = []
        self._stored_at = 0.0
        self._stored_bytes = 0

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
    ) -> LogDirectory:
        """Lock the folder (made if need be), recover and open every log, each with default LogConfig.

        `log.configure(…)` gives a log its own settings afterwards.

        Raises:
            DataFolderInUse: another process has it.
            DataFolderError: it belongs to another cluster.
            StorageFailure: it cannot be read or written.
        """
        files = files or Files()
        directory = cls(str(path), settings, files, clock)
        files.make_folder(directory.root)
        directory._lock = files.lock(directory._path(checkpoints.LOCK))
        try:
            directory._identify(cluster_id)
            directory._load()
        except BaseException:
            directory.release()
            raise
        return directory

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def _identify(self, cluster_id: str | None) -> None:
        """Read meta.properties, or write it for a new folder."""
        path = self._path(checkpoints.META_PROPERTIES)
        properties = checkpoints.decode_properties(self.files.read_file(path) or b"")
        found = properties.get("cluster.id")
        if found is not None and cluster_id not in (None, found):
            raise DataFolderError(f"data folder {self.root} belongs to cluster {found}, not to {cluster_id}")
        self.cluster_id = found or cluster_id or checkpoints.uuid_text(uuid.uuid4().bytes)
        if found is None:
            self._sync_above()
            properties = {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": "1",
                "directory.id": checkpoints.uuid_text(uuid.uuid4().bytes),
            }
            self.files.replace_file(path, checkpoints.encode_properties(properties))

    def _sync_above(self) -> None:
        """A new folder is there after a power cut only if those above it, some of which may be new too, say so."""
        path = abspath(self.root)
        while (above := dirname(path)) != path:
            try:
                self.files.sync_path(above)
            except StorageFailure as error:  # one that we may not open, and so have not made
                _log.debug("folder above the data folder not synced", path=above, reason=str(error))
                return
            path = above

    def _load(self) -> None:
        started = time.perf_counter()
        marker = self._path(checkpoints.CLEAN_SHUTDOWN)
        clean = self.files.exists(marker)
        if clean:  # a crash from here on is an unclean stop
            self.files.unlink(marker)
            self.files.sync_path(self.root)
        recovery_points = self._read_offsets(checkpoints.RECOVERY_POINT)
        log_starts = self._read_offsets(checkpoints.LOG_START)
        high_watermarks = self._read_offsets(checkpoints.HIGH_WATERMARK)
        recoveries: dict[tuple[str, int], Recovery] = {}
        cleaned = self._read_offsets(checkpoints.CLEANED)
        for name, is_folder, _ in self.files.entries(self.root):
            if not is_folder:
                continue
            if name.endswith(_DELETED_FOLDER):
                self.files.remove_tree(self._path(name))
                continue
            key = partition_of(self.files, self.root, name)
            if key is None:
                continue
            known = Known(
                clean=clean,
                recovery_point=recovery_points.get(key, 0),
                log_start_offset=log_starts.get(key, 0),
                high_watermark=high_watermarks.get(key, 0),
                cleaned_to=cleaned.get(key, 0),
            )
            recoveries[key] = Recovery(self, self._path(name), key[0], key[1], LogConfig(), known)
        self._recover(recoveries)
        for key, log in self.logs.items():
            log.compaction.cleaned_to = cleaned.get(key)
        if not clean:
            # A partition's folder may have been made by a process that died before it had synced this one.
            self.files.sync_path(self.root)
            self.sync_recovered()
        self.recovery_seconds = time.perf_counter() - started
        _log.info("data folder open", path=self.root, logs=len(self.logs), clean=clean)

    def _recover(self, recoveries: dict[tuple[str, int], Recovery]) -> None:
        if len(recoveries) < _RECOVERY_THREADS * _RECOVERY_SHARE:
            for key, recovery in recoveries.items():
                self.logs[key] = recovery.run()
        else:
            with ThreadPoolExecutor(_RECOVERY_THREADS, "millrace-recovery") as pool:
                running = {key: pool.submit(recovery.run) for key, recovery in recoveries.items()}
            self.logs |= {key: future.result() for key, future in running.items() if future.exception() is None}
            for future in running.values():
                future.result()
        self.truncated_bytes += sum(recovery.truncated_bytes for recovery in recoveries.values())
        self.quarantined_bytes += sum(recovery.quarantined_bytes for recovery in recoveries.values())

    def sync_recovered(self) -> None:
        """Sync what recovery found and consumers may read, of the logs that promise that it is synced. Before `start`,
        and again when logs have got their own settings."""
        self.flusher.sync_now(lambda log: log.policy is FlushPolicy.GROUP)

    def _read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        try:
            data = read_sealed(self.files, self._path(name))
            return {} if data is None else checkpoints.decode_offsets(data)
        except checkpoints.UnreadableCheckpoint as error:
            _log.warning("checkpoint unreadable", name=name, reason=str(error))
            return {}

    # -- LogEnvironment -----------------------------------------------------------------------------------------------

    def mark(self, log: PartitionLog) -> None:
        (log.flusher or self._choose_flusher(log)).mark(log)

    def mark_later(self, log: PartitionLog, delay_ms: int) -> None:
        (log.flusher or self._choose_flusher(log)).mark_later(log, delay_ms)

    def _choose_flusher(self, log: PartitionLog) -> Flusher:
        """Logs whose writers wait for syncs do not wait for those of the others too. Before `start` logs have not got
        their own settings yet, and one flusher gathers for all."""
        if self._loop is None:
            return self.flusher
        log.flusher = self.flusher if log.policy is FlushPolicy.GROUP else self.background
        return log.flusher

    def unlink_later(self, paths: list[str], delay_ms: int) -> None:
        self._later(delay_ms, partial(self._unlink, paths))

    def _unlink(self, paths: list[str]) -> None:
        for path in paths:
            try:
                self.files.unlink(path)
            except StorageFailure as error:
                _log.warning("file not deleted", path=path, reason=str(error))

    def _remove_folder(self, path: str) -> None:
        try:
            self.files.remove_tree(path)
        except StorageFailure as error:
            _log.warning("folder not deleted", path=path, reason=str(error))

    def _later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Run in a thread when the delay is over; at the next start at the latest, if we stop before."""
        if self._loop is None:
            return
        loop = self._loop

        def due() -> None:
            self._unlinking.pop(handle, None)
            loop.run_in_executor(None, action)

        handle = loop.call_later(delay_ms / 1000, due)
        self._unlinking[handle] = action

    # -- partitions ---------------------------------------------------------------------------------------------------

    def create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        """The log of a partition, made if need be; one that belongs to another topic id is replaced.

        Raises:
            StorageFailure: the disk refused.
        """
        return self.create_many(topic, (partition,), topic_id, config)[0]

    def create_many(
        self, topic: str, partitions: Iterable[int], topic_id: bytes, config: LogConfig
    ) -> list[PartitionLog]:
        """As `create`, for several partitions of one topic.

        A new folder's entries are synced before the first record in it counts as durable, not here.
        """
        created = []
        for partition in partitions:
            log = self.logs.get((topic, partition))
            if log is not None and log.topic_id == topic_id:
                log.configure(config)
            elif log is not None and log.topic_id == bytes(16):
                self._write_identity(log.folder, topic_id)
                log.topic_id = topic_id
                log.configure(config)
            else:
                if log is not None:
                    self.delete(topic, partition)
                log = self._create(topic, partition, topic_id, config)
            created.append(log)
        return created

    def _create(self, topic: str, partition: int, topic_id: bytes, config: LogConfig) -> PartitionLog:
        folder = self._path(f"{topic}-{partition}")
        self.files.make_folder(folder)
        identity = self._write_identity(folder, topic_id)
        log = PartitionLog(
            self,
            folder,
            topic,
            partition,
            topic_id,
            [Segment.create(self.files, folder, 0, config, self.clock())],
            log_start_offset=0,
            log_end_offset=0,
            producers=ProducerState(),
            epochs=LeaderEpochs(self.files, f"{folder}/{checkpoints.LEADER_EPOCHS}"),
            config=config,
        )
        log.unsynced.add_paths(identity, folder, self.root)
        self.logs[topic, partition] = log
        return log

    def _write_identity(self, folder: str, topic_id: bytes) -> str:
        path = f"{folder}/{checkpoints.PARTITION_METADATA}"
        self.files.replace_file(path, checkpoints.encode_partition_metadata(topic_id), sync=False)
        return path

    def delete(self, topic: str, partition: int) -> None:
        """Forget a partition: its folder is renamed at once, its files go later, who waits gets error 3.

        Raises:
            StorageFailure: the folder could not be renamed; the log is as before.
        """
        log = self.logs.get((topic, partition))
        if log is None:
            return
        renamed = f"{log.folder}.{uuid.uuid4().hex}{_DELETED_FOLDER}"
        self.files.rename(log.folder, renamed)
        del self.logs[topic, partition]
        self.flusher.forget(log)
        self.background.forget(log)
        log.mark_deleted()
        self._later(log.config.file_delete_delay_ms, partial(self._remove_folder, renamed))
        if self._loop is not None and log.compaction.cleaned_to is not None:
            # Another topic of this name was never compacted.
            self._forgetting = self._loop.create_task(self.store_checkpoint(checkpoints.CLEANED))

    # -- running ------------------------------------------------------------------------------------------------------

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the flusher and the periodic work."""
        self._loop = loop
        gathered = self.flusher.withdraw()
        self.flusher.start(loop)
        self.background.start(loop)
        for log in gathered:
            self.mark(log)
        self.cleaner.start(loop)
        self._every("checkpoints", self.settings.checkpoint_interval_ms, self.write_checkpoints)
        self._every("recovery points", _RECOVERY_POINT_CHECK_MS, self.freshen_recovery_points)
        self._every("retention", self.settings.retention_check_interval_ms, self.apply_retention)
        self._every("producers", self.settings.producer_id_check_interval_ms, self.expire_producers)

    def _every(self, name: str, interval_ms: int, action: Callable[[], None]) -> None:
        assert self._loop is not None

        def due() -> None:
            try:
                action()
            except StorageFailure as error:
                _log.error("periodic work failed", work=name, reason=str(error))
            self._every(name, interval_ms, action)

        self._timers[name] = self._loop.call_later(interval_ms / 1000, due)

    def write_checkpoints(self) -> None:
        """Store every checkpoint, from a thread when the loop runs."""
        if self._loop is None:
            self.store_checkpoints()
        elif self._storing is None or self._storing.done():
            self._storing = self._loop.run_in_executor(None, self._store, self._checkpoints())

    def freshen_recovery_points(self) -> None:
        """Store the recovery points, from a thread, if they moved and it is time."""
        now, appended = time.monotonic(), sum(log.appended_bytes for log in self.logs.values())
        if now < self._stored_at + _RECOVERY_POINT_AGE_S and appended < self._stored_bytes + _RECOVERY_POINT_BYTES:
            return
        points = [log.recovery_point for log in self.logs.values()]
        if points == self._stored_points or (self._storing is not None and not self._storing.done()):
            return
        self._stored_points, self._stored_at, self._stored_bytes = points, now, appended
        assert self._loop is not None
        self._storing = self._loop.run_in_executor(None, self._store, self._recovery_points())

    def _recovery_points(self) -> dict[str, bytes]:
        offsets = {key: log.checkpoint[0] for key, log in self.logs.items()}
        return {checkpoints.RECOVERY_POINT: checkpoints.encode_offsets(offsets)}

    def store_checkpoints(self) -> bool:
        """Store every checkpoint here and now, when the loop does not run; whether that worked."""
        return self._store(self._checkpoints())

    async def store_checkpoint(self, name: str) -> bool:
        """Store one of the checkpoints as of now; whether that worked."""
        loop = asyncio.get_running_loop()
        while (storing := self._storing) is not None and not storing.done():
            await asyncio.wait({storing})
        self._storing = loop.run_in_executor(None, self._store, {name: self._checkpoints()[name]})
        return await self._storing

    def _checkpoints(self) -> dict[str, bytes]:
        items = self.logs.items()
        return {
            **self._recovery_points(),
            checkpoints.LOG_START: checkpoints.encode_offsets(
                {key: log.log_start_offset for key, log in items if log.log_start_offset > 0}
            ),
            checkpoints.HIGH_WATERMARK: checkpoints.encode_offsets({key: log.checkpoint[1] for key, log in items}),
            checkpoints.CLEANED: checkpoints.encode_offsets(
                {key: log.compaction.cleaned_to for key, log in items if log.compaction.cleaned_to is not None}
            ),
        }

    def _store(self, contents: dict[str, bytes]) -> bool:
        try:
            for name, data in contents.items():
                replace_sealed(self.files, self._path(name), data)
        except StorageFailure as error:
            _log.warning("checkpoints not written", reason=str(error))
            return False
        return True

    def apply_retention(self) -> None:
        now_ms = self.clock()
        for log in list(self.logs.values()):
            try:
                self.deleted_bytes += apply_retention(log, now_ms)
            except StorageFailure as error:
                _log.error("retention failed", log=log.folder, reason=str(error))

    def expire_producers(self) -> None:
        before_ms = self.clock() - self.settings.producer_id_expiration_ms
        for log in self.logs.values():
            log.producers.expire(before_ms)

    async def close(self) -> None:
        """Sync, complete the indexes, store producer state and checkpoints; the marker comes last, if all went well."""
        for timer in (*self._timers.values(), *self._unlinking):
            timer.cancel()
        self._timers.clear()
        self._unlinking.clear()
        await self.cleaner.stop()
        await asyncio.gather(self.flusher.stop(), self.background.stop())
        if self._forgetting is not None:
            await self._forgetting
        if self._storing is not None:
            await self._storing
        self._loop = None
        if self._lock >= 0:
            await asyncio.to_thread(self._close_logs)
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
            clean = clean and log.offline is None
        if self.store_checkpoints() and clean:
            self.files.replace_file(self._path(checkpoints.CLEAN_SHUTDOWN), checkpoints.CLEAN_SHUTDOWN_CONTENT)
        _log.info("data folder closed", path=self.root, clean=clean)

    def release(self) -> None:
        """Close every file and give up the lock; nothing is synced or completed, so the next start recovers."""
        self.flusher.close()
        self.background.close()
        for log in self.logs.values():
            log.segments.close()
        if self._lock >= 0:
            self.files.close(self._lock)
            self._lock = -1

    def check_invariants(self) -> None:
        """Raise AssertionError unless every log's state is consistent."""
        for log in self.logs.values():
            log.check_invariants()
