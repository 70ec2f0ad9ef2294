"""Relative places of a pipeline file: they count from the folder of the file, as its schemas do.

Earlier builds counted them from the working folder. A place that is only there is refused: a checkpoint at another one
would begin again, and write all rows again.

What a pipeline writes is on a local disk or on HDFS, where lake/locks.py can refuse a second run.
Delta's store for S3 (S3SingleDriverLogStore) looks for a log entry and then puts its own: of two drivers, both succeed.
"""

import os.path
import re
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from spark_etl.config.document import PipelineConfig
from spark_etl.config.sinks import DeltaSinkConfig, SinkConfig
from spark_etl.errors import ConfigError

Place = tuple[str | int, ...]
Fault = Callable[[Place, str], ConfigError]
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*):/")
_LOCKED = ("file", "hdfs")
_REFUSED = (
    "places on {}:// are refused, as nothing there keeps two runs from writing at once, which would lose or repeat"
    " rows. Use a local disk or HDFS"
)


def resolved(config: PipelineConfig, file: Path, fault: Fault) -> PipelineConfig:
    """Return the section with absolute places.

    ConfigError: a checkpoint or table is on a store without locks, or a place is only where an earlier build looked.
    """

    def at(location: str, *place: str | int) -> str:
        scheme = _SCHEME.match(location)
        if scheme and scheme[1].lower() not in _LOCKED and place[0] != "join":  # mutant: stores-without-locks
            raise fault(place, _REFUSED.format(scheme[1]))
        if scheme or Path(location).is_absolute():
            return location
        found = Path(os.path.normpath(file.parent.absolute() / location))
        earlier = Path(location).absolute()
        if not found.exists() and earlier.exists():  # mutant: earlier-place-refused
            raise fault(
                place,
                f"relative places count from this file, and there is nothing at {found}. An earlier build counted from"
                f" the working folder: move {earlier} to that place, or write it as an absolute path",
            )
        return str(found)

    checkpoint = at(config.checkpoint, "checkpoint")
    joins = [
        join.model_copy(update={"path": at(join.path, "join", number, "path")})
        for number, join in enumerate(config.join)
    ]
    sinks = [
        sink.model_copy(update={"path": at(sink.path, "sinks", number, "path")})
        if isinstance(sink, DeltaSinkConfig)
        else sink
        for number, sink in enumerate(config.sinks)
    ]
    _check_apart(checkpoint, sinks, fault)
    return config.model_copy(update={"checkpoint": checkpoint, "join": joins, "sinks": sinks})


def _check_apart(checkpoint: str, sinks: Sequence[SinkConfig], fault: Fault) -> None:
    """Refuse a table or the checkpoint in the folder of another table, whose compaction would remove its files."""
    folders: list[PurePosixPath] = []
    for number, sink in enumerate(sinks):
        if isinstance(sink, DeltaSinkConfig):
            folder = _folder(sink.path)
            if _folder(checkpoint).is_relative_to(folder):  # mutant: checkpoint-apart
                raise fault(("checkpoint",), f"it is in the folder of a table, {folder}, which removes other files")
            for other in folders:
                if folder.is_relative_to(other) or other.is_relative_to(folder):
                    raise fault(("sinks", number, "path"), f"two sinks write to the same folder, {other}")
            folders.append(folder)


def _folder(place: str) -> PurePosixPath:
    return PurePosixPath(re.sub("^file:/+", "/", place))
