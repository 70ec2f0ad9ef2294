"""Writes three orders as Avro, with the schema orders.avsc in the registry."""

import os
from pathlib import Path

from confluent_kafka import SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer

registry = SchemaRegistryClient({"url": os.environ["MILLRACE_SCHEMA_REGISTRY"]})
schema = Path(__file__).with_name("orders.avsc").read_text()
producer = SerializingProducer(
    {
        "bootstrap.servers": os.environ.get("MILLRACE_BOOTSTRAP_SERVERS", "localhost:9092"),
        "value.serializer": AvroSerializer(registry, schema),
    }
)
for number in (1, 2, 3):
    producer.produce("orders-avro", value={"order_id": number, "amount": number * 2.5, "note": None})
producer.flush()
