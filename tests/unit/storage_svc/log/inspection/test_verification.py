"""Verifying stopped volumes: healthy ones, and one damage at a time."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest
from storage_svc.log.batch import readability
from storage_svc.log.config import LogConfig
from storage_svc.log.errors import DataFolderError, DataFolderInUse
from storage_svc.log.inspection.verification import Totals, verify
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import drop_oldest
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.log.recovery import recovery, segment_recovery
from unit.storage_svc.log.unreadable import spoil


def found(path: Path) -> tuple[list[str], list[str]]:
    """Return (faults, notes)."""
    totals = Totals()
    findings = list(verify(str(path), totals))
    assert findings == totals.findings
    return [str(each)[7:] for each in findings if each.fault], [str(each)[7:] for each in findings if not each.fault]


def tree(path: Path) -> dict[str, bytes]:
    return {str(each.relative_to(path)): each.read_bytes() for each in sorted(path.rglob("*")) if each.is_file()}


def write(log, make_batch) -> None:
    """Write records, transactions and two leader epochs, over several segments."""
    for number in range(40):
        producer = number % 3
        if number == 20:
            log.begin_leader_epoch(1)
        sent = {"producer_id": producer, "producer_epoch": 0, "base_sequence": number // 3 * 2, "transactional": True}
        assert log.append(make_batch(2, timestamp=1_700_000_000_000 + number, **sent)).error_code == 0
        if number % 5 == 4:
            end_transaction(log, producer, 0, commit=number % 2 == 0, coordinator_epoch=1)


@pytest.fixture
def stopped(tmp_path, folders, make_batch):
    """A folder that was closed in order: `t-0` with several segments, an empty `t-1`."""
    directory = folders.open(tmp_path / "data")
    config = LogConfig(segment_bytes=1500, index_interval_bytes=100)
    log, _ = directory.create_many("t", range(2), bytes(range(16)), config)
    write(log, make_batch)
    assert len(log.segments) > 3
    folders.stop(directory)
    return tmp_path / "data"


def test_a_healthy_volume_is_only_read(stopped):
    before = tree(stopped)
    totals = Totals()
    assert list(verify(str(stopped), totals)) == []
    assert (totals.partitions, totals.batches) == (2, 48)
    assert totals.bytes == sum(len(content) for name, content in before.items() if name.endswith(".log"))
    assert tree(stopped) == before


def test_a_crashed_volume_has_notes(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(range(16)), LogConfig(segment_bytes=1500, index_interval_bytes=100))
    write(log, make_batch)
    folders.crash(directory)
    last = sorted((tmp_path / "t-0").glob("*.log"))[-1]
    last.write_bytes(last.read_bytes() + b"torn")
    faults, notes = found(tmp_path)
    assert faults == []
    assert notes[0] == ".kafka_cleanshutdown: not there: the last stop was a crash"
    assert f"t-0/{last.name}: torn at position {last.stat().st_size - 4}, 4 bytes, from offset 88 on" in notes


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "crashed"])
@pytest.mark.parametrize("start", [1, 3, 5])
def test_records_deleted_inside_a_segment_are_no_damage(tmp_path, folders, make_batch, monkeypatch, start, crash):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(range(16)), LogConfig())
    log.append(make_batch(2))
    log.append(make_batch(2))
    log.begin_leader_epoch(2)
    log.append(make_batch(2))
    log.raise_log_start(start)
    directory.checkpoints.write_all()
    kept = log.epochs.entries
    assert kept == {1: [(0, 1), (2, 4)], 3: [(0, 3), (2, 4)], 5: [(2, 5)]}[start]
    if crash:
        directory.sync_recovered()
        folders.crash(directory)
    else:
        folders.stop(directory)
    assert found(tmp_path)[0] == []
    lines = Mock()
    monkeypatch.setattr(recovery, "_log", lines)
    monkeypatch.setattr(segment_recovery, "_log", lines)
    assert folders.open(tmp_path).logs["t", 0].epochs.entries == kept
    assert [call.args[0] for call in lines.method_calls if call.args[0] != "log recovered"] == []


def test_a_list_of_epochs_that_begins_after_the_log_start_is_damage(stopped):
    epochs = stopped / "t-0" / "leader-epoch-checkpoint"
    epochs.write_text(epochs.read_text().replace("0 0\n", "0 1\n"))
    assert any(each.startswith("t-0/leader-epoch-checkpoint") for each in found(stopped)[0])


def flip(at, mask=1):
    return lambda data: data[:at] + bytes([data[at] ^ mask]) + data[at + 1 :]


def test_batches_that_clients_cannot_read_are_named(stopped):
    position = spoil(stopped / "t-0" / f"{0:020d}.log", 7)
    totals = Totals()
    (finding,) = verify(str(stopped), totals)
    assert str(finding) == (
        f"fault  t-0/{0:020d}.log: clients cannot read the batch at position {position}, offsets 6 to 7: "
        "record 0: a record is not as long as it says"
    )
    assert (totals.faults, totals.unreadable_batches) == (1, 1)
    checkpoint = stopped / "log-start-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 8\n")
    (stopped / "log-start-offset-checkpoint.crc32c").unlink()
    assert [each for each in found(stopped)[0] if "cannot read" in each] == []


def test_not_every_batch_of_many_is_named(stopped, monkeypatch):
    monkeypatch.setattr(readability, "NAMED_MAX", 1)
    for offset in (1, 3, 5):
        spoil(stopped / "t-0" / f"{0:020d}.log", offset)
    faults, _ = found(stopped)
    assert [each.split(": ")[1] for each in faults] == [
        "clients cannot read the batch at position 0, offsets 0 to 1",
        "nor 2 batches more",
    ]


DAMAGE = {
    "records": ("log", 1, flip(300), "damaged at position 234, 117 bytes, offsets 28 to 29"),
    "length": ("log", 1, flip(10), "damaged at position 0"),
    "base offset": ("log", 0, flip(117 + 7, 64), "the batch at position 117 must have base offset 2, epoch 0"),
    "leader epoch": ("log", 0, flip(117 + 15, 64), "the batch at position 117 must have base offset 2, epoch 0"),
    "the end": ("log", -1, lambda data: data[:-1], "are gone; they were durable"),
    "offset index": ("index", 1, flip(7), "leads to no batch"),
    "cut offset index": ("index", 1, lambda data: data[:-1], "missing, or of a size that cannot be"),
    "time index": ("timeindex", 1, flip(7), "leads to no batch"),
    "short time index": ("timeindex", 1, lambda data: data[:-12], "the largest of the segment is"),
    "transaction index": ("txnindex", 0, flip(9), "aborted transactions, the log"),
    "short transaction index": ("txnindex", 0, lambda data: data[:-34], "aborted transactions, the log"),
    "transaction index's seal": ("txnindex.crc32c", 0, flip(3), "does not match its checksum"),
    "snapshot": ("snapshot", 1, flip(20), "unreadable"),
    "another's snapshot": ("snapshot", -1, None, "the batches say"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_found(stopped, name):
    suffix, number, change, text = DAMAGE[name]
    paths = sorted((stopped / "t-0").glob(f"*.{suffix}"))
    path = paths[number]
    path.write_bytes(paths[0].read_bytes() if change is None else change(path.read_bytes()))
    faults, _ = found(stopped)
    assert any(text in fault for fault in faults), faults
    assert all(fault.startswith("t-0") for fault in faults)


@pytest.mark.parametrize(
    ("file", "content", "text"),
    [
        ("leader-epoch-checkpoint", b"0\n2\n0 0\n", "unreadable, empty or out of order"),
        ("leader-epoch-checkpoint", b"0\n1\n0 0\n", "the batches say [(0, 0), (1, 44)]"),
        ("leader-epoch-checkpoint", b"0\n1\n7 0\n", "contradicts the batches"),
        ("partition.metadata", b"version: 0\ntopic_id: ?", "not a uuid"),
        ("../recovery-point-offset-checkpoint", b"0\n1\n", "unreadable"),
        ("../meta.properties", b"", "names no cluster"),
        ("../meta.properties", b"version=1\ncluster.id=AnotherClusterAnother0", "its copy names cluster"),
        ("../meta.properties.copy", b"version=1\n", "its copy does not match its checksum"),
    ],
)
def test_small_files_are_read_too(stopped, file, content, text):
    (stopped / "t-0" / file).write_bytes(content)
    faults, _ = found(stopped)
    assert any(text in fault for fault in faults), faults


def test_what_retention_and_compaction_leave_is_sound(tmp_path, folders, make_batch):
    """Transactions and producers that began before the log does; a gap between two batches."""
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, bytes(range(16)), LogConfig(segment_bytes=1500, index_interval_bytes=100))
    write(log, make_batch)
    drop_oldest(log, [DeletionReason.TIME] * 2)
    folders.stop(directory)
    assert found(tmp_path)[0] == []


def test_a_volume_in_use_is_refused(tmp_path, folders):
    folders.open(tmp_path / "data")
    with pytest.raises(DataFolderInUse, match="in use by another process"):
        found(tmp_path / "data")
    with pytest.raises(DataFolderError, match="is not a data folder"):
        found(tmp_path)


def test_a_copy_may_be_read_only(stopped, tmp_path):
    copy = shutil.copytree(stopped, tmp_path / "copy")
    (copy / ".lock").unlink()
    for path in copy.rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    assert found(copy) == ([], [])
    for path in copy.rglob("*"):
        path.chmod(0o700)
