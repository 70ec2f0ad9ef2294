"""Writes the flights, and a few broken records, with a stock client: lz4, acks=all, idempotence on."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from zlib import crc32

from confluent_kafka import KafkaError, Message, Producer

from millrace_demo import flights
from millrace_demo.access import NO_OPTIONS, Options
from millrace_demo.errors import MismatchError
from millrace_demo.patience import Patience

WAIT_SECONDS = 0.2
STEP = 5_000


@dataclass(slots=True)
class Loaded:
    """The acknowledged records: a checksum of the value under each key, and the time they needed."""

    checksums: dict[bytes, int]
    bytes: int
    seconds: float

    @property
    def count(self) -> int:
        return len(self.checksums)


def load(
    bootstrap_servers: str,
    records: Iterable[tuple[bytes, bytes]],
    advance: Callable[[int], None],
    topic: str = flights.TOPIC,
    options: Options = NO_OPTIONS,
) -> Loaded:
    """Produce all records and wait until each is acknowledged. Raises MismatchError otherwise."""
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            errors.append(error)

    producer = Producer(
        {
            **options,
            "bootstrap.servers": bootstrap_servers,
            "client.id": "millrace-demo-load",
            "enable.idempotence": True,
            "acks": "all",
            "compression.type": "lz4",
            "linger.ms": 20,
            "batch.size": 512 * 1024,
            "queue.buffering.max.messages": 200_000,
            "delivery.report.only.error": True,
            "on_delivery": delivered,
        }
    )
    began = time.monotonic()
    checksums: dict[bytes, int] = {}
    size = 0
    try:
        for number, (key, value) in enumerate(records, 1):
            _produce(producer, topic, key, value)
            checksums[key] = checksum(value)
            size += len(key) + len(value)
            if number % STEP == 0:
                producer.poll(0)
                advance(STEP)
                if errors:
                    break
        left = _flush(producer)
    except BaseException:
        producer.purge()  # else librdkafka complains about the records in its queue
        producer.flush(1)
        raise
    if errors or left:
        reason = errors[0] if errors else "no answer"
        raise MismatchError(f"{len(errors) + left} records were not acknowledged: {reason}")
    advance(len(checksums) % STEP)
    return Loaded(checksums, size, time.monotonic() - began)


def checksum(value: bytes) -> int:
    return crc32(value)


def _produce(producer: Producer, topic: str, key: bytes, value: bytes) -> None:
    while True:
        try:
            producer.produce(topic, value, key, headers=flights.HEADERS)
        except BufferError:
            producer.poll(0.05)
        else:
            return


def _flush(producer: Producer) -> int:
    """Flush in short waits, because Python's signal handlers run between them only. Return the number of records
    left.
    """
    patience = Patience()
    left = producer.flush(WAIT_SECONDS)
    while left and not patience.is_over(left):
        left = producer.flush(WAIT_SECONDS)
    return left
