"""Records as clients from before Kafka 0.11 see them: message sets become record batches on their way in, and back.

Every record is decoded and encoded again, which takes some ten microseconds each. So all but the smallest conversions
run in one separate thread: the event loop goes on, and however many old clients there are, one conversion at a time
holds memory.

Limits: a partition's message set is 16 MiB at most, decompressed as well. A batch for an old consumer decompresses to
64 MiB and holds a million records at most. Above that the answer is MESSAGE_TOO_LARGE.

A read may find no records that an old client can be shown: transaction markers, or a batch that compaction emptied
after the requested offset. Such a client would ask for the same offset for ever, so the read goes on after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from broker_contract.data import AppendedPartition, Buffer, ReadRequest, ReadResponse, ReadResult
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.records.compression import DecompressedTooLarge
from protocol_lib.records.conversion import UnsupportedCompression, down_convert, up_convert
from protocol_lib.records.header import CODEC_MASK, MAGIC, MAGIC_AT, read_batch_header, read_magic
from protocol_lib.records.legacy import MESSAGE_ATTRIBUTES_AT, CorruptMessage, message_size

from gateway_svc.storage.protocols import Records

#: Most bytes of uncompressed records that are converted on the event loop: a millisecond.
INLINE_BYTES_MAX: Final = 8 * 1024
#: Kafka's default max.message.bytes, ten times and more.
SET_BYTES_MAX: Final = 16 * 1024 * 1024
SHOWN_BYTES_MAX: Final = 64 * 1024 * 1024
SHOWN_RECORDS_MAX: Final = 1_000_000

T = TypeVar("T")


class FailingCall(Protocol):
    """A request's call (context.py), as far as it is needed here."""

    abandon: Callable[[], None] | None

    def failed(self, error: Exception) -> None: ...


class Conversions:
    """The thread of conversions; the gateway owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = ThreadPoolExecutor(1, "conversion")

    def run(self, call: FailingCall, work: Callable[[], T], done: Callable[[T], None], *, inline: bool) -> None:
        """Call `done` with the result of `work`, now or later; an exception of either fails the call."""
        if inline:
            _finish(call, work, done)
            return
        future = self._loop.run_in_executor(self._thread, work)
        future.add_done_callback(lambda ended: _finish(call, ended.result, done))

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)


def _finish(call: FailingCall, result: Callable[[], T], done: Callable[[T], None]) -> None:
    try:
        done(result())
    except asyncio.CancelledError:
        return
    except Exception as error:
        call.failed(error)


# -- in ---------------------------------------------------------------------------------------------------------------


def is_quick(sets: Sequence[Buffer]) -> bool:
    """Return whether these message sets may be converted on the event loop."""
    return sum(map(len, sets)) <= INLINE_BYTES_MAX and not any(
        len(each) > MESSAGE_ATTRIBUTES_AT and each[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK for each in sets
    )


def batches_of(sets: Sequence[Buffer]) -> tuple[list[Buffer], dict[int, AppendedPartition]]:
    """Return a record batch for each message set, and by index the outcome of those that have none to append.

    A record batch stays as it is. An empty set has no error and no offset, as in Kafka.
    """
    batches: list[Buffer] = []
    outcomes: dict[int, AppendedPartition] = {}
    for index, each in enumerate(sets):
        batch: Buffer = b""
        if len(each) > MAGIC_AT and each[MAGIC_AT] == MAGIC:
            batch = each
        elif len(each) > SET_BYTES_MAX:
            fault = f"a message set of {len(each)} bytes; {SET_BYTES_MAX} can be converted"
            outcomes[index] = AppendedPartition(ErrorCode.MESSAGE_TOO_LARGE, error_message=fault)
        else:
            try:
                batch = up_convert(each, limit=SET_BYTES_MAX)
            except DecompressedTooLarge as error:
                outcomes[index] = AppendedPartition(ErrorCode.MESSAGE_TOO_LARGE, error_message=str(error))
            except CorruptMessage as error:
                outcomes[index] = AppendedPartition(ErrorCode.CORRUPT_MESSAGE, error_message=str(error))
            except DecodeError as error:
                outcomes[index] = AppendedPartition(ErrorCode.INVALID_RECORD, error_message=str(error))
            else:
                if not batch:
                    outcomes[index] = AppendedPartition(ErrorCode.NONE)
        batches.append(batch)
    return batches, outcomes


# -- out --------------------------------------------------------------------------------------------------------------


class MessageSetRead:
    """One Fetch request of version 0 to 3: read by value, converted, and read on where nothing could be shown."""

    def __init__(
        self,
        call: FailingCall,
        records: Records,
        conversions: Conversions,
        magic: int,
        done: Callable[[ReadResponse], None],
    ) -> None:
        self._call = call
        self._records = records
        self._conversions = conversions
        self._magic = magic
        self._done = done
        self._results: list[ReadResult] = []

    def start(self, request: ReadRequest) -> None:
        self._results = [ReadResult(ErrorCode.NONE) for _ in request.partitions]
        self._read(request, list(range(len(request.partitions))))

    def _read(self, request: ReadRequest, indexes: list[int]) -> None:
        """Read the partitions of a request, which are at `indexes` in the request of the client."""
        answered = False

        def read(response: ReadResponse) -> None:
            nonlocal answered
            answered = True
            self._call.abandon = None
            results = response.partitions
            self._conversions.run(
                self._call,
                lambda: [
                    _converted(result, asked.fetch_offset, self._magic)
                    for result, asked in zip(results, request.partitions, strict=True)
                ],
                lambda converted: self._converted(request, indexes, converted),
                inline=not any(result.records for result in results),
            )

        cancel = self._records.read(request, read)
        if not answered:
            self._call.abandon = cancel

    def _converted(
        self, request: ReadRequest, indexes: list[int], converted: list[tuple[ReadResult, int | None]]
    ) -> None:
        partitions, again = [], []
        for index, (result, next_offset), asked in zip(indexes, converted, request.partitions, strict=True):
            self._results[index] = result
            if next_offset is not None:
                partitions.append(replace(asked, fetch_offset=next_offset))
                again.append(index)
        if not again:
            self._done(ReadResponse(self._results))
            return
        something = any(result.records or result.error_code for result in self._results)
        self._read(replace(request, partitions=partitions, max_wait_ms=0 if something else request.max_wait_ms), again)


def _converted(result: ReadResult, fetch_offset: int, magic: int) -> tuple[ReadResult, int | None]:
    """Return a result with its records converted, and the next offset to read if none of them can be shown.

    The result itself stays as it is: other requests may share it.
    """
    if not result.records:
        return result, None
    try:
        end_offset = _end_offset(result.records)
        records = down_convert(result.records, magic, first_offset=fetch_offset, limit=SHOWN_BYTES_MAX)
    except UnsupportedCompression:
        return replace(result, records=b"", error_code=ErrorCode.UNSUPPORTED_COMPRESSION_TYPE), None
    except DecompressedTooLarge:
        return replace(result, records=b"", error_code=ErrorCode.MESSAGE_TOO_LARGE), None
    except DecodeError:
        return replace(result, records=b"", error_code=ErrorCode.CORRUPT_MESSAGE), None
    return replace(result, records=records), None if records else end_offset


def _end_offset(records: Buffer) -> int:
    """Return the offset after whole batches and messages.

    Raises:
        DecompressedTooLarge: a batch has more records than may be opened.
    """
    position = end_offset = 0
    while position < len(records):
        if read_magic(records, position) < MAGIC:
            end_offset = int.from_bytes(records[position : position + 8], "big") + 1
            position += message_size(records, position)
            continue
        header = read_batch_header(records, position)
        if header.records_count > SHOWN_RECORDS_MAX:
            raise DecompressedTooLarge(f"a batch of {header.records_count} records")
        end_offset = header.last_offset + 1
        position += header.size
    return end_offset
