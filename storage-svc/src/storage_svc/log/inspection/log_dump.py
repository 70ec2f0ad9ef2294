"""The content of one file of a partition's folder, as text: one line for each batch, record or entry.

It corresponds to Kafka's DumpLogSegments. `.log` batches are shown with the fields of their headers and whether their
CRC is right, and with `deep` their records. `.index`, `.timeindex`, `.txnindex` and `.snapshot` files are shown by
entry. Bytes that are no batch are reported with their position and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from protocol_lib.errors import ProtocolError
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import read_marker
from protocol_lib.records.header import CODEC_MASK, CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL
from protocol_lib.records.record import KEY_ERRORS, Record

from storage_svc.log.batch.header import Header, records_of
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.read_only import ReadOnlyFiles
from storage_svc.log.errors import DataFolderError
from storage_svc.log.producers.snapshot_file import SNAPSHOT_SUFFIX, UnreadableSnapshot, decode_snapshot
from storage_svc.log.recovery.segment_window import SegmentWindow
from storage_svc.log.segment.segment import Segment
from storage_svc.log.segment_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX

_SEQUENCE_MASK: Final = 0x7FFFFFFF


class Dump:
    """Iterate once; then `sound` says whether everything could be read and had the right CRC."""

    def __init__(self, path: Path, *, deep: bool = False) -> None:
        """Choose the reader for a file by its name.

        Raises:
            DataFolderError: it is no file that this can read.
        """
        found = _DUMPERS.get(path.suffix)
        if found is None or not path.stem[:20].isdigit() or not path.is_file():
            raise DataFolderError(f"{path} is none of {', '.join(_DUMPERS)} of a partition")
        self._dump = found
        self.path = path
        self.deep = deep
        self.sound = True
        self.files = ReadOnlyFiles()
        self.segment = Segment(self.files, str(path.parent), int(path.stem[:20]), LogConfig(), 0)

    def __iter__(self) -> Iterator[str]:
        return self._dump(self)


def _log(dump: Dump) -> Iterator[str]:
    segment = dump.segment
    segment.open()
    try:
        window = SegmentWindow(segment)
        position, end_offset = 0, segment.base_offset
        while position < segment.size:
            header = window.good_batch(position)
            if header is None:
                dump.sound = False
                following = window.next_good(position, end_offset)
                end = segment.size if following is None else following
                yield f"position: {position} size: {end - position} isvalid: false (no valid batch)"
                position = end
                continue
            yield f"{_batch(header)} position: {position} size: {header.size} isvalid: true"
            if dump.deep:
                yield from _records(dump, header, window.batch(position, header))
            position += header.size
            end_offset = header.last_offset + 1
    finally:
        segment.close()


def _batch(header: Header) -> str:
    attributes = header.attributes
    last_sequence = -1
    if header.base_sequence >= 0:
        last_sequence = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
    fields = {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": _flag(attributes & TRANSACTIONAL),
        "isControl": _flag(attributes & CONTROL),
        "deleteHorizonMs": header.base_timestamp if attributes & DELETE_HORIZON else "none",
        "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime": header.max_timestamp,
        "magic": header.magic,
        "compresscodec": _codec(attributes & CODEC_MASK),
        "crc": header.crc,
    }
    return " ".join(f"{name}: {value}" for name, value in fields.items())


def _flag(bit: int) -> str:
    return "true" if bit else "false"


def _codec(number: int) -> str:
    return Codec(number).name.lower() if number in list(Codec) else f"unknown ({number})"


def _records(dump: Dump, header: Header, batch: memoryview) -> Iterator[str]:
    try:
        for index, record in enumerate(records_of(batch)):
            yield f"| {_record(header, index, record)}"
    except ProtocolError as error:
        dump.sound = False
        yield f"| unreadable: {error}"


def _record(header: Header, index: int, record: Record) -> str:
    line = (
        f"offset: {record.offset} timestamp: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)}"
    )
    if header.attributes & CONTROL:
        marker = read_marker(record)
        if marker is None:
            return f"{line} control record of another kind"
        return f"{line} endTxnMarker: {marker.type.name} coordinatorEpoch: {marker.coordinator_epoch}"
    if header.base_sequence >= 0:
        line += f" sequence: {(header.base_sequence + index) & _SEQUENCE_MASK}"
    for name, content in record.headers:
        line += f" header {_text(name.encode(errors=KEY_ERRORS))}: {_text(content)}"
    return f"{line} key: {_text(record.key)} value: {_text(record.value)}"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str:
    """Return any content as one line."""
    if data is None:
        return "null"
    text = data.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _offset_index(dump: Dump) -> Iterator[str]:
    index = dump.segment.offset_index
    dump.sound = index.file.load(growing=False) is True
    for offset, position in index.file:
        yield f"offset: {dump.segment.base_offset + offset} position: {position}"
    index.file.release()


def _time_index(dump: Dump) -> Iterator[str]:
    index = dump.segment.time_index
    dump.sound = index.file.load(growing=False) is True
    for timestamp, offset in index.file:
        yield f"timestamp: {timestamp} offset: {dump.segment.base_offset + offset}"
    index.file.release()


def _transaction_index(dump: Dump) -> Iterator[str]:
    index = dump.segment.transaction_index
    dump.sound = index.load(dump.segment.base_offset, 2**63 - 1)
    for entry in index:
        yield (
            f"producerId: {entry.producer_id} firstOffset: {entry.first_offset} lastOffset: {entry.last_offset} "
            f"lastStableOffset: {entry.last_stable_offset}"
        )


def _snapshot(dump: Dump) -> Iterator[str]:
    try:
        entries = decode_snapshot(dump.path.read_bytes())  # past the file layer: reads a stopped folder
    except UnreadableSnapshot as error:
        dump.sound = False
        yield f"unreadable: {error}"
        return
    for entry in entries:
        transaction = entry.transaction_first_offset
        first_sequence = (entry.last_sequence - entry.offset_delta) & _SEQUENCE_MASK if entry.last_offset >= 0 else -1
        yield (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} "
            f"currentTxnFirstOffset: {transaction if transaction >= 0 else 'none'} "
            f"lastTimestamp: {entry.timestamp} firstSequence: {first_sequence} lastSequence: {entry.last_sequence} "
            f"lastOffset: {entry.last_offset} offsetDelta: {entry.offset_delta}"
        )


_DUMPERS: Final[dict[str, Callable[[Dump], Iterator[str]]]] = {
    LOG_SUFFIX: _log,
    INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    TRANSACTION_INDEX_SUFFIX: _transaction_index,
    SNAPSHOT_SUFFIX: _snapshot,
}
