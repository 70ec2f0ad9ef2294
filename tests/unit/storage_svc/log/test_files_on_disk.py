"""The files of a data folder, byte for byte."""

from __future__ import annotations

import asyncio

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk import checkpoints
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import DataFolderError, DataFolderInUse
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.retention import drop_oldest
from unit.storage_svc.log.conftest import descriptors

TOPIC_ID = bytes(range(16))


def test_new_folder(tmp_path, folders):
    directory = folders.open(tmp_path / "deep" / "data", cluster_id="MkU3OEVBNTcwNTJENDM2Qg")
    directory.create("my.topic-x", 12, TOPIC_ID, LogConfig())
    folder = tmp_path / "deep" / "data"
    lines = (folder / "meta.properties").read_text().splitlines()
    assert lines[:3] == ["version=1", "cluster.id=MkU3OEVBNTcwNTJENDM2Qg", "node.id=1"]
    assert len(checkpoints.uuid_bytes(lines[3].removeprefix("directory.id="))) == 16
    partition = folder / "my.topic-x-12"
    assert (partition / "partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert (partition / f"{0:020d}.log").read_bytes() == b""
    folders.stop(directory)
    assert (folder / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    directory = folders.open(folder)
    assert directory.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
    assert directory.logs["my.topic-x", 12].topic_id == TOPIC_ID
    assert not (folder / ".kafka_cleanshutdown").exists()  # a crash from here on is an unclean stop


def test_checkpoints_after_a_stop(tmp_path, folders, fill, small):
    directory = folders.open(tmp_path)
    fill(directory.create("b", 0, TOPIC_ID, small), [3] * 40)
    fill(directory.create("a", 1, TOPIC_ID, small), [2])
    drop_oldest(directory.logs["b", 0], [DeletionReason.TIME])
    start = directory.logs["b", 0].log_start_offset
    assert 0 < start < 120
    folders.stop(directory)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_bytes() == b"0\n2\na 1 2\nb 0 120\n"
    assert (tmp_path / "replication-offset-checkpoint").read_bytes() == b"0\n2\na 1 2\nb 0 120\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_bytes() == f"0\n1\nb 0 {start}\n".encode()
    assert (tmp_path / "a-1" / "leader-epoch-checkpoint").read_bytes() == b"0\n1\n0 0\n"
    assert (tmp_path / "b-0" / "leader-epoch-checkpoint").read_bytes() == f"0\n1\n0 {start}\n".encode()
    log = folders.open(tmp_path).logs["b", 0]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (start, 120, 120)


def test_a_clean_start_reads_no_batches_again(tmp_path, folders, fill):
    """After a clean stop nothing is scanned: a damaged batch in the middle is the reader's to find."""
    directory = folders.open(tmp_path)
    stored = fill(directory.create("t", 0, TOPIC_ID, LogConfig()), [1, 1, 1])
    folders.stop(directory)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[len(stored[0][1]) + 70] ^= 1
    path.write_bytes(content)
    log = folders.open(tmp_path).logs["t", 0]
    assert (log.log_end_offset, log.offline) == (3, None)


def test_a_folder_in_use_is_refused(tmp_path, folders):
    folders.open(tmp_path)
    with pytest.raises(DataFolderInUse, match=f"data folder {tmp_path} is in use"):
        folders.open(tmp_path)


def test_another_clusters_folder_is_refused(tmp_path, folders):
    folders.stop(folders.open(tmp_path, cluster_id="one"))
    with pytest.raises(DataFolderError, match="belongs to cluster one, not to two"):
        folders.open(tmp_path, cluster_id="two")
    folders.open(tmp_path, cluster_id="one")


def test_segment_names_follow_the_offsets(tmp_path, folders, fill, small):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, small)
    stored = fill(log, [4] * 40)
    assert len(log.segments.bases) > 2
    folders.stop(directory)
    for base, following in zip(log.segments.bases, [*log.segments.bases[1:], 160], strict=True):
        content = b"".join(batch for offset, batch in stored if base <= offset < following)
        assert (tmp_path / "t-0" / f"{base:020d}.log").read_bytes() == content
        assert len(content) <= small.segment_bytes


@pytest.mark.parametrize("text", ["", "short", "AAECAwQFBgcICQoLDA0OD!", "AAECAwQFBgcICQoLDA0ODwAA"])
def test_uuid_text_is_checked(text):
    with pytest.raises(checkpoints.UnreadableCheckpoint):
        checkpoints.uuid_bytes(text)


def test_partitions_of_one_topic_are_made_quickly_and_without_a_sync(tmp_path):
    class CountingFiles(Files):
        syncs = 0

        def sync_path(self, path):
            self.syncs += 1
            super().sync_path(path)

    async def start_and_stop() -> int:
        files = CountingFiles()
        directory = DataFolder.open(tmp_path, LogSettings(flush_policy=FlushPolicy.GROUP), files=files)
        directory.start(asyncio.get_running_loop())
        before = files.syncs
        directory.create_many("__consumer_offsets", range(50), TOPIC_ID, LogConfig())
        syncs = files.syncs - before
        await directory.close()
        return syncs

    assert asyncio.run(start_and_stop()) == 0
    assert descriptors(tmp_path) == 0
    directory = DataFolder.open(tmp_path, LogSettings())
    assert len(directory.logs) == 50
    assert 0 < descriptors(tmp_path) <= 51
    directory.release()


def test_create_again_is_the_same_log_and_another_id_another(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    fill(log, [1])
    assert directory.create("t", 0, TOPIC_ID, LogConfig(segment_bytes=5)) is log
    assert log.config.segment_bytes == 5
    other = directory.create("t", 0, bytes(reversed(TOPIC_ID)), LogConfig())
    assert (other.log_end_offset, log.deleted) == (0, True)


def test_folder_without_identity_takes_the_one_it_is_given(tmp_path, folders, fill):
    directory = folders.open(tmp_path)
    fill(directory.create("t", 0, TOPIC_ID, LogConfig()), [2])
    folders.crash(directory)
    (tmp_path / "t-0" / "partition.metadata").write_bytes(b"")
    directory = folders.open(tmp_path)
    assert directory.logs["t", 0].topic_id == bytes(16)
    log = directory.create("t", 0, TOPIC_ID, LogConfig())
    assert (log.log_end_offset, log.topic_id) == (2, TOPIC_ID)
    assert (tmp_path / "t-0" / "partition.metadata").read_bytes().endswith(b"AAECAwQFBgcICQoLDA0ODw")
