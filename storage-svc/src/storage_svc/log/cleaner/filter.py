"""The remainder of one batch after compaction: the whole batch unchanged, some of its records, its header, or nothing.

A record stays if no later record has its key, as far as the key map reaches; after that everything stays. A tombstone
stays until its batch's delete horizon is over. The first cleaning that meets the tombstone sets the horizon: attribute
bit 6, and the base timestamp says when (KIP-534); the records' timestamp deltas follow. Markers get a horizon as well
once nothing else is left of their transactions.

Offsets, sequence numbers, producer and leader epochs of a batch never change. A batch without records stays in two
cases. It is the last one of a producer that is remembered (its sequence number must be), or it ends at the high
watermark. Records of formats 0 and 1 become format 2 (Kafka's MemoryRecords.filterTo and Cleaner).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec, compress, decompress
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.header import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    TRANSACTIONAL,
)
from protocol_lib.records.legacy import message_records, read_message
from protocol_lib.records.record import read_records

from storage_svc.log.batch.header import CRC_START, Header, unpack_header
from storage_svc.log.cleaner.key_map import KeyMap
from storage_svc.log.cleaner.mapped_batches import MappedBatches
from storage_svc.log.cleaner.records import ScannedRecords, scan_records, shifted
from storage_svc.log.cleaner.transactions import WalkedTransactions

_NO_TIMESTAMP: Final = -1
#: Kafka writes it into batches that it made of older formats.
_NO_LEADER_EPOCH: Final = -1


class LastBatch(NamedTuple):
    """The last batch of a producer that is remembered: its last data offset (-1: only markers), and its epoch."""

    last_offset: int
    epoch: int


@dataclass(slots=True)
class FilterCounts:
    """Numbers of records that went through a filter."""

    records_read: int = 0
    records_kept: int = 0
    keyless: int = 0


def control_type(batch: bytes) -> ControlType | None:
    """Return how a control batch ends its transaction; None if it does not, or is emptied."""
    for record in read_records(batch):
        marker = read_marker(record)
        return None if marker is None else marker.type
    return None


def body_of(header: Header, batch: bytes) -> bytes:
    """Return the records of a batch, uncompressed.

    Raises:
        DecodeError: they cannot be decompressed.
    """
    return bytes(decompress(header.attributes & CODEC_MASK, memoryview(batch)[HEADER_SIZE:]))


class BatchFilter:
    """Sees every batch of the part of a log that is cleaned, in order."""

    def __init__(
        self,
        key_map: KeyMap,
        mapped: MappedBatches,
        mapped_end: int,
        transactions: WalkedTransactions,
        last_batches: Mapping[int, LastBatch],
        *,
        log_start_offset: int,
        high_watermark: int,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        """Begin with an empty walk. The keys of all dirty records below `mapped_end` are in the map."""
        self._key_map = key_map
        self._mapped = mapped
        self._mapped_end = mapped_end
        self._transactions = transactions
        self._last_batches = last_batches
        self._log_start_offset = log_start_offset
        self._high_watermark = high_watermark
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.counts = FilterCounts()

    def filter(self, header: Header, batch: bytes) -> bytes:
        """Return the remainder of a batch of format 2, empty if nothing remains.

        Raises:
            DecodeError: its records are malformed.
        """
        self.counts.records_read += header.records_count
        if header.attributes & CONTROL:
            return self._filter_marker(header, batch)
        if self._transactions.batch_is_aborted(header) or header.last_offset < self._log_start_offset:
            return self._emptied(header)
        if header.base_offset >= self._mapped_end:
            self.counts.records_kept += header.records_count
            return batch
        if header.records_count == 0:
            return self._emptied(header)
        return self._filter_records(header, batch)

    def _filter_marker(self, header: Header, batch: bytes) -> bytes:
        needless = self._transactions.marker_is_needless(header, control_type(batch))
        if header.records_count == 0:
            return self._emptied(header)
        if needless:
            if not header.attributes & DELETE_HORIZON:
                body = body_of(header, batch)
                scanned = scan_records(body, header.records_count, header.last_offset_delta)
                self.counts.records_kept += len(scanned)
                return self._rebuilt(header, body, scanned, list(range(len(scanned))), set_horizon=True)
            if header.base_timestamp <= self._now_ms:
                return self._emptied(header)
        self.counts.records_kept += header.records_count
        return batch

    def _filter_records(self, header: Header, batch: bytes) -> bytes:
        found = self._mapped.find(header)
        if found is not None:
            superseded, has_tombstones = found
            if len(superseded) == header.records_count:  # mutant: superseded-whole-batch
                return self._emptied(header)
            if not superseded and not has_tombstones:
                self.counts.records_kept += header.records_count
                return batch
        body = body_of(header, batch)
        scanned = scan_records(body, header.records_count, header.last_offset_delta)
        if found is None:
            superseded = self._key_map.superseded(scanned.keys, header.base_offset, scanned.offset_deltas)
        dropped = set(superseded)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        if scanned.tombstones and has_horizon and header.base_timestamp <= self._now_ms:  # mutant: tombstone-horizon
            dropped.update(scanned.tombstones)
        if dropped and header.last_offset >= self._mapped_end:
            dropped = {n for n in dropped if header.base_offset + scanned.offset_deltas[n] < self._mapped_end}
        set_horizon = bool(scanned.tombstones) and not has_horizon and not dropped.issuperset(scanned.tombstones)
        if not dropped and not set_horizon:
            self.counts.records_kept += len(scanned)
            return batch
        kept = [index for index in range(len(scanned)) if index not in dropped]
        self.counts.records_kept += len(kept)
        self.counts.keyless += sum(scanned.keys[index] is None for index in dropped)
        if not kept:
            return self._emptied(header)
        return self._rebuilt(header, body, scanned, kept, set_horizon=set_horizon)

    def _rebuilt(
        self, header: Header, body: bytes, scanned: ScannedRecords, kept: list[int], *, set_horizon: bool
    ) -> bytes:
        """Return the batch with these of its records."""
        attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
        if not attributes & LOG_APPEND_TIME:
            max_timestamp = base_timestamp + max([scanned.timestamp_deltas[index] for index in kept])
        if set_horizon:
            change = self._horizon_ms - base_timestamp
            attributes |= DELETE_HORIZON
            base_timestamp = self._horizon_ms
            starts = scanned.starts
            pieces = [shifted(body, starts[index], starts[index + 1], change) for index in kept]
        else:
            pieces = list(_runs(body, scanned.starts, kept))
        records = compress(Codec(attributes & CODEC_MASK), b"".join(pieces))
        return _assembled(
            header._replace(
                attributes=attributes,
                base_timestamp=base_timestamp,
                max_timestamp=max_timestamp,
                records_count=len(kept),
            ),
            records,
        )

    def _emptied(self, header: Header) -> bytes:
        """Return the remainder of a batch all of whose records go."""
        # mutant: last-batch-of-producer-kept
        if header.last_offset + 1 != self._high_watermark and not self._is_last_of_producer(header):
            return b""
        # As Kafka writes it: without codec and horizon, and with a base timestamp that says nothing.
        attributes = header.attributes & (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL)
        return _assembled(header._replace(attributes=attributes, base_timestamp=_NO_TIMESTAMP, records_count=0), b"")

    def _is_last_of_producer(self, header: Header) -> bool:
        last = self._last_batches.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        return bool(header.attributes & CONTROL) and header.producer_epoch == last.epoch

    def filter_message(self, message: bytes, *, keep_tombstones: bool) -> bytes:
        """Return the remainder of a message of format 0 or 1, as a batch of format 2; empty if nothing remains.

        Raises:
            DecodeError: it is malformed.
        """
        wrapper, _ = read_message(message)
        if wrapper.offset < self._log_start_offset:
            return b""
        records = message_records(wrapper)
        self.counts.records_read += len(records)
        kept = []
        for record in records:
            if record.offset < self._mapped_end:
                if record.key is None:
                    self.counts.keyless += 1
                    continue
                if record.offset < self._key_map.latest_of(record.key):
                    continue
                if record.value is None and not keep_tombstones:
                    continue
            kept.append(record)
        self.counts.records_kept += len(kept)
        if not kept:
            return b""
        batch = build_batch(
            kept,
            base_offset=kept[0].offset,
            codec=Codec(wrapper.codec),
            log_append_time=wrapper.is_log_append_time,
            leader_epoch=_NO_LEADER_EPOCH,
        )
        if all(record.value is not None for record in kept):
            return batch
        header = Header._make(unpack_header(batch))
        body = body_of(header, batch)
        scanned = scan_records(body, header.records_count, header.last_offset_delta)
        return self._rebuilt(header, body, scanned, list(range(len(kept))), set_horizon=True)


def _runs(body: bytes, starts: list[int], kept: list[int]) -> list[bytes]:
    """Return the bytes of the records that stay; neighbours are joined."""
    pieces = []
    first = previous = kept[0]
    for index in kept[1:]:
        if index != previous + 1:
            pieces.append(body[starts[first] : starts[previous + 1]])
            first = index
        previous = index
    pieces.append(body[starts[first] : starts[previous + 1]])
    return pieces


def _assembled(header: Header, records: bytes) -> bytes:
    """Return a batch of these header fields and records, with computed length and CRC."""
    fields = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(records), crc=0)
    batch = bytearray(HEADER_SIZE)
    HEADER.pack_into(batch, 0, *fields)
    batch += records
    HEADER.pack_into(batch, 0, *fields._replace(crc=crc32c(memoryview(batch)[CRC_START:])))
    return bytes(batch)
