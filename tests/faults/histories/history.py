"""The form of a history: operations of clients, and the files of JSON lines that they are read from.

A process here is one client object with one thread. A client that crashed goes on as a new process. Its events are

    {"at": 1, "process": "p", "id": 7, "event": "invoke", "kind": "txn", "sends": [["k", "v"]]}
    {"at": 2, "process": "p", "id": 7, "event": "commit"}
    {"at": 3, "process": "p", "id": 7, "event": "ok", "sends": [["k", "v", 5]], "polls": [[2, {"k": [[4, "u"]]}]]}

`at` is CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share. `commit` comes before the request to
commit. An operation ends with `ok`, with `fail` if it certainly had no effect, or with `info` if that is unknown.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Records that one call returned: key to (offset, value), in the order of the call.
Records = dict[str, list[tuple[int, str]]]

SEND, POLL, TRANSACTION, ASSIGN = "send", "poll", "txn", "assign"
OK, FAIL, INFO = "ok", "fail", "info"


@dataclass(slots=True, eq=False)
class Operation:
    """One operation of a process. A key is a partition, and every value is sent once."""

    process: str
    kind: str
    #: Nanoseconds of the invocation, of the request to commit, and of the end.
    invoked: float
    commit_asked: float = math.inf
    ended: float = math.inf
    outcome: str = INFO
    #: (key, value, offset): None for an unknown offset.
    sends: list[tuple[str, str, int | None]] = field(default_factory=list)
    #: (time at which the call returned, its records).
    polls: list[tuple[float, Records]] = field(default_factory=list)
    #: The poll belongs to the read of all keys to their ends, after all else.
    final: bool = False

    @property
    def visible_from(self) -> float:
        """Time before which no consumer of committed records may receive the values."""
        return self.commit_asked if self.kind == TRANSACTION else self.invoked

    @property
    def failed(self) -> bool:
        """Whether the values certainly are not committed."""
        return self.outcome == FAIL or (self.kind == TRANSACTION and self.commit_asked == math.inf)


class Recorder:
    """The writer of one file of events. SIGKILL loses no event whose call has returned."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND)
        self._last = 0

    def write(self, events: Iterable[dict[str, Any]]) -> None:
        lines = b"".join(json.dumps(event, separators=(",", ":")).encode() + b"\n" for event in events)
        while lines:
            lines = lines[os.write(self._file, lines) :]

    def invoke(self, process: str, kind: str, sends: Iterable[tuple[str, str]] = (), **more: Any) -> int:
        """Write that an operation begins; return its id."""
        self._last += 1
        at = time.monotonic_ns()
        event = {"at": at, "process": process, "id": self._last, "event": "invoke", "kind": kind, "sends": list(sends)}
        self.write([{**event, **more}])
        return self._last

    def event(self, process: str, number: int, event: str, **more: Any) -> None:
        self.write([{"at": time.monotonic_ns(), "process": process, "id": number, "event": event, **more}])

    def invoke_sends(self, process: str, sends: Iterable[tuple[str, str]]) -> list[int]:
        """Write that each of the values is sent by itself; return the ids."""
        at = time.monotonic_ns()
        head = {"at": at, "process": process, "event": "invoke", "kind": SEND}
        numbered = list(enumerate(sends, self._last + 1))
        self._last += len(numbered)
        self.write({**head, "id": number, "sends": [send]} for number, send in numbered)
        return [number for number, _ in numbered]


def read_history(folder: Path) -> list[Operation]:
    """Read all files of a folder; return the operations in the order of their invocation."""
    operations: list[Operation] = []
    for path in sorted(folder.glob("*.jsonl")):
        operations += operations_of(_events(path))
    operations.sort(key=lambda operation: operation.invoked)
    return operations


def _events(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for line in lines:
            if line.endswith(b"\n"):  # SIGKILL may have cut the last
                yield json.loads(line)


def operations_of(events: Iterable[dict[str, Any]]) -> list[Operation]:
    """Return the operations of the events of one file."""
    found: dict[tuple[str, int], Operation] = {}
    for event in events:
        place = event["process"], event["id"]
        if event["event"] == "invoke":
            operation = Operation(event["process"], event["kind"], event["at"])
            operation.sends = [(key, value, None) for key, value in event["sends"]]
            operation.final = event.get("final", False)
            found[place] = operation
        elif event["event"] == "commit":
            found[place].commit_asked = event["at"]
        else:
            operation = found[place]
            operation.ended, operation.outcome = event["at"], event["event"]
            if "sends" in event:
                operation.sends = [(key, value, offset) for key, value, offset in event["sends"]]
            operation.polls = [
                (at, {key: [(offset, value) for offset, value in records] for key, records in polled.items()})
                for at, polled in event.get("polls", ())
            ]
    return list(found.values())
