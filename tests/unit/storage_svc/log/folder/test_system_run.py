"""A start knows whether only the process ended, or the system lost unsynced writes."""

from __future__ import annotations

import shutil

import pytest
from storage_svc.log.config import FlushPolicy, LogConfig
from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder import system_run


class Systems(Files):
    """Real files under a system whose runs the test chooses; syncs may fail."""

    def __init__(self, run: str | None = "first") -> None:
        super().__init__()
        self.run = run
        self.fails = False

    def system_run(self):
        return self.run

    def sync(self, descriptor):
        if self.fails:
            raise StorageFailure("the disk is gone")
        super().sync(descriptor)


@pytest.mark.parametrize(
    ("noted", "later", "same"),
    [("first", "first", True), ("first", "second", False), ("first", None, False), (None, None, False)],
)
def test_another_run_of_the_system_is_noticed(tmp_path, noted, later, same):
    assert not system_run.is_same_run(Systems(later), str(tmp_path))
    system_run.note(Systems(noted), str(tmp_path))
    assert system_run.is_same_run(Systems(later), str(tmp_path)) is same


def test_a_copy_is_not_the_folder(tmp_path):
    """It may have been made while the folder was in use: it has some writes and not others."""
    (tmp_path / "folder").mkdir()
    system_run.note(Systems(), str(tmp_path / "folder"))
    shutil.copytree(tmp_path / "folder", tmp_path / "copy")
    assert not system_run.is_same_run(Systems(), str(tmp_path / "copy"))
    assert system_run.is_same_run(Systems(), str(tmp_path / "folder"))


def test_linux_names_its_runs():
    run = Files().system_run()
    assert run is not None
    assert run == Files().system_run()
    assert len(run) == 36


def test_the_run_is_noted_once_every_log_is_recovered(tmp_path, folders, make_batch):
    directory = folders.open(tmp_path, files=Systems())
    directory.create("t", 0, bytes(16), LogConfig()).append(make_batch(1))
    folders.crash(directory)
    assert system_run.is_same_run(Systems(), str(tmp_path))
    folders.crash(folders.open(tmp_path, files=Systems("second")))
    assert system_run.is_same_run(Systems("second"), str(tmp_path))
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.unlink()
    log.mkdir()  # it cannot be read
    directory = folders.open(tmp_path, files=Systems("third"))
    assert directory.logs["t", 0].offline is not None
    folders.crash(directory)
    assert not system_run.is_same_run(Systems("third"), str(tmp_path))


def test_a_failed_sync_ends_the_trust_in_the_system(tmp_path, folders, make_batch):
    """The system drops such pages, and reports it once."""
    files = Systems()
    directory = folders.open(tmp_path, FlushPolicy.GROUP, files=files)
    log = directory.create("t", 0, bytes(16), LogConfig())
    assert system_run.is_same_run(files, str(tmp_path))
    log.append(make_batch(1))
    files.fails = True
    directory.flusher.sync_now()
    assert log.offline is not None
    assert not system_run.is_same_run(files, str(tmp_path))
