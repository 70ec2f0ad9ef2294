"""The files of quarantines, as people see them: damaged bytes that were removed from logs and kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from storage_svc.log.recovery.quarantine import FOLDER


class KeptFile(NamedTuple):
    """A file of damaged bytes."""

    path: str
    size: int
    modified_ms: int


def kept_files(folder: str) -> Iterator[KeptFile]:
    """Yield the files of the quarantine in a partition's folder by name; none if it cannot be read."""
    try:
        with os.scandir(f"{folder}/{FOLDER}") as found:
            entries = sorted((each for each in found if not each.name.endswith(".tmp")), key=lambda each: each.name)
    except OSError:  # mostly, there is none
        return
    for each in entries:
        try:
            status = each.stat()
        except OSError:  # deleted since, with its topic
            continue
        # wall clock: when the damage was cut out, for people
        yield KeptFile(each.path, status.st_size, status.st_mtime_ns // 1_000_000)
