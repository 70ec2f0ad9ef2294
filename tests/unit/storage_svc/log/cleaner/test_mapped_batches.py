"""A batch that is remembered from the first walk of the log keeps the same records as one that is read again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from storage_svc.log.batch.header import Header, unpack_header
from storage_svc.log.cleaner.filter import BatchFilter, body_of
from storage_svc.log.cleaner.key_map import KeyMap
from storage_svc.log.cleaner.mapped_batches import MappedBatches
from storage_svc.log.cleaner.records import scan_records
from storage_svc.log.cleaner.transactions import WalkedTransactions

NOW_MS = 1_700_000_000_000
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"f"])
#: (key, value) of each record, and by how many offsets it is further on than the next one to the one before it.
RECORDS = st.lists(
    st.tuples(KEYS | st.none(), st.sampled_from([b"value", b"value", None]), st.sampled_from([0, 0, 0, 2])),
    min_size=1,
    max_size=6,
)


def _batches(listed: list[list[tuple[bytes | None, bytes | None, int]]]) -> list[bytes]:
    batches, offset = [], 0
    for number, pairs in enumerate(listed):
        records = []
        for key, value, gap in pairs:
            offset += gap
            records.append(Record(offset, NOW_MS + number, key, value))
            offset += 1
        codec = Codec.GZIP if number % 3 == 2 else Codec.NONE
        batches.append(build_batch(records, base_offset=records[0].offset, codec=codec))
    return batches


def _filtered(batches: list[bytes], bytes_max: int, slots: int) -> tuple[list[bytes], tuple[int, int, int]]:
    key_map = KeyMap(1 << 20, slots)
    mapped = MappedBatches(key_map, bytes_max)
    for batch in batches:
        header = Header._make(unpack_header(batch))
        assert mapped.put(header, scan_records(body_of(header, batch), header.records_count, header.last_offset_delta))
    some = BatchFilter(
        key_map,
        mapped,
        1 << 20,
        WalkedTransactions(()),
        {},
        log_start_offset=0,
        high_watermark=1 << 20,
        now_ms=NOW_MS,
        delete_retention_ms=1000,
    )
    left = [some.filter(Header._make(unpack_header(batch)), batch) for batch in batches]
    return left, (some.counts.records_read, some.counts.records_kept, some.counts.keyless)


@given(st.lists(RECORDS, max_size=12))
def test_remembered_or_looked_at_again(listed: list[list[tuple[bytes | None, bytes | None, int]]]) -> None:
    batches = _batches(listed)
    assert _filtered(batches, 1 << 20, 100) == _filtered(batches, 0, 100)


def test_it_remembers_as_much_as_it_may() -> None:
    """Three batches of one record: 21 bytes each, and the limit is looked at before one is added."""
    batches = _batches([[(b"a", b"1", 0)], [(b"b", b"2", 0)], [(b"a", b"3", 0)]])
    key_map = KeyMap(1 << 20, 100)
    mapped = MappedBatches(key_map, 40)
    headers = [Header._make(unpack_header(batch)) for batch in batches]
    for header, batch in zip(headers, batches, strict=True):
        assert mapped.put(header, scan_records(body_of(header, batch), 1, 0))
    assert [mapped.find(header) for header in headers] == [([0], False), ([], False), None]


def test_the_map_is_full() -> None:
    key_map = KeyMap(0, 0)
    mapped = MappedBatches(key_map, 1 << 20)
    batches = _batches([[(b"%d" % key, b"", 0)] for key in range(769)])
    fits = []
    for batch in batches:
        header = Header._make(unpack_header(batch))
        fits.append(mapped.put(header, scan_records(body_of(header, batch), 1, 0)))
    assert fits == [True] * 768 + [False]
    assert mapped.find(Header._make(unpack_header(batches[768]))) is None
