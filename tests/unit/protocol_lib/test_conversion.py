"""Old formats up and down: Kafka's own conversions, data that is kept, dropped and refused."""

from pathlib import Path

import pytest
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import build_batch, crc_matches, read_batch_header
from protocol_lib.records.compression import Codec, DecompressedTooLarge
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.conversion import down_convert, up_convert
from protocol_lib.records.legacy import (
    CorruptMessage,
    Message,
    build_message_set,
    read_message_set,
    read_messages,
    write_message,
)
from protocol_lib.records.record import Record, read_records

NOW = 1_700_000_000_000
RECORDS = [
    Record(40, NOW, b"k", b"v" * 50, (("h\udcff", b"x"),)),
    Record(41, NOW + 7, None, b"v" * 50),
    Record(44, NOW + 3, b"k3", None),
]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
FORMATS = pytest.mark.parametrize("magic", [0, 1])
CODECS = pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)
DOWN = [
    line.split()[1:]
    for line in Path(__file__).with_name("message_sets.txt").read_text().splitlines()
    if line.startswith("down ")
]


@pytest.mark.parametrize(("magic", "codec", "timestamps", "batch", "expected"), DOWN)
def test_kafka_s_own_down_conversion(magic, codec, timestamps, batch, expected):
    ours = down_convert(bytes.fromhex(batch), int(magic), first_offset=41)
    theirs = bytes.fromhex(expected)
    if codec == "none":
        assert ours == theirs
    assert list(read_message_set(ours)) == list(read_message_set(theirs))
    wrappers = [
        [(message.offset, message.magic, message.attributes, message.timestamp) for message in read_messages(messages)]
        for messages in (ours, theirs)
    ]
    assert wrappers[0] == wrappers[1]


@FORMATS
@CODECS
def test_up_keeps_what_format_2_can_hold(magic, codec):
    batch = up_convert(build_message_set(RECORDS, magic=magic, codec=codec))
    header = read_batch_header(batch)
    assert crc_matches(batch)
    assert (header.attributes, header.base_offset, header.last_offset_delta) == (codec, 0, 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert (header.base_timestamp, header.max_timestamp) == ((NOW, NOW + 7) if magic else (-1, -1))
    assert list(read_records(batch)) == [
        Record(offset, record.timestamp if magic else -1, record.key, record.value)
        for offset, record in enumerate(RECORDS)
    ]


@CODECS
def test_up_keeps_log_append_time(codec):
    batch = up_convert(build_message_set(RECORDS, magic=1, codec=codec, log_append_time=NOW + 99))
    header = read_batch_header(batch)
    assert header.is_log_append_time
    assert header.max_timestamp == NOW + 99
    assert {record.timestamp for record in read_records(batch)} == {NOW + 99}


def test_up_of_nothing_and_of_part_of_a_message():
    message_set = build_message_set(RECORDS, magic=1)
    assert up_convert(b"") == b""
    assert up_convert(message_set[:20], partial=True) == b""
    assert len(list(read_records(up_convert(message_set[:-1], partial=True)))) == 2
    with pytest.raises(CorruptMessage):
        up_convert(message_set[:-1])


def test_what_is_refused_on_the_way_up():
    plain, old = build_message_set(RECORDS, magic=1), build_message_set(RECORDS, magic=0)
    wrapper = build_message_set(RECORDS, magic=1, codec=Codec.GZIP)
    with pytest.raises(DecodeError, match="messages of both formats"):
        up_convert(plain + old)
    for message_set in (plain + wrapper, wrapper + plain, wrapper + wrapper):
        with pytest.raises(DecodeError, match="a compressed message next to others"):
            up_convert(message_set)
    with pytest.raises(DecodeError, match="with codec 4"):
        up_convert(write_message(Message(0, 1, Codec.ZSTD, NOW, None, b"x")))
    with pytest.raises(CorruptMessage, match="format 2"):
        up_convert(build_batch(RECORDS, base_offset=40))
    with pytest.raises(DecodeError, match="more than 100 bytes"):
        up_convert(wrapper, limit=100)
    far_apart = [Record(0, -(2**63), None, b""), Record(1, 2**63 - 1, None, b"")]
    with pytest.raises(DecodeError, match="messages that no batch can hold"):
        up_convert(build_message_set(far_apart, magic=1))


@FORMATS
@CODECS
def test_down_drops_headers_and_what_the_producer_said(magic, codec):
    batch = build_batch(
        RECORDS, base_offset=38, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True
    )
    message_set = down_convert(batch, magic)
    assert {message.codec for message in read_messages(message_set)} == {codec}
    assert {message.magic for message in read_messages(message_set)} == {magic}
    assert list(read_message_set(message_set)) == [
        Record(record.offset, record.timestamp if magic else -1, record.key, record.value) for record in RECORDS
    ]


@FORMATS
def test_down_of_what_a_log_may_hold(magic):
    marker = EndTransactionMarker(ControlType.COMMIT, 0)
    control = build_marker_batch(marker, timestamp=NOW, producer_id=7, producer_epoch=1, base_offset=45)
    oldest = build_message_set([Record(2, -1, b"a", b"0")], magic=0)
    older = build_message_set([Record(3, NOW, b"b", b"1")], magic=1, codec=Codec.LZ4)
    batch = build_batch([Record(46, NOW, None, b"2")], base_offset=46)
    message_set = down_convert(oldest + older + control + batch, magic)
    assert [(record.offset, record.value) for record in read_message_set(message_set)] == [
        (2, b"0"),
        (3, b"1"),
        (46, b"2"),
    ]
    assert [message.magic for message in read_messages(message_set)] == [0, magic, magic]
    assert message_set.startswith(oldest)
    assert down_convert(control, magic) == b""
    assert down_convert(b"", magic) == b""


def test_down_leaves_out_what_was_not_asked_for_unless_it_is_compressed():
    plain, packed = (build_batch(RECORDS, base_offset=40, codec=codec) for codec in (Codec.NONE, Codec.GZIP))
    assert [record.offset for record in read_message_set(down_convert(plain, 1, first_offset=42))] == [44]
    assert [record.offset for record in read_message_set(down_convert(packed, 1, first_offset=42))] == [40, 41, 44]
    assert down_convert(plain, 1, first_offset=45) == b""


@FORMATS
@pytest.mark.parametrize("append_time", [False, True])
def test_zstd_becomes_gzip_on_the_way_down(magic, append_time):
    options = {"base_offset": 40, "log_append_time": append_time}
    zstd, gzip = (build_batch(RECORDS, codec=codec, **options) for codec in (Codec.ZSTD, Codec.GZIP))
    plain = build_batch([Record(45, NOW, None, b"p")], base_offset=45)
    assert down_convert(zstd, magic) == down_convert(gzip, magic)
    (wrapper, after) = read_messages(down_convert(zstd + plain, magic))
    assert (wrapper.codec, wrapper.offset, after.codec, after.offset) == (Codec.GZIP, 44, Codec.NONE, 45)


@FORMATS
def test_zstd_beyond_the_limit_is_not_converted(magic):
    plain = build_batch([Record(39, NOW, None, b"p")], base_offset=39)
    bomb = build_batch([Record(40, NOW, None, bytes(100_000))], base_offset=40, codec=Codec.ZSTD)
    with pytest.raises(DecompressedTooLarge):
        down_convert(bomb, magic, limit=99_999)
    assert down_convert(plain + bomb, magic, limit=99_999) == down_convert(plain, magic)


def test_broken_batches_on_the_way_down():
    batch = build_batch(RECORDS, base_offset=40)
    for end in range(1, len(batch)):
        with pytest.raises(DecodeError):
            down_convert(batch[:end], 1)
    last = bytearray(build_batch([Record(0, NOW, None, b"")], base_timestamp=NOW - 1))
    last[27:35] = (2**63 - 1).to_bytes(8, "big")  # the base timestamp
    with pytest.raises(DecodeError, match=f"a record of timestamp {2**63}"):
        down_convert(last, 1)
    with pytest.raises(DecodeError, match="more than 10 bytes"):
        down_convert(build_batch(RECORDS, base_offset=40, codec=Codec.LZ4), 1, limit=10)
