"""Message sets of formats 0 and 1: Kafka's own bytes, other libraries' readers and writers, broken and hostile ones."""

import contextlib
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError, EncodeError
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.legacy import (
    CorruptMessage,
    Message,
    build_message_set,
    message_records,
    message_size,
    read_message,
    read_message_set,
    read_messages,
    write_message,
)
from protocol_lib.records.record import Record
from support.late import Late

aiokafka_message_sets = Late("aiokafka.record.legacy_records")
aiokafka_records = Late("aiokafka.record.memory_records")
kafka_python_records = Late("kafka.record.memory_records")

NOW = 1_700_000_000_000
APPENDED = NOW + 999
VALUE = b"value value value value value"
#: The records of message_sets.txt.
RECORDS = [Record(40, NOW, b"k", VALUE), Record(41, NOW + 7, None, VALUE), Record(42, NOW + 3, b"k3", None)]
OLD_CODECS = [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4]
GOLDEN = [
    line.split()[1:]
    for line in Path(__file__).with_name("message_sets.txt").read_text().splitlines()
    if line.startswith("set ")
]
FORMATS = pytest.mark.parametrize("magic", [0, 1])
#: All codecs but the LZ4 frames of format 0, unknown to other libraries; Kafka's own are in message_sets.txt.
KNOWN_ELSEWHERE = pytest.mark.parametrize(
    ("magic", "codec"), [(magic, codec) for magic in (0, 1) for codec in OLD_CODECS if (magic, codec) != (0, Codec.LZ4)]
)
CODECS = pytest.mark.parametrize("codec", OLD_CODECS, ids=lambda codec: codec.name)


def with_timestamps(records: list[Record], timestamp: int) -> list[Record]:
    return [Record(record.offset, timestamp, record.key, record.value) for record in records]


@pytest.mark.parametrize(("magic", "codec", "timestamps", "expected"), GOLDEN)
def test_kafka_s_own_message_sets(magic, codec, timestamps, expected):
    message_set, log_append_time = bytes.fromhex(expected), timestamps == "LogAppendTime"
    as_read = RECORDS
    if magic == "0":
        as_read = with_timestamps(RECORDS, -1)
    elif log_append_time:
        as_read = with_timestamps(RECORDS, APPENDED)
    assert list(read_message_set(message_set)) == as_read
    assert list(read_message_set(memoryview(bytearray(message_set)))) == as_read
    ours = build_message_set(
        RECORDS, magic=int(magic), codec=Codec[codec.upper()], log_append_time=APPENDED if log_append_time else None
    )
    if codec == "none":
        assert ours == message_set
        return
    assert list(read_message_set(ours)) == as_read
    (theirs, _), (wrapper, end) = read_message(message_set), read_message(ours)
    assert end == len(ours)
    assert (wrapper.offset, wrapper.attributes, wrapper.timestamp) == (42, theirs.attributes, theirs.timestamp)


@KNOWN_ELSEWHERE
def test_other_libraries_read_what_is_built(magic, codec):
    message_set = build_message_set(RECORDS, magic=magic, codec=codec)
    for reader in (
        [aiokafka_records.MemoryRecords]
        if codec > Codec.GZIP
        else [aiokafka_records.MemoryRecords, kafka_python_records.MemoryRecords]
    ):
        records, read = reader(message_set), []
        while (batch := records.next_batch()) is not None:
            assert batch.validate_crc()
            read += [(record.offset, record.timestamp, record.key, record.value) for record in batch]
        assert read == [(r.offset, r.timestamp if magic else None, r.key, r.value) for r in RECORDS]


@KNOWN_ELSEWHERE
def test_what_aiokafka_builds_is_read(magic, codec):
    builder = aiokafka_message_sets.LegacyRecordBatchBuilder(magic, codec, 100_000)
    for index, record in enumerate(RECORDS):
        builder.append(index, timestamp=record.timestamp, key=record.key, value=record.value)
    message_set = bytes(builder.build())
    assert list(read_message_set(message_set)) == [
        Record(index, record.timestamp if magic else -1, record.key, record.value)
        for index, record in enumerate(RECORDS)
    ]
    if codec is Codec.NONE:
        ours = [Record(index, record.timestamp, record.key, record.value) for index, record in enumerate(RECORDS)]
        assert build_message_set(ours, magic=magic) == message_set


@given(
    records=st.lists(
        st.tuples(st.integers(1, 5), st.integers(-1, 2**62), st.none() | st.binary(), st.none() | st.binary()),
        min_size=1,
        max_size=5,
    ),
    magic=st.sampled_from([0, 1]),
    codec=st.sampled_from(OLD_CODECS),
)
def test_what_is_built_is_read(records, magic, codec):
    offset, expected = 7, []
    for gap, timestamp, key, value in records:
        offset += gap
        expected.append(Record(offset, timestamp if magic else -1, key, value))
    assert list(read_message_set(build_message_set(expected, magic=magic, codec=codec))) == expected


def wrapped(inside: bytes, magic: int, codec: Codec = Codec.GZIP, offset: int = 5) -> bytes:
    return write_message(Message(offset, magic, codec, NOW, None, compress(codec, inside)))


def test_offsets_of_a_wrapper_of_format_1():
    inside = b"".join(write_message(Message(offset, 1, 0, NOW, None, b"v")) for offset in (0, 3, 4))
    assert [record.offset for record in read_message_set(wrapped(inside, 1, offset=50))] == [46, 49, 50]
    assert [record.offset for record in read_message_set(wrapped(inside, 1, offset=0))] == [0, 3, 4]
    with pytest.raises(DecodeError, match="a wrapper of offset 3 around a message of offset 4"):
        list(read_message_set(wrapped(inside, 1, offset=3)))


def test_the_last_message_may_be_cut_short_where_that_is_said():
    message_set = build_message_set(RECORDS, magic=1)
    whole = [end for _, end in positions(message_set)]
    for end in range(len(message_set) + 1):
        fit = sum(1 for boundary in whole if boundary <= end)
        assert list(read_message_set(message_set[:end], partial=True)) == RECORDS[:fit]
        if end not in (0, *whole):
            with pytest.raises(CorruptMessage):
                list(read_message_set(message_set[:end]))


def positions(message_set: bytes) -> list[tuple[Message, int]]:
    found, position = [], 0
    while position < len(message_set):
        message, end = read_message(message_set, position)
        assert message_size(message_set, position) == end - position
        found.append((message, end))
        position = end
    return found


@FORMATS
def test_any_changed_byte_after_the_size_is_noticed(magic):
    message_set = build_message_set(RECORDS[:1], magic=magic)
    for position in range(12, len(message_set)):
        changed = bytearray(message_set)
        changed[position] ^= 0x01
        with pytest.raises(CorruptMessage):
            list(read_messages(changed))


def message_of(body: str, *, size: int | None = None) -> bytes:
    """Build a message with a correct CRC around anything, from the magic on."""
    content = struct.pack(">I", zlib.crc32(bytes.fromhex(body))) + bytes.fromhex(body)
    return struct.pack(">qi", 9, len(content) if size is None else size) + content


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (message_of("00 00 ffffffff ffffffff", size=13), "a message of size 13"),
        (message_of("00 00 ffffffff ffffffff", size=-1), "a message of size -1"),
        (message_of("00 00 ffffffff ffffffff", size=2**31 - 1), "where 26 are left"),
        (message_of("02 00 ffffffff ffffffff"), "a message of format 2"),
        (message_of("01 00 ffffffff ffffffff"), "a message of 26 bytes in format 1"),
        (message_of("00 00 ffffffff ffffffff 00"), "1 bytes after the value"),
        (message_of("00 00 fffffffe ffffffff"), "a field of -2 bytes"),
        (message_of("00 00 ffffffff 7fffffff"), "a field of 2147483647 bytes in a message that has 0 left"),
        (message_of("00 00 00000004 ffffffff"), "a message is cut short"),
        (b"\0" * 11, "a message of 11 bytes"),
    ],
)
def test_what_is_wrong_with_messages(message, says):
    with pytest.raises(CorruptMessage, match=says):
        list(read_message_set(message))


@pytest.mark.parametrize(
    ("message_set", "says"),
    [
        (wrapped(wrapped(build_message_set(RECORDS, magic=1), 1), 1), "a compressed message inside a compressed"),
        (wrapped(build_message_set(RECORDS, magic=0), 1), "a message of format 0 inside one of format 1"),
        (wrapped(build_message_set(RECORDS, magic=1), 0), "a message of format 1 inside one of format 0"),
        (wrapped(build_message_set(RECORDS, magic=1)[:-1], 1), "are left"),
        (wrapped(b"", 1), "no message inside"),
        (
            wrapped(build_message_set([Record(2**63 - 1, NOW, None, b""), Record(0, NOW, None, b"")], magic=1), 1),
            f"a message of offset {2**63 + 4}",
        ),
        (write_message(Message(0, 1, Codec.GZIP, NOW, None, None)), "without a value"),
        (write_message(Message(0, 1, Codec.ZSTD, NOW, None, b"x")), "a message of format 1 with codec 4"),
        (write_message(Message(0, 0, 7, NOW, None, b"x")), "a message of format 0 with codec 7"),
        (write_message(Message(0, 0, Codec.LZ4, NOW, None, b"x")), "not an LZ4 frame"),
        (write_message(Message(0, 0, Codec.LZ4, NOW, None, b"\x04\x22\x4d\x18\x69\x40\0")), "cut short"),
    ],
)
def test_what_is_wrong_with_wrappers(message_set, says):
    with pytest.raises(DecodeError, match=says):
        list(read_message_set(message_set))


@pytest.mark.parametrize("codec", OLD_CODECS[1:], ids=lambda codec: codec.name)
def test_a_compressed_bomb_is_bounded_by_the_limit_of_the_whole_set(codec):
    inside = build_message_set([Record(0, NOW, None, bytes(600_000))], magic=1)
    bomb = wrapped(inside, 1, codec)
    assert len(bomb) < 60_000
    assert len(list(read_message_set(bomb, limit=700_000))) == 1
    for message_set, limit in ((bomb, 500_000), (bomb + bomb, 700_000)):
        with pytest.raises(DecodeError, match="more than"):
            list(read_message_set(message_set, limit=limit))
    with pytest.raises(DecodeError, match="more than 1000 bytes"):
        message_records(read_message(bomb)[0], limit=1_000)


@FORMATS
@CODECS
def test_tampered_wrappers_are_records_or_decode_errors(magic, codec):
    draw = random.Random(codec)
    (wrapper,) = read_messages(build_message_set([Record(0, NOW, None, VALUE * 9)], magic=magic, codec=codec))
    for _ in range(300):
        broken = bytearray(wrapper.value or b"")
        for _ in range(draw.randrange(1, 4)):
            broken[draw.randrange(len(broken))] = draw.randrange(256)
        with contextlib.suppress(DecodeError):
            message = Message(3, magic, wrapper.attributes, NOW, None, bytes(broken))
            assert all(isinstance(record, Record) for record in message_records(message, limit=10_000))


def test_what_cannot_be_built():
    with pytest.raises(EncodeError, match="without records"):
        build_message_set([], magic=1)
    with pytest.raises(EncodeError, match="of format 2"):
        build_message_set(RECORDS, magic=2)
    with pytest.raises(EncodeError, match="with codec ZSTD"):
        build_message_set(RECORDS, magic=1, codec=Codec.ZSTD)
