"""The bench's topic of flights: whole batches, spread over the partitions, the same flights again and again."""

from __future__ import annotations

import io
import json

import fastavro
import flights_topic
import millrace
import pytest
from millrace_demo import flights
from support.late import confluent


def test_flights_are_repeated_in_whole_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flights_topic, "RECORDS", 250)
    with millrace.Broker(topics=f"flights:{flights_topic.PARTITIONS}") as broker:
        counts = flights_topic.write(broker.bootstrap_servers, "flights", 540, 100)
        consumer = confluent.Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "all"})
        places = [confluent.TopicPartition("flights", index, 0) for index in range(flights_topic.PARTITIONS)]
        consumer.assign(places)
        records: list[confluent.Message] = []
        while len(records) < sum(counts):
            records += consumer.consume(1000, timeout=0.2)
        consumer.close()
    expected = dict(flights.records(flights.table(250)))
    # batches of 100, 100, 50, and so on, to partitions 0 to 3 in turn
    assert counts == [200, 150, 150, 100]
    assert [record.headers() for record in records] == [flights.HEADERS] * 600
    assert {record.key(): json.loads(record.value() or b"") for record in records} == {
        key: json.loads(value) for key, value in expected.items()
    }


def test_flights_of_avro_are_those_of_json() -> None:
    schema = fastavro.parse_schema(json.loads(flights_topic.avro()))
    framed = flights_topic.framed_values()
    for _, text in flights.records(flights.table(250)):
        value = framed(text)
        assert value[:5] == b"\0\0\0\0\1"
        row = fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)
        assert {**row, "time_hour": row["time_hour"].strftime("%Y-%m-%dT%H:%M:%SZ")} == json.loads(text)
