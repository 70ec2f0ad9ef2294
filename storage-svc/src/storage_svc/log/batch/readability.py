"""Stored batches whose records clients cannot read, although their CRC is right.

Producers have sent such batches, and a log may hold them. Kafka's consumers stop at one for good. They read gzip,
snappy, zstd, and LZ4 frames of independent blocks, then exactly as many records as the header counts, each as long as
it says (DefaultRecordBatch, Lz4BlockInputStream).
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from protocol_lib.errors import DecodeError
from protocol_lib.records.compression import Codec, DecompressedTooLarge, decompress
from protocol_lib.records.header import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, MAGIC, RECORD_SIZE_MIN
from protocol_lib.records.lz4_frame import for_java
from protocol_lib.records.walker import RecordWalker

from storage_svc.log.batch.header import Header, records_of

#: Batches of one segment that are named; the others are counted.
NAMED_MAX: Final = 100
#: Records and headers of a call of the walker.
_STEPS: Final = 10_000


class Unreadable(NamedTuple):
    """A batch whose records clients cannot read."""

    position: int
    base_offset: int
    last_offset: int
    reason: str


class UnreadableBatches:
    """The unreadable batches of one segment, from an offset on."""

    def __init__(self, start_offset: int) -> None:
        self._start_offset = start_offset
        self.named: list[Unreadable] = []
        self.count = 0
        #: The last offset of the last one, -1 without any.
        self.last_offset = -1

    def check(self, position: int, header: Header, batch: memoryview) -> None:
        """Open a batch whose CRC is right, unless all its records are deleted, and note it if that fails."""
        if header.last_offset < self._start_offset or (reason := unreadable_reason(header, batch)) is None:
            return
        self.count += 1
        self.last_offset = header.last_offset
        if len(self.named) < NAMED_MAX:
            self.named.append(Unreadable(position, header.base_offset, header.last_offset, reason))


def unreadable_reason(header: Header, batch: memoryview) -> str | None:
    """Return why clients cannot read the records of a whole batch; None if they can.

    One that decompresses to more than DECOMPRESSED_BYTES_MAX is not judged: None.
    """
    try:
        if header.magic != MAGIC:
            deque(records_of(batch), maxlen=0)
            return None
        codec = header.attributes & CODEC_MASK
        block, count = batch[HEADER_SIZE:], header.records_count
        # mutant: linked-blocks-named
        body = decompress(codec, for_java(block) if codec == Codec.LZ4 else block)
        if not 0 <= count <= len(body) // RECORD_SIZE_MIN:
            return f"{count} records announced in {len(body)} bytes"
        append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME else None
        walker = RecordWalker(body, count, header.base_offset, header.base_timestamp, append_time)
        while walker.check(_STEPS):
            pass
    except DecompressedTooLarge:
        return None  # larger than what is opened here, as `max.message.bytes` allows: not judged
    except DecodeError as error:
        return str(error)
    return None
