"""The records of a fetch that are handed over."""

from __future__ import annotations

import pytest
from protocol_lib.client.errors import CorruptMessageError, KafkaError
from protocol_lib.client.isolation import readable_records, whole_batches
from protocol_lib.messages.fetch import AbortedTransaction
from protocol_lib.records.batch import assign, build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.legacy import build_message_set
from protocol_lib.records.record import Record


def batch(base: int, count: int = 1, *, producer_id: int = -1, codec: Codec = Codec.NONE) -> bytes:
    records = [Record(base + index, 1000, None, b"%d" % (base + index)) for index in range(count)]
    return build_batch(
        records,
        base_offset=base,
        codec=codec,
        producer_id=producer_id,
        producer_epoch=0,
        transactional=producer_id >= 0,
    )


def end(base: int, producer_id: int, how: ControlType) -> bytes:
    marker = EndTransactionMarker(how, 0)
    built = bytearray(build_marker_batch(marker, timestamp=1, producer_id=producer_id, producer_epoch=0))
    assign(built, base, 0)
    return bytes(built)


def offsets(data: bytes, aborted=(), *, from_offset: int = 0, check_crcs: bool = True) -> list[int]:
    transactions = [AbortedTransaction(producer_id=each, first_offset=first) for each, first in aborted]
    found = readable_records(
        whole_batches(memoryview(data)), transactions, from_offset=from_offset, check_crcs=check_crcs, about="t-0"
    )
    return [record.offset for record in found]


#: 0 and 2 of producer 1, 1 and 4 of producer 2; 1 aborts at 3, commits 6 at 7; 2 commits at 5
INTERLEAVED = b"".join(
    (
        batch(0, producer_id=1),
        batch(1, producer_id=2),
        batch(2, producer_id=1),
        end(3, 1, ControlType.ABORT),
        batch(4, producer_id=2),
        end(5, 2, ControlType.COMMIT),
        batch(6, producer_id=1),
        end(7, 1, ControlType.COMMIT),
        batch(8),
    )
)


@pytest.mark.parametrize(
    ("aborted", "read"),
    [
        ((), [0, 1, 2, 4, 6, 8]),
        (((1, 0),), [1, 4, 6, 8]),
        (((2, 1),), [0, 2, 6, 8]),
        (((2, 1), (1, 0)), [6, 8]),
        (((1, 6),), [0, 1, 2, 4, 8]),
    ],
)
def test_aborted_transactions_are_skipped_up_to_their_marker(aborted, read):
    assert offsets(INTERLEAVED, aborted) == read


def test_a_fetch_may_begin_inside_a_batch():
    assert offsets(batch(0, 10, codec=Codec.ZSTD) + batch(10, 2), from_offset=7) == [7, 8, 9, 10, 11]


@pytest.mark.parametrize("cut", [1, 30, 60, 61, 70])
def test_a_batch_that_was_cut_off_is_left_for_the_next_fetch(cut):
    assert offsets(batch(0) + batch(1, 5)[:cut]) == [0]


def test_a_wrong_crc_is_found_when_its_batch_is_reached():
    broken = bytearray(batch(1))
    broken[-2] ^= 1  # the value
    found = readable_records(
        whole_batches(memoryview(batch(0) + broken)), (), from_offset=0, check_crcs=True, about="t-0"
    )
    assert next(found).offset == 0
    with pytest.raises(CorruptMessageError, match="t-0: offset 1"):
        next(found)
    assert offsets(bytes(broken), check_crcs=False) == [1]


def old(base: int, count: int, magic: int, codec: Codec) -> bytes:
    return build_message_set([Record(base + n, 1000, None, b"x") for n in range(count)], magic=magic, codec=codec)


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_segments_of_old_brokers_are_read_like_others(magic, codec):
    data = old(3, 4, magic, codec) + batch(7)
    assert offsets(data, from_offset=5) == [5, 6, 7]
    assert [each.last_offset for each in whole_batches(memoryview(data))][-2:] == [6, 7]
    for cut in (1, 60, 80):
        assert offsets(data[:-cut], from_offset=5) in ([5, 6], [5], [])
    broken = bytearray(old(3, 1, magic, codec))
    broken[-1] ^= 1
    with pytest.raises(CorruptMessageError, match="t-0: offset 3"):
        offsets(bytes(broken))


def test_a_malformed_batch_is_an_error_of_the_client():
    broken = bytearray(batch(0, 3))
    broken[57:61] = (9).to_bytes(4, "big")  # the count of records
    with pytest.raises(KafkaError, match="t-0: offset 0"):
        offsets(bytes(broken), check_crcs=False)


def test_a_control_batch_that_decompresses_to_much_is_malformed():
    attributes = slice(21, 23)
    bomb = bytearray(build_batch([Record(0, 1000, b"k" * 5000, None)], codec=Codec.GZIP, producer_id=1))
    bomb[attributes] = (0x30 | Codec.GZIP).to_bytes(2, "big")  # a control batch of a transaction
    with pytest.raises(KafkaError, match="t-0: offset 0"):
        offsets(bytes(bomb), check_crcs=False)
    small = bytearray(build_batch([Record(0, 1000, b"k" * 4000, None)], codec=Codec.GZIP, producer_id=1))
    small[attributes] = bomb[attributes]
    assert offsets(bytes(small), check_crcs=False) == []
