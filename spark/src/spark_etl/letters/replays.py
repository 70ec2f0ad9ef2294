"""The letters that have been replayed: a document next to the checkpoint, so that each letter is replayed once.

replays = Replays(notes, topic_id)
replay = replays.resumed(topic)      # an interrupted earlier replay comes back with its own choice of letters
replays.begun(replay)
…                                    # the letters are written
replays.finished(ranges, "sinks")

    CHECKPOINT/_etl/replays.json    {"done": {"MBW0…": {"0": [[0, 41]]}}, "next": 1, "open": null, …}

Offsets are marked by the id of the dead-letter topic: another topic has other letters at the same offsets. `to_sinks`
has those of `done` that went to the sinks.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal

from spark_etl.checkpoint.notes import Notes
from spark_etl.errors import OutputError
from spark_etl.kafka.ranges import OffsetRanges

NOTE = "replays"
QUERY = "replay-dlq"  # of the batches of replays


@dataclass(frozen=True)
class Replay:
    """One replay: its number, when it began, where it writes, and which letters it takes (`ends` excluded)."""

    number: int
    at: str  # ISO 8601
    to: Literal["sinks", "source"]
    stage: str | None
    rule: str | None
    since: str | None
    until: str | None
    ends: dict[str, int]  # partition of the dead-letter topic → offset
    topic: str = ""  # of the letters
    topic_id: str = ""
    file: str = ""  # digest of the pipeline file that judged them for the sinks; empty: nothing is written yet

    @property
    def began(self) -> datetime:
        return datetime.fromisoformat(self.at)


class Replays:
    """The replays of one pipeline and its dead-letter topics; `topic_id` is that of the present one."""

    def __init__(self, notes: Notes, topic_id: str = "") -> None:
        self._notes = notes
        self._topic_id = topic_id
        kept = notes.read(NOTE)
        self._kept = kept is not None
        document = kept or {"done": {}, "next": 0, "open": None}
        self._done: dict[str, dict[str, list[list[int]]]] = document["done"]
        self._to_sinks: dict[str, dict[str, list[list[int]]]] = document.get("to_sinks", {})
        self._next = int(document["next"])
        #: Whether a lost checkpoint was recovered since, with which the marks were lost.
        self.recovered = bool(document.get("recovered"))
        opened: dict[str, Any] | None = document["open"]
        self.interrupted = Replay(**opened) if opened is not None else None

    @property
    def next_number(self) -> int:
        return self._next

    @property
    def done(self) -> OffsetRanges:
        """The offsets of all replayed letters of the topic."""
        return self._ranges(self._done)

    @property
    def to_sinks(self) -> OffsetRanges:
        """The offsets of those that went to the sinks."""
        return self._ranges(self._to_sinks)

    def _ranges(self, marks: Mapping[str, Mapping[str, list[list[int]]]]) -> OffsetRanges:
        found = marks.get(self._topic_id, {})
        return {int(partition): [(first, last) for first, last in each] for partition, each in found.items()}

    def resumed(self, topic: str) -> Replay | None:
        """Return the interrupted replay of letters in a topic; None if there is none, or they went with their topic.

        OutputError: it took letters of a topic with another name.
        """
        found = self.interrupted
        if found is None or found.topic_id in ("", self._topic_id):
            return found
        if found.topic != topic:
            raise OutputError(f"an interrupted replay took letters of {found.topic}: finish it with that topic first")
        return None

    def restore(self, following: int) -> None:
        """Number the next replay, for a recovered checkpoint. Marks that are still there stay as they are."""
        if self._kept:
            return
        self._next = following  # mutant: replay-number-kept
        self.recovered = True
        self._write(None)

    def begun(self, replay: Replay) -> None:
        """Keep a replay's choice of letters, and the file that judged them, before the first one is written."""
        self._next = replay.number + 1
        self._write(replay)  # mutant: replay-noted

    def finished(self, ranges: OffsetRanges, to: Literal["sinks", "source"]) -> None:
        """Keep that the letters of an interrupted or new replay have been written."""
        for marks in (self._done, self._to_sinks) if to == "sinks" else (self._done,):
            kept = marks.setdefault(self._topic_id, {})
            for partition, added in ranges.items():
                old = [(first, last) for first, last in kept.get(str(partition), [])]
                kept[str(partition)] = [list(each) for each in _merged([*old, *added])]
        self.interrupted = None
        self.recovered = False
        self._write(None)

    def _write(self, replay: Replay | None) -> None:
        opened = asdict(replay) if replay is not None else None
        marks = {"done": self._done, "to_sinks": self._to_sinks}
        self._notes.write(NOTE, {**marks, "next": self._next, "open": opened, "recovered": self.recovered})


def _merged(ranges: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged
