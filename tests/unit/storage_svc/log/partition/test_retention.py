"""The segments that retention deletes, against Kafka's three rules in their order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.retention import apply_retention

NOW_MS = 1_700_000_000_000


class Expected(NamedTuple):
    base_offset: int
    size: int
    largest_ms: int


def left(segments: list[Expected], log_start_offset: int, config: LogConfig) -> list[Expected]:
    """Return the remaining segments, of which the last one is the active one; an empty active one stays."""
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        segments = segments[1:]
    if "delete" not in config.cleanup_policy:
        return segments
    surplus = sum(segment.size for segment in segments) - config.retention_bytes
    while segments and config.retention_bytes >= 0 and surplus >= segments[0].size:
        if len(segments) == 1 and segments[0].size == 0:
            break
        surplus -= segments[0].size
        segments = segments[1:]
    while segments and config.retention_ms >= 0 and NOW_MS - segments[0].largest_ms > config.retention_ms:
        if len(segments) == 1 and segments[0].size == 0:
            break
        segments = segments[1:]
    return segments


@given(
    batches=st.lists(st.tuples(st.integers(0, 300), st.integers(-1, 50), st.booleans()), max_size=12),
    share_below_start=st.floats(0, 1),
    policy=st.sampled_from(["delete", "compact", "compact,delete", ""]),
    retention_bytes=st.integers(-1, 2000),
    retention_ms=st.integers(-1, 40),
)
@settings(max_examples=60)
def test_what_is_deleted(tmp_path_factory, batches, share_below_start, policy, retention_bytes, retention_ms):
    path = tmp_path_factory.mktemp("data")
    directory = DataFolder.open(path, LogSettings(flush_policy=FlushPolicy.OS), clock=lambda: NOW_MS)
    log = directory.create("t", 0, bytes(16), LogConfig(segment_bytes=1 << 20))
    for size, age_ms, roll in batches:
        timestamp = NOW_MS - age_ms if age_ms >= 0 else -1
        assert log.append(build_batch([Record(0, timestamp, b"k", bytes(size))])).error_code == 0
        if roll:
            log.roll(NOW_MS)
    segments = []
    for segment in log.segments:
        os.utime(segment.path, (NOW_MS / 1000, NOW_MS / 1000))
        largest_ms = segment.largest_timestamp()[0]
        segments.append(Expected(segment.base_offset, segment.size, largest_ms if largest_ms >= 0 else NOW_MS))
    start = int(share_below_start * log.log_end_offset)
    log.raise_log_start(start)
    config = LogConfig(
        segment_bytes=1 << 20,
        cleanup_policy=frozenset(filter(None, policy.split(","))),
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
    )
    log.configure(config)
    kept = left(segments, start, config)
    freed = apply_retention(log, NOW_MS)
    directory.check_invariants()
    end = log.log_end_offset
    assert log.segments.bases == ([segment.base_offset for segment in kept] or [end])
    assert freed == sum(segment.size for segment in segments) - sum(segment.size for segment in kept)
    assert log.log_start_offset == max(start, kept[0].base_offset if kept else end)
    names = {entry.name for entry in Path(log.folder).iterdir() if ".deleted" not in entry.name}
    assert {name for name in names if name.endswith(".log")} == {f"{base:020d}.log" for base in log.segments.bases}
    directory.release()
