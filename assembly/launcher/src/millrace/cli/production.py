"""Standard input into a topic, by protocol_lib's producer."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from protocol_lib.client import ClientSettings, Producer, RecordMetadata

from millrace.cli.errors import CliError
from millrace.cli.kafka import started
from millrace.cli.output import note
from millrace.cli.output_pipe import OutputPipe
from millrace.cli.record_format import NewRecord, from_json, from_line

if TYPE_CHECKING:
    from millrace.cli.registry import Encoder

_READ_BYTES = 1 << 16
#: Longest line of standard input, above the largest record that a broker takes by default.
LINE_BYTES_MAX = 64 << 20
#: Positions that wait for standard output; more records are sent when it has taken some.
_POSITIONS_MAX = 10_000
#: Time that standard output has for the last positions when the command is ended, in seconds.
_LAST_WRITE_S = 0.5

#: Form of what is printed of stored records: a line for each partition at the end, or text or JSON for each record.
Positions = Literal["none", "summary", "text", "json-each-row"]


@dataclass(frozen=True)
class Production:
    """The topic of the lines, how a line becomes a record, and what is printed of it."""

    topic: str
    key_delimiter: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    codec: str
    as_json: bool
    #: whether an empty key or value of a line of text stands for null
    null_if_empty: bool
    positions: Positions
    #: arguments of the producer
    arguments: Mapping[str, Any] = field(default_factory=dict)
    #: schemas by which `key` and `value` are encoded, as SUBJECT[:VERSION]
    by_schema: Mapping[str, str] = field(default_factory=dict)

    def record(self, line: bytes, number: int) -> NewRecord:
        if self.as_json:
            return from_json(line, number, self.by_schema)
        return from_line(line, self.key_delimiter, null_if_empty=self.null_if_empty)


async def produce_lines(settings: ClientSettings, given: Production) -> None:
    """Send each line of standard input. Raises CliError or KafkaError for the first record that is refused.

    What has been stored is printed, however it ends. A refusal is raised rather than another reason for the end.
    """
    if sys.stdin is None:
        raise CliError("standard input is closed")
    if not given.by_schema:
        await _produce(settings, given, None)
        return
    from millrace.cli.registry import Encoder, opened

    async with opened() as schemas:
        encoder = Encoder(schemas, given.by_schema)
        await encoder.start()
        await _produce(settings, given, encoder)


async def _produce(settings: ClientSettings, given: Production, encoder: Encoder | None) -> None:
    producer = Producer(settings, compression=given.codec, **{"block_ms": 10_000, **given.arguments})
    await started(producer.start(), settings)
    outcome = _Outcome(given.positions)
    end: BaseException | None = None
    try:
        try:
            await _send_lines(producer, given, outcome, encoder)
        finally:
            await producer.close()
        await outcome.print_rest(None)
    except (Exception, asyncio.CancelledError) as error:
        end = error
        if not isinstance(error, OSError):
            with contextlib.suppress(OSError):  # its reader has left, which is not why the command ends
                await outcome.print_rest(_LAST_WRITE_S)
    if outcome.failures:
        if isinstance(end, CliError):
            note(str(end))
        raise outcome.failures[0]
    if end is not None:
        raise end


async def _send_lines(producer: Producer, given: Production, outcome: _Outcome, encoder: Encoder | None) -> None:
    """Send lines until their end, or until a record is refused."""
    number = 1
    async for lines in _lines():
        async for record in _records(lines, number, given, encoder):
            sent = await producer.send(
                given.topic,
                record.value,
                key=record.key,
                partition=given.partition,
                headers=(*record.headers, *given.headers),
            )
            sent.add_done_callback(outcome.note)
            await outcome.room()
            if outcome.failures:
                return
        number += len(lines)


async def _records(
    lines: list[bytes], number: int, given: Production, encoder: Encoder | None
) -> AsyncIterator[NewRecord]:
    """Yield the records of lines, of which the first has this number. Raises CliError after those before a bad one."""
    if encoder is None:
        for at, line in enumerate(lines, number):
            yield given.record(line, at)
        return
    plain: list[NewRecord] = []
    fault: CliError | None = None
    for at, line in enumerate(lines, number):
        try:
            plain.append(given.record(line, at))
        except CliError as error:
            fault = error
            break
    encoded, failure = await encoder.encoded(plain, number)
    for record in encoded:
        yield record
    if failure is not None or fault is not None:
        raise failure or fault  # type: ignore[misc]  # one of them


class _Outcome:
    """The fate of the records: failures, and the positions, which are printed as they come."""

    def __init__(self, positions: Positions) -> None:
        self.failures: list[BaseException] = []
        self._form = positions
        self._waiting: deque[RecordMetadata] = deque()
        #: partition -> number of records, first and last offset
        self._spans: dict[str, tuple[int, int, int]] = {}
        self._changed = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._is_last = False
        self._printing = None if positions == "none" else asyncio.create_task(self._print())

    def note(self, sent: asyncio.Future[RecordMetadata]) -> None:
        if sent.cancelled():
            return
        if (error := sent.exception()) is not None:
            self.failures.append(error)
        elif self._form == "summary":
            at = sent.result()
            name = f"{at.topic}-{at.partition}"
            count, first, last = self._spans.get(name, (0, at.offset, at.offset))
            self._spans[name] = count + 1, min(first, at.offset), max(last, at.offset)
        elif self._form != "none":
            self._waiting.append(sent.result())
            self._changed.set()
            if len(self._waiting) >= _POSITIONS_MAX:
                self._has_room.clear()

    async def room(self) -> None:
        """Wait while too many positions wait for standard output."""
        await self._has_room.wait()

    async def print_rest(self, limit_s: float | None) -> None:
        """Print what is left, for at most so many seconds. Raises OSError when standard output takes no more."""
        if self._printing is None:
            return
        self._is_last = True
        self._changed.set()
        await asyncio.wait({self._printing}, timeout=limit_s)
        if self._printing.done():
            self._printing.result()

    async def _print(self) -> None:
        output = OutputPipe(sys.stdout.fileno())
        try:
            while not self._is_last or self._waiting:
                await self._changed.wait()
                self._changed.clear()
                rows = [self._row(at) for at in self._waiting]
                self._waiting.clear()
                self._has_room.set()
                await output.write(b"".join(rows))
            await output.write(b"".join(self._summary()))
        finally:
            self._form = "none"  # standard output takes no more
            self._has_room.set()

    def _row(self, at: RecordMetadata) -> bytes:
        if self._form == "text":
            return f"{at.topic}-{at.partition} offset {at.offset}\n".encode()
        row = {"topic": at.topic, "partition": at.partition, "offset": at.offset, "timestamp": at.timestamp}
        return json.dumps(row).encode() + b"\n"

    def _summary(self) -> Iterator[bytes]:
        for name, (count, first, last) in sorted(self._spans.items()):
            records = "1 record" if count == 1 else f"{count} records"
            yield f"{name}: {records}, offsets {first} to {last}\n".encode()


async def _lines() -> AsyncIterator[list[bytes]]:
    """Yield the lines of standard input without their ends, as they arrive."""
    rest = b""
    while part := await _part():
        *lines, rest = (rest + part).split(b"\n")
        if lines:
            yield lines
        if len(rest) > LINE_BYTES_MAX:
            raise CliError(f"a line of standard input is longer than {LINE_BYTES_MAX} bytes")
    if rest:
        yield [rest]


async def _part() -> bytes:
    """Return the next bytes of standard input. Ctrl-C ends the wait, which a thread would not notice."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(0, ready.set)
    except OSError:  # a file is always ready
        return _read()
    try:
        await ready.wait()
    finally:
        loop.remove_reader(0)
    return _read()


def _read() -> bytes:
    try:
        return os.read(0, _READ_BYTES)
    except OSError as error:
        raise CliError(f"standard input: {error.strerror}") from error
