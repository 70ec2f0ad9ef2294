"""confluent-kafka with its defaults, except linger.ms=5: its producer (P2) and its consumer (P3).

The producer gets records in lists, which costs Python least; the consumer returns them in lists too. When 64 MB wait
for it, librdkafka stops fetching for `fetch.queue.backoff.ms`, a second by default. The figure of a fast broker would
then depend on the number of these pauses. Here the pause is FULL_QUEUE_MS.
"""

from __future__ import annotations

import time

from drivers import Driver
from flood import Flood
from readback import check
from sides import Layout, Side
from workload import Measure, Must, Sample, Workload

from workloads.fetch import fill

#: Records handed over at once, and records that wait in the producer at most.
LIST, WAITING = 1_000, 200_000
CONSUMED_BYTES = 512_000_000
TIMEOUT_S = 60
FULL_QUEUE_MS = 10


def produce_records(address: str, topic: str, records: int, record_bytes: int) -> float:
    """Return the seconds until all were acknowledged."""
    failed: list[object] = []
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": address,
            "linger.ms": 5,
            "queue.buffering.max.messages": 2 * WAITING,
            "delivery.report.only.error": True,
            "on_delivery": lambda error, _record: failed.append(error),
        }
    )
    value = bytes(range(256)) * (record_bytes // 256 + 1)
    listed = [{"value": value[:record_bytes]} for _ in range(LIST)]
    producer.list_topics(topic, timeout=TIMEOUT_S)
    began = time.perf_counter()
    for begin in range(0, records, LIST):
        producer.poll(0)
        while len(producer) > WAITING:
            producer.poll(0.002)
        few = listed[: records - begin]
        if producer.produce_batch(topic, few) != len(few):
            raise RuntimeError("librdkafka did not take all records")
    left = producer.flush(TIMEOUT_S)
    seconds = time.perf_counter() - began
    if left or failed:
        raise RuntimeError(f"{left + len(failed)} records were not acknowledged: {failed[:1]}")
    return seconds


def consume_records(address: str, topic: str, records: int) -> tuple[float, int]:
    """Return the seconds from the assignment to the last record, and the bytes of their values."""
    import confluent_kafka

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": FULL_QUEUE_MS,
        }
    )
    consumer.list_topics(topic, timeout=TIMEOUT_S)
    began = time.perf_counter()
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    count = size = 0
    while count < records:
        taken = consumer.consume(10_000, timeout=0.5)
        for record in taken:
            if record.error():
                raise RuntimeError(str(record.error()))
            size += len(record)
        count += len(taken)
        if time.perf_counter() - began > TIMEOUT_S:
            raise RuntimeError(f"{count} of {records} records were consumed in {TIMEOUT_S} s")
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds, size


class Producer(Workload):
    measures = (Measure("rate", "MB/s", musts={Layout.COMBINED: Must(0.9), Layout.SEPARATE: Must(0.9)}),)

    def __init__(self, name: str, title: str, record_bytes: int, *, quick: bool = True) -> None:
        self.name, self.title, self.record_bytes, self.quick = name, title, record_bytes, quick
        self.amount = 40_000
        self.amount_max = 1_000_000_000 // record_bytes

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name):
            with side.watch() as usage:
                driven = Driver.shared().call(produce_records, side.address, self.name, amount, self.record_bytes)
            usage.cpu_seconds["driver"] = driven.cpu_seconds
            (end,) = side.end_offsets(self.name)
            check(side.address, self.name, 0, end, amount, None, record_bytes=self.record_bytes)
        size = amount * self.record_bytes
        return Sample({"rate": size / driven.result / 1e6}, driven.result, size, usage)


class Consumer(Workload):
    """Reads a log of 1 KB records in 100 KB batches from its begin."""

    name, title = "librdkafka_consumer", "librdkafka consumer, 1 KB records"
    measures = (Measure("rate", "MB/s", musts={Layout.COMBINED: Must(1.0), Layout.SEPARATE: Must(1.0)}),)
    amount = 50_000
    amount_max = CONSUMED_BYTES // 1000

    def __init__(self) -> None:
        self._filled: dict[Side, tuple[int, bytes]] = {}

    def prepare(self, side: Side) -> None:
        self._filled[side] = fill(side, self.name, Flood(self.name, 100_000), CONSUMED_BYTES)

    def run(self, side: Side, amount: int) -> Sample:
        end, data = self._filled[side]
        amount = min(amount, end)
        with side.watch() as usage:
            driven = Driver.shared().call(consume_records, side.address, self.name, amount)
        usage.cpu_seconds["driver"] = driven.cpu_seconds
        (last,) = side.end_offsets(self.name)
        check(side.address, self.name, 0, last, end, data)
        seconds, size = driven.result
        return Sample({"rate": size / seconds / 1e6}, seconds, size, usage)

    def finish(self, side: Side) -> None:
        self._filled.pop(side, None)
        side.delete_topic(self.name)


WORKLOADS: list[Workload] = [
    Producer("librdkafka_1k", "librdkafka producer, 1 KB records", 1_000),
    Producer("librdkafka_100", "librdkafka producer, 100 B records", 100, quick=False),
    Consumer(),
]
