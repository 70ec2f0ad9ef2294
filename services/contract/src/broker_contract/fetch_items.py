"""Layout of reads, reads ahead and their answers in a frame (frames.py).

    kind 3   read request      correlation_id i32, max_wait_ms i32, min_bytes i32, max_bytes i32,
                               isolation_level u8, by_reference u8, client_id nstring, count u32,
                               count x (topic string, partition i32, topic_id 16 bytes, leader_epoch i32,
                               fetch_offset i64, max_bytes i32)
    kind 4   read response     count u32, count x (error_code i16, high_watermark i64, last_stable_offset i64,
                               log_start_offset i64, aborted_count i32 (-1 null), aborted_count x (producer_id i64,
                               first_offset i64), slice_count u32, slice_count x (path string, file_id u64,
                               position u64, length u32), length u32, record batches)
    kind 9   ahead request     a read request, then count u8; answered by kind 10
    kind 10  ahead response    slot u32, revision u64, high_watermark i64, last_stable_offset i64,
                               log_start_offset i64, count u32,
                               count x (fetch_offset i64, slice_count u32, slice_count x slice as in kind 4)

`topic_id` is all zeros when the topic is named by name. Answers list partitions in the request's order.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    Buffer,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
    TopicIdPartition,
)
from broker_contract.errors import FrameError
from broker_contract.item_fields import U32, Reader, put_nstring
from broker_contract.revisions import SLOTS

_READ_HEAD: Final = Struct(">iiiiBB")
_READ_PARTITION: Final = Struct(">i16siqi")
_READ_RESULT: Final = Struct(">hqqqi")
_SLICE: Final = Struct(">QQI")
_AHEAD_RESPONSE: Final = Struct(">IQqqq")
_I64: Final = Struct(">q")
_U8: Final = Struct(">B")
_ABORTED: Final = Struct(">qq")


def put_read_request(parts: list[Buffer], item: ReadRequest) -> int:
    parts.append(
        _READ_HEAD.pack(
            item.correlation_id,
            item.max_wait_ms,
            item.min_bytes,
            item.max_bytes,
            item.isolation_level,
            item.by_reference,
        )
    )
    size = _READ_HEAD.size + put_nstring(parts, item.client_id) + 4
    parts.append(U32.pack(len(item.partitions)))
    for wanted in item.partitions:
        topic, partition, topic_id = wanted.topic_partition
        size += put_nstring(parts, topic) + _READ_PARTITION.size
        parts.append(
            _READ_PARTITION.pack(partition, topic_id, wanted.leader_epoch, wanted.fetch_offset, wanted.max_bytes)
        )
    return size


def put_read_response(parts: list[Buffer], item: ReadResponse) -> int:
    parts.append(U32.pack(len(item.partitions)))
    size = 4
    for result in item.partitions:
        aborted = result.aborted
        parts.append(
            _READ_RESULT.pack(
                result.error_code,
                result.high_watermark,
                result.last_stable_offset,
                result.log_start_offset,
                -1 if aborted is None else len(aborted),
            )
        )
        size += _READ_RESULT.size + 8 + len(result.records)
        for pair in aborted or ():
            parts.append(_ABORTED.pack(*pair))
            size += _ABORTED.size
        size += _put_slices(parts, result.slices) - 4
        parts.append(U32.pack(len(result.records)))
        parts.append(result.records)
    return size


def _put_slices(parts: list[Buffer], slices: list[Slice]) -> int:
    parts.append(U32.pack(len(slices)))
    size = 4
    for piece in slices:
        size += put_nstring(parts, piece.path) + _SLICE.size
        parts.append(_SLICE.pack(piece.file_id, piece.position, piece.length))
    return size


def put_ahead_request(parts: list[Buffer], item: AheadRequest) -> int:
    size = put_read_request(parts, item.read) + _U8.size
    parts.append(_U8.pack(item.count))
    return size


def put_ahead_response(parts: list[Buffer], item: AheadResponse) -> int:
    offsets = item.high_watermark, item.last_stable_offset, item.log_start_offset
    parts.append(_AHEAD_RESPONSE.pack(item.slot, item.revision, *offsets) + U32.pack(len(item.reads)))
    size = _AHEAD_RESPONSE.size + 4
    for read in item.reads:
        parts.append(_I64.pack(read.fetch_offset))
        size += _I64.size + _put_slices(parts, read.slices)
    return size


def get_read_request(reader: Reader) -> ReadRequest:
    correlation_id, wait, min_bytes, max_bytes, isolation, by_reference = reader.unpack(_READ_HEAD)
    client_id = reader.nstring()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        partition, topic_id, epoch, offset, limit = reader.unpack(_READ_PARTITION)
        partitions.append(ReadPartition(TopicIdPartition(topic, partition, topic_id), offset, limit, epoch))
    return ReadRequest(correlation_id, client_id, wait, min_bytes, max_bytes, isolation, bool(by_reference), partitions)


def get_read_response(reader: Reader) -> ReadResponse:
    partitions = []
    for _ in range(reader.count()):
        error_code, high_watermark, stable, log_start, aborted_count = reader.unpack(_READ_RESULT)
        aborted: list[tuple[int, int]] | None = None
        if aborted_count >= 0:
            pairs = reader.take(aborted_count * _ABORTED.size)
            aborted = list(_ABORTED.iter_unpack(pairs))
        slices = _get_slices(reader)
        (length,) = reader.unpack(U32)
        records = reader.take(length)
        partitions.append(ReadResult(error_code, high_watermark, stable, log_start, aborted, slices, records))
    return ReadResponse(partitions)


def _get_slices(reader: Reader) -> list[Slice]:
    slices = []
    for _ in range(reader.count()):
        path = reader.string()
        file_id, position, length = reader.unpack(_SLICE)
        slices.append(Slice(path, file_id, position, length))
    return slices


def get_ahead_request(reader: Reader) -> AheadRequest:
    read = get_read_request(reader)
    (count,) = reader.unpack(_U8)
    if len(read.partitions) != 1:
        raise FrameError(f"reads ahead of {len(read.partitions)} partitions")
    return AheadRequest(read, count)


def get_ahead_response(reader: Reader) -> AheadResponse:
    slot, revision, high_watermark, stable, log_start = reader.unpack(_AHEAD_RESPONSE)
    if slot >= SLOTS:
        raise FrameError(f"no revisions have a slot {slot}")
    reads = []
    for _ in range(reader.count()):
        (fetch_offset,) = reader.unpack(_I64)
        reads.append(AheadRead(fetch_offset, _get_slices(reader)))
    return AheadResponse(slot, revision, high_watermark, stable, log_start, reads)
