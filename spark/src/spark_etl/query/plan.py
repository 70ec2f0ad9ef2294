"""What the plan of a query's batch counted: Spark's own numbers, within the batch and before its commit.

The progress report has them only after the commit. Ask after the batch's first job and before its second one, which
counts again. A stage that Spark repeated since an executor was lost counts twice.
"""

from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from spark_etl.counts import Taken
from spark_etl.judgement import STATED
from spark_etl.query.byte_limit import RECORD_SIZES

LATE, DUPLICATES = "numRowsDroppedByWatermark", "numDroppedDuplicateRows"  # metrics of Spark's operators


class BatchPlan:
    """The plan of the batch at work."""

    def __init__(self, query: StreamingQuery) -> None:
        running: Any = query
        self._execution = running._jsq.streamingQuery().lastExecution()

    def observed(self, name: str) -> dict[str, int]:
        """Return the numbers of an observation; none if the batch has no records."""
        found = self._execution.observedMetrics().get(name)
        if not found.isDefined():
            return {}
        row = found.get()
        names = list(row.schema().fieldNames())
        return {name: 0 if row.isNullAt(at) else int(row.getLong(at)) for at, name in enumerate(names)}

    def summed(self, metric: str) -> int:
        """Return the sum of a metric over all operators that have it."""
        total, operators = 0, [self._execution.executedPlan()]
        while operators:
            operator = operators.pop()
            found, children = operator.metrics().get(metric), operator.children()
            if found.isDefined():
                total += max(0, int(found.get().value()))
            operators += [children.apply(number) for number in range(children.length())]
        return total

    def taken(self, *, dedupe: bool, statements: bool) -> Taken:
        """Return what the steps before the judged rows took away."""
        read = self.observed(RECORD_SIZES).get("records", 0)
        stated = self.observed(STATED).get("rows", 0) if statements else None
        if not dedupe:
            return Taken(read, 0, 0, stated)
        return Taken(read, self.summed(LATE), self.summed(DUPLICATES), stated)
