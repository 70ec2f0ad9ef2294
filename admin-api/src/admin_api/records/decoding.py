"""The records of a batch, within bounds of memory and of a turn of the event loop. It takes protocol_lib's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from protocol_lib.client import FetchedBatch
from protocol_lib.records.record import Record

#: Bytes that a record batch may decompress to. A few kilobytes can claim to be gigabytes.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
#: Batches of more bytes are decompressed in a thread, a few at once: it may take longer than a turn of the loop.
_THREAD_BYTES = 32 * 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="decompress")


async def records_of(batch: FetchedBatch) -> Iterator[Record]:
    """Return the records. Raises DecodeError here or at a malformed record."""
    read = partial(batch.records, limit=DECOMPRESSED_BYTES_MAX)
    if batch.is_plain or len(batch.data) <= _THREAD_BYTES:
        return read()
    return await asyncio.get_running_loop().run_in_executor(_threads, read)
