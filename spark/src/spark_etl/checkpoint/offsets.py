"""Spark's checkpoint of a streaming query, read by others than Spark: which offsets a batch has.

    CHECKPOINT/offsets/7     three lines: v1, a JSON object of Spark's, the end offsets {"orders": {"0": 1700}}
    CHECKPOINT/commits/7     there once Spark has committed batch 7
    CHECKPOINT/sources/0/0   the offsets that batch 0 began at
    CHECKPOINT/_etl          our documents (run/notes.py)

Spark writes a batch's end offsets before it starts the batch. All file systems of Hadoop work (checkpoint_files.py).
"""

import json
from typing import TYPE_CHECKING, Any

from spark_etl.checkpoint import checkpoint_files, notes
from spark_etl.errors import OutputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Offsets = dict[str, dict[int, int]]  # topic → partition → the next offset
REPLACEMENT = ".next"


class Checkpoint:
    def __init__(self, location: str, session: "SparkSession | None" = None) -> None:
        """Look at a checkpoint. One on a local disk needs no session."""
        self.location = notes.absolute(location)
        self.notes = notes.at(self.location, session)
        self._session = session
        self._files = checkpoint_files.at(self.location, session)

    def end_offsets(self, batch_id: int) -> Offsets | None:
        """Return the offsets after the last records of a batch; None if Spark has not planned the batch."""
        return self._offsets(f"offsets/{batch_id}", 2)

    def start_offsets(self, batch_id: int) -> Offsets | None:
        """Return the offsets that a batch began at; partitions that are new in it are missing."""
        return self._offsets("sources/0/0", 1) if batch_id == 0 else self.end_offsets(batch_id - 1)

    def late_before(self, batch_id: int) -> int:
        """Return the watermark in milliseconds up to which records of a batch are late: that of the batch before it."""
        name = f"offsets/{batch_id - 1}"
        lines = self._lines(name, 1) if batch_id else None
        return 0 if lines is None else int(_object(lines[1], name).get("batchWatermarkMs", 0))

    def planned_ms(self, batch_id: int) -> int:
        """Return the time of a planned batch in milliseconds since 1970: each try of it has this time."""
        name = f"offsets/{batch_id}"
        lines = self._lines(name, 1)
        if lines is None:
            raise OutputError(f"{self.location}: no offsets of batch {batch_id}")
        return int(_object(lines[1], name).get("batchTimestampMs", 0))

    def last_planned(self) -> int | None:
        return self._last("offsets")

    def last_committed(self) -> int | None:
        return self._last("commits")

    def is_unfinished(self) -> bool:
        """Return whether Spark repeats a batch before it plans the next one."""
        return self.last_planned() != self.last_committed()

    def query_id(self) -> str | None:
        """Return Spark's id of the query; None if the checkpoint is new."""
        text = self._text("metadata")
        return None if text is None else str(_object(text, "metadata")["id"])

    def beside(self, location: str) -> "Checkpoint":
        """Return the checkpoint at another location."""
        return Checkpoint(location, self._session)

    def replacement(self) -> "Checkpoint":
        """Return the checkpoint that `replace` puts in the place of this one."""
        return self.beside(self.location + REPLACEMENT)

    def replace(self, name: str) -> None:
        """Keep this checkpoint as LOCATION.NAME, and put the replacement in its place.

        A driver that dies in between leaves no checkpoint: `complete_replacement` ends the work.
        """
        self._files.rename(self.location, f"{self.location}.{name}")
        self._files.rename(self.location + REPLACEMENT, self.location)

    def complete_replacement(self) -> None:
        """Finish a replacement that an earlier driver left half done."""
        if not self._files.exists(self.location) and self._files.exists(self.location + REPLACEMENT):
            self._files.rename(self.location + REPLACEMENT, self.location)

    def _last(self, folder: str) -> int | None:
        names = self._files.names(f"{self.location}/{folder}")
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _offsets(self, name: str, line: int) -> Offsets | None:
        lines = self._lines(name, line)
        if lines is None:
            return None
        document = _object(lines[line], f"{self.location}/{name}")
        return {
            topic: {int(number): int(offset) for number, offset in partitions.items()}
            for topic, partitions in document.items()
        }

    def _lines(self, name: str, last: int) -> list[str] | None:
        """Return the lines of a file of offsets, at least up to number `last`; None if there is no such file."""
        text = self._text(name)
        if text is None:
            return None
        lines = text.lstrip("\0").splitlines()
        if len(lines) <= last or lines[0] != "v1":
            raise OutputError(f"{self.location}/{name}: not the offsets of a batch")
        return lines

    def _text(self, name: str) -> str | None:
        content = self._files.read(f"{self.location}/{name}")
        return None if content is None else content.decode(errors="replace")


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise OutputError(f"{name}: not JSON: {error}") from error
    if not isinstance(document, dict):
        raise OutputError(f"{name}: not an object")
    return document
