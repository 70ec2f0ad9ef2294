"""Compaction's walk through the records of a batch sees the same records as protocol_lib's, and stops at the end."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import HEADER_SIZE, build_batch
from protocol_lib.records.record import Record, read_records
from protocol_lib.varint import write_signed
from storage_svc.log.cleaner.records import scan_records, shifted

payloads = st.none() | st.binary(max_size=200) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 9000])
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offsets = sorted(draw(st.sets(st.integers(0, 300), min_size=1, max_size=12)))
    stamps = st.integers(0, 2**42)
    return [Record(offset, draw(stamps), draw(payloads), draw(payloads), draw(headers)) for offset in offsets]


@given(record_lists())
def test_it_finds_what_reading_finds(records: list[Record]) -> None:
    batch = build_batch(records)
    body = batch[HEADER_SIZE:]
    scanned = scan_records(body, len(records), records[-1].offset)
    assert scanned.keys == [record.key for record in records]
    assert scanned.offset_deltas == [record.offset for record in records]
    assert scanned.timestamp_deltas == [record.timestamp - records[0].timestamp for record in records]
    assert scanned.tombstones == [index for index, record in enumerate(records) if record.value is None]
    pieces = [body[start:end] for start, end in pairwise(scanned.starts)]
    assert b"".join(pieces) == body
    assert len(pieces) == len(records)


@given(record_lists(), st.integers(-(2**40), 2**42))
def test_a_shifted_record_has_its_timestamp_under_another_base(records: list[Record], change: int) -> None:
    base = records[0].timestamp
    body = build_batch(records)[HEADER_SIZE:]
    starts = scan_records(body, len(records), records[-1].offset).starts
    moved = b"".join(shifted(body, start, end, change) for start, end in pairwise(starts))
    head = bytearray(build_batch(records, base_timestamp=base)[:HEADER_SIZE])
    head[8:12] = (HEADER_SIZE - 12 + len(moved)).to_bytes(4, "big")
    head[27:35] = (base + change).to_bytes(8, "big", signed=True)
    assert list(read_records(bytes(head) + moved)) == records


@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_too_far_from_the_new_base_is_moved_to_the_nearest(sign: int) -> None:
    """A producer may choose the times of a tombstone so, and its log must stay cleanable."""
    base = sign * (2**63 - 1)
    body = build_batch([Record(0, base, b"k", None)])[HEADER_SIZE:]
    (delta,) = scan_records(shifted(body, 0, len(body), -2 * base), 1, 0).timestamp_deltas
    assert delta == (2**63 - 1 if sign > 0 else -(2**63))


@given(record_lists(), st.data())
def test_malformed_records_are_an_error_and_nothing_else(records: list[Record], data: st.DataObject) -> None:
    body = bytearray(build_batch(records)[HEADER_SIZE:])
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut])):
        try:
            scanned = scan_records(damaged, len(records), records[-1].offset)
        except DecodeError:
            continue
        assert scanned.starts[-1] == len(damaged)
        assert scanned.offset_deltas == sorted(set(scanned.offset_deltas))


@pytest.mark.parametrize(
    ("count", "last_offset_delta", "message"),
    [
        (2, 5, "record 1: the bytes end"),
        (0, 5, "after the last"),
        (-1, 5, "-1 records"),
        (1, 3, "offset deltas 4 to 4"),
    ],
)
def test_counts_and_offsets_that_do_not_fit_are_refused(count: int, last_offset_delta: int, message: str) -> None:
    body = build_batch([Record(4, 0, b"key", b"value-of-some-bytes")], base_offset=0)[HEADER_SIZE:]
    with pytest.raises(DecodeError, match=message):
        scan_records(body, count, last_offset_delta)


def test_offsets_that_do_not_ascend_are_refused() -> None:
    one = build_batch([Record(4, 0, b"key", b"value")], base_offset=0)[HEADER_SIZE:]
    with pytest.raises(DecodeError, match="offset deltas 4 to 4, where 0 to 5 must ascend"):
        scan_records(one + one, 2, 5)


def test_a_length_of_many_bytes_is_followed_no_further_than_64_bits() -> None:
    with pytest.raises(DecodeError):
        scan_records(b"\xff" * 100_000, 1, 0)
    assert scan_records(write_signed(6) + b"\0\0\0\1\1\0", 1, 0).keys == [None]
