"""Layout of appends and their answers in a frame (frames.py).

    kind 1   append            correlation_id i32, version i16, acks i16, timeout_ms i32,
                               length of client_id u16 (0xFFFF null), length of transactional_id u16 (0xFFFF null),
                               partition_count u32, length of names u32, batch_count u32, names,
                               batch_count x length u32, batch_count x record batch
             names             client_id, transactional_id,
                               partition_count x (length of topic u16, partition i32, topic_id 16 bytes, topic)
    kind 2   append response   count u32, count x (error_code i16, base_offset i64, log_append_time_ms i64,
                               log_start_offset i64, error_message nstring,
                               record_error_count u32, record_error_count x (batch_index i32, message nstring))
    kind 6   laid append       position u64, then as kind 1 without record batches
    kind 7   appended          an append response without errors: count x (base_offset i64, log_append_time_ms i64,
                               log_start_offset i64)

`partition_count` is 1, which means that all batches go to this partition, or equals `batch_count`. `topic_id` is all
zeros when the topic is named by name. The record batches of kind 6 lie back to back in the gateway's AppendArea
(append_area.py), from `position` of its content on. Kind 2 or 7 answers an append, with one outcome for each batch.

Appends and their answers are nearly all that travels, so they are encoded and decoded in few steps.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from broker_contract.data import (
    OUTCOME,
    Append,
    AppendedPartition,
    AppendOutcome,
    AppendResponse,
    Buffer,
    PackedOutcomes,
    TopicIdPartition,
)
from broker_contract.errors import FrameError
from broker_contract.item_fields import I32, ITEM, NULL, U32, U64, Reader, put_nstring

_HEAD: Final = Struct(">ihhiHHIII")
_PARTITION: Final = Struct(">Hi16s")
_APPENDED: Final = Struct(">hqqq")
#: Longer names (of many partitions) are not remembered: they are rarely the same.
_KNOWN_NAMES_BYTES_MAX: Final = 256


@lru_cache(256)
def _lengths(count: int) -> Struct:
    """Return the layout of the lengths of this number of batches."""
    return Struct(f">{count}I")


def put_append(parts: list[Buffer], call_id: int, append: Append, position: int = -1) -> int:
    """Append the encoded item to `parts`, and return its size in bytes.

    Args:
        position: where the batches lie in the gateway's AppendArea; -1 when they travel in the frame.

    Raises:
        FrameError: the client id, the transactional id or a topic is longer than 65,534 bytes.
    """
    partitions, batches = append.partitions, append.batches
    names = _partition(partitions[0]) if len(partitions) == 1 else b"".join(map(_partition, partitions))
    client_length = transactional_length = NULL
    if append.transactional_id is not None:
        transactional_id = _encoded(append.transactional_id)
        transactional_length = len(transactional_id)
        names = transactional_id + names
    if append.client_id is not None:
        client_id = _encoded(append.client_id)
        client_length = len(client_id)
        names = client_id + names
    sizes = list(map(len, batches))
    count = len(sizes)
    size = _HEAD.size + len(names) + 4 * count + (U64.size if position >= 0 else sum(sizes))
    head = _HEAD.pack(
        append.correlation_id,
        append.version,
        append.acks,
        append.timeout_ms,
        client_length,
        transactional_length,
        len(partitions),
        len(names),
        count,
    )
    lengths = _lengths(count).pack(*sizes)
    if position >= 0:
        parts.append(ITEM.pack(6, call_id, size) + U64.pack(position) + head + names + lengths)
    else:
        parts.append(ITEM.pack(1, call_id, size) + head + names + lengths)
        parts += batches
    return ITEM.size + size


def _partition(named: TopicIdPartition) -> bytes:
    topic, partition, topic_id = named
    raw = _encoded(topic)
    return _PARTITION.pack(len(raw), partition, topic_id) + raw


def _encoded(name: str) -> bytes:
    raw = name.encode()
    if len(raw) >= NULL:
        raise FrameError(f"string of {len(raw)} bytes is longer than {NULL - 1}")
    return raw


def put_append_response(parts: list[Buffer], call_id: int, item: AppendResponse) -> int:
    """Append the encoded item to `parts`, short when there are no errors, and return its size in bytes."""
    put = OUTCOME.pack
    packed = []
    for done in item.outcomes:
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
    parts.append(U32.pack(len(item.outcomes)))
    size = 4
    for done in item.outcomes:
        parts.append(_APPENDED.pack(done.error_code, done.base_offset, done.log_append_time_ms, done.log_start_offset))
        size += _APPENDED.size + put_nstring(parts, done.error_message) + 4
        parts.append(U32.pack(len(done.record_errors)))
        for index, message in done.record_errors:
            parts.append(I32.pack(index))
            size += 4 + put_nstring(parts, message)
    return size


def get_append(buffer: memoryview, position: int, end: int, _area: memoryview | None) -> Append:
    """Decode the item between `position` and `end`.

    Raises:
        FrameError: the item is not as this module's docstring says.
    """
    return _append(buffer, position, end, None, 0)


def get_laid_append(buffer: memoryview, position: int, end: int, area: memoryview | None) -> Append:
    """Decode the item between `position` and `end`, whose batches lie in `area`.

    Raises:
        FrameError: the item is not as this module's docstring says, or points outside of the area.
    """
    if area is None:
        raise FrameError("an append's records lie in memory that was not named")
    if end - position < U64.size:
        raise FrameError("item ends inside a field")
    return _append(buffer, position + U64.size, end, area, U64.unpack_from(buffer, position)[0])


def _append(buffer: memoryview, position: int, end: int, area: memoryview | None, stop: int) -> Append:
    """Decode an append whose batches lie at `stop` of the area or, without one, at the end of the item."""
    names_at = position + _HEAD.size
    if names_at > end:
        raise FrameError("item ends inside a field")
    (
        correlation_id,
        version,
        acks,
        timeout_ms,
        client_length,
        transactional_length,
        partition_count,
        names_length,
        count,
    ) = _HEAD.unpack_from(buffer, position)
    if partition_count not in (1, count):
        raise FrameError(f"{count} batches for {partition_count} partitions")
    lengths_at = names_at + names_length
    at = lengths_at + 4 * count
    if at > end:
        raise FrameError("item ends inside a field")
    names = _known_names if names_length <= _KNOWN_NAMES_BYTES_MAX else _names
    client_id, transactional_id, partitions = names(
        buffer[names_at:lengths_at].tobytes(), client_length, transactional_length, partition_count
    )
    if area is None:
        source, stop, limit = buffer, at, end
    else:
        source, limit = area, len(area)
        if at != end:
            raise FrameError(f"{end - at} bytes left over in an append")
    batches = []
    for length in _lengths(count).unpack_from(buffer, lengths_at):
        begin, stop = stop, stop + length
        batches.append(source[begin:stop])
    if stop > limit or (area is None and stop != limit):
        raise FrameError("an append's batches do not end where they have to")
    return Append(correlation_id, client_id, version, acks, timeout_ms, partitions, batches, transactional_id)


def _names(
    names: bytes, client_length: int, transactional_length: int, partition_count: int
) -> tuple[str | None, str | None, tuple[TopicIdPartition, ...]]:
    """Decode the client id, the transactional id and the partitions of an append."""
    client_id: str | None = None
    transactional_id: str | None = None
    at = 0
    partitions = []
    try:
        if client_length != NULL:
            client_id, at = str(names[:client_length], "utf-8"), client_length
        if transactional_length != NULL:
            transactional_id = str(names[at : at + transactional_length], "utf-8")
            at += transactional_length
        for _ in range(partition_count):
            topic_at = at + _PARTITION.size
            if topic_at > len(names):
                raise FrameError("item ends inside a field")
            topic_length, partition, topic_id = _PARTITION.unpack_from(names, at)
            at = topic_at + topic_length
            partitions.append(TopicIdPartition(str(names[topic_at:at], "utf-8"), partition, topic_id))
    except UnicodeDecodeError as error:
        raise FrameError("a string is not UTF-8") from error
    if at != len(names):
        raise FrameError("an append's names do not end where they have to")
    return client_id, transactional_id, tuple(partitions)


#: A producer names the same partitions again and again.
_known_names = lru_cache(1024)(_names)


def get_appended(buffer: memoryview, position: int, end: int, _area: memoryview | None) -> AppendResponse:
    """Decode the item between `position` and `end`.

    Raises:
        FrameError: its length is not a multiple of an outcome's.
    """
    if (end - position) % OUTCOME.size:
        raise FrameError("item ends inside a field")
    return AppendResponse(PackedOutcomes(buffer[position:end].tobytes()))


def get_append_response(reader: Reader) -> AppendResponse:
    outcomes: list[AppendOutcome] = []
    for _ in range(reader.count()):
        error_code, base_offset, append_time, log_start = reader.unpack(_APPENDED)
        message = reader.nstring()
        errors = tuple((reader.unpack(I32)[0], reader.nstring()) for _ in range(reader.count()))
        outcomes.append(AppendedPartition(error_code, base_offset, append_time, log_start, message, errors))
    return AppendResponse(outcomes)
