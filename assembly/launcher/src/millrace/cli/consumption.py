"""Topics onto standard output, at its pace: a member of a group stays in it while standard output stands."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from protocol_lib.client import Admin, ClientSettings, ConsumerRecord

from millrace.cli.errors import CliError
from millrace.cli.kafka import started, topic_indexes
from millrace.cli.names import matching
from millrace.cli.output import note
from millrace.cli.output_pipe import OutputPipe
from millrace.cli.record_format import ShownRecord
from millrace.cli.topic_readers import Consumption, GroupReader, PartitionReader, Reader

if TYPE_CHECKING:
    from millrace.cli.registry import Decoder

_POLL_RECORDS = 500
_CHUNK_BYTES = 1 << 20
#: Interval at which a member takes part in its group while standard output stands, in seconds.
_STAY_S = 0.2
#: Time that the last write has when the command ends, in seconds.
_LAST_WRITE_S = 0.5


async def consume_records(
    settings: ClientSettings,
    given: Consumption,
    shown: Callable[[ShownRecord], bytes],
    descriptor: int | None = None,
    *,
    by_schema: bool = False,
) -> None:
    """Write the records until the end that was chosen, or for ever. Raises CliError, KafkaError, OSError."""
    if not by_schema:
        await _consume(settings, given, shown, descriptor, None)
        return
    from millrace.cli.registry import Decoder, opened

    async with opened() as schemas:
        await _consume(settings, given, shown, descriptor, Decoder(schemas))


async def _consume(
    settings: ClientSettings,
    given: Consumption,
    shown: Callable[[ShownRecord], bytes],
    descriptor: int | None,
    decoder: Decoder | None,
) -> None:
    admin = Admin(settings)
    await started(admin.start(), settings)
    reader: Reader | None = None
    try:
        topics = await _topics(admin, given)
        kind = PartitionReader if given.group is None else GroupReader
        reader = kind(settings, given, admin, topics)
        await reader.start()
        await _Copy(reader, given, shown, descriptor, decoder).run()
    finally:
        try:
            if reader is not None:
                await reader.close()
        finally:
            await admin.close()


async def _topics(admin: Admin, given: Consumption) -> dict[str, tuple[int, ...]]:
    """Return the topics and their partitions. Raises CliError for one that does not exist."""
    if given.is_regex:
        found = await admin.topics.partitions()
        return {name: found[name] for name in matching(given.topics, found, "topics")}
    found = await admin.topics.partitions(given.topics)
    for name in given.topics:
        if name not in found:
            found[name] = await topic_indexes(admin, name)
        for number in given.partitions:
            if number not in found[name]:
                raise CliError(f"{name} has no partition {number}; it has {len(found[name])}")
    return {name: given.partitions or found[name] for name in given.topics}


class _Copy:
    """The way of records from a reader to standard output."""

    def __init__(
        self,
        reader: Reader,
        given: Consumption,
        shown: Callable[[ShownRecord], bytes],
        descriptor: int | None,
        decoder: Decoder | None,
    ) -> None:
        self._reader = reader
        self._given = given
        self._shown = shown
        self._decoder = decoder
        self._output = OutputPipe(sys.stdout.fileno() if descriptor is None else descriptor)
        self._left = given.count

    async def run(self) -> None:
        waits = False
        while True:
            if self._ends and await self._reader.is_at_end():
                return
            limit = _POLL_RECORDS if self._left is None else min(self._left, _POLL_RECORDS)
            records = await self._reader.poll(limit)
            if records:
                await self._write(records)
                if self._left is not None and self._left <= 0:
                    return
            elif not waits and not self._ends and not self._given.quiet and await self._reader.is_at_end():
                waits = True
                note("at the end; waiting for new records, Ctrl-C ends")

    @property
    def _ends(self) -> bool:
        return self._given.to_end or self._given.range.stop is not None

    async def _write(self, records: Sequence[ConsumerRecord]) -> None:
        """Write records in chunks. Their partitions may be given up between two of them."""
        chunk, held = bytearray(), list[ConsumerRecord]()
        texts: Sequence[ShownRecord] = records if self._decoder is None else await self._decoder.decoded(records)
        for record, text in zip(records, texts, strict=True):
            if not self._reader.wants(record):
                continue
            chunk += self._shown(text)
            held.append(record)
            if len(chunk) >= _CHUNK_BYTES:
                await self._put(bytes(chunk), held)
                chunk, held = bytearray(), []
        if held:
            await self._put(bytes(chunk), held)
        self._reader.finished()

    async def _put(self, chunk: bytes, held: list[ConsumerRecord]) -> None:
        writing = self._output.write(chunk)
        try:
            while not writing.done():
                await asyncio.wait({writing}, timeout=_STAY_S)
                if not writing.done():
                    await self._reader.stay()  # mutant: member-stays
        except asyncio.CancelledError:
            await asyncio.wait({writing}, timeout=_LAST_WRITE_S)
            if writing.done() and writing.exception() is None:
                self._reader.written(held)
            raise
        writing.result()  # mutant: unwritten-not-committed
        self._reader.written(held)
        if self._left is not None:
            self._left -= len(held)
