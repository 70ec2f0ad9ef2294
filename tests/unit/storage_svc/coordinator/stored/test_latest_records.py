"""The last record of each key makes the same state as all records one by one, and only it is decoded."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from protocol_lib.errors import DecodeError
from protocol_lib.internal import consumer_group as kinds
from protocol_lib.internal import record
from protocol_lib.internal.group_metadata import GroupMetadataValue
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.control import ControlType, EndTransactionMarker, build_marker_batch
from protocol_lib.records.header import CRC_START, HEADER_SIZE, LOG_OVERHEAD
from protocol_lib.records.record import Record
from storage_svc.coordinator.stored import partition_loader
from storage_svc.coordinator.stored.latest_records import LatestRecords, UnusualRecordsError
from storage_svc.coordinator.stored.offsets_log import LoadedPartition
from storage_svc.coordinator.stored.records import (
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from storage_svc.coordinator.transactions.loaded_transactions import LoadedTransactions
from storage_svc.coordinator.transactions.records import encode_key, encode_value
from storage_svc.coordinator.transactions.transaction import Transaction, TransactionState
from storage_svc.log.partition.partition_log import PartitionLog

NOW_MS = 1_700_000_000_000
#: A name whose size takes two bytes, as do the sizes of its records.
LONG = "x" * 9000


@dataclass
class History:
    """Batches as they are in a log, from offset 0 on."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0

    def batch(self, pairs: list[tuple[bytes | None, bytes | None]], producer_id: int = -1, **more: Any) -> None:
        records = [Record(self.end + index, NOW_MS, key, value) for index, (key, value) in enumerate(pairs)]
        if producer_id >= 0:
            more |= {"producer_id": producer_id, "producer_epoch": 0, "transactional": True}
        self.batches.append(build_batch(records, base_offset=self.end, **more))
        self.end += len(records)

    def marker(self, producer_id: int, *, commit: bool) -> None:
        marker = EndTransactionMarker(ControlType.COMMIT if commit else ControlType.ABORT, 7)
        self.batches.append(
            build_marker_batch(
                marker, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0, base_offset=self.end
            )
        )
        self.end += 1

    def emptied_marker(self, producer_id: int) -> None:
        """Add what the cleaner leaves of a producer's last batch: its header."""
        self.marker(producer_id, commit=True)
        emptied = bytearray(self.batches.pop()[:HEADER_SIZE])
        struct.pack_into(">i", emptied, 8, HEADER_SIZE - LOG_OVERHEAD)
        struct.pack_into(">i", emptied, HEADER_SIZE - 4, 0)
        struct.pack_into(">I", emptied, 17, crc32c(bytes(emptied[CRC_START:])))
        self.batches.append(bytes(emptied))


def one_by_one(history: History, kind: Any) -> Any:
    loaded = kind()
    for each in history.batches:
        partition_loader._apply_batches("t", loaded, each)
    return loaded


def from_the_latest(history: History, kind: Any) -> Any:
    latest, loaded = LatestRecords(holds_back=kind.holds_back), kind()
    for first in range(0, len(history.batches), 3):
        end = latest.add(b"".join(history.batches[first : first + 3]))
    assert not history.batches or end == history.end
    latest.apply_to(loaded)
    return loaded


def content(loaded: LoadedPartition) -> Any:
    loaded.opened.check_invariants()
    groups = {group: stored.values for group, stored in loaded.consumer_groups.items()}
    return loaded.groups, groups, loaded.offsets, loaded.opened._of_producers, loaded.opened._of_groups


def offset(number: int, metadata: str = "") -> bytes:
    return encode_offset_value(OffsetCommitValue(offset=number, metadata=metadata, commit_timestamp=NOW_MS))


def group_value(generation: int) -> bytes:
    value = GroupMetadataValue(protocol_type="c", generation=generation, protocol=None, leader=None, members=())
    return encode_group_value(value)


OFFSET_KEYS = [encode_offset_key("g", "t", 0), encode_offset_key(LONG, "t", 0)]
MEMBER = record.write(kinds.ConsumerGroupMemberMetadataKey(group_id="h", member_id="m"), 5)
EPOCH = record.write(kinds.ConsumerGroupMetadataKey(group_id="h"), 3)

PRODUCERS = st.sampled_from((4, 5))
OFFSETS = st.tuples(st.sampled_from(OFFSET_KEYS), st.none() | st.integers(0, 9).map(offset))
OTHERS = st.one_of(
    st.tuples(st.just(encode_group_key("g")), st.none() | st.builds(group_value, st.integers(0, 9))),
    st.tuples(
        st.just(EPOCH),
        st.none()
        | st.integers(0, 9).map(
            lambda epoch: record.write(kinds.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=1), 0)
        ),
    ),
    st.tuples(st.just(MEMBER), st.none()),
    st.tuples(st.just(b"\x7f\x00of another kind"), st.just(b"?")),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just(-1), st.lists(OFFSETS, min_size=1, max_size=2), st.just(Codec.NONE)),
        st.tuples(PRODUCERS, st.lists(OFFSETS, min_size=1, max_size=2), st.just(Codec.NONE)),
        st.tuples(PRODUCERS, st.booleans() | st.none()),
        st.tuples(st.just(-1) | PRODUCERS, st.lists(OFFSETS | OTHERS, min_size=1), st.sampled_from(list(Codec))),
    ),
    min_size=8,
    max_size=30,
)


@given(STEPS)
def test_the_latest_records_make_the_state_of_all(steps: list[Any]) -> None:
    history = History()
    for step in steps:
        if step[1] is None:
            history.emptied_marker(step[0])
        elif isinstance(step[1], bool):
            history.marker(step[0], commit=step[1])
        else:
            history.batch(step[1], step[0], codec=step[2])
    expected = one_by_one(history, LoadedPartition)
    assert expected.broken_count == 0
    assert content(from_the_latest(history, LoadedPartition)) == content(expected)


def transaction(epoch: int, state: TransactionState) -> bytes | None:
    return encode_value(
        Transaction(
            transactional_id="x", producer_id=3, producer_epoch=epoch, timeout_ms=1, state=state, update_ms=NOW_MS
        )
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(("x", "y", LONG)),
            st.integers(0, 99),
            st.sampled_from((TransactionState.EMPTY, TransactionState.ONGOING, TransactionState.DEAD)),
        )
    )
)
def test_the_latest_transactions_are_those_of_all_records(records: list[tuple[str, int, TransactionState]]) -> None:
    history = History()
    for name, epoch, state in records:
        history.batch([(encode_key(name), transaction(epoch, state))])
    expected = one_by_one(history, LoadedTransactions)
    assert from_the_latest(history, LoadedTransactions) == expected
    assert expected.broken_count == 0


def test_only_the_last_record_of_each_key_is_decoded() -> None:
    history = History()
    for number in range(500):
        history.batch([(key, offset(number)) for key in OFFSET_KEYS], 4)
        history.marker(4, commit=True)
        history.batch([(encode_group_key("g"), group_value(number))])
    decoded: list[tuple[bytes, bytes | None]] = []

    class Counting(LoadedPartition):
        def apply(self, key: bytes, value: bytes | None, _offset: int, _producer_id: int, /) -> None:
            decoded.append((key, value))

    from_the_latest(history, Counting)
    assert decoded == [*((key, offset(499)) for key in OFFSET_KEYS), (encode_group_key("g"), group_value(499))]


OLD_KEY = record.write(OffsetCommitKey(group="g", topic="t", partition=0), 0)


def test_of_two_forms_of_a_key_the_later_record_counts() -> None:
    history = History()
    for key, number in ((OFFSET_KEYS[0], 1), (OLD_KEY, 2), (OFFSET_KEYS[0], 3)):
        history.batch([(key, offset(number))])
    assert from_the_latest(history, LoadedPartition).offsets["g"]["t", 0].offset == 3
    history.batch([(OLD_KEY, None)])
    assert from_the_latest(history, LoadedPartition).offsets == {}


def unusual(kind: str) -> History:
    history = History()
    history.batch([(OFFSET_KEYS[0], offset(1))])
    if kind == "no key":
        history.batch([(None, offset(2))])
    elif kind == "a damaged batch":
        history.batch([(OFFSET_KEYS[0], offset(2))])
        history.batches[-1] = history.batches[-1][:-1] + b"\1"
    elif kind == "a value of a later version":
        history.batch([(OFFSET_KEYS[0], b"\0\x63?")])
    elif kind == "an old key next to transactions":
        history.batch([(OLD_KEY, offset(2))], 4)
        history.batch([(OFFSET_KEYS[0], None)])
        history.marker(4, commit=True)
    elif kind == "headers":
        history.batches.append(
            build_batch([Record(1, NOW_MS, OFFSET_KEYS[0], offset(2), (("h", b"v"),))], base_offset=1)
        )
        history.end = 2
    elif kind == "a control record of another kind":
        history.batch([(b"\0\0\0\2", b"\0\0\0\0\0\0")], producer_id=4, control=True)
    return history


class StoredHistory(PartitionLog):
    """A log that reads a history, a batch at a time."""

    def __init__(self, history: History) -> None:
        self._state: Any = SimpleNamespace(topic="t", folder="t", log_start_offset=0, log_end_offset=history.end)
        self.is_suspect = False
        self._batches = dict(enumerate(history.batches))

    def read_batches(self, offset: int, max_bytes: int) -> bytes:
        return self._batches.get(offset, b"")

    def suspect(self) -> None:
        self.is_suspect = True


@pytest.mark.parametrize(
    ("kind", "expected", "broken"),
    [
        ("no key", 1, 1),
        ("a damaged batch", 1, 1),
        ("a value of a later version", 1, 1),
        ("an old key next to transactions", None, 0),
        ("headers", 2, 0),
        ("a control record of another kind", 1, 0),
    ],
)
async def test_unusual_records_are_applied_one_by_one(kind: str, expected: int | None, broken: int) -> None:
    history = unusual(kind)
    with pytest.raises((UnusualRecordsError, DecodeError)):
        from_the_latest(history, LoadedPartition)
    log = StoredHistory(history)
    loaded = await partition_loader.load(log, LoadedPartition)
    found = {key: value.offset for offsets in loaded.offsets.values() for key, value in offsets.items()}
    assert found == ({} if expected is None else {("t", 0): expected})
    assert loaded.broken_count == broken
    assert log.is_suspect == (broken > 0)


async def test_a_log_that_gives_no_whole_batch_is_not_read_for_ever() -> None:
    history = unusual("")
    history.batches.append(b"\0" * 100)
    history.end = 9
    loaded = await partition_loader.load(log := StoredHistory(history), LoadedPartition)
    assert (loaded.offsets["g"]["t", 0].offset, loaded.broken_count, log.is_suspect) == (1, 1, True)
