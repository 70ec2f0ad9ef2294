"""Figures of records in pure Python: protocol_lib and kafka-python read and write them, and a broker handles a batch.

`python bench/records.py` prints a table; `make bench-parts` runs it. Both libraries take turns in one process.
"""

from __future__ import annotations

import math
import random
import time
import warnings
from collections.abc import Callable
from functools import partial

from protocol_lib.records.batch import build_batch, crc_matches, read_batch_header
from protocol_lib.records.header import HEADER_SIZE
from protocol_lib.records.record import Header, Record, read_records
from protocol_lib.records.walker import FORM, RecordWalker
from protocol_lib.varint import Buffer
from table import Row, alternating, show

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in a deprecated way
    from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder

RECORDS = 100
ROUNDS = 31
REPEATS = 10
NOW = 1_700_000_000_000
READ_RATIO_MIN = 1.6
BATCH_BYTES = 16 * 1024
BATCH_US_MAX = 2.0
STEPS = 10**9
#: The methods of the walker.
WALKS: dict[str, Callable[[RecordWalker], object]] = {
    "check": lambda walker: walker.check(STEPS),
    "read": lambda walker: walker.read(Record, [], STEPS),
    "scan": lambda walker: walker.scan(([], [], [], [], []), STEPS),
}
#: name -> the records of one batch: size of the value (None for no key and no value), headers.
SHAPES: dict[str, tuple[int | None, tuple[Header, ...]]] = {
    "160 B": (160, ()),
    "1 KB": (1_000, ()),
    "160 B, two headers": (160, (("trace", b"0af7651916cd43dd"), ("h", b"x"))),
    "null": (None, ()),
}


def records_of(shape: str) -> list[Record]:
    size, headers = SHAPES[shape]
    draw = random.Random(shape)
    return [
        Record(
            index,
            NOW + index % 7,
            None if size is None else b"key-%d" % index,
            None if size is None else draw.randbytes(size),
            headers,
        )
        for index in range(RECORDS)
    ]


def seconds(work: Callable[[], object]) -> float:
    """Return seconds of processor time, so that other work on the machine does not count."""
    begin = time.thread_time()
    for _ in range(REPEATS):
        work()
    return (time.thread_time() - begin) / REPEATS


def read_ours(batch: bytes) -> None:
    for _ in read_records(batch):
        pass


def read_theirs(batch: bytes) -> None:
    for _ in MemoryRecords(batch).next_batch():
        pass


def write_ours(records: list[Record]) -> None:
    build_batch(records)


def write_theirs(records: list[Record]) -> None:
    builder = MemoryRecordsBuilder(2, 0, 1_000_000)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, list(record.headers))
    builder.close()


def compared(figure: str, must: str, ours: Callable[[], None], theirs: Callable[[], None]) -> tuple[Row, float]:
    mine, other = alternating(ROUNDS, partial(seconds, ours), partial(seconds, theirs))
    ratio = other / mine
    micro = 1e6 / RECORDS
    return Row(figure, must, f"{ratio:.2f} ({mine * micro:.2f} and {other * micro:.2f} us)"), ratio


def walk(body: Buffer, count: int, name: str) -> None:
    WALKS[name](RecordWalker(body, count, 0, 0))


def walked() -> list[Row]:
    """Return the nanoseconds a record of each method of the walker, and of a batch of one record."""
    rows = []
    for shape in ("160 B", "1 KB"):
        body = build_batch(records_of(shape))[HEADER_SIZE:]
        for name in WALKS:
            each = min(seconds(partial(walk, body, RECORDS, name)) for _ in range(10 * ROUNDS)) / RECORDS
            rows.append(Row(f"{name} of the walker ({FORM}), a record of {shape}", "", f"{each * 1e9:.0f} ns"))
    lone = memoryview(build_batch(records_of("160 B")[:1]))[HEADER_SIZE:]
    each = min(seconds(partial(walk, lone, 1, "check")) for _ in range(100 * ROUNDS))
    rows.append(Row(f"check of the walker ({FORM}), a batch of one record", "", f"{each * 1e9:.0f} ns"))
    return rows


def main() -> None:
    rows, ratios = [], []
    for shape in SHAPES:
        batch = build_batch(records_of(shape))
        row, ratio = compared(
            f"reading a record of {shape}, times as fast as kafka-python",
            "",
            partial(read_ours, batch),
            partial(read_theirs, batch),
        )
        rows.append(row)
        ratios.append(ratio)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    rows.append(Row("reading records, geometric mean of these", f">= {READ_RATIO_MIN}", f"{mean:.2f}"))
    for shape in SHAPES:
        records = records_of(shape)
        row, _ = compared(
            f"writing a record of {shape}, times as fast as kafka-python",
            "",
            partial(write_ours, records),
            partial(write_theirs, records),
        )
        rows.append(row)
    rows += walked()
    batch = build_batch([Record(0, NOW, None, random.Random(1).randbytes(BATCH_BYTES))])
    each = min(seconds(lambda: (read_batch_header(batch), crc_matches(batch))) for _ in range(100 * ROUNDS))
    rows.append(Row("header and CRC of a batch of 16 KB", f"<= {BATCH_US_MAX} us", f"{each * 1e6:.2f} us"))
    show(rows)


if __name__ == "__main__":
    main()
