"""The checks of recovery in a segment of which a part is known to be synced."""

from __future__ import annotations

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.segment.positions import position_of_timestamp

from tests.unit.storage_svc.log.recovery.damage import batches, flipped, log_file, position_of, quarantined

SYNCED = 40
SIZE = 16_000


@pytest.fixture
def crashed(tmp_path, folders, fill):
    """A folder whose process died with 40 batches that the checkpoint knows to be synced, and 5 later ones."""
    directory = folders.open(tmp_path / "data", FlushPolicy.GROUP)
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    stored = []
    for number in range(SYNCED):
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number * 2}
        stored += fill(log, [2], size=SIZE // 2, **producer)
    directory.flusher.sync_now()
    assert directory.checkpoints.store_all()
    stored += fill(log, [1] * 5, size=SIZE)
    folders.crash(directory)
    return tmp_path / "data", stored


def test_synced_batches_are_not_read_but_indexed(crashed, folders, read_all):
    path, stored = crashed
    log_file(path).write_bytes(flipped(log_file(path).read_bytes(), position_of(stored, 3) + 500))
    whole = log_file(path).read_bytes()
    log = folders.open(path, FlushPolicy.GROUP).logs["t", 0]
    assert (log.log_end_offset, log.high_watermark, quarantined(path)) == (85, 85, {})
    assert read_all(log) == whole
    positions = [position_of(stored, number) for number in range(len(stored))]
    index = log.segments.active.offset_index
    assert [entry[1] for entry in index.file] == positions[1:]
    assert position_of_timestamp(log.segments.active, stored[30][0] + 1_700_000_000_000) <= positions[30]


@pytest.mark.parametrize("number", [SYNCED - 5, SYNCED - 1, SYNCED, SYNCED + 3])
def test_the_end_of_the_segment_is_checked_synced_or_not(crashed, folders, number):
    path, stored = crashed
    log_file(path).write_bytes(flipped(log_file(path).read_bytes(), position_of(stored, number) + 500))
    log = folders.open(path, FlushPolicy.GROUP).logs["t", 0]
    assert (log.log_end_offset, log.offline) == (85, None)
    assert list(quarantined(path)) == [
        f"{0:020d}.log-{position_of(stored, number)}-{stored[number][0]}-{stored[number + 1][0]}"
    ]


@pytest.mark.parametrize(
    ("at", "lost"),
    [(7, False), (15, False), (9, True), (10, True), (11, True), (16, True), (26, True)],
    ids=["base offset", "leader epoch", "length", "length", "length", "magic", "last offset delta"],
)
def test_synced_batches_that_do_not_follow_one_another_are_checked(crashed, folders, read_all, at, lost):
    path, stored = crashed
    whole = log_file(path).read_bytes()
    log_file(path).write_bytes(flipped(log_file(path).read_bytes(), position_of(stored, 3) + at))
    log = folders.open(path, FlushPolicy.GROUP).logs["t", 0]
    assert read_all(log) == (batches(stored, 3) if lost else whole)
    assert list(quarantined(path)) == ([f"{0:020d}.log-{position_of(stored, 3)}-6-8"] if lost else [])
    assert (log.log_end_offset, log.offline, log.epochs.entries) == (85, None, [(0, 0)])
    (producer,) = log.producers.producers.values()
    assert [batch.last_offset for batch in producer.batches] == [71, 73, 75, 77, 79]


def test_a_synced_end_that_is_missing_is_noticed(crashed, folders):
    path, stored = crashed
    log_file(path).write_bytes(log_file(path).read_bytes()[: position_of(stored, 30)])
    log = folders.open(path, FlushPolicy.GROUP).logs["t", 0]
    assert (log.log_end_offset, log.leader_epoch) == (60, 1)
