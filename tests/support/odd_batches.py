"""Batches whose CRC is right and whose inside is not what a careful producer writes, or is written in an unusual way.

    for name, batch in record_cases(now_ms).items(): ...

Every field of the record format is cut, lengthened, shrunk, out of order or of a wrong count. Each case is there
without compression and in each codec. odd_streams.py has those whose compressed stream is odd.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import cramjam
from crc32c import crc32c
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.header import HEADER, HEADER_SIZE, LOG_OVERHEAD
from protocol_lib.varint import write_signed

#: Records of a batch whose fields are not asked for.
COUNT: Final = 4
#: The record that is changed.
ODD: Final = 1
HOUR_MS: Final = 3_600_000
_HEADERS: Final = (write_signed(2), write_signed(2), b"h1", write_signed(3), b"abc", write_signed(2), b"h2", b"\1")
_HEADER_FIELDS: Final = (
    "headers",
    "name length",
    "name",
    "content length",
    "content",
    "name length 2",
    "name 2",
    "null",
)


def batch(
    body: bytes,
    count: int,
    now_ms: int,
    *,
    codec: int = Codec.NONE,
    last_delta: int | None = None,
    base_ms: int | None = None,
    max_ms: int | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    """Return a batch around these bytes, compressed or not, as they are."""
    fields = (
        attributes | codec,
        count - 1 if last_delta is None else last_delta,
        now_ms if base_ms is None else base_ms,
        now_ms + COUNT - 1 if max_ms is None else max_ms,
        *producer,
        count,
    )
    head = bytearray(HEADER_SIZE)
    length = HEADER_SIZE - LOG_OVERHEAD + len(body)
    HEADER.pack_into(head, 0, 0, length, 0, 2, 0, *fields)
    crc = crc32c(body, crc32c(head[21:]))
    struct.pack_into(">I", head, 17, crc)
    return bytes(head) + body


def record(index: int, changes: Mapping[str, bytes] | None = None, *, value: bytes = b"value") -> bytes:
    """Return one record; `changes` replaces the bytes of fields, `length` only its own."""
    fields = {
        "attributes": b"\0",
        "timestamp": write_signed(index),
        "offset": write_signed(index),
        "key length": write_signed(3),
        "key": b"key",
        "value length": write_signed(len(value)),
        "value": value,
        **dict(zip(_HEADER_FIELDS, _HEADERS, strict=True)),
    }
    changes = changes or {}
    fields.update((name, content) for name, content in changes.items() if name in fields)
    inside = b"".join(fields.values())
    return changes.get("length", write_signed(len(inside))) + inside + changes.get("behind", b"")


def records(changes: Mapping[str, bytes] | None = None, *, at: int = ODD) -> bytes:
    """Return the records of a batch, one of them changed."""
    return b"".join(record(index, changes if index == at else None) for index in range(COUNT))


_LENGTH: Final = len(record(ODD)) - 1
_TOO_LONG: Final = b"\x80" * 5 + b"\0"
_MAX32: Final = write_signed(2**31 - 1)


def padded(value: int, size: int) -> bytes:
    """Return a signed varint in so many bytes, of which the last ones say nothing."""
    written = write_signed(value)
    if len(written) == size:
        return written
    return written[:-1] + bytes((written[-1] | 0x80,)) + b"\x80" * (size - len(written) - 1) + b"\0"


#: The numbers of 32 bits, and their values.
_NUMBERS: Final = {
    "length": _LENGTH,
    "offset": ODD,
    "key length": 3,
    "value length": 5,
    "headers": 2,
    "name length": 2,
    "content length": 3,
}

#: Changes of one record, by the name of the case.
RECORD_CHANGES: Final[dict[str, dict[str, bytes]]] = {
    "length one more": {"length": write_signed(_LENGTH + 1)},
    "length one less": {"length": write_signed(_LENGTH - 1)},
    "length 0": {"length": b"\0"},
    "length -1": {"length": b"\1"},
    "length beyond the batch": {"length": write_signed(_LENGTH * COUNT)},
    "length of 2 GiB": {"length": _MAX32},
    "length of six bytes": {"length": _TOO_LONG},
    "length in more bytes than needed": {"length": padded(_LENGTH, 2)},
    "a byte behind the record, within its length": {"length": write_signed(_LENGTH + 1), "behind": b"\0"},
    "a byte behind the record": {"behind": b"\0"},
    "attributes that say gzip": {"attributes": b"\1"},
    "attributes of all bits": {"attributes": b"\xff"},
    "timestamp before the first": {"timestamp": write_signed(-HOUR_MS)},
    "timestamp two hours ahead": {"timestamp": write_signed(2 * HOUR_MS)},
    "timestamp of more than 64 bits": {"timestamp": write_signed(2**63 - 1)},
    "timestamp of eleven bytes": {"timestamp": b"\x80" * 10 + b"\0"},
    "offset of the record before": {"offset": b"\0"},
    "offset far ahead": {"offset": write_signed(1000)},
    "offset negative": {"offset": write_signed(-5)},
    "offset of more than 32 bits": {"offset": write_signed(2**40)},
    "no key": {"key length": b"\1", "key": b""},
    "key null and there": {"key length": b"\1"},
    "key length -2": {"key length": b"\3", "key": b""},
    "key length one more": {"key length": write_signed(4)},
    "key length one less": {"key length": write_signed(2)},
    "key beyond the record": {"key length": write_signed(_LENGTH)},
    "key beyond the batch": {"key length": write_signed(_LENGTH * COUNT)},
    "key of 2 GiB": {"key length": _MAX32},
    "no value": {"value length": b"\1", "value": b""},
    "value null and there": {"value length": b"\1"},
    "value length -2": {"value length": b"\3", "value": b""},
    "value length one more": {"value length": write_signed(6)},
    "value length one less": {"value length": write_signed(4)},
    "value beyond the record": {"value length": write_signed(_LENGTH)},
    "value of 2 GiB": {"value length": _MAX32},
    "value length of six bytes": {"value length": _TOO_LONG},
    "a header more": {"headers": write_signed(3)},
    "a header less": {"headers": write_signed(1)},
    "-1 headers": {"headers": b"\1"},
    "more headers than bytes": {"headers": write_signed(1000)},
    "2 Gi headers": {"headers": _MAX32},
    "header without a name": {"name length": b"\1", "name": b""},
    "header of an empty name": {"name length": b"\0", "name": b""},
    "name not UTF-8": {"name": b"\xff\xfe"},
    "name length one more": {"name length": write_signed(3)},
    "name beyond the batch": {"name length": write_signed(_LENGTH * COUNT)},
    "content length -2": {"content length": b"\3", "content": b""},
    "content length one more": {"content length": write_signed(4)},
    "content beyond the batch": {"content length": write_signed(_LENGTH * COUNT)},
    "content of 2 GiB": {"content length": _MAX32},
    "timestamp in ten bytes": {"timestamp": padded(ODD, 10)},
    **{f"{field} in five bytes": {field: padded(value, 5)} for field, value in _NUMBERS.items()},
    **{f"{field} in six bytes": {field: padded(value, 6)} for field, value in _NUMBERS.items()},
}

#: Codecs by the name of a case; a stream in snappy has two forms.
PACKERS: Final[dict[str, tuple[Codec, Callable[[bytes], bytes]]]] = {
    "plain": (Codec.NONE, bytes),
    "gzip": (Codec.GZIP, lambda body: compress(Codec.GZIP, body)),
    "xerial": (Codec.SNAPPY, lambda body: compress(Codec.SNAPPY, body)),
    "snappy": (Codec.SNAPPY, lambda body: bytes(cramjam.snappy.compress_raw(body))),
    "lz4": (Codec.LZ4, lambda body: compress(Codec.LZ4, body)),
    "zstd": (Codec.ZSTD, lambda body: compress(Codec.ZSTD, body)),
}


def record_cases(now_ms: int) -> dict[str, bytes]:
    """Return batches whose records are odd, in each codec."""
    cases: dict[str, bytes] = {}
    for pack, (codec, packed) in PACKERS.items():
        for name, changes in RECORD_CHANGES.items():
            cases[f"{pack}: {name}"] = batch(packed(records(changes)), COUNT, now_ms, codec=codec)
        for name, (body, count, options) in _wholes(now_ms).items():
            cases[f"{pack}: {name}"] = batch(packed(body), count, now_ms, codec=codec, **options)
    return cases


def _wholes(now_ms: int) -> dict[str, tuple[bytes, int, dict[str, Any]]]:
    """Return (records, count, fields of the header) of cases that concern the batch as a whole."""
    good = records()
    last = record(COUNT - 1)
    return {
        "good": (good, COUNT, {}),
        "one record": (record(0), 1, {"max_ms": now_ms}),
        "a record too few": (good, COUNT + 1, {}),
        "a record too many": (good, COUNT - 1, {}),
        "far fewer records": (good, 1000, {}),
        "no bytes": (b"", 1, {}),
        "a byte too many": (good + b"\0", COUNT, {}),
        "three bytes too many": (good + b"\0\0\0", COUNT, {}),
        "a byte too few": (good[:-1], COUNT, {}),
        "cut off in the last record": (good[: -len(last) // 2], COUNT, {}),
        "cut off behind a length": (good[: -len(last) + 1], COUNT, {}),
        "last offset delta one more": (good, COUNT, {"last_delta": COUNT}),
        "last offset delta one less": (good, COUNT, {"last_delta": COUNT - 2}),
        "count 0": (good, 0, {}),
        "count -1": (good, -1, {}),
        "in disorder": (record(1) + record(0) + record(3) + record(2), COUNT, {}),
        "all at offset 0": (b"".join(record(n, {"offset": b"\0"}) for n in range(COUNT)), COUNT, {}),
        "offsets from 1": (b"".join(record(n, {"offset": write_signed(n + 1)}) for n in range(COUNT)), COUNT, {}),
        "no largest timestamp": (good, COUNT, {"max_ms": -1}),
        "largest timestamp of the first": (good, COUNT, {"max_ms": now_ms}),
        "largest timestamp too large": (good, COUNT, {"max_ms": now_ms + 9}),
        "largest timestamp far too large": (good, COUNT, {"max_ms": now_ms + 9 * HOUR_MS}),
        "largest timestamp before the first": (good, COUNT, {"max_ms": now_ms - 9}),
        "no timestamps": (
            b"".join(record(n, {"timestamp": b"\0"}) for n in range(COUNT)),
            COUNT,
            {"base_ms": -1, "max_ms": -1},
        ),
        "all too new": (good, COUNT, {"base_ms": now_ms + 2 * HOUR_MS}),
        "two too new, two keyless": (
            record(0, {"timestamp": write_signed(2 * HOUR_MS)})
            + record(1, {"key length": b"\1", "key": b""})
            + record(2, {"timestamp": write_signed(2 * HOUR_MS), "key length": b"\1", "key": b""})
            + record(3, {"timestamp": write_signed(2 * HOUR_MS)}),
            COUNT,
            {},
        ),
        "keyless, then malformed": (record(0, {"key length": b"\1", "key": b""}) + record(1, {"length": b"\0"}), 2, {}),
        "log append time by the producer": (good, COUNT, {"attributes": 0x08}),
        "attributes without a meaning": (good, COUNT, {"attributes": 0x7F80}),
        "delete horizon": (good, COUNT, {"attributes": 0x40}),
        "control": (good, COUNT, {"attributes": 0x20}),
        "producer without a sequence": (good, COUNT, {"producer": (5, 0, -1)}),
    }
