"""The outcomes of one batch, each input record under exactly one of them.

    rows = good + refused + dropped + late + duplicates

`rows` are the records that the source gave. Spark's own steps take some of them away before the rows are judged. Their
numbers are those of Spark's plan, as the first job over the batch leaves them (`Taken`). A sink has the good rows but
for those that it refused, which are dead letters of the stage `sink`. After `explode` it has the rows made of the good
records, which have another number. Records that `source.on_data_loss: continue` skipped are not counted: skipped.py
has them as ranges of offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Check = tuple[str, str]  # stage and rule
LATE, DUPLICATE = ("dedupe", "late"), ("dedupe", "duplicate")
WHERE = ("transform", "where")  # the records that statements leave out
OUTCOMES = ("in", "out", "dlq", "dropped", "late", "duplicates")


@dataclass(frozen=True, slots=True)
class Taken:
    """Numbers of a batch's plan: what it took away before its rows were judged."""

    read: int  # records of the source
    late: int  # that `dedupe` left out, since they came after the watermark
    duplicates: int
    stated: int | None = None  # rows that came to the statements; None: there are none

    @classmethod
    def by_statements(cls, read: int) -> "Taken":
        """Return what statements took away of a static frame of records, whose `dedupe` takes none."""
        return cls(read, 0, 0, read)


@dataclass(frozen=True, slots=True)
class Counts:
    """Outcomes of one batch. Kept rows are good ones."""

    rows: int
    good: int
    refused: Mapping[Check, int]  # dead letters, without those of late records
    dropped: Mapping[Check, int]
    kept: Mapping[Check, int] = field(default_factory=dict)  # good rows that break a rule with `on_violation: keep`
    late: int = 0
    duplicates: int = 0
    exploded: int | None = None  # rows that `explode` makes of the good records

    @property
    def written(self) -> int:
        """The number of rows that a sink gets."""
        return self.good if self.exploded is None else self.exploded

    @property
    def made(self) -> dict[str, int]:
        """The number of rows that `explode` makes, as commits and marks have it; nothing without `explode`."""
        return {} if self.exploded is None else {"exploded": self.exploded}

    @property
    def commit(self) -> dict[str, Any]:
        """The numbers as commits of a table have them; `of_commit` reads them."""
        return {
            "rows_in": self.rows,
            "rows_out": self.good,
            "refused": labelled(self.refused),
            "dropped": labelled(self.dropped),
            **self.made,
            "late": self.late,
            "duplicates": self.duplicates,
        }

    def after(self, taken: Taken) -> "Counts":
        """Return the counts of the whole batch, given what was taken away before these rows."""
        left_out = 0 if taken.stated is None else taken.stated - self.rows
        dropped = {**self.dropped, WHERE: left_out} if left_out else self.dropped
        late, duplicates = self.late + taken.late, self.duplicates + taken.duplicates
        return replace(self, rows=taken.read, dropped=dropped, late=late, duplicates=duplicates)

    @property
    def balanced(self) -> bool:
        """Whether every record has exactly one outcome."""
        rows, *outcomes = self.numbers.values()
        return rows == sum(outcomes) and min(*outcomes, *self.dropped.values(), 0) >= 0

    @property
    def numbers(self) -> dict[str, int]:
        """The sums by outcome, named as in OUTCOMES."""
        refused, dropped = sum(self.refused.values()), sum(self.dropped.values())
        return dict(zip(OUTCOMES, (self.rows, self.good, refused, dropped, self.late, self.duplicates), strict=True))


def of_commit(metadata: Mapping[str, Any]) -> dict[str, int]:
    """Return the records of a batch by outcome, and the rows that `explode` made of them, as its commit has them."""
    refused, dropped = (sum(metadata[name].values()) for name in ("refused", "dropped"))
    late, duplicates = metadata.get("late", 0), metadata.get("duplicates", 0)  # an earlier build kept none
    numbers = (metadata["rows_in"], metadata["rows_out"], refused, dropped, late, duplicates)
    made = {"exploded": metadata["exploded"]} if "exploded" in metadata else {}
    return {**dict(zip(OUTCOMES, numbers, strict=True)), **made}


def of_sink(
    numbers: Mapping[str, int], read: int | None, written: int | None, left_out: tuple[int, int] = (0, 0)
) -> dict[str, int]:
    """Return the records of a batch by outcome for one sink, given those by the judgement, and its rows.

    `read` are the rows that it read, None for all of them. `written` are those that it has, None if it does not count.
    After `explode` it takes or refuses the rows of a record one by one: they are numbers apart. So are those that
    expired before it read them, which `source.on_data_loss: continue` allows. `left_out` are the records, and the rows
    of them, that are not for this sink: it drops them.
    """
    if not numbers or written is None:
        return dict(numbers)
    records, rows = left_out
    good = numbers.get("exploded", numbers["out"]) - rows
    # A batch that is judged again by a corrected pipeline file may have more good rows than its commit.
    expired = 0 if read is None else max(good - (read - rows), 0)
    numbers = {**numbers, "out": numbers["out"] - records, "dropped": numbers["dropped"] + records}
    refused = good - expired - written  # mutant: sink-refusals-counted
    gone = numbers.get("expired", 0) + expired
    apart = {"expired": gone} if gone else {}
    if "exploded" in numbers:
        return {**numbers, "exploded": written, "exploded_dlq": refused, **apart}
    own = {"in": numbers["in"] - expired, "out": written, "dlq": numbers["dlq"] + refused}
    return {**numbers, **own, **apart}


def labelled(counts: Mapping[Check, int]) -> dict[str, int]:
    """Return counts by `stage.rule`, as log lines and commits show them."""
    return {f"{stage}.{rule}": count for (stage, rule), count in counts.items()}
