"""Whether the system runs on since the last process used a data folder.

A process that is killed leaves everything that it wrote with the system. Only a power cut, or another end of the
system, loses writes that were not synced and may keep later ones. A start in the same run therefore finds no sectors
that were never written: zeros there are damage, and the batches after it stay (segment_recovery.py).

    .system-run         the id of the run (Linux: boot_id), the device and the inode of this file

A copy or a restored snapshot of the folder has another inode or device, so it does not count as the folder itself.
The file is not synced, as it means nothing in another run. It is there only while every log is recovered and no write
has failed: after a failed write the system has lost something in the middle of a run.
"""

from __future__ import annotations

from typing import Final

from service_chassis import logs

from storage_svc.log.disk.files import Files
from storage_svc.log.errors import StorageFailure

NAME: Final = ".system-run"

_log = logs.get(__name__)


def is_same_run(files: Files, root: str) -> bool:
    """Return whether the last process that used the folder ran under the system that runs now."""
    path = f"{root}/{NAME}"
    try:
        noted = files.read_file(path)
        return bool(noted) and noted == _present(files, path)  # mutant: same-system-run
    except StorageFailure as error:  # as after a power cut
        _log.warning("run of the system unknown", reason=str(error))
        return False


def note(files: Files, root: str) -> None:
    """Note the run: every log of the folder is as this process and those before it in the run have written it."""
    path = f"{root}/{NAME}"
    try:
        if not files.exists(path):
            files.write_file(path, b"")
        files.write_file(path, _present(files, path))
    except StorageFailure as error:
        _log.warning("run of the system not noted", reason=str(error))
        forget(files, root)


def forget(files: Files, root: str) -> None:
    """Let the next start expect the traces of a power cut."""
    try:
        files.unlink(f"{root}/{NAME}")
    except StorageFailure as error:
        _log.warning("run of the system still noted", reason=str(error))


def _present(files: Files, path: str) -> bytes:
    """Return the content of the file in this run; empty if the system does not name its runs."""
    run = files.system_run()
    if run is None:
        return b""
    descriptor = files.open(path, create=False)
    try:
        status = files.status(descriptor)
    finally:
        files.close(descriptor)
    return f"{run} {status.st_dev} {status.st_ino}\n".encode()
