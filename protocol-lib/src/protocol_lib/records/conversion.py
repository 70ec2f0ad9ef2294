"""Conversion between message sets (formats 0 and 1) and record batches (format 2), as Kafka 3.9 did it.

Up, for Produce 0-2: a message set becomes one batch. Offsets count from 0 (the log assigns the real ones), records of
format 0 have timestamp -1, the codec and LogAppendTime are kept. A set that is compressed is one wrapper and nothing
else; formats are not mixed (LogValidator).

Down, for Fetch 0-1 (to format 0) and 2-3 (to format 1): headers and the producer's ids are left out, control batches
are skipped, the codec and LogAppendTime are kept, and each batch becomes messages of the same offsets. Messages of the
requested format, or of an older one, stay as they are. These formats have no Zstandard (RecordsUtil.downConvert).
"""

from protocol_lib.errors import DecodeError, EncodeError, ProtocolError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import DECOMPRESSED_BYTES_MAX, Codec
from protocol_lib.records.header import MAGIC, read_batch_header, read_magic
from protocol_lib.records.legacy import build_message_set, message_records, read_message, read_messages
from protocol_lib.records.record import Record, read_records
from protocol_lib.varint import Buffer


class UnsupportedCompression(ProtocolError):  # noqa: N818 (Kafka's own term)
    """Records compressed in a way the reader's message format has no number for (Kafka's error 76)."""


def up_convert(message_set: Buffer, *, partial: bool = False, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return one record batch of the records of a message set; empty when the set is.

    Raises CorruptMessage for a message with another CRC than its bytes have, another DecodeError for a set that breaks
    the rules above. `partial` skips part of a message at the end, which Kafka did for Produce as well.
    """
    messages = list(read_messages(message_set, partial=partial))
    if not messages:
        return b""
    first = messages[0]
    if any(message.magic != first.magic for message in messages):
        raise DecodeError("messages of both formats in one set")
    if len(messages) > 1 and any(message.codec for message in messages):
        raise DecodeError("a compressed message next to others")
    records: list[Record] = []
    for message in messages:
        records += message_records(message, limit=limit)
    for offset, record in enumerate(records):
        record.offset = offset
    log_append_time = any(message.is_log_append_time for message in messages)
    try:
        return build_batch(records, codec=Codec(first.codec), log_append_time=log_append_time)
    except EncodeError as fault:  # timestamps whose difference takes more than 64 bits
        raise DecodeError(f"messages that no batch can hold: {fault}") from fault


def down_convert(batches: Buffer, magic: int, *, first_offset: int = 0, limit: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Return message sets of a format, 0 or 1, for whole batches and messages of any format, back to back.

    Uncompressed records before `first_offset` (the one that was asked for) are left out. A batch in zstd ends the
    answer before it; as the first batch it raises UnsupportedCompression. `limit` bounds the bytes each batch may
    decompress to. The outcome is empty when only control batches were there.
    """
    pieces: list[bytes] = []
    view = memoryview(batches)
    position, size = 0, len(view)
    while position < size:
        if read_magic(view, position) < MAGIC:
            message, end = read_message(view, position)
            if message.magic <= magic:
                pieces.append(bytes(view[position:end]))
                position = end
                continue
            codec, log_append_time = message.codec, message.is_log_append_time
            records = message_records(message, limit=limit)
        else:
            header = read_batch_header(view, position)
            end = position + header.size
            if end > size:
                raise DecodeError(f"a record batch of {header.size} bytes where {size - position} are left")
            codec, log_append_time = header.codec, header.is_log_append_time
            if header.is_control:
                position = end
                continue
            if codec == Codec.ZSTD:
                if not pieces:
                    raise UnsupportedCompression(f"records in zstd for message format {magic}")
                break
            records = list(read_records(view[position:end], limit=limit))
        position = end
        if codec == Codec.NONE:
            records = [record for record in records if record.offset >= first_offset]
        if records:
            time = records[-1].timestamp if log_append_time else None
            pieces.append(build_message_set(records, magic=magic, codec=Codec(codec), log_append_time=time))
    return b"".join(pieces)
