"""Data frames: decoding reverses encoding, and broken bytes raise nothing but FrameError."""

from contextlib import suppress

import pytest
from broker_contract.append_items import put_append
from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    Append,
    AppendedPartition,
    AppendResponse,
    Cancel,
    FrameReceipt,
    Item,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
    TopicIdPartition,
)
from broker_contract.data_pb2 import Frame
from broker_contract.errors import FrameError
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from broker_contract.revisions import SLOTS
from hypothesis import given
from hypothesis import strategies as st

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
topic_ids = st.binary(min_size=16, max_size=16)

partitions = st.builds(TopicIdPartition, names, int32, topic_ids)
batches = st.binary(max_size=300)
#: Batches for a partition each, and batches that all go to one.
places = st.lists(st.tuples(partitions, batches), max_size=4).map(
    lambda pairs: (tuple(p for p, _ in pairs), [b for _, b in pairs])
)
runs = st.tuples(partitions.map(lambda one: (one,)), st.lists(batches, max_size=4))
appends = st.tuples(int32, st.none() | names, int16, int16, int32, places | runs, st.none() | names).map(
    lambda f: Append(*f[:5], *f[5], f[6])
)
appended = st.builds(AppendedPartition, st.just(0), int64, int64, int64)
refused = st.builds(
    AppendedPartition,
    int16.filter(bool),
    int64,
    int64,
    int64,
    st.none() | names,
    st.lists(st.tuples(int32, st.none() | names), max_size=3).map(tuple),
)
append_responses = st.builds(AppendResponse, st.lists(appended, max_size=4) | st.lists(appended | refused, max_size=4))
read_requests = st.builds(
    ReadRequest,
    int32,
    st.none() | names,
    int32,
    int32,
    int32,
    st.integers(0, 1),
    st.booleans(),
    st.lists(st.builds(ReadPartition, partitions, int64, int32, int32), max_size=4),
)
slices = st.builds(Slice, names, st.integers(0, 2**64 - 1), st.integers(0, 2**63), st.integers(0, 2**32 - 1))
read_responses = st.builds(
    ReadResponse,
    st.lists(
        st.builds(
            ReadResult,
            int16,
            int64,
            int64,
            int64,
            st.none() | st.lists(st.tuples(int64, int64), max_size=3),
            st.lists(slices, max_size=3),
            st.binary(max_size=300),
        ),
        max_size=4,
    ),
)
ahead_requests = st.builds(
    AheadRequest,
    st.builds(
        ReadRequest,
        int32,
        st.none() | names,
        int32,
        int32,
        int32,
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.builds(ReadPartition, partitions, int64, int32, int32), min_size=1, max_size=1),
    ),
    st.integers(0, 255),
)
ahead_responses = st.builds(
    AheadResponse,
    st.integers(0, SLOTS - 1),
    st.integers(0, 2**64 - 1),
    int64,
    int64,
    int64,
    st.lists(st.builds(AheadRead, int64, st.lists(slices, max_size=3)), max_size=4),
)
items = (
    appends
    | append_responses
    | read_requests
    | read_responses
    | st.just(Cancel())
    | st.just(FrameReceipt())
    | ahead_requests
    | ahead_responses
)


def encode(calls: list[tuple[int, Item]]) -> bytes:
    parts: list[bytes | memoryview] = []
    size = sum(put_item(parts, call_id, item) for call_id, item in calls)
    body = b"".join(parts)
    assert len(body) == size
    return body


@given(st.lists(st.tuples(st.integers(0, 2**64 - 1), items), max_size=4))
def test_a_frame_carries_its_items_in_order(calls: list[tuple[int, Item]]) -> None:
    assert list(read_items(encode(calls))) == calls


@given(st.tuples(st.integers(0, 2**64 - 1), items), st.data())
def test_a_cut_frame_is_a_frame_error(call: tuple[int, Item], data: st.DataObject) -> None:
    body = encode([call])
    cut = data.draw(st.integers(1, len(body) - 1))
    with pytest.raises(FrameError):
        list(read_items(body[:cut]))


@given(st.binary(max_size=200))
def test_random_bytes_are_items_or_a_frame_error(body: bytes) -> None:
    for area in (None, memoryview(bytes(100))):
        with suppress(FrameError):
            list(read_items(body, area))


@given(st.tuples(st.integers(0, 9), items), st.integers(0, 2**31), st.integers(0, 255))
def test_a_changed_byte_is_another_item_or_a_frame_error(call: tuple[int, Item], where: int, value: int) -> None:
    body = bytearray(encode([call]))
    body[where % len(body)] = value
    with suppress(FrameError):
        list(read_items(bytes(body)))


def test_append_bytes_are_as_documented() -> None:
    several = [TopicIdPartition("t", 3), TopicIdPartition("uv", 258, bytes(range(16)))]
    assert encode([(5, Append(7, None, 9, -1, 1000, several, [b"xyz", b""]))]).hex(" ") == (
        "01 00 00 00 00 00 00 00 05 00 00 00 56 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 ff ff ff ff 00 00 00 02 00 00 00 2f 00 00 00 02 "
        "00 01 00 00 00 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 74 "
        "00 02 00 00 01 02 00 01 02 03 04 05 06 07 08 09 0a 0b 0c 0d 0e 0f 75 76 "
        "00 00 00 03 00 00 00 00 78 79 7a"
    )


RUN = Append(7, "c", 9, -1, 1000, [TopicIdPartition("t", 3)], [b"xyz", b"uv"], "ab")


def test_bytes_of_several_batches_for_one_partition_are_as_documented() -> None:
    assert encode([(5, RUN)]).hex(" ") == (
        "01 00 00 00 00 00 00 00 05 00 00 00 43 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 00 01 00 02 00 00 00 01 00 00 00 1a 00 00 00 02 63 61 62 "
        "00 01 00 00 00 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 74 "
        "00 00 00 03 00 00 00 02 78 79 7a 75 76"
    )


def test_laid_append_bytes_are_as_documented() -> None:
    assert laid(RUN, 0x1234).hex(" ") == (
        "06 00 00 00 00 00 00 00 05 00 00 00 46 00 00 00 00 00 00 12 34 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 00 01 00 02 00 00 00 01 00 00 00 1a 00 00 00 02 63 61 62 "
        "00 01 00 00 00 03 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 74 "
        "00 00 00 03 00 00 00 02"
    )


@pytest.mark.parametrize(("partition_count", "batch_count"), [(0, 1), (2, 1), (2, 3), (3, 2)])
def test_an_append_names_one_partition_or_one_for_each_batch(partition_count: int, batch_count: int) -> None:
    unpaired = Append(7, "c", 9, -1, 1000, [TopicIdPartition("t", 3)] * partition_count, [b"xyz"] * batch_count)
    with pytest.raises(FrameError, match=f"{batch_count} batches for {partition_count} partitions"):
        list(read_items(encode([(5, unpaired)])))


@pytest.mark.parametrize("size", [65_535, 70_000])
def test_a_name_too_long_is_a_frame_error(size: int) -> None:
    for client_id, topic, transactional_id in (("c" * size, "t", ""), ("c", "t" * size, ""), ("c", "t", "x" * size)):
        with pytest.raises(FrameError, match=f"string of {size} bytes is longer than 65534"):
            encode([(5, Append(7, client_id, 9, -1, 1000, [TopicIdPartition(topic, 3)], [b""], transactional_id))])


def laid(append: Append, position: int, call_id: int = 5) -> bytes:
    """Encode an append whose batches lie at this position of the area."""
    parts: list[bytes | memoryview] = []
    size = put_append(parts, call_id, append, position)
    body = b"".join(parts)
    assert len(body) == size
    return body


@given(st.tuples(st.integers(0, 2**64 - 1), appends), st.integers(0, 100), items)
def test_a_laid_append_is_read_with_its_batches_from_the_area(
    call: tuple[int, Append], position: int, after: Item
) -> None:
    call_id, append = call
    frame = laid(append, position, call_id) + encode([(1, after)])
    area = memoryview(bytes(position) + b"".join(append.batches))
    assert list(read_items(frame, area)) == [call, (1, after)]
    with pytest.raises(FrameError, match="memory that was not named"):
        list(read_items(frame))


@given(appends, st.integers(0, 2**64 - 1), st.integers(0, 400))
def test_a_laid_append_reaches_no_further_than_the_area(append: Append, position: int, size: int) -> None:
    needed = sum(map(len, append.batches))
    for begin in (position, max(0, size - needed), max(0, size - needed) + 1):
        frame = laid(append, begin)
        if begin + needed <= size:
            ((_, read),) = read_items(frame, memoryview(bytes(size)))
            assert isinstance(read, Append)
            assert list(map(len, read.batches)) == list(map(len, append.batches))
        else:
            with pytest.raises(FrameError):
                list(read_items(frame, memoryview(bytes(size))))


def test_answers_without_errors_are_short() -> None:
    good, bad = AppendedPartition(0, 1, -1, 2), AppendedPartition(56)
    assert encode([(5, AppendResponse([good, good]))]).hex(" ") == (
        "07 00 00 00 00 00 00 00 05 00 00 00 30 "
        "00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 02 "
        "00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 02"
    )
    assert encode([(5, AppendResponse([good, bad]))])[0] == 2


def test_record_bytes_are_views_of_the_frame() -> None:
    body = encode([(1, Append(1, None, 9, 1, 0, [TopicIdPartition("t", 0)], [b"batch"]))])
    ((_, item),) = read_items(body)
    assert isinstance(item, Append)
    (records,) = item.batches
    assert isinstance(records, memoryview)
    assert records.obj is body
    assert bytes(records) == b"batch"


@given(st.binary(max_size=70_000))
def test_the_frame_on_the_wire_is_protobuf(body: bytes) -> None:
    wire = frame_to_wire([body[:5], body[5:]])
    assert Frame.FromString(wire).body == body
    assert bytes(frame_from_wire(wire)) == body


@pytest.mark.parametrize("wire", [b"\x12\x00", b"\x0a", b"\x0a\x05abc", b"\x0a\x01ab", b"\x0a" + b"\xff" * 6])
def test_other_bytes_than_a_frame_are_refused(wire: bytes) -> None:
    with pytest.raises(FrameError):
        frame_from_wire(wire)


def test_an_ahead_request_names_one_partition_and_its_answer_an_existing_slot() -> None:
    read = ReadRequest(7, "c", 0, 1, 10, 0, True, [ReadPartition(TopicIdPartition("t", 0), 5, 10)] * 2)
    with pytest.raises(FrameError, match="2 partitions"):
        list(read_items(encode([(1, AheadRequest(read, 8))])))
    with pytest.raises(FrameError, match="slot 4096"):
        list(read_items(encode([(1, AheadResponse(SLOTS))])))


def test_a_frame_receipt_has_no_payload() -> None:
    assert encode([(5, FrameReceipt())]).hex(" ") == "08 00 00 00 00 00 00 00 05 00 00 00 00"
    with pytest.raises(FrameError, match="1 bytes left over in an item of kind 8"):
        list(read_items(bytes.fromhex("08 0000000000000005 00000001 00")))


def test_names_are_decoded_to_exactly_their_end() -> None:
    body = bytearray(encode([(5, RUN)]))
    assert body[13 + 20 : 13 + 24] == (26).to_bytes(4, "big")
    body[13 + 20 + 3] = 30  # four bytes of the lengths
    body[13 + 24 + 3] = 1
    with pytest.raises(FrameError, match="names do not end where they have to"):
        list(read_items(bytes(body)))


def test_equal_names_are_decoded_by_their_own_counts() -> None:
    """Storage remembers decoded names: the same bytes are a client id or none."""
    topic = "\0" * 22 + "t"
    named = Append(1, None, 9, 1, 0, (TopicIdPartition(topic, 3),), [b"x"])
    names = encode([(5, named)])[13 + 28 : -5]
    client_id = Append(1, names.decode(), 9, 1, 0, (), [])
    for item in (named, client_id, named):
        assert list(read_items(encode([(5, item)]))) == [(5, item)]
