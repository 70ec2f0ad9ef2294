"""Streaming queries of PySpark: waiting for several, their progress, and a stop between two batches."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql.streaming.query import StreamingQuery

LOOK_SECONDS = 0.05
STOP_SECONDS = 10.0  # of a query without a batch; one that asks an absent broker for offsets takes minutes


class GateClosedError(Exception):
    """The query is about to be stopped, and its next batch has not begun."""


class Gate:
    """A gate that each batch passes. Once it is closed, the batch inside finishes and no other one begins."""

    def __init__(self) -> None:
        self._closed = False
        self._condition = threading.Condition()
        self._inside = False
        self.refused = threading.Event()  # a batch came to the closed gate: Spark has committed the one before

    def close(self) -> None:
        with self._condition:
            self._closed = True

    @property
    def busy(self) -> bool:
        """Whether a batch is at work."""
        with self._condition:
            return self._inside

    @contextmanager
    def passed(self) -> Iterator[None]:
        """Hold the gate for one batch. Raises GateClosedError once it is closed."""
        with self._condition:
            if self._closed:  # mutant: stop-between-batches
                self.refused.set()
                raise GateClosedError
            self._inside = True
        try:
            yield
        finally:
            with self._condition:
                self._inside = False


def wait(running: Sequence[StreamingQuery], timeout: float) -> None:
    """Wait until the first query ends or the time is over. A failure is found by `exception()`."""
    try:
        running[0].awaitTermination(timeout)  # type: ignore[arg-type]  # fractions of a second work
        if not running[0].isActive and any(query.isActive for query in running):
            time.sleep(timeout)
    except PySparkException:
        return


def failure(query: StreamingQuery) -> Exception | None:
    """Return why a query ended, with the JVM's exception, which PySpark leaves out; None if it runs or was stopped."""
    found = query.exception() if not query.isActive else None
    if found is not None:
        found._origin = query._jsq.exception().get()  # type: ignore[attr-defined]
    return found


def stop_between_batches(running: Sequence[StreamingQuery], gate: Gate, within: float | None = None) -> None:
    """Stop queries so that no batch is given up: its rows are written and Spark has committed its offsets.

    The gate is that of the first query; the others are idempotent and wait for the end of their trigger. A query
    without a batch that does not end `within` seconds is left to the end of the JVM.
    """
    for number, query in enumerate(running):
        while query.isActive and not (number == 0 and gate.refused.is_set()):
            if not (number == 0 and gate.busy) and _between(query.status):
                break
            time.sleep(LOOK_SECONDS)
        stop(query, within)


def stop(query: StreamingQuery, within: float | None = None) -> None:
    """Stop a query; return when it has ended, or after a number of seconds."""
    if within is None:
        query.stop()
        return
    thread = threading.Thread(target=_quietly, args=(query.stop,), name="stop", daemon=True)
    thread.start()
    thread.join(within)


def _quietly(call: Callable[[], object]) -> None:
    with suppress(Exception):  # the JVM has ended
        call()


def _between(status: Mapping[str, Any]) -> bool:
    """Return whether a query has no batch. It asks for offsets before it plans one: three minutes without a broker."""
    return not status["isTriggerActive"] or status["message"].startswith("Getting offsets from")


def progress_since(query: StreamingQuery, timestamp: str) -> list[dict[str, Any]]:
    """Return the progress reports of a query that are newer than a timestamp, the oldest first.

    The reports of the JVM, asked for five times a second: PySpark makes each an object by a thousand calls.
    """
    running: Any = query
    last = running._jsq.lastProgress()
    if last is None or str(last.timestamp()) <= timestamp:
        return []
    return [_document(str(each.json())) for each in running._jsq.recentProgress() if str(each.timestamp()) > timestamp]


def offsets(progress: dict[str, Any]) -> int:
    """Return how many offsets a batch spans, given its report; a partition without a known start counts for nothing."""
    (source,) = progress["sources"]
    start, end = source.get("startOffset") or {}, source.get("endOffset") or {}
    return sum(
        last - start[topic][number]
        for topic, partitions in end.items()
        for number, last in partitions.items()
        if number in start.get(topic, {})
    )


def limited(progress: dict[str, Any]) -> bool:
    """Return whether the source had more records than a batch got, given the batch's report."""
    (source,) = progress["sources"]
    end, latest = source.get("endOffset") or {}, source.get("latestOffset") or {}
    return any(
        end.get(topic, {}).get(number, last) < last
        for topic, partitions in latest.items()
        for number, last in partitions.items()
    )


def _document(report: str) -> dict[str, Any]:
    """Return a report with its offsets as objects: the Kafka source reports them as JSON texts."""
    document: dict[str, Any] = json.loads(report)
    for source in document.get("sources", []):
        for name in ("startOffset", "endOffset", "latestOffset"):
            if isinstance(source.get(name), str):
                source[name] = json.loads(source[name])
    return document
