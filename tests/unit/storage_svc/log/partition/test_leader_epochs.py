"""The newest leader epoch never falls: clients that know it refuse to work with an older one."""

from __future__ import annotations

import shutil

import pytest
from storage_svc.log.config import LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.partition.leader_epochs import LeaderEpochs

TOPIC_ID = bytes(range(16))
WRONG_LISTS = [None, b"", b"0\n0\n", b"\xff", b"0\n3\n0 0\n5 30\n2 10\n", b"0\n3\n0 0\n2 30\n5 10\n"]
WRONG_LISTS += [b"0\n1\n7 0\n", b"0\n2\n0 0\n2 10\n"]


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
    """A Kafka leader leaves such an epoch when nothing was written since its election."""
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


@pytest.fixture
def three_epochs(folders, make_batch, tmp_path):
    """Several segments; epoch 0 from offset 0, 2 from 10 and 5 from 30 to 60."""
    directory = folders.open(tmp_path / "data")
    log = directory.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=700))
    for epoch, end in ((0, 10), (2, 30), (5, 60)):
        log.begin_leader_epoch(epoch)
        while log.log_end_offset < end:
            log.append(make_batch(5))
    assert len(log.segments) > 3
    folders.stop(directory)
    assert (tmp_path / "data" / "t-0" / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n0 0\n2 10\n5 30\n"
    return tmp_path / "data"


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("content", WRONG_LISTS)
def test_a_lost_or_wrong_list_is_rebuilt_from_the_batches(folders, three_epochs, clean, content):
    file = three_epochs / "t-0" / "leader-epoch-checkpoint"
    file.unlink() if content is None else file.write_bytes(content)
    if not clean:
        (three_epochs / ".kafka_cleanshutdown").unlink()
        (three_epochs / "recovery-point-offset-checkpoint").unlink()
    log = folders.open(three_epochs).logs["t", 0]
    assert log.epochs.entries == [(0, 0), (2, 10), (5, 30)]
    assert log.leader_epoch == 5
    assert file.read_bytes() == b"0\n3\n0 0\n2 10\n5 30\n"


def test_a_flipped_epoch_of_any_batch_is_put_right(folders, three_epochs):
    """It lies outside the CRC; the list and the neighbours know better."""
    (three_epochs / ".kafka_cleanshutdown").unlink()
    (three_epochs / "recovery-point-offset-checkpoint").unlink()
    for path in sorted((three_epochs / "t-0").glob("*.log")):
        whole = path.read_bytes()
        position = 0
        while position < len(whole):
            for at in range(position + 12, position + 16):
                path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
                directory = folders.open(three_epochs)
                assert directory.logs["t", 0].epochs.entries == [(0, 0), (2, 10), (5, 30)], (path.name, at)
                folders.crash(directory)
                assert path.read_bytes() == whole, (path.name, at)
            position += 12 + int.from_bytes(whole[position + 8 : position + 12], "big")


def test_a_log_start_that_a_crash_took_back_keeps_its_epoch(folders, fill, tmp_path):
    """The epoch list was cut to the new log start, the checkpoint of the log start did not reach the disk."""
    directory = folders.open(tmp_path / "data")
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    stored = fill(log, [2, 3, 1])
    log.raise_log_start(5)
    assert log.epochs.entries == [(0, 5)]
    folders.crash(directory)

    log = folders.open(tmp_path / "data").logs["t", 0]
    assert log.log_start_offset == 0
    assert log.read_batches(0, 1000) == b"".join(batch for _, batch in stored)
    assert log.epochs.entries == [(0, 0)]
