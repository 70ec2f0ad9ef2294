"""Records as clients from before Kafka 0.11 see them: message sets become record batches on their way in, and back.

Every record is decoded and encoded again, which takes some ten microseconds each. So all but the smallest conversions
run in a separate thread (conversions.py).

Limits: a partition's message set is 16 MiB at most, decompressed as well. The sets of one Produce request have 32 MiB
and 250,000 records together. The batches of one Fetch answer decompress to 64 MiB and hold a million records at most;
a batch that does not fit begins the next answer. Above that the answer is MESSAGE_TOO_LARGE. All such answers have
64 MiB together (shown_answers.py).

A read may find only batches that have no records for an old client: transaction markers, or a batch that compaction
emptied after the requested offset. The client would ask for the same offset for ever, so the read continues after them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from broker_contract.data import AppendedPartition, Buffer, ReadRequest, ReadResponse, ReadResult
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.records.compression import DecompressedTooLarge
from protocol_lib.records.conversion import down_convert, up_convert
from protocol_lib.records.header import CODEC_MASK, MAGIC, MAGIC_AT, read_batch_header, read_magic
from protocol_lib.records.legacy import MESSAGE_ATTRIBUTES_AT, CorruptMessage, message_size

from gateway_svc.fetching.conversions import Allowance, Conversions, FailingCall
from gateway_svc.fetching.shown_answers import SHOWN_BYTES_MAX, Reader, ShownAnswers
from gateway_svc.fetching.value_reads import ValueReads
from gateway_svc.storage.protocols import Records

#: Most bytes of uncompressed records that are converted on the event loop: a millisecond.
INLINE_BYTES_MAX: Final = 8 * 1024
#: Kafka's default max.message.bytes, ten times and more.
SET_BYTES_MAX: Final = 16 * 1024 * 1024
#: The allowance of one Produce request: some seconds of processor time.
PRODUCED_BYTES_MAX: Final = 2 * SET_BYTES_MAX
PRODUCED_RECORDS_MAX: Final = 250_000
#: The allowance of one Fetch answer, in addition to SHOWN_BYTES_MAX.
SHOWN_RECORDS_MAX: Final = 1_000_000

#: The outcomes of sets that are not appended, by index.
Outcomes = dict[int, AppendedPartition]


# -- in ---------------------------------------------------------------------------------------------------------------


def is_quick(sets: Sequence[Buffer]) -> bool:
    """Return whether these message sets may be converted on the event loop."""
    return sum(map(len, sets)) <= INLINE_BYTES_MAX and not any(
        len(each) > MESSAGE_ATTRIBUTES_AT and each[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK for each in sets
    )


def is_compressed(message_set: Buffer) -> bool:
    """Return whether a message set begins with a wrapper of others."""
    return (
        len(message_set) > MESSAGE_ATTRIBUTES_AT
        and message_set[MAGIC_AT] < MAGIC
        and bool(message_set[MESSAGE_ATTRIBUTES_AT] & CODEC_MASK)
    )


def batches_of(
    sets: Sequence[Buffer], allowance: Allowance, refused: Mapping[int, AppendedPartition]
) -> tuple[list[Buffer], Outcomes]:
    """Return a record batch for each message set, and by index the outcome of those that have none to append.

    A record batch stays as it is. An empty set has no error and no offset, as in Kafka. Sets that are `refused` already
    are not converted.
    """
    batches: list[Buffer] = []
    outcomes = dict(refused)
    for index, each in enumerate(sets):
        batch: Buffer = b""
        if index in outcomes:
            pass
        elif len(each) > MAGIC_AT and each[MAGIC_AT] == MAGIC:
            batch = each
        else:
            converted = _batch_of(each, allowance)
            if isinstance(converted, AppendedPartition):
                outcomes[index] = converted
            else:
                batch = converted
        batches.append(batch)
    return batches, outcomes


def _batch_of(message_set: Buffer, allowance: Allowance) -> bytes | AppendedPartition:
    """Return the set's batch, or the outcome of a set that has none.

    Raises:
        Abandoned: the call was abandoned.
    """
    allowance.check()
    limit = min(SET_BYTES_MAX, allowance.bytes_left)
    if len(message_set) > limit:
        fault = f"a message set of {len(message_set)} bytes; {limit} can be converted"
        return AppendedPartition(ErrorCode.MESSAGE_TOO_LARGE, error_message=fault)
    try:
        batch = up_convert(message_set, limit=limit, each=allowance)
    except DecompressedTooLarge as error:
        return AppendedPartition(ErrorCode.MESSAGE_TOO_LARGE, error_message=str(error))
    except CorruptMessage as error:
        return AppendedPartition(ErrorCode.CORRUPT_MESSAGE, error_message=str(error))
    except DecodeError as error:
        return AppendedPartition(ErrorCode.INVALID_RECORD, error_message=str(error))
    return batch or AppendedPartition(ErrorCode.NONE)


# -- out --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class MessageSetReads:
    """The means of all Fetch requests of version 0 to 3."""

    records: Records
    value_reads: ValueReads
    conversions: Conversions
    shown: ShownAnswers

    def start(
        self,
        call: FailingCall,
        reader: Reader,
        magic: int,
        request: ReadRequest,
        done: Callable[[ReadResponse], None],
    ) -> None:
        """Read message sets of this format for a client."""
        _MessageSetRead(self, call, reader, magic, done).start(request)


class _MessageSetRead:
    """One Fetch request of version 0 to 3: read, converted, and read further where no records were left.

    Storage is asked for slices, or for few bytes; more are read once there is room for them (value_reads.py), over a
    lane if there is one.
    """

    def __init__(
        self,
        means: MessageSetReads,
        call: FailingCall,
        reader: Reader,
        magic: int,
        done: Callable[[ReadResponse], None],
    ) -> None:
        self._call = call
        self._shown = means.shown
        self._reader = reader
        self._records = means.records
        self._value_reads = means.value_reads
        self._conversions = means.conversions
        self._allowance = Allowance(SHOWN_BYTES_MAX, SHOWN_RECORDS_MAX)
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
            results = list(response.partitions)
            if any(result.slices for result in results):
                self._in_turn(request, indexes, results, self._read_slices)
            elif any(result.records for result in results):
                self._in_turn(request, indexes, results, self._convert)
            else:
                self._convert(request, indexes, results, _nothing)

        cancel = self._records.read(replace(request, by_reference=request.max_wait_ms <= 0), read)
        if not answered:
            self._call.abandon = cancel

    def _in_turn(
        self,
        request: ReadRequest,
        indexes: list[int],
        results: list[ReadResult],
        work: Callable[[ReadRequest, list[int], list[ReadResult], Callable[[], None]], None],
    ) -> None:
        """Read or convert records when it is this fetch's turn; without room for them the results have none."""
        waits = True

        def begin(room: int) -> None:
            nonlocal waits
            waits = False
            self._call.abandon = None
            self._allowance.reduce(room)
            try:
                work(request, indexes, results, self._end_turn)
            except Exception as error:
                self._end_turn()
                self._call.failed(error)

        def expire() -> None:
            self._call.abandon = None
            empty = [replace(result, records=b"", slices=[]) for result in results]
            self._convert(request, indexes, empty, _nothing)

        give_up = self._shown.take(begin, expire)
        if waits:
            self._call.abandon = give_up

    def _end_turn(self) -> None:
        """End the turn, once the answer was sent: it may be on its way."""
        asyncio.get_running_loop().call_soon(self._shown.end)

    def _read_slices(
        self, request: ReadRequest, indexes: list[int], results: list[ReadResult], end_turn: Callable[[], None]
    ) -> None:
        """Read the records that results have as slices; without room for them they have no records."""
        sliced = [number for number, result in enumerate(results) if result.slices]
        size = sum(piece.length for number in sliced for piece in results[number].slices)
        again = replace(
            request,
            max_bytes=min(size, self._allowance.bytes_left),
            partitions=[request.partitions[number] for number in sliced],
        )
        answered = False

        def read(response: ReadResponse | None, release: Callable[[], None]) -> None:
            nonlocal answered
            answered = True
            self._call.abandon = None
            for place, number in enumerate(sliced):
                results[number] = (
                    replace(results[number], slices=[]) if response is None else response.partitions[place]
                )
            self._convert(request, indexes, results, partial(_both, release, end_turn))

        give_up = self._value_reads.read(again, read, [results[number] for number in sliced])
        if not answered:
            self._call.abandon = partial(_both, give_up, end_turn)

    def _convert(
        self, request: ReadRequest, indexes: list[int], results: list[ReadResult], release: Callable[[], None]
    ) -> None:
        magic = self._magic

        def work(allowance: Allowance) -> list[tuple[ReadResult, int | None]]:
            return [
                _converted(result, asked.fetch_offset, magic, allowance)
                for result, asked in zip(results, request.partitions, strict=True)
            ]

        self._conversions.run(
            self._call,
            work,
            lambda converted: self._converted(request, indexes, converted),
            self._allowance,
            inline=not any(result.records for result in results),
            release=release,
        )

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
            self._shown.sent(self, self._reader)
            return
        self._shown.keep(self, sum(len(result.records) for result in self._results))
        something = any(result.records or result.error_code for result in self._results)
        self._read(replace(request, partitions=partitions, max_wait_ms=0 if something else request.max_wait_ms), again)


def _converted(
    result: ReadResult, fetch_offset: int, magic: int, allowance: Allowance
) -> tuple[ReadResult, int | None]:
    """Return a result with its records converted, and the next offset to read if none of them can be shown.

    The result itself stays as it is: other requests may share it. It has no records where an earlier partition of the
    same answer has used up the allowance.
    """
    if not result.records:
        return result, None
    allowance.check()
    was_used = allowance.used
    try:
        end_offset = _end_offset(result.records)
        limit = max(0, allowance.bytes_left)
        records = down_convert(result.records, magic, first_offset=fetch_offset, limit=limit, each=allowance)
    except DecompressedTooLarge:
        error_code = ErrorCode.NONE if was_used or allowance.is_reduced else ErrorCode.MESSAGE_TOO_LARGE
        return replace(result, records=b"", error_code=error_code), None
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


def _both(one: Callable[[], None], other: Callable[[], None]) -> None:
    one()
    other()


def _nothing() -> None:
    """Hold nothing: the records are few."""
