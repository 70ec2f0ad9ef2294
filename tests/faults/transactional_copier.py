"""A program that copies topic `source` to topic `copy` by transactions: each has values and the offsets read so far.

    python -m tests.faults.transactional_copier BOOTSTRAP_SERVERS

When a transaction fails for good, a new producer and a new consumer go on from the committed offsets. SIGTERM ends it
after its transaction.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

GROUP = "copier"
#: Copied records of one transaction.
BATCH = 20
CALL_TIMEOUT_S = 20


class Copier:
    """A consume-transform-produce loop. Owner: the program."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._options = {
            "bootstrap.servers": bootstrap_servers,
            "reconnect.backoff.max.ms": 200,
            # After a re-bootstrap librdkafka 2.16 waits for ever for a group coordinator that it has decommissioned.
            "metadata.recovery.strategy": "none",
        }
        self.must_stop = False

    def run(self) -> None:
        while not self.must_stop:
            try:
                self._copy()
            except KafkaException as error:
                print(error, file=sys.stderr, flush=True)

    def _copy(self) -> None:
        producer = Producer(
            {**self._options, "transactional.id": GROUP, "transaction.timeout.ms": 20_000, "linger.ms": 1}
        )
        producer.init_transactions(CALL_TIMEOUT_S)
        consumer = Consumer(
            {
                **self._options,
                "group.id": GROUP,
                "group.instance.id": GROUP,  # the next one takes the place of one that was killed at once
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "session.timeout.ms": 6000,
            }
        )
        try:
            consumer.subscribe(["source"])
            while not self.must_stop:
                if records := consumer.consume(BATCH, 0.1):
                    self._transact(producer, consumer, records)
        finally:
            consumer.close()

    def _transact(self, producer: Producer, consumer: Consumer, records: list[Message]) -> None:
        for record in records:
            if (failed := record.error()) is not None:
                raise KafkaException(failed)
        producer.begin_transaction()
        positions: dict[int, int] = {}
        for record in records:
            producer.produce("copy", record.value(), partition=record.partition())
            positions[record.partition()] = record.offset() + 1
        offsets = [TopicPartition("source", partition, offset) for partition, offset in positions.items()]
        try:
            self._repeated(
                lambda: producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), CALL_TIMEOUT_S
                )
            )
            self._repeated(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        except KafkaException as error:
            if error.args[0].txn_requires_abort():
                self._repeated(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            raise

    def _repeated(self, call: Callable[[], None]) -> None:
        """Call until the error is none that another call may cure."""
        while True:
            try:
                return call()
            except KafkaException as error:
                if self.must_stop or not error.args[0].retriable():
                    raise


def main() -> None:
    copier = Copier(sys.argv[1])

    def stop(*_: object) -> None:
        copier.must_stop = True

    signal.signal(signal.SIGTERM, stop)
    copier.run()


if __name__ == "__main__":
    main()
