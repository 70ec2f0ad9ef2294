"""Data frames: what is encoded is decoded, and nothing else than FrameError comes out of broken bytes."""

from contextlib import suppress

import pytest
from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    AppendedPartition,
    AppendPartition,
    AppendRequest,
    AppendResponse,
    AppendRun,
    Cancel,
    FrameTaken,
    Item,
    LaidAppend,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
)
from broker_contract.data_pb2 import Frame
from broker_contract.errors import FrameError
from broker_contract.frames import frame_from_wire, frame_to_wire, put_item, read_items
from broker_contract.revisions import PLACES
from hypothesis import given
from hypothesis import strategies as st

int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
names = st.text(max_size=20)
topic_ids = st.binary(min_size=16, max_size=16)

append_requests = st.builds(
    AppendRequest,
    int32,
    st.none() | names,
    int16,
    int16,
    int32,
    st.lists(st.builds(AppendPartition, names, int32, st.binary(max_size=300), topic_ids), max_size=4),
)
append_runs = st.builds(
    AppendRun,
    int32,
    st.none() | names,
    int16,
    int16,
    int32,
    names,
    topic_ids,
    int32,
    st.lists(st.binary(max_size=300), max_size=4),
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
    int16,
    int32,
    int32,
    int32,
    st.integers(0, 1),
    st.booleans(),
    st.lists(st.builds(ReadPartition, names, int32, int64, int32, int32, topic_ids), max_size=4),
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
        int16,
        int32,
        int32,
        int32,
        st.integers(0, 1),
        st.booleans(),
        st.lists(st.builds(ReadPartition, names, int32, int64, int32, int32, topic_ids), min_size=1, max_size=1),
    ),
    st.integers(0, 255),
)
ahead_responses = st.builds(
    AheadResponse,
    st.integers(0, PLACES - 1),
    st.integers(0, 2**64 - 1),
    int64,
    int64,
    int64,
    st.lists(st.builds(AheadRead, int64, st.lists(slices, max_size=3)), max_size=4),
)
items = (
    append_requests
    | append_runs
    | append_responses
    | read_requests
    | read_responses
    | st.just(Cancel())
    | st.just(FrameTaken())
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


def test_append_request_bytes_are_as_documented() -> None:
    item = AppendRequest(7, "c", 9, -1, 1000, [AppendPartition("t", 3, b"xyz")])
    assert encode([(5, item)]).hex(" ") == (
        "01 00 00 00 00 00 00 00 05 00 00 00 31 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 00 01 63 00 00 00 01 "
        "00 01 74 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 03 00 00 00 03 78 79 7a"
    )


def test_append_run_bytes_are_as_documented() -> None:
    item = AppendRun(7, "c", 9, -1, 1000, "t", bytes(16), 3, [b"xyz", b"uv"])
    assert encode([(5, item)]).hex(" ") == (
        "06 00 00 00 00 00 00 00 05 00 00 00 37 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 "
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 03 "
        "00 01 00 01 00 00 00 02 63 74 00 00 00 03 00 00 00 02 78 79 7a 75 76"
    )


def in_area(append: AppendRequest | AppendRun, place: int) -> bytes:
    """An area in which nothing but the append's batches lies."""
    batches = append.batches if isinstance(append, AppendRun) else [each.records for each in append.partitions]
    return bytes(place) + b"".join(batches)


@given(st.tuples(st.integers(0, 2**64 - 1), append_requests | append_runs), st.integers(0, 100), items)
def test_a_laid_append_is_read_with_its_batches_from_the_area(
    call: tuple[int, AppendRequest | AppendRun], place: int, behind: Item
) -> None:
    call_id, append = call
    frame = encode([(call_id, LaidAppend(append, place)), (1, behind)])
    area = memoryview(in_area(append, place))
    assert list(read_items(frame, area)) == [call, (1, behind)]
    with pytest.raises(FrameError, match="memory that was not named"):
        list(read_items(frame))


@given(append_requests | append_runs, st.integers(0, 2**64 - 1), st.integers(0, 400))
def test_a_laid_append_reaches_no_further_than_the_area(
    append: AppendRequest | AppendRun, place: int, size: int
) -> None:
    needed = len(in_area(append, 0))
    empty = not (append.batches if isinstance(append, AppendRun) else append.partitions)
    for begin in (place, max(0, size - needed), max(0, size - needed) + 1):
        frame = encode([(1, LaidAppend(append, begin))])
        if begin + needed <= size:
            ((_, read),) = read_items(frame, memoryview(bytes(size)))
            assert len(in_area(read, 0)) == needed
        elif not empty:
            with pytest.raises(FrameError):
                list(read_items(frame, memoryview(bytes(size))))


def test_laid_append_bytes_are_as_documented() -> None:
    run = AppendRun(7, "c", 9, -1, 1000, "t", bytes(16), 3, [b"xyz", b"uv"])
    assert encode([(5, LaidAppend(run, 0x1234))]).hex(" ") == (
        "0c 00 00 00 00 00 00 00 05 00 00 00 3a 00 00 00 00 00 00 12 34 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 "
        "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 03 "
        "00 01 00 01 00 00 00 02 63 74 00 00 00 03 00 00 00 02"
    )
    request = AppendRequest(7, "c", 9, -1, 1000, [AppendPartition("t", 3, b"xyz")])
    assert encode([(5, LaidAppend(request, 0x1234))]).hex(" ") == (
        "0b 00 00 00 00 00 00 00 05 00 00 00 36 00 00 00 00 00 00 12 34 "
        "00 00 00 07 00 09 ff ff 00 00 03 e8 00 01 63 00 00 00 01 "
        "00 01 74 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 03 00 00 00 03"
    )


def test_answers_without_errors_are_short() -> None:
    good, bad = AppendedPartition(0, 1, -1, 2), AppendedPartition(56)
    assert encode([(5, AppendResponse([good, good]))]).hex(" ") == (
        "07 00 00 00 00 00 00 00 05 00 00 00 30 "
        "00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 02 "
        "00 00 00 00 00 00 00 01 ff ff ff ff ff ff ff ff 00 00 00 00 00 00 00 02"
    )
    assert encode([(5, AppendResponse([good, bad]))])[0] == 2


def test_record_bytes_are_views_of_the_frame() -> None:
    body = encode([(1, AppendRequest(1, None, 9, 1, 0, [AppendPartition("t", 0, b"batch")]))])
    ((_, item),) = read_items(body)
    assert isinstance(item, AppendRequest)
    records = item.partitions[0].records
    assert isinstance(records, memoryview)
    assert records.obj is body
    assert bytes(records) == b"batch"


@given(st.binary(max_size=70_000))
def test_the_frame_on_the_wire_is_protobuf(body: bytes) -> None:
    wire = frame_to_wire([body[:5], body[5:]])
    assert Frame.FromString(wire).body == body
    assert bytes(frame_from_wire(wire)) == body


@pytest.mark.parametrize("wire", [b"\x12\x00", b"\x0a", b"\x0a\x05abc", b"\x0a\x01ab", b"\x0a" + b"\xff" * 6])
def test_what_is_not_a_frame_is_refused(wire: bytes) -> None:
    with pytest.raises(FrameError):
        frame_from_wire(wire)


def test_what_is_asked_ahead_is_of_one_partition_and_answered_with_a_place_there_is() -> None:
    read = ReadRequest(7, "c", 11, 0, 1, 10, 0, True, [ReadPartition("t", 0, 5, 10)] * 2)
    with pytest.raises(FrameError, match="2 partitions"):
        list(read_items(encode([(1, AheadRequest(read, 8))])))
    with pytest.raises(FrameError, match="place 4096"):
        list(read_items(encode([(1, AheadResponse(PLACES))])))


def test_that_a_frame_was_taken_says_nothing_more() -> None:
    assert encode([(5, FrameTaken())]).hex(" ") == "08 00 00 00 00 00 00 00 05 00 00 00 00"
    with pytest.raises(FrameError, match="1 bytes left over in an item of kind 8"):
        list(read_items(bytes.fromhex("08 0000000000000005 00000001 00")))
