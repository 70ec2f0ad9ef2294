"""A download: the records of some partitions, one JSON object a line, one partition after the other.

Records that cannot be shown have a line, too: those of a batch that is malformed or larger than 16 MiB.

    {"partition":0,"fault":{"from_offset":1,"to_offset":1,"message":"a record batch of more than 16777216 bytes"}}
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence

from protocol_lib.errors import DecodeError

from admin_api import errors
from admin_api.answer_memory import AnswerTooLargeError
from admin_api.kafka_clients import KafkaClient
from admin_api.records.browsing import LARGE_BATCH
from admin_api.records.conditions import Filter
from admin_api.records.cursors import Left
from admin_api.records.decoding import slices_of
from admin_api.records.limits import Work
from admin_api.records.rendering import BySchema, Formats, render_in_parts

#: Bytes of one fetch, and of lines that are sent together.
_FETCH_BYTES = 1024 * 1024
_PIECE_BYTES = 64 * 1024


async def lines(
    client: KafkaClient,
    topic: str,
    ranges: Sequence[Left],
    wanted: Filter,
    formats: Formats,
    *,
    read_committed: bool,
    by_schema: BySchema | None = None,
) -> AsyncIterator[bytes]:
    """Yield pieces of the download. An exception cuts it off, so that its receiver sees that it has no end."""
    work = Work()
    for partition, start, end in ranges:
        position = start
        while position < end:
            before, piece = position, bytearray()
            try:
                answers = await client.fetch(
                    topic, {partition: position}, bytes_max=_FETCH_BYTES, read_committed=read_committed
                )
            except AnswerTooLargeError:
                large = await client.find_large_batch(topic, partition, position)
                if large is None:
                    raise
                position = large.last_offset + 1
                yield _fault(partition, before, min(position, end), LARGE_BATCH)
                continue
            for answer in answers:
                errors.check(answer.error_code)
                for batch, is_visible in answer.batches():
                    await work.pause()
                    position = batch.last_offset + 1
                    try:
                        for _, records in await slices_of(batch, wanted.needle) if is_visible else ():
                            await work.pause()
                            for record in records:
                                if work.is_due:
                                    await work.pause()
                                if not (before <= record.offset < end and wanted.admits(partition, record)):
                                    continue
                                if by_schema is not None:
                                    piece += (await by_schema(partition, record)).encode() + b"\n"
                                    if len(piece) >= _PIECE_BYTES:
                                        yield bytes(piece)
                                        piece.clear()
                                else:
                                    for text in render_in_parts(partition, record, formats):
                                        piece += text.encode()
                                        if len(piece) >= _PIECE_BYTES:
                                            yield bytes(piece)
                                            piece.clear()
                                            await work.pause()
                                    piece += b"\n"
                    except DecodeError as error:
                        piece += _fault(partition, max(before, batch.base_offset), min(position, end), str(error))
            if piece:
                yield bytes(piece)
            if position == before:
                break  # the rest is hidden until a transaction ends


def _fault(partition: int, start: int, end: int, message: str) -> bytes:
    fault = {"from_offset": start, "to_offset": end - 1, "message": message}
    return json.dumps({"partition": partition, "fault": fault}, separators=(",", ":")).encode() + b"\n"
