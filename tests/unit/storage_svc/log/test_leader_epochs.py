"""The newest leader epoch is never taken back: clients that know it refuse to work with an older one."""

from __future__ import annotations

import shutil

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.files import Files
from storage_svc.log.leader_epochs import LeaderEpochs

TOPIC_ID = bytes(range(16))


@pytest.mark.parametrize(
    ("end_offset", "kept", "changed"),
    [
        (25, [(0, 0), (2, 10), (5, 20)], False),
        (20, [(0, 0), (2, 10), (5, 20)], False),
        (15, [(0, 0), (2, 10), (5, 15)], True),
        (10, [(0, 0), (5, 10)], True),
        (0, [(5, 0)], True),
    ],
)
def test_truncation_keeps_the_newest_epoch(tmp_path, end_offset, kept, changed):
    (tmp_path / "epochs").write_bytes(b"0\n3\n0 0\n2 10\n5 20\n")
    epochs = LeaderEpochs(Files(), str(tmp_path / "epochs"))
    epochs.load()

    assert epochs.truncate(end_offset) is changed
    assert (epochs.entries, epochs.latest) == (kept, 5)


def test_truncation_of_nothing_is_nothing(tmp_path):
    epochs = LeaderEpochs(Files(), str(tmp_path / "epochs"))

    assert epochs.truncate(0) is False
    assert epochs.entries == []


@pytest.fixture
def written(folders, make_batch, tmp_path):
    """A folder closed in order, with records 0-2 and 3-5 in two batches."""
    directory = folders.open(tmp_path / "data")
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    log.append(make_batch(3))
    log.append(make_batch(3))
    folders.stop(directory)
    return tmp_path / "data"


@pytest.mark.parametrize("clean", [True, False])
def test_an_epoch_that_has_no_records_yet_survives_a_start(folders, make_batch, written, clean):
    """As a Kafka leader leaves it behind when nothing was written since its election."""
    file = written / "t-0" / "leader-epoch-checkpoint"
    file.write_bytes(b"0\n2\n0 0\n4 6\n")
    if not clean:
        (written / ".kafka_cleanshutdown").unlink()
    log = folders.open(written).logs["t", 0]

    assert log.leader_epoch == 4
    assert log.append(make_batch(1)).base_offset == 6
    assert log.read_batches(6, 100)[12:16] == (4).to_bytes(4, "big")
    assert file.read_bytes() == b"0\n2\n0 0\n4 6\n"


def test_the_epoch_that_tells_of_lost_records_is_stored_at_once(folders, tmp_path, written):
    (written / ".kafka_cleanshutdown").unlink()
    segment = written / "t-0" / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1])
    directory = folders.open(written)
    assert (directory.logs["t", 0].log_end_offset, directory.logs["t", 0].leader_epoch) == (3, 1)
    folders.stop(directory)

    log = folders.open(shutil.copytree(written, tmp_path / "copy")).logs["t", 0]

    assert (log.log_end_offset, log.leader_epoch) == (3, 1)
    assert log.epochs.entries == [(0, 0), (1, 3)]
