"""Stored batches that clients can read, and those that they cannot."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable

import cramjam
import pytest
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, compress, decompress
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.header import HEADER, HEADER_SIZE, LOG_OVERHEAD
from protocol_lib.records.legacy import Message, build_message_set, write_message
from protocol_lib.records.record import Record
from storage_svc.log.batch import readability
from storage_svc.log.batch.header import Header, message_header, unpack_header
from storage_svc.log.batch.readability import NAMED_MAX, UnreadableBatches, unreadable_reason

NOW_MS = 1_700_000_000_000
RECORDS = [Record(40 + n, NOW_MS + n, b"k%d" % n, b"value" * 40, (("h", None),)) for n in range(5)]
PLAIN = build_batch(RECORDS, base_offset=40)
BODY = PLAIN[HEADER_SIZE:]


def reason(batch: bytes) -> str | None:
    header = message_header(batch) if batch[16] < 2 else Header._make(unpack_header(batch))
    assert header is not None
    return unreadable_reason(header, memoryview(batch))


def of(codec: int, block: bytes, **fields: int) -> bytes:
    """Return the batch of RECORDS with another codec, other bytes for records, and other fields of the header."""
    length = HEADER_SIZE - LOG_OVERHEAD + len(block)
    header = Header._make(unpack_header(PLAIN))._replace(batch_length=length, attributes=codec, **fields)
    head = bytearray(HEADER_SIZE)
    HEADER.pack_into(head, 0, *header)
    return bytes(head) + block


def linked(data: bytes) -> bytes:
    writer = cramjam.lz4.Compressor(block_linked=True)
    writer.compress(data)
    return bytes(writer.finish())


SOUND: dict[str, bytes] = {
    **{codec.name: build_batch(RECORDS, base_offset=40, codec=codec) for codec in Codec},
    "snappy of one block": of(2, bytes(cramjam.snappy.compress_raw(BODY))),
    "after compaction": build_batch(RECORDS[2:4], base_offset=40, last_offset=44),
    "emptied by compaction": of(0, b"", records_count=0),
    "marker": build_marker_batch(
        EndTransactionMarker(ControlType.COMMIT, 0), timestamp=NOW_MS, producer_id=7, producer_epoch=1, base_offset=45
    ),
    "format 0": build_message_set(RECORDS, magic=0, codec=Codec.LZ4),
    "format 1": build_message_set(RECORDS, magic=1, codec=Codec.SNAPPY),
}

BROKEN: dict[str, tuple[bytes, str]] = {
    "linked blocks": (of(3, linked(BODY)), "an LZ4 frame of linked blocks, which Kafka's consumers do not read"),
    "zlib instead of gzip": (of(1, zlib.compress(BODY)), "gzip: "),
    "gzip with a wrong CRC": (of(1, gzip.compress(BODY)[:-8] + bytes(8)), "gzip: "),
    "gzip cut off": (of(1, gzip.compress(BODY)[:-9]), "gzip data is cut short"),
    "snappy cut off": (of(2, compress(Codec.SNAPPY, BODY)[:-9]), "a snappy block of "),
    "lz4 without a frame": (of(3, BODY), "not an LZ4 frame"),
    "zstd cut off": (of(4, compress(Codec.ZSTD, BODY)[:-9]), "zstd: "),
    "codec 5": (of(5, BODY), "unknown compression codec 5"),
    "one record too few": (of(0, BODY, records_count=4), "bytes after the last record"),
    "one record too many": (of(0, BODY, records_count=6), "record 5: "),
    "one record too many, compressed": (of(4, compress(Codec.ZSTD, BODY), records_count=6), "record 5: "),
    "no records": (of(0, BODY, records_count=0), "bytes after the last record"),
    "fewer than no records": (of(0, b"", records_count=-1), "-1 records announced in 0 bytes"),
    "three bytes more": (of(0, BODY + b"abc"), "3 bytes after the last record"),
    "a record longer than it is": (of(0, bytes([BODY[0] + 2]) + BODY[1:]), "a record is not as long as it says"),
    "a wrapper of no gzip": (write_message(Message(44, 1, Codec.GZIP, NOW_MS, None, b"no")), "gzip"),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_batch_that_clients_read(name: str) -> None:
    assert reason(SOUND[name]) is None


@pytest.mark.parametrize("name", BROKEN)
def test_a_batch_that_clients_cannot_read(name: str) -> None:
    batch, text = BROKEN[name]
    assert text in (reason(batch) or "")


def test_linked_blocks_are_those_that_others_read() -> None:
    assert bytes(decompress(Codec.LZ4, linked(BODY))) == BODY


def noted(start_offset: int, count: int = 1) -> Callable[[], UnreadableBatches]:
    found = UnreadableBatches(start_offset)
    batch, _ = BROKEN["three bytes more"]
    for number in range(count):
        found.check(number * 100, Header._make(unpack_header(batch)), memoryview(batch))
    return lambda: found


def test_batches_from_the_log_start_on_count_and_some_are_named() -> None:
    assert noted(44)().named == [(0, 40, 44, "3 bytes after the last record")]
    assert noted(45)().count == 0
    many = noted(0, NAMED_MAX + 2)()
    assert (many.count, len(many.named), many.last_offset) == (NAMED_MAX + 2, NAMED_MAX, 44)
    assert noted(45)().last_offset == -1


def test_a_batch_that_becomes_too_large_to_open_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """`max.message.bytes` may allow it, and clients read it."""
    monkeypatch.setattr(readability, "decompress", lambda codec, block: decompress(codec, block, 100))
    assert reason(build_batch(RECORDS, base_offset=40, codec=Codec.GZIP)) is None
