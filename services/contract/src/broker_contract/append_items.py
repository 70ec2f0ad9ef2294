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
"""

from __future__ import annotations

from struct import Struct, pack, unpack_from
from typing import Final

from broker_contract.data import (
    AppendedPartition,
    AppendOutcome,
    AppendPartition,
    AppendRequest,
    AppendResponse,
    AppendRun,
    Buffer,
    LaidAppend,
)
from broker_contract.errors import FrameError
from broker_contract.item_fields import I32, NULL, U32, U64, Reader, put_nstring

_APPEND_HEAD: Final = Struct(">ihhi")
_PLACE: Final = Struct(">16siI")
_RUN_HEAD: Final = Struct(">ihhi16siHHI")
_APPENDED: Final = Struct(">hqqq")
_APPENDED_WELL: Final = Struct(">qqq")


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


def put_append_run(parts: list[Buffer], item: AppendRun) -> int:
    batches = item.batches
    lengths = list(map(len, batches))
    head = _run_head(item, lengths)
    parts.append(head)
    parts += batches
    return len(head) + sum(lengths)


def put_laid_append(parts: list[Buffer], item: LaidAppend) -> int:
    append = item.append
    parts.append(U64.pack(item.place))
    if type(append) is AppendRequest:
        return U64.size + put_append_request(parts, append, laid=True)
    assert type(append) is AppendRun
    head = _run_head(append, list(map(len, append.batches)))
    parts.append(head)
    return U64.size + len(head)


def _run_head(item: AppendRun, lengths: list[int]) -> bytes:
    """All of a run but its batches."""
    client_id = b"" if item.client_id is None else item.client_id.encode()
    topic = item.topic.encode()
    longest = max(len(client_id), len(topic))
    if longest >= NULL:
        raise FrameError(f"string of {longest} bytes is longer than {NULL - 1}")
    count = len(lengths)
    head = _RUN_HEAD.pack(
        item.correlation_id,
        item.version,
        item.acks,
        item.timeout_ms,
        item.topic_id,
        item.partition,
        NULL if item.client_id is None else len(client_id),
        len(topic),
        count,
    )
    return head + client_id + topic + pack(f">{count}I", *lengths)


def put_appended(parts: list[Buffer], item: AppendResponse) -> int:
    put = _APPENDED_WELL.pack
    packed = b"".join(
        [put(done.base_offset, done.log_append_time_ms, done.log_start_offset) for done in item.partitions]
    )
    parts.append(packed)
    return len(packed)


def put_append_response(parts: list[Buffer], item: AppendResponse) -> int:
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
    return _append_request(reader, _laid(reader))


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


def get_append_run(reader: Reader) -> AppendRun:
    return _append_run(reader, reader)


def get_laid_run(reader: Reader) -> AppendRun:
    return _append_run(reader, _laid(reader))


def _laid(reader: Reader) -> Reader:
    """Of the area, from the place that comes next."""
    (place,) = reader.unpack(U64)
    area = reader.area
    if area is None:
        raise FrameError("an append's records lie in memory that was not named")
    return Reader(area, place, len(area))


def _append_run(reader: Reader, records: Reader) -> AppendRun:
    """Its batches are taken from `records`. In few steps: most of what storage is asked."""
    buffer = reader.buffer
    correlation_id, version, acks, timeout_ms, topic_id, partition, client_length, topic_length, count = reader.unpack(
        _RUN_HEAD
    )
    client_at = reader.position
    topic_at = client_at if client_length == NULL else client_at + client_length
    lengths_at = topic_at + topic_length
    reader.position = lengths_at + 4 * count
    if reader.position > reader.end:
        raise FrameError("item ends inside a field")
    try:
        client_id = None if client_length == NULL else str(buffer[client_at:topic_at], "utf-8")
        topic = str(buffer[topic_at:lengths_at], "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError("a string is not UTF-8") from error
    batches = []
    source, position = records.buffer, records.position
    for length in unpack_from(f">{count}I", buffer, lengths_at):
        begin, position = position, position + length
        batches.append(source[begin:position])
    if position > records.end:
        raise FrameError("record batches reach beyond where they may lie")
    records.position = position
    return AppendRun(correlation_id, client_id, version, acks, timeout_ms, topic, topic_id, partition, batches)


def get_appended(reader: Reader) -> AppendResponse:
    rest = reader.buffer[reader.position : reader.end]
    if len(rest) % _APPENDED_WELL.size:
        raise FrameError("item ends inside a field")
    reader.position = reader.end
    return AppendResponse([AppendedPartition(0, *fields) for fields in _APPENDED_WELL.iter_unpack(rest)])


def get_append_response(reader: Reader) -> AppendResponse:
    partitions: list[AppendOutcome] = []
    for _ in range(reader.count()):
        error_code, base_offset, append_time, log_start = reader.unpack(_APPENDED)
        message = reader.nstring()
        errors = tuple((reader.unpack(I32)[0], reader.nstring()) for _ in range(reader.count()))
        partitions.append(AppendedPartition(error_code, base_offset, append_time, log_start, message, errors))
    return AppendResponse(partitions)
