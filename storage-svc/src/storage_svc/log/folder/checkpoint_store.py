"""The checkpoint files of a data folder: reading the stored ones, and storing the present state of every log.

Each file is replaced as a whole. One write is under way at a time; while the event loop runs, a thread does it.

A checkpoint names a topic, not its id. After a crash, the offset of a deleted partition would be applied to a new one
of the same name. So `forget` removes such offsets from the stored checkpoints before the partition is created.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final

from service_chassis import logs

from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.checkpoint_seal import read_sealed, replace_sealed
from storage_svc.log.disk.files import Files
from storage_svc.log.disk.space_reserve import SpaceReserve
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import DiskFull, StorageFailure
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.topic_partition import TopicPartition

#: The interval at which `freshen_recovery_points` is worth a call. A start checks about a gigabyte a second.
RECOVERY_POINT_CHECK_MS: Final = 1_000
_RECOVERY_POINT_AGE_S: Final = 5
_RECOVERY_POINT_BYTES: Final = 128 << 20

_log = logs.get(__name__)


class CheckpointStore:
    """The checkpoints of a DataFolder and its logs, owned by that folder."""

    def __init__(self, files: Files, root: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self._files = files
        self._root = root
        #: The space that checkpoints and the catalog may use when the disk is full.
        self.reserve = SpaceReserve(files, f"{root}/{checkpoints.SPACE_RESERVE}")
        #: Starts of logs that are being stored and apply once they are.
        self._rising: dict[PartitionLog, int] = {}
        self._logs = logs
        self._loop: asyncio.AbstractEventLoop | None = None
        self._storing: asyncio.Future[bool] | None = None
        # The recovery points as they were last stored, when that was, and the bytes that had been appended by then.
        self._stored_points: list[int] = []
        self._stored_at = 0.0
        self._stored_bytes = 0
        # The partitions in each stored checkpoint; the number of each write, because a thread may come late with one.
        self._stored: dict[str, frozenset[TopicPartition]] = {}
        self._written: dict[str, int] = {}
        self._number = 0
        self._lock = threading.Lock()
        self._threads = Threads("checkpoint", 1)

    def read(self, name: str) -> dict[TopicPartition, int]:
        """Return the offsets that were stored under this name; none if the file is missing or unreadable."""
        try:
            data = read_sealed(self._files, f"{self._root}/{name}")
            offsets = {} if data is None else checkpoints.decode_offsets(data)
        except (checkpoints.UnreadableCheckpoint, StorageFailure) as error:
            _log.warning("checkpoint unreadable", name=name, reason=str(error))
            return {}
        self._stored[name] = frozenset(offsets)
        return offsets

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Write checkpoints from threads of this loop from now on."""
        self._loop = loop
        self.reserve.begin()

    async def stop(self) -> None:
        """Wait until the write that is under way has ended."""
        self._loop = None
        if self._storing is not None:
            await asyncio.shield(self._storing)

    def write_all(self) -> None:
        """Store every checkpoint, from a thread when the loop runs."""
        if self._loop is None:
            self.store_all()
        elif not self._busy:
            self._storing = self._threads.run_for(self._loop, self._store, self._next_number(), self._contents())

    def freshen_recovery_points(self) -> None:
        """Store the recovery points, from a thread, if they moved and it is time. Refill the reserve of space first."""
        if self._files.keeps_space and not self._busy:
            assert self._loop is not None
            self._storing = self._threads.run_for(self._loop, self._refill)
            return
        now, appended = time.monotonic(), sum(log.appended_bytes for log in self._logs.values())
        if now < self._stored_at + _RECOVERY_POINT_AGE_S and appended < self._stored_bytes + _RECOVERY_POINT_BYTES:
            return
        points = [log.recovery_point for log in self._logs.values()]
        if points == self._stored_points or self._busy:
            return
        self._stored_points, self._stored_at, self._stored_bytes = points, now, appended
        assert self._loop is not None
        points_now = self._recovery_points()
        self._storing = self._threads.run_for(self._loop, self._store, self._next_number(), points_now)

    def store_all(self) -> bool:
        """Store every checkpoint here and now, when the loop does not run; whether that worked."""
        return self._store(self._next_number(), self._contents())

    async def store(self, name: str | None = None) -> bool:
        """Store one of the checkpoints, or all of them, as of now; whether that worked.

        A caller that is cancelled leaves a write that goes on: the next one waits for it.
        """
        while (storing := self._storing) is not None and not storing.done():
            await asyncio.wait({storing})
        contents = self._contents()
        wanted = contents if name is None else {name: contents[name]}
        self._storing = self._threads.run(self._store, self._next_number(), wanted)
        return await asyncio.shield(self._storing)  # mutant: checkpoint-write-shielded

    async def store_log_starts(self, starts: Mapping[PartitionLog, int]) -> bool:
        """Store these later starts of logs, before any client learns of them; return whether that worked."""
        for log, start in starts.items():
            self._rising[log] = max(start, self._rising.get(log, 0))
        try:
            return await self.store(checkpoints.LOG_START)
        finally:
            for log, start in starts.items():
                if self._rising.get(log) == start:
                    del self._rising[log]

    def forget(self, keys: Iterable[TopicPartition]) -> None:
        """Remove offsets of partitions that have no log from the stored checkpoints. Usually there are none.

        Raises:
            StorageFailure: a checkpoint that holds one of them could not be replaced.
        """
        unwanted = frozenset(keys)
        if all(unwanted.isdisjoint(stored) for stored in self._stored.values()):  # mutant: deleted-topic-offsets
            return
        contents = self._contents()
        stale = {name: contents[name] for name, stored in self._stored.items() if not unwanted.isdisjoint(stored)}
        if not self._store(self._next_number(), stale):
            raise StorageFailure("cannot remove the offsets of deleted partitions from the checkpoints")

    @property
    def _busy(self) -> bool:
        return self._storing is not None and not self._storing.done()

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _recovery_points(self) -> dict[str, dict[TopicPartition, int]]:
        return {checkpoints.RECOVERY_POINT: {key: log.checkpoint[0] for key, log in self._logs.items()}}

    def _contents(self) -> dict[str, dict[TopicPartition, int]]:
        items = self._logs.items()
        return {
            **self._recovery_points(),
            checkpoints.LOG_START: {
                key: start for key, log in items if (start := max(log.log_start_offset, self._rising.get(log, 0))) > 0
            },
            checkpoints.HIGH_WATERMARK: {key: log.checkpoint[1] for key, log in items},
            checkpoints.CLEANED: {
                key: log.compaction.cleaned_to for key, log in items if log.compaction.cleaned_to is not None
            },
        }

    def _store(self, number: int, contents: dict[str, dict[TopicPartition, int]]) -> bool:
        """Replace these checkpoints, except those that a write with a later number has replaced."""
        with self._lock:
            try:
                try:
                    self._replace(number, contents)
                except DiskFull:
                    if not self.reserve.give_up():
                        raise
                    self._replace(number, contents)
                else:
                    if self._loop is not None:
                        self.reserve.keep()
            except StorageFailure as error:
                _log.warning("checkpoints not written", reason=str(error))
                return False
        return True

    def _refill(self) -> bool:
        with self._lock:
            self.reserve.keep()
        return True

    def _replace(self, number: int, contents: dict[str, dict[TopicPartition, int]]) -> None:
        for name, offsets in contents.items():
            if number > self._written.get(name, 0):
                stored = frozenset(offsets)
                # A failed write leaves the old content or the new one.
                self._stored[name] = self._stored.get(name, frozenset()) | stored
                replace_sealed(self._files, f"{self._root}/{name}", checkpoints.encode_offsets(offsets))
                self._stored[name], self._written[name] = stored, number
