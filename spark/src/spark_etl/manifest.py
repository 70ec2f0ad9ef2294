"""The manifest: the list of Parquet files of an output folder that count, and of their queries.

    ROOT/flight_month=2013-01/8f2c1d0a-00000003-0000.parquet     <query>-<batch>-<file>
    ROOT/_staging/…                              being written; hidden from readers that list the folder
    ROOT/_etl/manifest/00000000000000000004.json one batch, in order: {"query", "batch", "rows", "files": […]}
    ROOT/_etl/started/<query>-<batch>.json       a batch that may have written: {"at": "2026-01-31T12:00:00+00:00"}
    ROOT/_etl/published/<topic>.json             a summary topic: {"version": 5} = it shows the first 5 batches
    ROOT/_etl/lock                               held (flock) by the one driver that may write here

A batch counts from the moment its manifest entry has its name, not before: files first, entry last, each synced.
The version of the output is the number of its entries. (query, batch) is Spark's streaming query id and batch id.
A batch that Spark replays after a crash finds its entry, or its files without an entry, and never counts twice.

A reader that follows the manifest sees whole batches only. A reader that lists the folder sees the same files. Between
a crash and the next run it may also see files of a batch that does not count yet.
"""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from spark_etl.errors import OutputError


class DataFile(BaseModel):
    model_config = ConfigDict(frozen=True)

    path: str  # relative to the root
    bytes: int


class Entry(BaseModel):
    model_config = ConfigDict(frozen=True)

    query: str
    batch: int
    rows: int
    files: tuple[DataFile, ...]


class Manifest:
    """Owner of one output folder; use it only inside `opened()`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.entries: list[Entry] = []
        self._folder = root / "_etl"

    @classmethod
    @contextmanager
    def opened(cls, root: Path) -> Iterator["Manifest"]:
        manifest = cls(root)
        for name in ("manifest", "started", "published"):
            (manifest._folder / name).mkdir(parents=True, exist_ok=True)
        with (manifest._folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OutputError(f"{root}: another driver writes here") from None
            manifest._read()
            yield manifest

    @property
    def version(self) -> int:
        return len(self.entries)

    @property
    def rows(self) -> int:
        return sum(entry.rows for entry in self.entries)

    def files(self) -> list[str]:
        return [str(self.root / file.path) for entry in self.entries for file in entry.files]

    def holds(self, query: str, batch: int) -> bool:
        return any(entry.batch == batch and entry.query == query for entry in self.entries)

    def check_belongs(self, query: str) -> None:
        """Refuse a checkpoint that does not belong to these files: its batches would count twice."""
        other = next((entry.query for entry in self.entries if entry.query != query), None)
        if other is not None:
            raise OutputError(
                f"{self.root} was written with another checkpoint (query {other}, now {query}); "
                "use that one again, or an empty output folder"
            )

    def check_follows(self, query: str, batch: int) -> None:
        """Refuse a batch whose predecessor is missing: the output was emptied, and its records would be lost."""
        last = max((entry.batch for entry in self.entries if entry.query == query), default=-1)
        if batch > last + 1:
            raise OutputError(
                f"{self.root}: the checkpoint is at batch {batch}, but batch {batch - 1} is not in this output; "
                "remove the checkpoint to read everything again"
            )

    def started(self, query: str, batch: int) -> datetime | None:
        """Mark a batch as begun; return the time at which an earlier run began it, if one did."""
        path = self._started_path(query, batch)
        if path.exists():
            return datetime.fromisoformat(str(_load(path)["at"]))
        _write(path, {"at": datetime.now(UTC).isoformat()})
        return None

    def finished(self, query: str, batch: int) -> None:
        self._started_path(query, batch).unlink(missing_ok=True)

    def staging(self, query: str, batch: int) -> Path:
        """Return an empty folder for a batch's files. Removes the files of an interrupted try at the same batch."""
        path = self.root / "_staging" / f"{query}-{batch}"
        shutil.rmtree(path, ignore_errors=True)
        if not self.holds(query, batch):
            for leftover in self.root.rglob(f"{_prefix(query, batch)}-*.parquet"):
                leftover.unlink()
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def commit(self, query: str, batch: int, rows: int, staging: Path) -> Entry:
        files = []
        for number, source in enumerate(sorted(staging.rglob("part-*.parquet"))):
            relative = source.relative_to(staging).parent / f"{_prefix(query, batch)}-{number:04d}.parquet"
            target = self.root / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            _sync(source)
            source.rename(target)
            _sync(target.parent)
            files.append(DataFile(path=str(relative), bytes=target.stat().st_size))
        _sync(self.root)
        entry = Entry(query=query, batch=batch, rows=rows, files=tuple(files))
        self._append(entry)
        shutil.rmtree(staging, ignore_errors=True)
        return entry

    def published(self, topic: str) -> int:
        path = self._folder / "published" / f"{topic}.json"
        return int(_load(path)["version"]) if path.exists() else 0

    def set_published(self, topic: str, version: int) -> None:
        _write(self._folder / "published" / f"{topic}.json", {"version": version})

    def _append(self, entry: Entry) -> None:
        path = self._folder / "manifest" / f"{self.version:020d}.json"
        if path.exists():
            raise OutputError(f"{path} exists: another driver wrote it")
        _write(path, entry.model_dump(mode="json"))
        self.entries.append(entry)

    def _read(self) -> None:
        paths = sorted((self._folder / "manifest").glob("*.json"))
        if [path.stem for path in paths] != [f"{number:020d}" for number in range(len(paths))]:
            raise OutputError(f"{self._folder / 'manifest'}: entries are missing or misnamed")
        self.entries = [Entry.model_validate(_load(path)) for path in paths]

    def _started_path(self, query: str, batch: int) -> Path:
        return self._folder / "started" / f"{query}-{batch}.json"


def _prefix(query: str, batch: int) -> str:
    return f"{query[:8]}-{batch:08d}"


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise OutputError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise OutputError(f"{path}: not an object")
    return document


def _write(path: Path, document: dict[str, Any]) -> None:
    """Write a document completely or not at all, so that it survives a power cut."""
    partial = path.with_suffix(".partial")
    with partial.open("w") as file:
        json.dump(document, file)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
