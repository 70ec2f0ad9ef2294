"""The place of a batch in its query, and the marks that let a sink find an interrupted earlier try.

    place = BatchPlace(query_id="8f2c1d0a-…", batch_id=7, pipeline="orders", app_id="etl/orders/8f2c1d0a-…")
    begun_before = batches.begun(place, f)  # None: nobody has written anything of this batch yet
    …                                       # every sink writes
    batches.finished(place)                 # from now on, `is_finished` is true: a replay has nothing to do

Spark gives a batch the same number, offsets and rows at each try, until it has committed the batch's offsets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from spark_etl.checkpoint.notes import Notes
from spark_etl.errors import OutputError

FILE, TABLES = "file", "tables"  # what judges the records of a batch: the pipeline file, and joined tables


@dataclass(frozen=True, slots=True)
class BatchPlace:
    """The identity of one batch; equal at each try of it, different from each other batch of any pipeline."""

    query_id: str  # Spark's, kept in the checkpoint
    batch_id: int  # 0, 1, 2, …
    pipeline: str
    app_id: str  # Delta's txnAppId; its txnVersion is batch_id
    #: The offsets, cluster and topic ids that outputs keep for `recover`. None: they keep the number only.
    commit: Mapping[str, Any] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, pipeline: str, query_id: str, batch_id: int) -> "BatchPlace":
        return cls(query_id, batch_id, pipeline, f"etl/{pipeline}/{query_id}")

    @property
    def name(self) -> str:
        return f"{self.query_id}-{self.batch_id}"


class Batches:
    """Marks of the batches of one checkpoint: which have begun, and up to which one all have finished."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def begun(self, place: BatchPlace, file: str = "") -> datetime | None:
        """Mark a batch as begun; return the time at which an earlier try began it, None for the first one.

        `file` is the digest of the pipeline file's sections that judge the batch's records in this try.
        """
        document = self._notes.read(_note(place))
        if document is None:
            # wall clock: the begin of a batch, compared with timestamps of records
            self._notes.write(_note(place), {"at": datetime.now(UTC).isoformat(), "file": file})
            return None
        if file not in ("", document.get("file")):
            self._notes.write(_note(place), {**document, "file": file})
        return _time_of(place, document)

    def changed_since(self, place: BatchPlace, basis: str) -> str:
        """Return what is another one in `basis` (judgement.py) than in the last try of a batch: FILE, TABLES or ""."""
        return changed(str((self._notes.read(_note(place)) or {}).get("file", "")), basis)

    def begun_at(self, place: BatchPlace) -> datetime:
        """Return when the first try of a batch that has begun began it."""
        return _time_of(place, self._notes.read(_note(place)) or {})

    def has_begun(self, place: BatchPlace) -> bool:
        """Return whether a batch may have written to an output, and has not finished."""
        return self._notes.read(_note(place)) is not None

    def restore(self, place: BatchPlace, begun: datetime, basis: str) -> None:
        """Mark a batch as begun at a time, for a recovered checkpoint; `basis` is empty if it is not known."""
        self._notes.write(_note(place), {"at": begun.isoformat(), "file": basis})

    def finished(
        self, place: BatchPlace, outputs: Iterable[str] = (), rows: Mapping[str, Mapping[str, int]] | None = None
    ) -> None:
        """Keep that every sink holds the batch, and remove its mark. Spark runs the batches of a query in order.

        `outputs` are the names of those that must have it at the next start. `rows` are the batch's records by outcome
        for each sink. The mark keeps the sums of all batches.
        """
        before = self._notes.read(_finished(place)) or {}
        sums = self.rows(place.query_id)
        if int(before.get("batch", -1)) < place.batch_id:
            for sink, numbers in (rows or {}).items():
                own = sums.setdefault(sink, {})
                for outcome, number in numbers.items():
                    own[outcome] = own.get(outcome, 0) + number
        document = {"batch": place.batch_id, "outputs": sorted(outputs), "rows": sums}
        self._notes.write(_finished(place), document)  # mutant: batch-noted
        self._notes.remove(_note(place))

    def last_finished(self, query_id: str) -> tuple[int, list[str]]:
        """Return the last batch of a query that every sink held, -1 without one, and the names of these."""
        document = self._notes.read(f"finished/{query_id}") or {}
        return int(document.get("batch", -1)), list(document.get("outputs", []))

    def rows(self, query_id: str) -> dict[str, dict[str, int]]:
        """Return the records of all finished batches of a query, for each sink by outcome."""
        document = self._notes.read(f"finished/{query_id}") or {}
        return {str(sink): dict(numbers) for sink, numbers in document.get("rows", {}).items()}

    def is_finished(self, place: BatchPlace) -> bool:
        document = self._notes.read(_finished(place))
        return document is not None and int(document.get("batch", -1)) >= place.batch_id


def changed(before: str, now: str) -> str:
    """Return what is another one in two bases of a batch: FILE, TABLES or "". One that is empty is not known."""
    (file, _, tables), (file_now, _, tables_now) = before.partition("/"), now.partition("/")
    if file not in ("", file_now):
        return FILE
    return TABLES if tables not in ("", tables_now) else ""  # mutant: batch-keeps-its-tables


def of_tables(basis: str) -> str:
    """Return a basis without its file, which `recover` may follow a change of."""
    return basis[basis.find("/") :] if "/" in basis else ""


def judged_otherwise(batch: int, where: str, what: str, joined: Iterable[str]) -> OutputError:
    """Return the failure of a batch of which an output has rows by an earlier FILE, or by earlier TABLES."""
    if what == TABLES:
        return OutputError(
            f"batch {batch} is in {where} as joined with earlier files, and others may lack it: {', '.join(joined)}"
            " changed since. Put the earlier files back, with their times, until a run has finished the batch"
        )
    return OutputError(
        f"batch {batch} is in {where} as an earlier pipeline file judged it, and others may lack it:"
        " run with that file once before you change decode, join, derive, rules, dedupe or transform"
    )


def _finished(place: BatchPlace) -> str:
    return f"finished/{place.query_id}"


def _note(place: BatchPlace) -> str:
    return f"begun/{place.name}"


def _time_of(place: BatchPlace, document: Mapping[str, Any]) -> datetime:
    try:
        return datetime.fromisoformat(str(document["at"]))
    except (KeyError, ValueError) as error:
        raise OutputError(f"the mark of batch {place.name} has no valid time: {document}") from error
