"""Produce ten records idempotently and consume them in a group that commits after it has processed them."""

import os
import uuid

from confluent_kafka import Consumer, Producer

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")


def produce(topic: str) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    for number in range(10):
        producer.produce(topic, key=f"user-{number % 3}", value=f"visit {number}")
    left = producer.flush(30)
    print(f"produced {10 - left}")


def consume(topic: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{topic}-readers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        seen = 0
        while seen < 10:
            record = consumer.poll(1.0)
            if record is None:
                continue
            if record.error():
                raise RuntimeError(record.error())
            seen += 1
        consumer.commit(asynchronous=False)
        print(f"consumed {seen}")
    finally:
        consumer.close()


if __name__ == "__main__":
    name = f"visits-{uuid.uuid4().hex[:8]}"
    produce(name)
    consume(name)
