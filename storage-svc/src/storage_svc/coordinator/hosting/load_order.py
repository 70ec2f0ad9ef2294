"""The order in which a start loads the partitions of both coordinators: one at a time, as they share a processor.

A partition that a client has asked for comes before the others, and of those a shorter one before a longer one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from service_chassis import logs as service_logs

from storage_svc.coordinator.hosting.served_partitions import ServedPartitions
from storage_svc.log.errors import LogError
from storage_svc.log.partition.partition_log import PartitionLog

log = service_logs.get(__name__)


class LoadOrder:
    """The partitions that wait to be loaded, of every coordinator. Owned by the event loop."""

    def __init__(self) -> None:
        self._turns: dict[ServedPartitions, asyncio.Future[None]] = {}
        self._is_busy = False

    async def load(
        self,
        served: ServedPartitions,
        logs: Sequence[PartitionLog],
        load: Callable[[PartitionLog], Awaitable[None]],
    ) -> None:
        """Load each of a coordinator's partitions. One that fails is logged, and stays unserved."""
        by_partition = {each.partition: each for each in logs}
        while by_partition:
            await self._turn(served)
            try:
                each = by_partition.pop(served.next_to_load())
                await _load_one(served, each, load)
            finally:
                self._is_busy = False
                asyncio.get_running_loop().call_soon(self._next)  # after this coordinator has asked for another turn

    async def _turn(self, served: ServedPartitions) -> None:
        """Wait until no other partition is loaded, and none of another coordinator comes first."""
        turn = self._turns[served] = asyncio.get_running_loop().create_future()
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            self._turns.pop(served, None)
            if not turn.cancelled():  # the turn had come
                self._is_busy = False
                self._next()
            raise

    def _next(self) -> None:
        while self._turns and not self._is_busy:
            turn = self._turns.pop(min(self._turns, key=lambda each: each.urgency))
            if not turn.done():
                self._is_busy = True
                turn.set_result(None)


async def _load_one(
    served: ServedPartitions, each: PartitionLog, load: Callable[[PartitionLog], Awaitable[None]]
) -> None:
    try:
        await load(each)
    except Exception as error:
        served.unreadable(each.partition, str(error))
        log.error(
            "cannot load a partition",
            log=each.folder,
            reason=str(error),
            exc_info=not isinstance(error, LogError),
        )
    else:
        served.loaded(each.partition)
