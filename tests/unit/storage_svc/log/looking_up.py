"""Look-ups by timestamp, for tests without an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc.look_ups import LookUps

#: (timestamp, offset) of a record; None if none was found.
Found = tuple[int, int] | None


def by_timestamps(log: PartitionLog, timestamps: Iterable[int]) -> list[Found]:
    """Return the record that is found for each timestamp, and in the end that of the largest."""

    async def look_up() -> list[Found]:
        look_ups = LookUps()
        found = [await look_ups.by_timestamp(log, timestamp) for timestamp in timestamps]
        found.append(await look_ups.largest(log))
        await look_ups.close()
        assert look_ups.count == 0
        return [None if record is None else (record.timestamp, record.offset) for record in found]

    return asyncio.run(look_up())
