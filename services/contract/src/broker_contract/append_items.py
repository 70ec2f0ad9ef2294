"""How appends and their answers are laid out in a frame (frames.py).

    kind 1   append request    correlation_id i32, version i16, acks i16, timeout_ms i32, client_id nstring,
                               count u32,
                               count x (topic string, topic_id 16 bytes, partition i32, length u32, record batches)
    kind 2   append response   count u32, count x (error_code i16, base_offset i64, log_append_time_ms i64,
                               log_start_offset i64, error_message nstring,
                               record_error_count u32, record_error_count x (batch_index i32, message nstring))
    kind 6   append run        correlation_id i32, version i16, acks i16, timeout_ms i32, topic_id 16 bytes,
                               partition i32, length of client_id u16 (0xFFFF null), length of topic u16, count u32,
                               client_id, topic, count x length u32, count x record batch; answered by kind 2 or 7,
                               one outcome a batch
    kind 7   appended          an append response without errors: count x (base_offset i64, log_append_time_ms i64,
                               log_start_offset i64)
    kind 11  laid request      place u64, then as kind 1 without record batches
    kind 12  laid run          place u64, then as kind 6 without record batches

`topic_id` is all zeros when the topic is named by name. Answers list partitions in the request's order. The record
batches of kinds 11 and 12 lie back to back in the gateway's AppendArea (append_area.py), at `place` of its content.

Runs and their answers are nearly all that travels: they are put and got in few steps, with the item's head in one.
"""

from __future__ import annotations

from struct import Struct, pack, unpack_from
from typing import Final

from broker_contract.data import (
    OUTCOME,
    AppendedPartition,
    AppendOutcome,
    AppendPartition,
    AppendRequest,
    AppendResponse,
    AppendRun,
    Buffer,
    LaidAppend,
    OutcomesAsTheyTravel,
)
from broker_contract.errors import FrameError
from broker_contract.item_fields import I32, ITEM, NULL, U32, U64, Reader, put_nstring

_APPEND_HEAD: Final = Struct(">ihhi")
_PLACE: Final = Struct(">16siI")
_RUN_HEAD: Final = Struct(">ihhi16siHHI")
#: The same behind the item's head, and behind the place.
_RUN_ITEM: Final = Struct(">BQIihhi16siHHI")
_LAID_RUN_ITEM: Final = Struct(">BQIQihhi16siHHI")
_APPENDED: Final = Struct(">hqqq")


def put_append_request(parts: list[Buffer], item: AppendRequest, *, laid: bool = False) -> int:
    """`laid`: without the record batches."""
    parts.append(_APPEND_HEAD.pack(item.correlation_id, item.version, item.acks, item.timeout_ms))
    size = _APPEND_HEAD.size + put_nstring(parts, item.client_id) + 4
    parts.append(U32.pack(len(item.partitions)))
    for partition in item.partitions:
        records = partition.records
        length = len(records)
        size += put_nstring(parts, partition.topic) + _PLACE.size
        parts.append(_PLACE.pack(partition.topic_id, partition.partition, length))
        if not laid:
            parts.append(records)
            size += length
    return size


def put_laid_append(parts: list[Buffer], item: LaidAppend) -> int:
    """Of an AppendRequest."""
    assert type(item.append) is AppendRequest
    parts.append(U64.pack(item.place))
    return U64.size + put_append_request(parts, item.append, laid=True)


def put_append_run(parts: list[Buffer], call_id: int, run: AppendRun, place: int = -1) -> int:
    """The whole item, with the run's batches or, if a place is given, where they lie."""
    client_id = b"" if run.client_id is None else run.client_id.encode()
    topic = run.topic.encode()
    client_length, topic_length = len(client_id), len(topic)
    if client_length >= NULL or topic_length >= NULL:
        raise FrameError(f"string of {max(client_length, topic_length)} bytes is longer than {NULL - 1}")
    if run.client_id is None:
        client_length = NULL
    batches = run.batches
    lengths = list(map(len, batches))
    count = len(lengths)
    behind = client_id + topic + pack(f">{count}I", *lengths)
    size = _RUN_HEAD.size + len(behind)
    fields = (
        run.correlation_id,
        run.version,
        run.acks,
        run.timeout_ms,
        run.topic_id,
        run.partition,
        client_length,
        topic_length,
        count,
    )
    if place >= 0:
        size += U64.size
        parts.append(_LAID_RUN_ITEM.pack(12, call_id, size, place, *fields) + behind)
    else:
        size += sum(lengths)
        parts.append(_RUN_ITEM.pack(6, call_id, size, *fields) + behind)
        parts += batches
    return ITEM.size + size


def put_append_response(parts: list[Buffer], call_id: int, item: AppendResponse) -> int:
    """The whole item, short if there are no errors."""
    put = OUTCOME.pack
    packed = []
    for done in item.partitions:
        if done.error_code:
            index = len(parts)
            parts.append(b"")
            size = _put_outcomes(parts, item)
            parts[index] = ITEM.pack(2, call_id, size)
            return ITEM.size + size
        packed.append(put(done.base_offset, done.log_append_time_ms, done.log_start_offset))
    size = len(packed) * OUTCOME.size
    parts.append(ITEM.pack(7, call_id, size) + b"".join(packed))
    return ITEM.size + size


def _put_outcomes(parts: list[Buffer], item: AppendResponse) -> int:
    parts.append(U32.pack(len(item.partitions)))
    size = 4
    for done in item.partitions:
        parts.append(_APPENDED.pack(done.error_code, done.base_offset, done.log_append_time_ms, done.log_start_offset))
        size += _APPENDED.size + put_nstring(parts, done.error_message) + 4
        parts.append(U32.pack(len(done.record_errors)))
        for index, message in done.record_errors:
            parts.append(I32.pack(index))
            size += 4 + put_nstring(parts, message)
    return size


def get_append_request(reader: Reader) -> AppendRequest:
    return _append_request(reader, reader)


def get_laid_append(reader: Reader) -> AppendRequest:
    (place,) = reader.unpack(U64)
    area = _seen(reader.area)
    return _append_request(reader, Reader(area, place, len(area)))


def _seen(area: memoryview | None) -> memoryview:
    if area is None:
        raise FrameError("an append's records lie in memory that was not named")
    return area


def _append_request(reader: Reader, records: Reader) -> AppendRequest:
    """Its batches are taken from `records`."""
    correlation_id, version, acks, timeout_ms = reader.unpack(_APPEND_HEAD)
    client_id = reader.nstring()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        topic_id = bytes(reader.take(16))
        (partition,) = reader.unpack(I32)
        (length,) = reader.unpack(U32)
        partitions.append(AppendPartition(topic, partition, records.take(length), topic_id))
    return AppendRequest(correlation_id, client_id, version, acks, timeout_ms, partitions)


def get_append_run(buffer: memoryview, position: int, end: int, _area: memoryview | None) -> AppendRun:
    """Of the item between `position` and `end`."""
    return _run(buffer, position, end, None, 0)


def get_laid_run(buffer: memoryview, position: int, end: int, area: memoryview | None) -> AppendRun:
    if end - position < U64.size:
        raise FrameError("item ends inside a field")
    return _run(buffer, position + U64.size, end, _seen(area), U64.unpack_from(buffer, position)[0])


def _run(buffer: memoryview, position: int, end: int, area: memoryview | None, place: int) -> AppendRun:
    """Its batches lie at `place` of the area or, without one, in the item."""
    client_at = position + _RUN_HEAD.size
    if client_at > end:
        raise FrameError("item ends inside a field")
    correlation_id, version, acks, timeout_ms, topic_id, partition, client_length, topic_length, count = (
        _RUN_HEAD.unpack_from(buffer, position)
    )
    topic_at = client_at if client_length == NULL else client_at + client_length
    lengths_at = topic_at + topic_length
    behind = lengths_at + 4 * count
    if behind > end:
        raise FrameError("item ends inside a field")
    try:
        client_id = None if client_length == NULL else str(buffer[client_at:topic_at], "utf-8")
        topic = str(buffer[topic_at:lengths_at], "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError("a string is not UTF-8") from error
    if area is None:
        source, stop, limit = buffer, behind, end
    else:
        source, stop, limit = area, place, len(area)
        if behind != end:
            raise FrameError(f"{end - behind} bytes left over in a run")
    batches = []
    for length in unpack_from(f">{count}I", buffer, lengths_at):
        begin, stop = stop, stop + length
        batches.append(source[begin:stop])
    if stop > limit or (area is None and stop != limit):
        raise FrameError("a run's batches do not end where they have to")
    return AppendRun(correlation_id, client_id, version, acks, timeout_ms, topic, topic_id, partition, batches)


def get_appended(buffer: memoryview, position: int, end: int, _area: memoryview | None) -> AppendResponse:
    """Of the item between `position` and `end`."""
    if (end - position) % OUTCOME.size:
        raise FrameError("item ends inside a field")
    return AppendResponse(OutcomesAsTheyTravel(buffer[position:end].tobytes()))


def get_append_response(reader: Reader) -> AppendResponse:
    partitions: list[AppendOutcome] = []
    for _ in range(reader.count()):
        error_code, base_offset, append_time, log_start = reader.unpack(_APPENDED)
        message = reader.nstring()
        errors = tuple((reader.unpack(I32)[0], reader.nstring()) for _ in range(reader.count()))
        partitions.append(AppendedPartition(error_code, base_offset, append_time, log_start, message, errors))
    return AppendResponse(partitions)
