"""A tail: new records as server-sent events, for as long as the client receives.

    retry: 2000

    data: {"partition":0,"offset":15,…}
    id: 0:15,1:22                        the last offset of each partition, on the last event of some

    event: dropped
    data: {"partition":0,"from_offset":16,"to_offset":99}

    event: partitions
    data: {"added":[2]}                  they are followed from their beginning

    event: waiting
    data: {"error_code":50302,"message":"…"}    nothing answers; the tail tries again for PATIENCE_S

    event: resumed
    data: {}

    event: error
    data: {"error_code":40403,"message":"…"}

    :                                    nothing for a while

A client that comes back with the last id goes on after it. Partitions that are added meanwhile are read from their
beginning, at most LOOK_S later. A second has an allowance of events, of their bytes and of records read. Once it is
spent, the tail leaves out the rest of the partition up to its newest record, and says so. A tail that has no event left
waits for the next second.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from protocol_lib.client import FetchedBatch, FetchedPartition
from protocol_lib.errors import DecodeError

from admin_api import errors
from admin_api.answer_memory import AnswerTooLargeError
from admin_api.kafka_clients import KafkaClient
from admin_api.records.conditions import Filter
from admin_api.records.decoding import slices_of
from admin_api.records.limits import Work
from admin_api.records.rendering import BySchema, Formats, render

EVENTS_PER_S = 200
BYTES_PER_S = 1024 * 1024
SCANNED_PER_S = 5000
HEARTBEAT_S = 15.0
#: Seconds between two looks for added partitions. Consumers look each five minutes (metadata.max.age.ms).
LOOK_S = 5.0
#: Bytes of one fetch, and seconds between two that bring records: each costs about the same. A page draws four times a
#: second.
_FETCH_BYTES = 256 * 1024
_PAUSE_S = 0.1
#: Seconds until the next fetch after one whose records the allowance of events did not admit.
_SPENT_PAUSE_S = 1.0
#: Seconds for which a tail waits for the gateway to come back, and between two tries.
_PATIENCE_S = 30.0
_RETRY_S = 0.5
_OFFSET_OUT_OF_RANGE = 1
_LAST_ID = re.compile(r"\d{1,10}:(-1|\d{1,19})(,\d{1,10}:(-1|\d{1,19})){0,255}")


class Tail:
    """One tail: the next offset of each partition, and the allowance."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        positions: dict[int, int],
        newest: Callable[[int], Awaitable[int]],
        added: Callable[[int], Awaitable[Mapping[int, int]]] | None,
        wanted: Filter,
        formats: Formats,
        *,
        read_committed: bool,
        by_schema: BySchema | None = None,
    ) -> None:
        """Prepare a tail.

        `newest` returns the end of a partition whose next offset is gone. `added` returns the first offset of each
        partition from a number on, and raises ApiError when there are too many; None to follow no others.
        """
        self._client = client
        self._topic = topic
        self._positions = positions
        self._newest = newest
        self._added = added
        self._looked_at = time.monotonic()
        self._filter = wanted
        self._formats = formats
        self._by_schema = by_schema
        self._read_committed = read_committed
        self._work = Work()
        self._events = _Allowance(EVENTS_PER_S)
        self._bytes = _Allowance(BYTES_PER_S)
        self._scanned = _Allowance(SCANNED_PER_S)
        #: Seconds until the next fetch.
        self.pause_s = _PAUSE_S

    async def events(self) -> AsyncIterator[bytes]:
        """Yield pieces of the stream. It ends after an error event, or when the server stops."""
        yield b"retry: 2000\n\n"
        sent_at = answered_at = time.monotonic()
        is_waiting = False
        while True:
            try:
                piece = await self._look()
                piece += await self._next_piece()
                answered_at = time.monotonic()
                if is_waiting:
                    is_waiting, piece = False, _event("resumed", {}) + piece
            except errors.ApiError as error:
                if self._client.is_stopped:
                    return
                if error.status_code != 503 or time.monotonic() - answered_at > _PATIENCE_S:
                    yield _event("error", {"error_code": error.error_code, "message": error.message})
                    return
                if not is_waiting:
                    is_waiting = True
                    yield _event("waiting", {"error_code": error.error_code, "message": error.message})
                await asyncio.sleep(_RETRY_S)
                piece = b""
            if piece:
                yield piece
                sent_at = time.monotonic()
                await asyncio.sleep(self.pause_s)
            elif time.monotonic() - sent_at > HEARTBEAT_S:
                yield b":\n\n"
                sent_at = time.monotonic()

    async def _look(self) -> bytes:
        """Follow partitions that were added, if it is time to look for them. Return the event about them."""
        if self._added is None or time.monotonic() - self._looked_at < LOOK_S:
            return b""
        added = await self._added(max(self._positions) + 1)
        self._positions.update(added)
        self._looked_at = time.monotonic()
        return _event("partitions", {"added": sorted(added)}) if added else b""

    async def _next_piece(self) -> bytes:
        """Wait for records, for a second at most, and return their events. Raises ApiError."""
        self.pause_s = _PAUSE_S
        positions = dict(self._positions)
        piece = bytearray()
        try:
            for answer in await self._client.fetch(
                self._topic,
                positions,
                bytes_max=_FETCH_BYTES,
                read_committed=self._read_committed,
                wait_ms=self._client.wait_ms,
            ):
                if answer.error_code or answer.data:
                    await self._read(answer, piece)
        except AnswerTooLargeError:
            for partition, position in positions.items():
                large = await self._client.find_large_batch(self._topic, partition, position)
                if large is not None:
                    self._drop(partition, position, large.last_offset + 1, piece)
        self._client.forget()
        if piece:
            # The next fetch begins with another partition, for a busy one fills an answer.
            first = next(iter(self._positions))
            self._positions[first] = self._positions.pop(first)
            last = ",".join(f"{partition}:{position - 1}" for partition, position in sorted(self._positions.items()))
            piece[-1:] = b"id: %s\n\n" % last.encode()
        return bytes(piece)

    async def _read(self, answer: FetchedPartition, piece: bytearray) -> None:
        partition = answer.partition
        position = self._positions[partition]
        if answer.error_code == _OFFSET_OUT_OF_RANGE:
            await self._skip(partition, position, piece)
            return
        errors.check(answer.error_code)
        for each in (self._events, self._bytes, self._scanned):
            each.refill()
        try:
            for batch, is_visible in answer.batches():
                await self._work.pause()
                if is_visible and not await self._read_batch(partition, batch, position, piece):
                    self._drop(partition, self._positions[partition], answer.high_watermark, piece)
                    return
                self._positions[partition] = max(position, batch.last_offset + 1)
        except DecodeError:  # nothing says where the next batch begins
            await self._skip(partition, self._positions[partition], piece)

    async def _read_batch(self, partition: int, batch: FetchedBatch, position: int, piece: bytearray) -> bool:
        """Add the events of a batch; return False where the allowance ends, which is the partition's next offset."""
        admits = None if self._filter.is_empty else self._filter.admits
        try:
            for _, records in await slices_of(batch):
                for record in records:
                    if self._work.is_due:
                        await self._work.pause()
                    if record.offset < position:
                        continue
                    if not (self._events.is_left and self._bytes.is_left):
                        self._positions[partition] = record.offset
                        self.pause_s = _SPENT_PAUSE_S  # mutant: spent-tail-waits
                        return False
                    if not self._scanned.spend(1):
                        self._positions[partition] = record.offset
                        return False
                    if admits is None or admits(partition, record):
                        if self._by_schema is None:
                            text = render(partition, record, self._formats).encode()
                        else:
                            text = (await self._by_schema(partition, record)).encode()
                        self._events.spend(1)
                        self._bytes.spend(len(text))
                        piece += b"data: %s\n\n" % text
        except DecodeError:
            start = max(position, batch.base_offset)
            if not self._events.spend(1):
                self._positions[partition] = start
                return False
            self._drop(partition, start, batch.last_offset + 1, piece)
        return True

    async def _skip(self, partition: int, position: int, piece: bytearray) -> None:
        """Go on with the newest record: those from the position on are gone, or cannot be read."""
        self._drop(partition, position, await self._newest(partition), piece)

    def _drop(self, partition: int, start: int, end: int, piece: bytearray) -> None:
        if end > start:
            dropped = {"partition": partition, "from_offset": start, "to_offset": end - 1}
            piece += _event("dropped", dropped)  # mutant: dropped-records-told
        self._positions[partition] = end


class _Allowance:
    """An amount a second, of which up to a second's is saved. `refill` adds what came since the last one."""

    __slots__ = ("_left", "_per_s", "_then")

    def __init__(self, per_s: int) -> None:
        self._per_s = per_s
        self._left = float(per_s)
        self._then = time.monotonic()

    @property
    def is_left(self) -> bool:
        return self._left >= 1

    def refill(self) -> None:
        now = time.monotonic()
        self._left = min(self._per_s, self._left + (now - self._then) * self._per_s)
        self._then = now

    def spend(self, amount: int) -> bool:
        """Use the amount up if anything is left; return whether it was."""
        if not self.is_left:
            return False
        self._left -= amount
        return True


def positions_after(last_id: str) -> dict[int, int]:
    """Return the next offset of each partition in the id of an event. Raises ApiError if it is none of a tail's."""
    if not _LAST_ID.fullmatch(last_id):
        raise errors.of_status(400, "Last-Event-ID is not one that a tail gave out.")
    pairs = [pair.split(":") for pair in last_id.split(",")]
    return {int(partition): int(offset) + 1 for partition, offset in pairs}


def _event(name: str, content: Mapping[str, object]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(content, separators=(',', ':'))}\n\n".encode()
