"""The background work on the logs of a data folder: compaction, the scrub, retention and the expiry of producers.

`storage_svc/app.py` builds one for its data folder, starts it after the folder and stops it before the folder closes.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

from service_chassis import logs

from storage_svc.log.cleaner.cleaner import Cleaner
from storage_svc.log.config import LogSettings
from storage_svc.log.disk.threads import Threads
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.folder.periodic_work import PeriodicWork
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import retain
from storage_svc.log.scrub.scrubber import Scrubber

_RELEASE_CHECK_S: Final = 0.01

#: Seconds for which retention checks logs, or the expiry producers, before other work gets its turn.
_TURN_S: Final = 0.002
#: Producers of a log that are checked before a look at the clock: 0.2 ms.
_EXPIRED_STEP: Final = 1_000

_log = logs.get(__name__)


class Maintenance:
    """The background work of one data folder, owned by the event loop's thread.

    The folder passes the logs that were found damaged to the scrubber, and has segments of deleted logs released.
    """

    def __init__(self, folder: DataFolder) -> None:
        self._logs = folder.logs
        self.settings = folder.settings
        self._clock = folder.clock
        self._work = PeriodicWork()
        self._threads = Threads("retention", 1)
        self._retaining: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None
        self._stopping = False
        self.cleaner = Cleaner(
            folder.logs, folder.files, folder.settings, folder.clock, folder.root, folder.checkpoints
        )
        self.scrubber = Scrubber(folder.logs, folder.files, folder.settings, folder.clock, folder.root)
        folder.on_suspect = self.scrubber.request
        folder.release_segments = self.release_segments

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the cleaner, the scrubber and the timers. The folder is started already."""
        settings = self.settings
        self.cleaner.start(loop)
        self.scrubber.start(loop)
        self._work.every(loop, "retention", settings.retention_check_interval_ms, self._start_retention)
        self._work.every(loop, "producers", settings.producer_id_check_interval_ms, self._start_expiry)

    def configure(self, settings: LogSettings) -> None:
        """Work under these settings from now on. The scrub, retention and the times of checks stay as they are."""
        self.settings = settings
        self.cleaner.configure(settings)

    async def stop(self) -> None:
        """Stop everything; a segment swap that has begun is finished first."""
        self._work.stop()
        self._stopping = True
        try:
            for task in (self._retaining, self._expiring):
                if task is not None:
                    await task
        finally:  # also when this is cancelled: their tasks would be left to a loop that ends
            await asyncio.gather(self.cleaner.stop(), self.scrubber.stop())

    async def release_segments(self, log: PartitionLog) -> None:
        """Stop a cleaning of a log that is marked as deleted, and wait until no task rewrites its segments."""
        while log.compaction.running:
            await self.cleaner.give_up(log)
            await asyncio.sleep(_RELEASE_CHECK_S)

    def _start_retention(self) -> None:
        if self._retaining is None or self._retaining.done():
            self._retaining = asyncio.get_running_loop().create_task(self.apply_retention())

    async def apply_retention(self) -> None:
        """Delete the segments that every log's settings no longer keep. A log that fails is tried again next time.

        The event loop goes on between the logs: after a weekend without the broker, most of them have expired.
        """
        # wall clock: retention by timestamps of records; the age of a producer's state, which is stored
        now_ms, turn_over = self._clock(), time.monotonic() + _TURN_S
        for log in list(self._logs.values()):
            if self._stopping:
                return
            try:
                await retain(log, now_ms, self._threads)
            except StorageFailure as error:
                _log.error("retention failed", log=log.folder, reason=str(error))
            except Exception:  # a bug; the other logs are to be retained all the same
                _log.exception("retention failed", log=log.folder)
            if time.monotonic() >= turn_over:
                await asyncio.sleep(0)
                turn_over = time.monotonic() + _TURN_S

    def _start_expiry(self) -> None:
        if self._expiring is None or self._expiring.done():
            self._expiring = asyncio.get_running_loop().create_task(self.expire_producers())

    async def expire_producers(self) -> None:
        """Forget producers that have written nothing for `producer_id_expiration_ms`, while the event loop goes on."""
        before_ms, turn_over = self._clock() - self.settings.producer_id_expiration_ms, time.monotonic() + _TURN_S
        for log in list(self._logs.values()):
            for _ in log.producers.expire(before_ms, _EXPIRED_STEP):
                if time.monotonic() >= turn_over:
                    await asyncio.sleep(0)
                    turn_over = time.monotonic() + _TURN_S
                if self._stopping:
                    return
