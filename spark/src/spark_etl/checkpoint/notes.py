"""Small JSON documents of a pipeline, kept in the folder `_etl` of its checkpoint.

    CHECKPOINT/_etl/identity.json                       the cluster and topic ids that the offsets belong to
    CHECKPOINT/_etl/begun/<query id>-<batch id>.json    a batch that may have written to its sinks
    CHECKPOINT/_etl/finished/<query id>.json            the last batch that every sink holds

A document is written completely or not at all. They go when a user removes the checkpoint. A local checkpoint is
written by this process and synced, any other one (`hdfs://`) by Spark, as it writes its own part.
"""

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark_etl.errors import OutputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "_etl"
DOCUMENT_BYTES_MAX = 64 << 20  # marks of two million scattered letters
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/")


class Notes(Protocol):
    """Documents by name; a name may have one folder, as in `begun/x`."""

    def read(self, name: str) -> dict[str, Any] | None: ...

    def write(self, name: str, document: dict[str, Any]) -> None: ...

    def remove(self, name: str) -> None: ...


def at(checkpoint: str, session: "SparkSession | None") -> Notes:
    """Return the documents of a checkpoint: a local path, `file:`, or any other URL of Hadoop's, by the JVM."""
    path = local_path(checkpoint)
    if path is not None:
        return LocalNotes(path / FOLDER)
    assert session is not None, checkpoint
    return HadoopNotes(session, f"{checkpoint}/{FOLDER}")


def local_path(location: str) -> Path | None:
    """Return the absolute local path that a location names; None if it is on another file system."""
    scheme = _SCHEME.match(location)
    if scheme is None:
        return Path(location).absolute()
    return Path(re.sub("^file:/+", "/", location)) if scheme[1] == "file" else None


def absolute(location: str) -> str:
    """Return a location that does not depend on the working directory of the JVM."""
    path = local_path(location)
    return location.rstrip("/") if path is None else str(path)


class LocalNotes:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        try:
            with path.open("rb") as file:
                return _decoded(str(path), file.read(DOCUMENT_BYTES_MAX + 1))
        except FileNotFoundError:
            return None

    def write(self, name: str, document: dict[str, Any]) -> None:
        path = self._path(name)
        content = _encoded(str(path), document)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial")
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        for folder in (path.parent, self._folder, self._folder.parent):
            _sync(folder)

    def remove(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"


class HadoopNotes:
    """Documents on a file system of Hadoop's, by the JVM of the session."""

    def __init__(self, session: "SparkSession", folder: str) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._folder = folder
        path = jvm.org.apache.hadoop.fs.Path(folder)
        self._configuration = session._jsc.hadoopConfiguration()
        self._files = path.getFileSystem(self._configuration)

    def read(self, name: str) -> dict[str, Any] | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        length = int(self._files.getFileStatus(path).getLen())
        stream = self._files.open(path)
        try:
            content = bytes(stream.readNBytes(min(length, DOCUMENT_BYTES_MAX + 1)))
        finally:
            stream.close()
        return _decoded(str(path), content)

    def write(self, name: str, document: dict[str, Any]) -> None:
        path, content = self._path(name), _encoded(str(self._path(name)), document)
        streaming: Any = self._jvm.org.apache.spark.sql.execution.streaming
        files = getattr(getattr(streaming, "CheckpointFileManager$"), "MODULE$").create(path, self._configuration)
        files.mkdirs(path.getParent())
        stream = files.createAtomic(path, True)
        try:
            stream.write(bytearray(content))
        except BaseException:
            stream.cancel()
            raise
        stream.close()

    def remove(self, name: str) -> None:
        self._files.delete(self._path(name), False)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{name}.json")


def _encoded(path: str, document: dict[str, Any]) -> bytes:
    return _limited(path, json.dumps(document, sort_keys=True).encode())


def _limited(path: str, content: bytes) -> bytes:
    if len(content) > DOCUMENT_BYTES_MAX:
        raise OutputError(f"{path}: larger than {DOCUMENT_BYTES_MAX} bytes")
    return content


def _decoded(path: str, content: bytes) -> dict[str, Any]:
    _limited(path, content)
    try:
        document = json.loads(content)
    except ValueError as error:
        raise OutputError(f"{path}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise OutputError(f"{path}: not an object")
    return document


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
