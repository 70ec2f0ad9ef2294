"""Durability on a local disk, which Delta Lake leaves to the system: it syncs nothing.

Order of a commit: the data files and their folders, then the log entry and its folder. A power cut can then cut only a
commit that was not reported. It may leave that commit's entry, or the checkpoint after it, cut: `repair` removes both.
Hadoop keeps a checksum (`.NAME.crc`) next to each file and refuses a file that does not match it, so both are synced.
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from spark_etl.errors import OutputError

LOG = "_delta_log"
_PARQUET_END = b"PAR1"


def sync_files(root: Path, names: Iterable[str]) -> None:
    """Sync data files by their names below `root`, and every folder on the way."""
    folders: set[Path] = {root}
    for name in names:  # mutant: folders-after-files
        path = root / name
        _sync_with_checksum(path)
        folders.update(parent for parent in path.parents if parent.is_relative_to(root))
    for folder in sorted(folders, key=lambda folder: len(folder.parts), reverse=True):
        _sync(folder)


def new_files(root: Path, since: float) -> list[str]:
    """Return the Parquet files below `root` that were changed at or after `since` (seconds, file system's clock)."""
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith("_")]
        for name in names:
            path = Path(folder, name)
            # wall clock: times of files, compared with each other
            if name.endswith(".parquet") and path.stat().st_mtime >= since:
                found.append(str(path.relative_to(root)))
    return found


def clock(root: Path) -> float:
    """Return the file system's present time in seconds, as it would mark a file changed now."""
    probe = root / "_etl" / "clock"
    probe.touch()
    return probe.stat().st_mtime  # wall clock: times of files, compared with each other


def sync_log(root: Path, first: int, last: int) -> None:
    """Sync the log entries of versions, the checkpoints at them, and the log's folder."""
    log = root / LOG
    for version in range(first, last + 1):
        for suffix in ("json", "crc"):
            _sync_with_checksum(log / f"{version:020d}.{suffix}")  # mutant: table-log-synced
    hint = _hint(log)
    if first <= hint <= last:
        for path in log.glob(f"{hint:020d}.checkpoint*"):
            _sync_with_checksum(path)
        _sync_with_checksum(log / "_last_checkpoint")
    _sync(log)
    _sync(root)


def discard(root: Path, names: Iterable[str]) -> None:
    """Remove data files that no commit names."""
    for name in names:
        path = root / name
        path.unlink(missing_ok=True)
        _checksum(path).unlink(missing_ok=True)


def repair(root: Path) -> list[str]:
    """Remove the ends of the log that a power cut has cut, and return the names of the removed files.

    Only the newest entry can be cut, and its commit was never reported. The checkpoint at it, Delta's summary of it
    (N.crc) and the checksums of these files are as new; a reader does without them. Call it with the lock held.
    OutputError: an older entry is empty.
    """
    log = root / LOG
    entries = sorted(path for path in log.glob("*.json") if path.stem.isdigit())
    if not entries:
        return []
    newest = entries[-1]
    summary, hint = newest.with_suffix(".crc"), log / "_last_checkpoint"
    checkpoints = sorted(log.glob("*.checkpoint*.parquet"))[-1:]
    for path in (newest, summary, hint, *checkpoints):
        _checksum(path).unlink(missing_ok=True)
    removed: list[str] = []
    _check_filled(root, entries[:-1], _hint(log))
    if not _whole_entry(newest):  # mutant: cut-entry-removed
        removed += _remove(newest, summary)
    elif not _whole_json(summary):
        removed += _remove(summary)
    for path in checkpoints:
        if not _whole_parquet(path):
            removed += _remove(path, hint)
    if not _whole_json(hint):
        removed += _remove(hint)
    if removed:
        _sync(log)
    return removed


def _check_filled(root: Path, entries: Iterable[Path], checkpoint: int) -> None:
    """Refuse an empty entry after the checkpoint: Delta would read it as one that added nothing."""
    for path in entries:
        if int(path.stem) > checkpoint and path.stat().st_size == 0:
            raise OutputError(f"{root}: the log entry {path.name} is empty, and its rows are lost; restore the file")


def _remove(*paths: Path) -> list[str]:
    removed = []
    for path in paths:
        if path.exists():
            path.unlink()
            removed.append(path.name)
    return removed


def _whole_entry(path: Path) -> bool:
    """Return whether an entry of the log has all its lines. Spark ends the last one; the package deltalake does not."""
    content = path.read_bytes()
    try:
        lines = [json.loads(line) for line in content.splitlines()]
    except ValueError:
        return False
    if not lines or not all(isinstance(line, dict) for line in lines):
        return False
    return content.endswith(b"\n") or not any(map(_by_spark, lines))  # mutant: foreign-commit-kept


def _by_spark(line: Mapping[str, Any]) -> bool:
    info = line.get("commitInfo")
    return isinstance(info, dict) and str(info.get("engineInfo")).startswith("Apache-Spark")


def _whole_json(path: Path) -> bool:
    """Return whether a file is one JSON document or absent."""
    try:
        json.loads(path.read_bytes())
    except FileNotFoundError:
        return True
    except ValueError:
        return False
    return True


def _whole_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if size < 12:
            return False
        file.seek(-4, os.SEEK_END)
        return file.read() == _PARQUET_END


def _hint(log: Path) -> int:
    """Return the version of the newest checkpoint; -1 if there is none."""
    try:
        return int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
    except (FileNotFoundError, ValueError, KeyError):
        return -1


def _checksum(path: Path) -> Path:
    return path.with_name(f".{path.name}.crc")


def _sync_with_checksum(path: Path) -> None:
    for file in (path, _checksum(path)):
        try:
            _sync(file)
        except FileNotFoundError:
            if file == path and path.suffix != ".crc":
                raise


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
