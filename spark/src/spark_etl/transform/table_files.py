"""The files of a joined table, as they were before its plan was made.

Spark lists them once for a plan, and reads no more of each than its length of then. Of a file that replaced another one
since, a batch would get a part. So they are listed again after each read. A batch of other files is not committed, and
the query is planned again.

A batch that is tried again must find the same rows. A record that one try refuses, and another one finds good, could be
in no output. So the mark of a batch has a digest of its tables (`state`).
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_etl.checkpoint import notes
from spark_etl.config import Join
from spark_etl.errors import TableError
from spark_etl.reasons import reason

Listing = Mapping[str, tuple[int, int]]  # length in bytes and time of the last change in milliseconds, by path


@dataclass(frozen=True)
class TableFiles:
    """The files of one table; none of Delta Lake, whose files never change: each batch reads the newest version."""

    session: SparkSession
    join: Join
    planned: Listing
    copied: bool = False  # whether the plan has a copy of the rows, and reads no file again

    @classmethod
    def listed(cls, session: SparkSession, join: Join) -> "TableFiles":
        """List the files. Raises TableError if the file system fails."""
        return cls(session, join, _listing(session, join))

    def check(self) -> None:
        """Raise TableError if the files are not those of the plan."""
        if self.copied:
            return
        if _listing(self.session, self.join) != self.planned:  # mutant: exchanged-table-seen
            raise TableError(f"join {self.join.name}: {self.join.path} was exchanged since the query began")

    def state(self) -> str:
        """Return a digest of the files: of the plan's, or of those that Delta Lake's newest version has."""
        found: object = self.planned
        if self.join.format == "delta":
            found = sorted(self.session.read.format("delta").load(notes.absolute(self.join.path)).inputFiles())
        return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def _listing(session: SparkSession, join: Join) -> Listing:
    if join.format == "delta":
        return {}
    jvm: Any = session._jvm
    path = jvm.org.apache.hadoop.fs.Path(notes.absolute(join.path))
    try:
        files = path.getFileSystem(session._jsc.hadoopConfiguration())
        found = [each for top in files.globStatus(path) or () for each in _below(files, top)]
    except Py4JJavaError as error:
        raise TableError(f"join {join.name}: {reason(error)}") from error
    return {str(each.getPath()): (int(each.getLen()), int(each.getModificationTime())) for each in found}


def _below(files: Any, top: Any) -> Iterator[Any]:
    if top.isFile():
        yield top
        return
    rest = files.listFiles(top.getPath(), True)
    while rest.hasNext():
        yield rest.next()
