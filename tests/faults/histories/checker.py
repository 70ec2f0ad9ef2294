"""Anomalies of a history, after the `kafka` workload of Jepsen (jepsen/src/jepsen/tests/kafka.clj).

Consumers are read_committed and producers idempotent. Write-write and read-write dependencies make no cycle here:
transactions of Kafka interleave their writes, and a poll promises nothing about records that come after it. Jepsen
leaves both out, too.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tests.faults.histories.cycles import cycles
from tests.faults.histories.history import ASSIGN, OK, Operation


class Kind(StrEnum):
    """Kinds of anomaly. Each is a fault of the broker or of the client library."""

    LOST_WRITE = "an acknowledged value that no poll returned, although one returned a later value"
    UNSEEN = "a value that was acknowledged or polled, after the last value of the final read"
    DUPLICATE = "one value at two places"
    UNWRITTEN = "a polled value that no operation sent"
    INCONSISTENT_OFFSETS = "two values at one offset"
    ABORTED_READ = "a polled value of an operation that failed (G1a)"
    PRECOMMITTED_READ = "a transaction polled a value that it sent"
    EARLY_READ = "a value was polled before its transaction asked to commit"
    INTERNAL_NONMONOTONIC_POLL = "offsets go back in one operation"
    INTERNAL_POLL_SKIP = "an operation polled on both sides of a value"
    NONMONOTONIC_POLL = "offsets go back from one operation of a consumer to the next"
    POLL_SKIP = "two successive operations of a consumer polled on both sides of a value"
    INTERNAL_NONMONOTONIC_SEND = "a transaction's values lie in another order than it sent them"
    NONMONOTONIC_SEND = "a producer's values lie in another order than it sent them"
    CYCLE = "operations that read from each other in a circle (G1c)"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One anomaly, with the key and the values that show it."""

    kind: Kind
    key: str
    values: tuple[str, ...]
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind.name} at {self.key}: {', '.join(self.values)} {self.detail} ({self.kind.value})"


def check(history: Sequence[Operation]) -> list[Anomaly]:
    """Return all anomalies of a history. Takes time linear in its records, but for a sort of the offsets of a key."""
    operations = sorted(history, key=lambda operation: operation.invoked)
    return list(itertools.chain.from_iterable(_Check(operations).all()))


class _Check:
    """The tables of one check, and its parts. Owner: check."""

    def __init__(self, operations: list[Operation]) -> None:
        self._operations = operations
        #: Value to the key it was sent to, and to the operation's number.
        self._sent: dict[str, tuple[str, int]] = {}
        #: Value to its places as polls and acknowledgements name them.
        self._places: dict[str, set[tuple[str, int]]] = defaultdict(set)
        #: (key, offset) to the values named there.
        self._values: dict[tuple[str, int], set[str]] = defaultdict(set)
        #: Key to offset to value, as polled.
        self._polled: dict[str, dict[int, str]] = defaultdict(dict)
        self._polled_values: set[str] = set()
        #: Highest offset of each key in the final read.
        self._final_ends: dict[str, int] = {}
        for number, operation in enumerate(operations):
            self._add(number, operation)
        #: Offsets of each key that a read_committed consumer may receive, in order.
        self._visible = {
            key: sorted(offset for offset, value in polled.items() if not self._is_of_failed(value))
            for key, polled in self._polled.items()
        }
        self._ranks = {key: {offset: rank for rank, offset in enumerate(all_)} for key, all_ in self._visible.items()}

    def _add(self, number: int, operation: Operation) -> None:
        for key, value, offset in operation.sends:
            self._sent[value] = key, number
            if offset is not None:
                self._places[value].add((key, offset))
                self._values[key, offset].add(value)
        for _, records in operation.polls:
            for key, polled in records.items():
                for offset, value in polled:
                    self._places[value].add((key, offset))
                    self._values[key, offset].add(value)
                    self._polled_values.add(value)
                    self._polled[key][offset] = value
                if operation.final and polled:
                    self._final_ends[key] = max(self._final_ends.get(key, -1), polled[-1][0])

    def _is_of_failed(self, value: str) -> bool:
        _, number = self._sent.get(value, ("", -1))
        return number >= 0 and self._operations[number].failed

    def all(self) -> Iterator[Iterator[Anomaly]]:
        yield self._places_and_values()
        yield self._missing()
        yield self._reads()
        yield self._order_of_polls()
        yield self._order_of_sends()

    def _places_and_values(self) -> Iterator[Anomaly]:
        for value, places in self._places.items():
            if len(places) > 1:
                yield Anomaly(Kind.DUPLICATE, min(places)[0], (value,), f"{sorted(places)}")
        for (key, offset), values in self._values.items():
            if len(values) > 1:
                yield Anomaly(Kind.INCONSISTENT_OFFSETS, key, tuple(sorted(values)), f"at {offset}")
        for value in self._polled_values - self._sent.keys():
            yield Anomaly(Kind.UNWRITTEN, min(self._places[value])[0], (value,), f"{sorted(self._places[value])}")

    def _missing(self) -> Iterator[Anomaly]:
        ends = {key: max(polled) for key, polled in self._polled.items()}
        for operation in self._operations:
            for key, value, offset in operation.sends if operation.outcome == OK else ():
                if value not in self._polled_values:
                    is_lost = offset is not None and offset < ends.get(key, -1)
                    yield Anomaly(Kind.LOST_WRITE if is_lost else Kind.UNSEEN, key, (value,), f"at {offset}")
        if not any(operation.final for operation in self._operations):
            return
        for key, offsets in self._visible.items():
            for offset in offsets[bisect_right(offsets, self._final_ends.get(key, -1)) :]:
                yield Anomaly(Kind.UNSEEN, key, (self._polled[key][offset],), f"at {offset}, in the final read")

    def _reads(self) -> Iterator[Anomaly]:
        """Yield reads of values that are not committed, and cycles."""
        successors: list[list[int]] = [[] for _ in self._operations]
        early: list[tuple[int, int, Anomaly]] = []
        for number, operation in enumerate(self._operations):
            writers = set()
            for at, records in operation.polls:
                for key, polled in records.items():
                    for _, value in polled:
                        _, writer = self._sent.get(value, ("", -1))
                        if writer < 0:
                            continue
                        if writer == number:
                            yield Anomaly(Kind.PRECOMMITTED_READ, key, (value,))
                        elif self._operations[writer].failed:
                            yield Anomaly(Kind.ABORTED_READ, key, (value,), f"by {operation.process}")
                        else:
                            writers.add(writer)
                            if at < self._operations[writer].visible_from:
                                early.append((writer, number, Anomaly(Kind.EARLY_READ, key, (value,))))
            for writer in writers:
                successors[writer].append(number)
        for before, after in self._successive():
            successors[before].append(after)
        component: dict[int, int] = {}
        for index, numbers in enumerate(cycles(successors)):
            component.update(dict.fromkeys(numbers, index))
            values = tuple(value for number in numbers for _, value, _ in self._operations[number].sends)
            yield Anomaly(Kind.CYCLE, "", values, f"{len(numbers)} operations")
        for writer, reader, anomaly in early:
            if writer not in component or component[writer] != component.get(reader):
                yield anomaly

    def _successive(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of successive operations of a process that do not overlap."""
        last: dict[str, int] = {}
        for number, operation in enumerate(self._operations):
            before = last.get(operation.process)
            if before is not None and self._operations[before].ended < operation.invoked:
                yield before, number
            last[operation.process] = number

    def _order_of_polls(self) -> Iterator[Anomaly]:
        positions: dict[str, dict[str, int]] = defaultdict(dict)
        for operation in self._operations:
            position = positions[operation.process]
            if operation.kind == ASSIGN:
                position.clear()
                continue
            offsets: dict[str, list[int]] = defaultdict(list)
            for _, records in operation.polls:
                for key, polled in records.items():
                    offsets[key] += [offset for offset, _ in polled]
            for key, polled_offsets in offsets.items():
                before = position.get(key)
                if before is not None:
                    kinds = Kind.NONMONOTONIC_POLL, Kind.POLL_SKIP
                    yield from self._step(operation, key, before, min(polled_offsets), *kinds)
                kinds = Kind.INTERNAL_NONMONOTONIC_POLL, Kind.INTERNAL_POLL_SKIP
                for one, other in itertools.pairwise(polled_offsets):
                    yield from self._step(operation, key, one, other, *kinds)
                position[key] = max(polled_offsets)

    def _step(
        self, operation: Operation, key: str, before: int, after: int, back: Kind, skip: Kind
    ) -> Iterator[Anomaly]:
        ranks = self._ranks[key]
        rank = ranks.get(before)
        if rank is not None and ranks.get(after) == rank + 1:
            return
        polled, visible = self._polled[key], self._visible[key]
        if after <= before:
            yield Anomaly(back, key, (polled[before], polled[after]), f"{before} → {after} by {operation.process}")
            return
        low = bisect_right(visible, before)
        between = visible[low : bisect_right(visible, after - 1)]
        if between:
            values = tuple(polled[offset] for offset in between[:10])
            detail = f"{before} → {after} by {operation.process}, over {len(between)}"
            yield Anomaly(skip, key, values, detail)

    def _order_of_sends(self) -> Iterator[Anomaly]:
        last: dict[tuple[str, str], tuple[int, str, Operation]] = {}
        for operation in self._operations:
            for key, value, offset in operation.sends:
                if offset is None:
                    continue
                before = last.get((operation.process, key))
                if before is not None and offset < before[0]:
                    is_internal = before[2] is operation
                    kind = Kind.INTERNAL_NONMONOTONIC_SEND if is_internal else Kind.NONMONOTONIC_SEND
                    yield Anomaly(kind, key, (before[1], value), f"{before[0]} → {offset} by {operation.process}")
                last[operation.process, key] = offset, value, operation
