"""The remainder of one batch after compaction, byte for byte where it matters."""

from __future__ import annotations

import pytest
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import build_batch, crc_matches, read_batch_header
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.legacy import Message, build_message_set, write_message
from protocol_lib.records.record import Record, read_records
from storage_svc.log.batch.header import Header, unpack_header
from storage_svc.log.cleaner.filter import BatchFilter, LastBatch
from storage_svc.log.cleaner.key_map import KeyMap
from storage_svc.log.cleaner.mapped_batches import MappedBatches
from storage_svc.log.cleaner.transactions import WalkedTransactions
from storage_svc.log.segment.transaction_index import AbortedTransaction

NOW_MS = 1_700_000_000_000
RETENTION_MS = 1000


def batch_filter(
    latest: dict[bytes, int],
    *,
    mapped_end: int = 1000,
    last_batches: dict[int, LastBatch] | None = None,
    log_start_offset: int = 0,
    high_watermark: int = 5000,
    now_ms: int = NOW_MS,
    aborted: tuple[AbortedTransaction, ...] = (),
) -> BatchFilter:
    key_map = KeyMap(1 << 16, 100)
    for key, offset in latest.items():
        key_map.put_all([key], offset, [0], key_map.no_positions())
    return BatchFilter(
        key_map,
        MappedBatches(key_map, 0),
        mapped_end,
        WalkedTransactions(aborted),
        last_batches or {},
        log_start_offset=log_start_offset,
        high_watermark=high_watermark,
        now_ms=now_ms,
        delete_retention_ms=RETENTION_MS,
    )


def filtered(some: BatchFilter, batch: bytes) -> bytes:
    return some.filter(Header._make(unpack_header(batch)), batch)


def records(base: int, *pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [Record(base + index, NOW_MS - 50 + index * 7, key, value) for index, (key, value) in enumerate(pairs)]


def test_a_batch_before_the_log_start_goes_without_being_opened() -> None:
    broken = build_batch(records(100, (b"a", b"1"), (b"b", b"2")), base_offset=100)[:-3]
    message = write_message(Message(101, 1, Codec.GZIP, NOW_MS, None, b"no gzip"))
    assert filtered(batch_filter({}, log_start_offset=102), broken) == b""
    assert batch_filter({}, log_start_offset=102).filter_message(message, keep_tombstones=True) == b""
    with pytest.raises(DecodeError):
        filtered(batch_filter({}, log_start_offset=101), broken)
    with pytest.raises(DecodeError):
        batch_filter({}, log_start_offset=101).filter_message(message, keep_tombstones=True)


@pytest.mark.parametrize("codec", Codec)
def test_superseded_records_go_and_the_header_stays(codec: Codec) -> None:
    listed = records(100, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4"))
    producer = {"producer_id": 7, "producer_epoch": 2, "base_sequence": 40, "leader_epoch": 5}
    batch = build_batch(listed, base_offset=100, codec=codec, **producer)
    left = filtered(batch_filter({b"a": 102, b"b": 101, b"c": 500}), batch)
    assert list(read_records(left)) == listed[1:3]
    before, after = read_batch_header(batch), read_batch_header(left)
    assert after.codec == codec
    assert after.max_timestamp == listed[2].timestamp
    for name in ("base_offset", "last_offset_delta", "producer_id", "producer_epoch", "base_sequence"):
        assert getattr(after, name) == getattr(before, name)
    assert after.partition_leader_epoch == 5
    assert crc_matches(left)


def test_a_batch_of_which_all_stays_is_the_same_bytes() -> None:
    batch = build_batch(records(0, (b"a", b"1"), (b"b", b"2")), codec=Codec.ZSTD)
    assert filtered(batch_filter({b"a": 0, b"b": 1}), batch) is batch


def test_after_the_map_everything_stays() -> None:
    batch = build_batch(records(10, (b"a", b"1"), (None, b"x"), (b"a", b"2"), (None, b"y")), base_offset=10)
    latest = {b"a": 900}
    assert filtered(batch_filter(latest, mapped_end=10), batch) is batch
    left = filtered(batch_filter(latest, mapped_end=12), batch)
    assert [record.offset for record in read_records(left)] == [12, 13]


def test_records_without_a_key_go_and_are_counted() -> None:
    some = batch_filter({b"a": 1})
    left = filtered(some, build_batch(records(0, (None, b"x"), (b"a", b"1"))))
    assert [record.key for record in read_records(left)] == [b"a"]
    assert (some.counts.records_read, some.counts.records_kept, some.counts.keyless) == (2, 1, 1)


def test_a_tombstone_gets_a_horizon_once_and_goes_when_it_is_over() -> None:
    listed = records(0, (b"a", None), (b"b", b"2"))
    latest = {b"a": 0, b"b": 1}
    first = filtered(batch_filter(latest), build_batch(listed))
    header = read_batch_header(first)
    assert header.has_delete_horizon
    assert header.base_timestamp == NOW_MS + RETENTION_MS
    assert header.max_timestamp == listed[1].timestamp
    assert list(read_records(first)) == listed, "timestamps stay what they were"
    assert filtered(batch_filter(latest, now_ms=NOW_MS + RETENTION_MS - 1), first) is first
    last = filtered(batch_filter(latest, now_ms=NOW_MS + RETENTION_MS), first)
    assert list(read_records(last)) == listed[1:]
    assert read_batch_header(last).has_delete_horizon
    assert filtered(batch_filter(latest, now_ms=NOW_MS * 2), last) is last


def test_under_log_append_time_records_keep_the_batchs_time() -> None:
    batch = build_batch(records(0, (b"a", b"1"), (b"b", None), (b"b", b"3")), log_append_time=True)
    left = filtered(batch_filter({b"a": 0, b"b": 1}), batch)
    assert {record.timestamp for record in read_records(left)} == {NOW_MS - 50 + 14}


def test_an_emptied_batch_stays_for_its_producers_sequence_number() -> None:
    producer = {"producer_id": 7, "producer_epoch": 1, "base_sequence": 30}
    batch = build_batch(records(20, (b"a", b"1"), (b"a", b"2")), base_offset=20, codec=Codec.LZ4, **producer)
    latest = {b"a": 900}
    assert filtered(batch_filter(latest), batch) == b""
    assert filtered(batch_filter(latest, last_batches={7: LastBatch(20, 1)}), batch) == b""
    left = filtered(batch_filter(latest, last_batches={7: LastBatch(21, 1)}), batch)
    header = read_batch_header(left)
    assert (header.records_count, header.size, header.codec) == (0, 61, 0)
    assert (header.base_offset, header.last_offset, header.last_sequence) == (20, 21, 31)
    assert crc_matches(left)
    assert filtered(batch_filter(latest, last_batches={7: LastBatch(21, 1)}), left) == left
    assert filtered(batch_filter(latest), left) == b""


def test_an_emptied_batch_stays_at_the_high_watermark() -> None:
    batch = build_batch(records(0, (b"a", b"1")))
    left = filtered(batch_filter({b"a": 9}, high_watermark=1), batch)
    assert read_batch_header(left).last_offset == 0
    assert list(read_records(left)) == []


def transaction(base: int, producer_id: int, end: ControlType) -> tuple[bytes, bytes]:
    """Return a batch of one record and the marker after it."""
    producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    batch = build_batch(records(base, (b"t", b"1")), base_offset=base, transactional=True, **producer)
    marker = build_marker_batch(
        EndTransactionMarker(end, 3), timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0, base_offset=base + 1
    )
    return batch, marker


def test_an_aborted_transaction_loses_its_records_first_and_then_its_marker() -> None:
    batch, marker = transaction(50, 7, ControlType.ABORT)
    aborted = (AbortedTransaction(7, 50, 51, 50),)
    some = batch_filter({b"t": 50}, aborted=aborted)
    assert filtered(some, batch) == b""
    assert filtered(some, marker) is marker
    some = batch_filter({}, aborted=aborted)
    waiting = filtered(some, marker)
    assert read_batch_header(waiting).has_delete_horizon
    assert list(read_records(waiting)) == list(read_records(marker))
    assert filtered(batch_filter({}, aborted=aborted), waiting) is waiting
    assert filtered(batch_filter({}, aborted=aborted, now_ms=NOW_MS + RETENTION_MS), waiting) == b""
    last = {7: LastBatch(-1, 0)}
    kept = filtered(batch_filter({}, aborted=aborted, now_ms=NOW_MS * 2, last_batches=last), waiting)
    assert read_batch_header(kept).records_count == 0
    assert read_batch_header(kept).is_control


def test_a_commit_marker_stays_as_long_as_a_batch_of_its_transaction() -> None:
    batch, marker = transaction(50, 7, ControlType.COMMIT)
    some = batch_filter({b"t": 50})
    assert filtered(some, batch) is batch
    assert filtered(some, marker) is marker
    assert read_batch_header(filtered(some, marker)).has_delete_horizon, "the second one ends nothing"


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
@pytest.mark.parametrize("magic", [0, 1])
def test_older_formats_become_batches(magic: int, codec: Codec) -> None:
    listed = records(30, (b"a", b"1"), (b"b", None), (None, b"x"), (b"c", b"2"))
    messages = build_message_set(listed, magic=magic, codec=codec)
    if codec is Codec.NONE:
        messages = build_message_set(listed[:1], magic=magic)
        listed = listed[:1]
    some = batch_filter({b"a": 30, b"b": 31, b"c": 900})
    left = some.filter_message(messages, keep_tombstones=True)
    kept = [Record(r.offset, r.timestamp if magic else -1, r.key, r.value) for r in listed[:2]]
    assert list(read_records(left)) == kept
    header = read_batch_header(left)
    assert (header.base_offset, header.codec, header.partition_leader_epoch) == (30, codec, -1)
    assert header.has_delete_horizon == (len(kept) == 2)
    late = batch_filter({b"a": 900, b"b": 31, b"c": 900})
    assert late.filter_message(messages, keep_tombstones=False) == b""
