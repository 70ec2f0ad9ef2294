"""How the items of data.py are laid out in the `body` of a data.proto Frame.

A body is items back to back. All integers are big-endian; a string is `length u16 + UTF-8`, a nullable string has
length 0xFFFF for null.

    item     = kind u8, call_id u64, payload_length u32, payload
    kind 1   append request    correlation_id i32, version i16, acks i16, timeout_ms i32, client_id nstring,
                               count u32,
                               count x (topic string, topic_id 16 bytes, partition i32, length u32, record batches)
    kind 2   append response   count u32, count x (error_code i16, base_offset i64, log_append_time_ms i64,
                               log_start_offset i64, error_message nstring,
                               record_error_count u32, record_error_count x (batch_index i32, message nstring))
    kind 3   read request      correlation_id i32, version i16, max_wait_ms i32, min_bytes i32, max_bytes i32,
                               isolation_level u8, by_reference u8, client_id nstring, count u32,
                               count x (topic string, topic_id 16 bytes, partition i32, leader_epoch i32,
                               fetch_offset i64, max_bytes i32)
    kind 4   read response     count u32, count x (error_code i16, high_watermark i64, last_stable_offset i64,
                               log_start_offset i64, aborted_count i32 (-1 null), aborted_count x (producer_id i64,
                               first_offset i64), slice_count u32, slice_count x (path string, file_id u64,
                               position u64, length u32), length u32, record batches)
    kind 5   cancel            (empty) the read of that call id is not waited for any more; no answer comes
    kind 6   append run        correlation_id i32, version i16, acks i16, timeout_ms i32, topic_id 16 bytes,
                               partition i32, length of client_id u16 (0xFFFF null), length of topic u16, count u32,
                               client_id, topic, count x length u32, count x record batch; answered by kind 2 or 7,
                               one outcome a batch
    kind 7   appended          an append response without errors: count x (base_offset i64, log_append_time_ms i64,
                               log_start_offset i64)
    kind 8   frame taken       (empty) in a frame to storage: say so when its appends are written or wait for a sync;
                               sent back with the same call id
    kind 9   ahead request     a read request, then count u8; answered by kind 10
    kind 10  ahead response    place u32, revision u64, high_watermark i64, last_stable_offset i64,
                               log_start_offset i64, count u32,
                               count x (fetch_offset i64, slice_count u32, slice_count x slice as in kind 4)

`topic_id` is all zeros when the topic is named by name. Answers list partitions in the request's order.
Record bytes are views of the received frame. Whoever hands them on leaves them unchanged until the call is answered;
whoever keeps them longer copies them.
In one process the same dataclasses are passed without being encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct, pack, unpack_from
from typing import Any, Final

from broker_contract.data import (
    AheadRead,
    AheadRequest,
    AheadResponse,
    AppendedPartition,
    AppendOutcome,
    AppendPartition,
    AppendRequest,
    AppendResponse,
    AppendRun,
    Buffer,
    Cancel,
    FrameTaken,
    Item,
    ReadPartition,
    ReadRequest,
    ReadResponse,
    ReadResult,
    Slice,
)
from broker_contract.errors import FrameError
from broker_contract.revisions import PLACES

_ITEM: Final = Struct(">BQI")
_APPEND_HEAD: Final = Struct(">ihhi")
_PLACE: Final = Struct(">16siI")
_RUN_HEAD: Final = Struct(">ihhi16siHHI")
_APPENDED: Final = Struct(">hqqq")
_APPENDED_WELL: Final = Struct(">qqq")
_READ_HEAD: Final = Struct(">ihiiiBB")
_READ_PARTITION: Final = Struct(">iiqi")
_READ_RESULT: Final = Struct(">hqqqi")
_SLICE: Final = Struct(">QQI")
_AHEAD_RESPONSE: Final = Struct(">IQqqq")
_I64: Final = Struct(">q")
_U8: Final = Struct(">B")
_ABORTED: Final = Struct(">qq")
_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_I32: Final = Struct(">i")
_NULL: Final = 0xFFFF


def _put_nstring(parts: list[Buffer], value: str | None) -> int:
    if value is None:
        parts.append(b"\xff\xff")
        return 2
    raw = value.encode()
    if len(raw) >= _NULL:
        raise FrameError(f"string of {len(raw)} bytes is longer than {_NULL - 1}")
    parts.append(_U16.pack(len(raw)) + raw)
    return 2 + len(raw)


def _put_append_request(parts: list[Buffer], item: AppendRequest) -> int:
    parts.append(_APPEND_HEAD.pack(item.correlation_id, item.version, item.acks, item.timeout_ms))
    size = _APPEND_HEAD.size + _put_nstring(parts, item.client_id) + 4
    parts.append(_U32.pack(len(item.partitions)))
    for partition in item.partitions:
        records = partition.records
        length = len(records)
        size += _put_nstring(parts, partition.topic) + _PLACE.size + length
        parts.append(_PLACE.pack(partition.topic_id, partition.partition, length))
        parts.append(records)
    return size


def _put_append_run(parts: list[Buffer], item: AppendRun) -> int:
    client_id = b"" if item.client_id is None else item.client_id.encode()
    topic = item.topic.encode()
    longest = max(len(client_id), len(topic))
    if longest >= _NULL:
        raise FrameError(f"string of {longest} bytes is longer than {_NULL - 1}")
    batches = item.batches
    count = len(batches)
    lengths = list(map(len, batches))
    head = _RUN_HEAD.pack(
        item.correlation_id,
        item.version,
        item.acks,
        item.timeout_ms,
        item.topic_id,
        item.partition,
        _NULL if item.client_id is None else len(client_id),
        len(topic),
        count,
    )
    head += client_id + topic + pack(f">{count}I", *lengths)
    parts.append(head)
    parts += batches
    return len(head) + sum(lengths)


def _put_appended(parts: list[Buffer], item: AppendResponse) -> int:
    put = _APPENDED_WELL.pack
    packed = b"".join(
        [put(done.base_offset, done.log_append_time_ms, done.log_start_offset) for done in item.partitions]
    )
    parts.append(packed)
    return len(packed)


def _put_append_response(parts: list[Buffer], item: AppendResponse) -> int:
    parts.append(_U32.pack(len(item.partitions)))
    size = 4
    for done in item.partitions:
        parts.append(_APPENDED.pack(done.error_code, done.base_offset, done.log_append_time_ms, done.log_start_offset))
        size += _APPENDED.size + _put_nstring(parts, done.error_message) + 4
        parts.append(_U32.pack(len(done.record_errors)))
        for index, message in done.record_errors:
            parts.append(_I32.pack(index))
            size += 4 + _put_nstring(parts, message)
    return size


def _put_read_request(parts: list[Buffer], item: ReadRequest) -> int:
    parts.append(
        _READ_HEAD.pack(
            item.correlation_id,
            item.version,
            item.max_wait_ms,
            item.min_bytes,
            item.max_bytes,
            item.isolation_level,
            item.by_reference,
        )
    )
    size = _READ_HEAD.size + _put_nstring(parts, item.client_id) + 4
    parts.append(_U32.pack(len(item.partitions)))
    for wanted in item.partitions:
        size += _put_nstring(parts, wanted.topic) + len(wanted.topic_id) + _READ_PARTITION.size
        parts.append(wanted.topic_id)
        parts.append(_READ_PARTITION.pack(wanted.partition, wanted.leader_epoch, wanted.fetch_offset, wanted.max_bytes))
    return size


def _put_read_response(parts: list[Buffer], item: ReadResponse) -> int:
    parts.append(_U32.pack(len(item.partitions)))
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
        parts.append(_U32.pack(len(result.records)))
        parts.append(result.records)
    return size


def _put_slices(parts: list[Buffer], slices: list[Slice]) -> int:
    parts.append(_U32.pack(len(slices)))
    size = 4
    for piece in slices:
        size += _put_nstring(parts, piece.path) + _SLICE.size
        parts.append(_SLICE.pack(piece.file_id, piece.position, piece.length))
    return size


def _put_ahead_request(parts: list[Buffer], item: AheadRequest) -> int:
    size = _put_read_request(parts, item.read) + _U8.size
    parts.append(_U8.pack(item.count))
    return size


def _put_ahead_response(parts: list[Buffer], item: AheadResponse) -> int:
    offsets = item.high_watermark, item.last_stable_offset, item.log_start_offset
    parts.append(_AHEAD_RESPONSE.pack(item.place, item.revision, *offsets) + _U32.pack(len(item.reads)))
    size = _AHEAD_RESPONSE.size + 4
    for read in item.reads:
        parts.append(_I64.pack(read.fetch_offset))
        size += _I64.size + _put_slices(parts, read.slices)
    return size


def put_item(parts: list[Buffer], call_id: int, item: Item) -> int:
    """Append the encoded item to `parts` (to be joined into one frame body); the number of bytes added.

    Raises:
        FrameError: a string is longer than 65,534 bytes.
    """
    index = len(parts)
    parts.append(b"")
    match item:
        case AppendRun():
            kind, size = 6, _put_append_run(parts, item)
        case AppendRequest():
            kind, size = 1, _put_append_request(parts, item)
        case AppendResponse():
            if any(done.error_code for done in item.partitions):
                kind, size = 2, _put_append_response(parts, item)
            else:
                kind, size = 7, _put_appended(parts, item)
        case ReadRequest():
            kind, size = 3, _put_read_request(parts, item)
        case ReadResponse():
            kind, size = 4, _put_read_response(parts, item)
        case Cancel():
            kind, size = 5, 0
        case FrameTaken():
            kind, size = 8, 0
        case AheadRequest():
            kind, size = 9, _put_ahead_request(parts, item)
        case AheadResponse():
            kind, size = 10, _put_ahead_response(parts, item)
    parts[index] = _ITEM.pack(kind, call_id, size)
    return _ITEM.size + size


class _Reader:
    """A cursor over one item's payload. Every take is checked against what remains."""

    __slots__ = ("buffer", "end", "position")

    def __init__(self, buffer: memoryview, position: int, end: int) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end

    def unpack(self, layout: Struct) -> tuple[Any, ...]:
        start = self.position
        self.position = start + layout.size
        if self.position > self.end:
            raise FrameError("item ends inside a field")
        return layout.unpack_from(self.buffer, start)

    def take(self, length: int) -> memoryview:
        start = self.position
        self.position = start + length
        if self.position > self.end:
            raise FrameError("item ends inside a field")
        return self.buffer[start : self.position]

    def count(self) -> int:
        count: int = self.unpack(_U32)[0]
        if count > self.end - self.position:
            raise FrameError(f"{count} elements announced, {self.end - self.position} bytes left")
        return count

    def nstring(self) -> str | None:
        (length,) = self.unpack(_U16)
        if length == _NULL:
            return None
        try:
            return str(self.take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise FrameError("a string is not UTF-8") from error

    def string(self) -> str:
        value = self.nstring()
        if value is None:
            raise FrameError("null where a string must be")
        return value


def _get_append_request(reader: _Reader) -> AppendRequest:
    correlation_id, version, acks, timeout_ms = reader.unpack(_APPEND_HEAD)
    client_id = reader.nstring()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        topic_id = bytes(reader.take(16))
        (partition,) = reader.unpack(_I32)
        (length,) = reader.unpack(_U32)
        partitions.append(AppendPartition(topic, partition, reader.take(length), topic_id))
    return AppendRequest(correlation_id, client_id, version, acks, timeout_ms, partitions)


def _get_append_run(reader: _Reader) -> AppendRun:
    """In few steps: most of what storage is asked."""
    buffer, end = reader.buffer, reader.end
    correlation_id, version, acks, timeout_ms, topic_id, partition, client_length, topic_length, count = reader.unpack(
        _RUN_HEAD
    )
    client_at = reader.position
    topic_at = client_at if client_length == _NULL else client_at + client_length
    lengths_at = topic_at + topic_length
    position = lengths_at + 4 * count
    if position > end:
        raise FrameError("item ends inside a field")
    try:
        client_id = None if client_length == _NULL else str(buffer[client_at:topic_at], "utf-8")
        topic = str(buffer[topic_at:lengths_at], "utf-8")
    except UnicodeDecodeError as error:
        raise FrameError("a string is not UTF-8") from error
    batches = []
    for length in unpack_from(f">{count}I", buffer, lengths_at):
        begin, position = position, position + length
        batches.append(buffer[begin:position])
    if position > end:
        raise FrameError("item ends inside a field")
    reader.position = position
    return AppendRun(correlation_id, client_id, version, acks, timeout_ms, topic, topic_id, partition, batches)


def _get_appended(reader: _Reader) -> AppendResponse:
    rest = reader.buffer[reader.position : reader.end]
    if len(rest) % _APPENDED_WELL.size:
        raise FrameError("item ends inside a field")
    reader.position = reader.end
    return AppendResponse([AppendedPartition(0, *fields) for fields in _APPENDED_WELL.iter_unpack(rest)])


def _get_append_response(reader: _Reader) -> AppendResponse:
    partitions: list[AppendOutcome] = []
    for _ in range(reader.count()):
        error_code, base_offset, append_time, log_start = reader.unpack(_APPENDED)
        message = reader.nstring()
        errors = tuple((reader.unpack(_I32)[0], reader.nstring()) for _ in range(reader.count()))
        partitions.append(AppendedPartition(error_code, base_offset, append_time, log_start, message, errors))
    return AppendResponse(partitions)


def _get_read_request(reader: _Reader) -> ReadRequest:
    correlation_id, version, wait, min_bytes, max_bytes, isolation, by_reference = reader.unpack(_READ_HEAD)
    client_id = reader.nstring()
    partitions = []
    for _ in range(reader.count()):
        topic = reader.string()
        topic_id = bytes(reader.take(16))
        partition, epoch, offset, limit = reader.unpack(_READ_PARTITION)
        partitions.append(ReadPartition(topic, partition, offset, limit, epoch, topic_id))
    return ReadRequest(
        correlation_id, client_id, version, wait, min_bytes, max_bytes, isolation, bool(by_reference), partitions
    )


def _get_read_response(reader: _Reader) -> ReadResponse:
    partitions = []
    for _ in range(reader.count()):
        error_code, high_watermark, stable, log_start, aborted_count = reader.unpack(_READ_RESULT)
        aborted: list[tuple[int, int]] | None = None
        if aborted_count >= 0:
            pairs = reader.take(aborted_count * _ABORTED.size)
            aborted = list(_ABORTED.iter_unpack(pairs))
        slices = _get_slices(reader)
        (length,) = reader.unpack(_U32)
        records = reader.take(length)
        partitions.append(ReadResult(error_code, high_watermark, stable, log_start, aborted, slices, records))
    return ReadResponse(partitions)


def _get_slices(reader: _Reader) -> list[Slice]:
    slices = []
    for _ in range(reader.count()):
        path = reader.string()
        file_id, position, length = reader.unpack(_SLICE)
        slices.append(Slice(path, file_id, position, length))
    return slices


def _get_ahead_request(reader: _Reader) -> AheadRequest:
    read = _get_read_request(reader)
    (count,) = reader.unpack(_U8)
    if len(read.partitions) != 1:
        raise FrameError(f"reads ahead of {len(read.partitions)} partitions")
    return AheadRequest(read, count)


def _get_ahead_response(reader: _Reader) -> AheadResponse:
    place, revision, high_watermark, stable, log_start = reader.unpack(_AHEAD_RESPONSE)
    if place >= PLACES:
        raise FrameError(f"no revisions have a place {place}")
    reads = []
    for _ in range(reader.count()):
        (fetch_offset,) = reader.unpack(_I64)
        reads.append(AheadRead(fetch_offset, _get_slices(reader)))
    return AheadResponse(place, revision, high_watermark, stable, log_start, reads)


_DECODERS: Final[dict[int, Callable[[_Reader], Item]]] = {
    1: _get_append_request,
    2: _get_append_response,
    3: _get_read_request,
    4: _get_read_response,
    5: lambda _reader: Cancel(),
    6: _get_append_run,
    7: _get_appended,
    8: lambda _reader: FrameTaken(),
    9: _get_ahead_request,
    10: _get_ahead_response,
}


def read_items(body: Buffer) -> Iterator[tuple[int, Item]]:
    """The (call id, item) pairs of a frame body. Record bytes are views of `body`.

    Raises:
        FrameError: the body is not as this module's docstring says.
    """
    buffer = memoryview(body)
    position, end = 0, len(buffer)
    while position < end:
        if end - position < _ITEM.size:
            raise FrameError("frame ends inside an item header")
        kind, call_id, length = _ITEM.unpack_from(buffer, position)
        position += _ITEM.size
        if length > end - position:
            raise FrameError(f"item of {length} bytes in a frame with {end - position} left")
        decode = _DECODERS.get(kind)
        if decode is None:
            raise FrameError(f"item of unknown kind {kind}")
        reader = _Reader(buffer, position, position + length)
        item = decode(reader)
        if reader.position != reader.end:
            raise FrameError(f"{reader.end - reader.position} bytes left over in an item of kind {kind}")
        yield call_id, item
        position += length


def frame_to_wire(parts: list[Buffer]) -> bytes:
    """The protobuf encoding of `Frame{body = parts joined}`, with one copy of the bytes."""
    size = sum(map(len, parts))
    prefix = bytearray(b"\x0a")
    while size > 0x7F:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return b"".join((prefix, *parts))


def frame_from_wire(wire: bytes) -> memoryview:
    """The body of an encoded Frame, without a copy.

    Raises:
        FrameError: not a Frame with exactly its one field.
    """
    if not wire:
        return memoryview(b"")
    if wire[0] != 0x0A:
        raise FrameError("not a Frame")
    size, shift, position = 0, 0, 1
    while True:
        if position >= len(wire) or shift > 28:
            raise FrameError("broken length of a Frame")
        byte = wire[position]
        size |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            break
    if position + size != len(wire):
        raise FrameError("length of a Frame differs from its bytes")
    return memoryview(wire)[position:]
