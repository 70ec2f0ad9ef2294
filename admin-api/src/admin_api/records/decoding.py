"""The records of a batch, within bounds of memory and of a turn of the event loop. It takes protocol_lib's memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from protocol_lib.client import FetchedBatch
from protocol_lib.records.compression import DecompressedTooLarge
from protocol_lib.records.record import Record

#: Bytes that a record batch may decompress to. A few kilobytes can claim to be gigabytes.
DECOMPRESSED_BYTES_MAX = 16 * 1024 * 1024
#: Bytes that are decompressed on the event loop, and bytes that they may become: about 0.3 ms of gzip. All else is
#: decompressed in a thread, a few batches at once.
_LOOP_BYTES = 32 * 1024
_LOOP_DECOMPRESSED_BYTES = 64 * 1024
_threads = ThreadPoolExecutor(2, thread_name_prefix="decompress")


async def slices_of(batch: FetchedBatch, wanted: bytes = b"", skip: int = 0) -> Iterator[tuple[int, list[Record]]]:
    """Return the records in slices: how many were passed over, and those that follow.

    The first `skip` records are passed over, and those without the bytes `wanted`. Raises DecodeError here or at a
    malformed record. A slice takes some milliseconds at most.
    """
    read = partial(batch.slices, limit=DECOMPRESSED_BYTES_MAX, wanted=wanted, skip=skip)
    if batch.is_plain:
        return read()
    if len(batch.data) <= _LOOP_BYTES:
        try:
            return batch.slices(limit=_LOOP_DECOMPRESSED_BYTES, wanted=wanted, skip=skip)  # mutant: bombs-in-threads
        except DecompressedTooLarge:
            pass
    return await asyncio.get_running_loop().run_in_executor(_threads, read)
