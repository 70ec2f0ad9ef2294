"""The content of one file of a partition's folder: one line for each batch, record or entry.

It corresponds to Kafka's DumpLogSegments. `.log` batches are shown with the fields of their headers and whether their
CRC is right, and with `deep` their records. `.index`, `.timeindex`, `.txnindex` and `.snapshot` files are shown by
entry. Bytes that are no batch are reported with their position and skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

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

Fields = dict[str, int | str | None]


@dataclass(frozen=True, slots=True)
class Line:
    """A batch, a record, an entry of an index or snapshot, or bytes that are no batch. `str` is its text."""

    kind: Literal["batch", "record", "entry", "damage"]
    fields: Fields
    #: Headers of a record, as text.
    headers: tuple[tuple[str, str | None], ...] = ()
    #: Words after the fields.
    note: str = ""

    def __str__(self) -> str:
        words = [f"{name}: {_shown(value)}" for name, value in self.fields.items()]
        at = list(self.fields).index("key") if self.headers else 0
        words[at:at] = [f"header {name}: {_shown(value)}" for name, value in self.headers]
        return f"{'| ' if self.kind == 'record' else ''}{' '.join(words)}{self.note}"


def _shown(value: int | str | None) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)


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

    def __iter__(self) -> Iterator[Line]:
        return self._dump(self)


def _log(dump: Dump) -> Iterator[Line]:
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
                fields: Fields = {"position": position, "size": end - position, "isvalid": False}
                yield Line("damage", fields, note=" (no valid batch)")
                position = end
                continue
            place: Fields = {"position": position, "size": header.size, "isvalid": True}
            yield Line("batch", _batch(header) | place)
            if dump.deep:
                yield from _records(dump, header, window.batch(position, header))
            position += header.size
            end_offset = header.last_offset + 1
    finally:
        segment.close()


def _batch(header: Header) -> Fields:
    attributes = header.attributes
    last_sequence = -1
    if header.base_sequence >= 0:
        last_sequence = (header.base_sequence + header.last_offset_delta) & _SEQUENCE_MASK
    return {
        "baseOffset": header.base_offset,
        "lastOffset": header.last_offset,
        "count": header.records_count,
        "baseSequence": header.base_sequence,
        "lastSequence": last_sequence,
        "producerId": header.producer_id,
        "producerEpoch": header.producer_epoch,
        "partitionLeaderEpoch": header.leader_epoch,
        "isTransactional": bool(attributes & TRANSACTIONAL),
        "isControl": bool(attributes & CONTROL),
        "deleteHorizonMs": header.base_timestamp if attributes & DELETE_HORIZON else "none",
        "LogAppendTime" if attributes & LOG_APPEND_TIME else "CreateTime": header.max_timestamp,
        "magic": header.magic,
        "compresscodec": _codec(attributes & CODEC_MASK),
        "crc": header.crc,
    }


def _codec(number: int) -> str:
    return Codec(number).name.lower() if number in list(Codec) else f"unknown ({number})"


def _records(dump: Dump, header: Header, batch: memoryview) -> Iterator[Line]:
    try:
        for index, record in enumerate(records_of(batch)):
            yield _record(header, index, record)
    except ProtocolError as error:
        dump.sound = False
        yield Line("record", {"unreadable": str(error)})


def _record(header: Header, index: int, record: Record) -> Line:
    fields: Fields = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "keySize": _size(record.key),
        "valueSize": _size(record.value),
    }
    if header.attributes & CONTROL:
        marker = read_marker(record)
        if marker is None:
            return Line("record", fields, note=" control record of another kind")
        return Line("record", fields | {"endTxnMarker": marker.type.name, "coordinatorEpoch": marker.coordinator_epoch})
    if header.base_sequence >= 0:
        fields["sequence"] = (header.base_sequence + index) & _SEQUENCE_MASK
    headers = [(_one_line(name.encode(errors=KEY_ERRORS)), _text(content)) for name, content in record.headers]
    fields |= {"key": _text(record.key), "value": _text(record.value)}
    return Line("record", fields, tuple(headers))


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str | None:
    return None if data is None else _one_line(data)


def _one_line(data: bytes) -> str:
    """Return any content as one line."""
    text = data.decode("utf-8", "backslashreplace")
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _offset_index(dump: Dump) -> Iterator[Line]:
    index = dump.segment.offset_index
    dump.sound = index.file.load(growing=False) is True
    for offset, position in index.file:
        yield Line("entry", {"offset": dump.segment.base_offset + offset, "position": position})
    index.file.release()


def _time_index(dump: Dump) -> Iterator[Line]:
    index = dump.segment.time_index
    dump.sound = index.file.load(growing=False) is True
    for timestamp, offset in index.file:
        yield Line("entry", {"timestamp": timestamp, "offset": dump.segment.base_offset + offset})
    index.file.release()


def _transaction_index(dump: Dump) -> Iterator[Line]:
    index = dump.segment.transaction_index
    dump.sound = index.load(dump.segment.base_offset, 2**63 - 1)
    for entry in index:
        yield Line(
            "entry",
            {
                "producerId": entry.producer_id,
                "firstOffset": entry.first_offset,
                "lastOffset": entry.last_offset,
                "lastStableOffset": entry.last_stable_offset,
            },
        )


def _snapshot(dump: Dump) -> Iterator[Line]:
    try:
        entries = decode_snapshot(dump.path.read_bytes())  # past the file layer: reads a stopped folder
    except UnreadableSnapshot as error:
        dump.sound = False
        yield Line("damage", {"unreadable": str(error)})
        return
    for entry in entries:
        transaction = entry.transaction_first_offset
        first_sequence = (entry.last_sequence - entry.offset_delta) & _SEQUENCE_MASK if entry.last_offset >= 0 else -1
        yield Line(
            "entry",
            {
                "producerId": entry.producer_id,
                "producerEpoch": entry.producer_epoch,
                "coordinatorEpoch": entry.coordinator_epoch,
                "currentTxnFirstOffset": transaction if transaction >= 0 else "none",
                "lastTimestamp": entry.timestamp,
                "firstSequence": first_sequence,
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
            },
        )


_DUMPERS: Final[dict[str, Callable[[Dump], Iterator[Line]]]] = {
    LOG_SUFFIX: _log,
    INDEX_SUFFIX: _offset_index,
    TIME_INDEX_SUFFIX: _time_index,
    TRANSACTION_INDEX_SUFFIX: _transaction_index,
    SNAPSHOT_SUFFIX: _snapshot,
}
