"""A page of 50 records by a schema next to one of JSON, over REST, in turns: `python bench/schemas.py`.

Both topics have the same orders of seven fields. The ids of schemas are known when the measurement begins.
"""

from __future__ import annotations

import io
import json
import statistics
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer
from table import Row, alternating, show
from up_process import RunningUp

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # a small registry

from support.schema_server import SchemaServer

RECORDS, ROUNDS, PAGES = 50, 15, 20
ORDER = {
    "type": "record", "name": "Order",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "total", "type": "double"},
        {"name": "note", "type": ["null", "string"]}, {"name": "paid", "type": "boolean"},
        {"name": "lines", "type": {"type": "array", "items": "long"}}, {"name": "day", "type": "int"},
    ],
}  # fmt: skip


def order(number: int) -> dict[str, Any]:
    return {
        "id": number, "customer": f"customer-{number}", "total": number / 7, "note": None, "paid": bool(number % 2),
        "lines": list(range(5)), "day": 20_000 + number,
    }  # fmt: skip


def written(up: RunningUp, schema: int) -> None:
    producer, avro = Producer({"bootstrap.servers": up.kafka}), fastavro.parse_schema(ORDER)
    for number in range(RECORDS):
        target = io.BytesIO(b"\0" + schema.to_bytes(4, "big"))
        target.seek(5)
        fastavro.schemaless_writer(target, avro, order(number))
        producer.produce("framed", target.getvalue())
        producer.produce("plain", json.dumps(order(number)))
    producer.flush(60)


def page_ms(url: str) -> float:
    """Return the median time of a page."""
    taken = []
    for _ in range(PAGES):
        began = time.perf_counter()
        with urllib.request.urlopen(url, timeout=60) as answer:
            content = answer.read()
        taken.append((time.perf_counter() - began) * 1000)
    rows = json.loads(content)["data"]
    assert len(rows) == RECORDS
    assert "value_schema_fault" not in rows[0], rows[0]
    return statistics.median(taken)


def main() -> None:
    with SchemaServer() as registry:
        schema = registry.add("framed-value", json.dumps(ORDER))
        environment = {"MILLRACE_SCHEMA_REGISTRY": registry.url, "MILLRACE_ADMIN_RATE_LIMIT": "0"}
        with RunningUp("--kafka-port", "0", "--http-port", "0", environment=environment) as up:
            written(up, schema)
            topics = f"http://{up.http}/api/v1/topics"
            framed = f"{topics}/framed/records?limit={RECORDS}&value_format=schema"
            plain = f"{topics}/plain/records?limit={RECORDS}"
            page_ms(framed)
            by_schema, as_json = alternating(ROUNDS, lambda: page_ms(framed), lambda: page_ms(plain))
    ratio = f"{by_schema / as_json:.2f} ({by_schema:.1f} ms, {as_json:.1f} ms)"
    show([Row(f"page of {RECORDS} records by an Avro schema, p50, to one of JSON", "≤ 1.3", ratio)])


if __name__ == "__main__":
    main()
