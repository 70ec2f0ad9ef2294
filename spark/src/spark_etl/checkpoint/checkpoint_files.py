"""The files of a checkpoint: on a local disk by Python itself, on any other file system of Hadoop's by a JVM."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from spark_etl.checkpoint import notes
from spark_etl.errors import OutputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class CheckpointFiles(Protocol):
    """Files and folders by location."""

    def exists(self, location: str) -> bool: ...

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        ...

    def read(self, location: str) -> bytes | None:
        """Return a file's content up to DOCUMENT_BYTES_MAX; None if it does not exist."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a folder. OutputError: it could not be renamed."""
        ...


def at(location: str, session: "SparkSession | None") -> CheckpointFiles:
    """Return the files of a checkpoint. A local one needs no session."""
    if notes.local_path(location) is not None:
        return _LocalFiles()
    assert session is not None, location
    return _HadoopFiles(session, location)


class _LocalFiles:
    def exists(self, location: str) -> bool:
        return Path(location).exists()

    def names(self, folder: str) -> list[str]:
        try:
            return [path.name for path in Path(folder).iterdir()]
        except FileNotFoundError:
            return []

    def read(self, location: str) -> bytes | None:
        try:
            with Path(location).open("rb") as file:
                return file.read(notes.DOCUMENT_BYTES_MAX)
        except FileNotFoundError:
            return None

    def rename(self, source: str, target: str) -> None:
        try:
            Path(source).rename(target)
        except OSError as error:
            raise _not_renamed(source, target, error.strerror) from error


class _HadoopFiles:
    def __init__(self, session: "SparkSession", location: str) -> None:
        jvm: Any = session._jvm
        self._path = jvm.org.apache.hadoop.fs.Path
        self._files = self._path(location).getFileSystem(session._jsc.hadoopConfiguration())

    def exists(self, location: str) -> bool:
        return bool(self._files.exists(self._path(location)))

    def names(self, folder: str) -> list[str]:
        if not self.exists(folder):
            return []
        return [str(status.getPath().getName()) for status in self._files.listStatus(self._path(folder))]

    def read(self, location: str) -> bytes | None:
        if not self.exists(location):
            return None
        stream = self._files.open(self._path(location))
        try:
            return bytes(stream.readNBytes(notes.DOCUMENT_BYTES_MAX))
        finally:
            stream.close()

    def rename(self, source: str, target: str) -> None:
        if not self._files.rename(self._path(source), self._path(target)):
            raise _not_renamed(source, target)


def _not_renamed(source: str, target: str, why: str | None = None) -> OutputError:
    return OutputError(f"{source} could not be renamed to {target}{f': {why}' if why else ''}")
