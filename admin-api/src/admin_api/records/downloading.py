"""A download: the records of some partitions, one JSON object a line, one partition after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from admin_api import errors
from admin_api.kafka_clients import KafkaClient
from admin_api.records.conditions import Filter
from admin_api.records.cursors import Left
from admin_api.records.decoding import records_of
from admin_api.records.limits import Work
from admin_api.records.rendering import Formats, render

#: Bytes of one fetch, and of lines that are sent together.
_FETCH_BYTES = 1024 * 1024
_PIECE_BYTES = 64 * 1024


async def lines(
    client: KafkaClient, topic: str, ranges: Sequence[Left], wanted: Filter, formats: Formats, *, read_committed: bool
) -> AsyncIterator[bytes]:
    """Yield pieces of the download. An exception cuts it off, so that its receiver sees that it has no end."""
    work = Work()
    for partition, start, end in ranges:
        position = start
        while position < end:
            before, piece = position, bytearray()
            for answer in await client.fetch(
                topic, {partition: position}, bytes_max=_FETCH_BYTES, read_committed=read_committed
            ):
                errors.check(answer.error_code)
                for batch, is_visible in answer.batches():
                    position = batch.last_offset + 1
                    for record in await records_of(batch) if is_visible else ():
                        await work.pause()
                        if before <= record.offset < end and wanted.admits(partition, record):
                            piece += render(partition, record, formats).encode() + b"\n"
                            if len(piece) >= _PIECE_BYTES:
                                yield bytes(piece)
                                piece.clear()
            if piece:
                yield bytes(piece)
            if position == before:
                break  # the rest is hidden until a transaction ends
