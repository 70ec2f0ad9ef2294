"""Commits of transactions in `__consumer_offsets`, as a folder of Apache Kafka has them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from protocol_lib.internal.offset_commit import OffsetCommitValue
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets
from storage_svc.coordinator.stored.offsets_log import load
from storage_svc.coordinator.stored.open_commits import OpenCommits
from storage_svc.coordinator.stored.records import encode_offset_key, encode_offset_value
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Origin
from storage_svc.log.partition.transaction_end import end_transaction

NOW_MS = 1_700_000_000_000


def committed(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, metadata="", commit_timestamp=NOW_MS)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("7:100 7:commit", 100),
        ("7:100 7:abort", None),
        ("7:100", None),
        ("-:90 7:100 7:abort", 90),
        ("-:90 7:100", 90),
        ("7:100 -:150 7:commit", 150),
        ("-:90 7:100 7:commit", 100),
        ("7:100 8:200 8:commit 7:commit", 200),
        ("7:100 8:200 7:commit 8:commit", 200),
        ("7:100 7:abort 7:300 7:commit", 300),
        ("7:100 7:abort 7:300", None),
        ("-:90 -:gone 7:100 7:commit", 100),
        ("7:100 7:commit -:gone", None),
        ("8:commit -:90 8:abort", 90),
    ],
)
async def test_the_offset_that_a_group_resumes_from(tmp_path: Any, steps: str, expected: int | None) -> None:
    directory = DataFolder.open(tmp_path, LogSettings(), clock=lambda: NOW_MS)
    log = directory.create("__consumer_offsets", 0, bytes(range(16)), LogConfig())
    key = encode_offset_key("g", "t", 0)
    for step in steps.split():
        producer, _, action = step.partition(":")
        if action in ("commit", "abort"):
            ended = end_transaction(log, int(producer), 0, commit=action == "commit", coordinator_epoch=0)
            assert ended.error_code == 0
            continue
        value = None if action == "gone" else encode_offset_value(committed(int(action)))
        sender = {} if producer == "-" else {"producer_id": int(producer), "producer_epoch": 0, "transactional": True}
        batch = build_batch([Record(0, NOW_MS, key, value)], **sender)
        assert log.append(batch, origin=Origin.COORDINATOR).error_code == 0
    loaded = await load(log)
    assert loaded.broken_count == 0
    found = {group: {key: value.offset for key, value in offsets.items()} for group, offsets in loaded.offsets.items()}
    assert found == ({} if expected is None else {"g": {("t", 0): expected}})
    directory.release()


def test_the_end_of_a_transaction_makes_no_call_for_each_offset() -> None:
    """It is one step of the event loop, and a transaction may have 50,000 offsets."""
    opened, calls = OpenCommits(), 0
    groups = {name: CommittedOffsets({}, name, opened) for name in "ab"}
    for offsets in groups.values():
        offsets.begin_open(7, {("t", partition): committed(partition) for partition in range(500)})

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    for name, offsets in opened.end(7, commit=True).items():
        groups[name].apply(offsets)
    sys.setprofile(None)
    assert [len(offsets.durable) for offsets in groups.values()] == [500, 500]
    assert calls < 100
