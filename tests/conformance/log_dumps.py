"""Files of a partition's folder, as Kafka's DumpLogSegments prints them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from conformance.log_rows import Row
from support.kafka_tools import tool

# Words with which DumpLogSegments reports faults of files.
COMPLAINTS = re.compile(
    "mismatch|non-consecutive|non-secutive|not found|corrupt|out of order|isvalid: false|invalid|exception|error"
    "|unexpected|trailing|incomplete|fail|ignoring|could not|unknown",
    re.IGNORECASE,
)

NUMBER = re.compile(r"-?\d+")
RECORD = re.compile(
    r"\| offset: (\d+) (?:Create|LogAppend)Time: (\d+) keySize: (-?\d+) valueSize: (-?\d+) sequence: -?\d+"
    r" headerKeys: \[(\w*)\](?: key: (\w+))?(?: payload: (\S*))?"
)


def dump(*files: Path, options: tuple[str, ...] = ()) -> str:
    return tool("org.apache.kafka.tools.DumpLogSegments", *options, "--files", ",".join(map(str, files)))


def sound(output: str, *, gaps: bool = False) -> str:
    """Check that a dump reports no fault and return it; the content of records does not count.

    `gaps`: offsets may be missing.
    """
    # Of every file whose first offset is not 0, Kafka's own ones included, the tool says: -1 is followed by it.
    text = re.sub(r"Non-consecutive offsets in \S*\n(?:  -1 is followed by \d+\n)(?!  )", "", output + "\n")
    if gaps:
        text = re.sub(r"Non-consecutive offsets in \S*\n(?:  -?\d+ is followed by \d+\n)+", "", text)
    lines = [re.sub(r" (key|payload): .*", "", line).replace("isvalid: true", "") for line in text.splitlines()]
    complaints = [line for line in lines if COMPLAINTS.search(line)]
    assert not complaints, "\n".join(complaints[:20])
    return output


def by_file(output: str) -> dict[str, list[str]]:
    """Return the lines of a dump by the name of the file that they describe."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        if line.startswith("Dumping "):
            found[Path(line.removeprefix("Dumping ")).name] = lines = []
        elif line:
            lines.append(line)
    return found


def batches(output: str) -> list[dict[str, Any]]:
    """Return the batches of a dump: the words before the colons and the values after them, numbers as numbers."""
    found = []
    for line in output.splitlines():
        if line.startswith("baseOffset: "):
            fields = dict(re.findall(r"(\w+): (\S+)", line))
            found.append({name: int(value) if NUMBER.fullmatch(value) else value for name, value in fields.items()})
    return found


def dumped_rows(output: str) -> list[tuple[int, Row]]:
    """Return the records of a dump with their offsets, in its order."""
    found = []
    for line in output.splitlines():
        if match := RECORD.fullmatch(line):
            offset, timestamp, key_size, value_size, header, key, value = match.groups()
            row = Row(int(timestamp), key, value, header or None)
            sizes = tuple(-1 if text is None else len(text) for text in (row.key, row.value))
            assert sizes == (int(key_size), int(value_size)), line
            found.append((int(offset), row))
    return found


def producers(lines: list[str]) -> dict[int, tuple[int, ...]]:
    """Return a dumped snapshot: producer id -> epoch, and first and last sequence, last offset and timestamp of the
    last batch.
    """
    names = ("producerEpoch", "firstSequence", "lastSequence", "lastOffset", "timestamp")
    fields = [dict(re.findall(r"(\w+): (-?\d+)", line)) for line in lines if line.startswith("producerId: ")]
    return {int(each["producerId"]): tuple(int(each[name]) for name in names) for each in fields}


def dumped_producers(folder: Path) -> dict[str, dict[int, tuple[int, ...]]]:
    """Return every snapshot of a partition, by file name."""
    paths = files_of(folder, ".snapshot")
    dumped = by_file(sound(dump(*paths)))
    return {path.name: producers(dumped[path.name]) for path in paths}


def files_of(folder: Path, suffix: str) -> list[Path]:
    return sorted(folder.glob(f"*{suffix}"))


def contents(folder: Path, suffix: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in files_of(folder, suffix)}


def flip_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x55
    path.write_bytes(data)
