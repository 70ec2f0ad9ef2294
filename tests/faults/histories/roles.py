"""A program of confluent-kafka clients that send, poll and transact at random, and write their history.

    python -m tests.faults.histories.roles ROLE NAME BOOTSTRAP_SERVERS FOLDER

The roles are in ROLES. NAME is this process's alone; FOLDER receives NAME.jsonl. SIGTERM ends each client after its
operation. SIGKILL and SIGSTOP are welcome at any moment.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.late import confluent

from tests.faults.histories.clients import (
    CALL_TIMEOUT_S,
    KEYS,
    PATIENCE_S,
    SOURCE,
    TARGET,
    Client,
    CrashError,
    Poller,
    Received,
    Transactional,
    acknowledged_offset,
    patiently,
    place,
    polled,
)
from tests.faults.histories.history import INFO, OK, TRANSACTION, Recorder, Records
from tests.faults.histories.nemesis import run_threads

#: A sender waits while it has this number of values without an answer.
IN_FLIGHT_MAX = 2000
#: Shares of the transactions that are aborted, and whose client crashes in them.
ABORTED_SHARE = 0.2
CRASHED_SHARE = 0.005


class Sender(Client):
    """A producer without transactions, which sends many values at a time."""

    def live(self) -> None:
        producer = confluent.Producer(
            {**self.options, "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": 60_000}
        )
        done: list[dict[str, Any]] = []
        try:
            while self.goes_on():
                self._send(producer, done)
                self._wait(producer, done, 0.02)
            producer.flush(PATIENCE_S)
        finally:
            self.recorder.write(done)

    def _send(self, producer: confluent.Producer, done: list[dict[str, Any]]) -> None:
        if len(producer) > IN_FLIGHT_MAX:
            return
        sends = self.values(self.chance.randint(1, 48))
        for (key, value), number in zip(sends, self.recorder.invoke_sends(self.process, sends), strict=True):
            topic, partition = place(key)
            producer.produce(topic, value, partition=partition, on_delivery=self._delivery(key, value, number, done))

    def _delivery(
        self, key: str, value: str, number: int, done: list[dict[str, Any]]
    ) -> Callable[[confluent.KafkaError | None, confluent.Message], None]:
        head = {"process": self.process, "id": number}

        def delivered(error: confluent.KafkaError | None, message: confluent.Message) -> None:
            outcome = OK if error is None else INFO
            sends = [[key, value, acknowledged_offset(error, message)]]
            event = {**head, "at": time.monotonic_ns(), "event": outcome, "sends": sends}
            done.append(event)

        return delivered

    def _wait(self, producer: confluent.Producer, done: list[dict[str, Any]], wait_s: float) -> None:
        until = time.monotonic() + wait_s
        while (left := until - time.monotonic()) > 0:
            producer.poll(left)
        self.recorder.write(done)
        done.clear()


class Writer(Transactional):
    """A producer of transactions, in which it also polls with an assigned consumer."""

    def live(self) -> None:
        self.start_producer()
        poller = Poller(self, {"group.id": "nobody"})
        poller.assign(self.some_positions(self.chance.sample(KEYS, 4)))
        while self.goes_on():
            sends = self.values(self.chance.randint(1, 12))
            number = self.recorder.invoke(self.process, TRANSACTION, sends)
            self.transact(number, sends, self._contents(poller, sends), self.chance.random() < ABORTED_SHARE)

    def _contents(
        self, poller: Poller, sends: list[tuple[str, str]]
    ) -> Callable[[dict[str, int], list[tuple[int, Records]]], None]:
        middle = self.chance.randint(0, len(sends))

        def run(offsets: dict[str, int], polls: list[tuple[int, Records]]) -> None:
            for part in (sends[:middle], sends[middle:]):
                self.produce(part, offsets)
                if self.chance.random() < 0.3:
                    self.producer.flush(CALL_TIMEOUT_S)
                _, records = poller.poll(0.01, 200)
                self.advance(records)
                polls.append(polled(records))
                if self.chance.random() < CRASHED_SHARE:
                    raise CrashError

        return run


class Transformer(Transactional):
    """A member of a group on `source`. Its transactions write a value for each to `target`, and its offsets."""

    def live(self) -> None:
        self.start_producer()
        options = {
            "group.id": self.identity,
            "group.instance.id": self.identity,  # the next takes the place of one that was killed at once
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6000,
        }
        poller = Poller(self, options)
        poller.subscribe([SOURCE])
        while self.goes_on():
            began, records = poller.poll(0.05, self.chance.randint(1, 60))
            poller.write(began, records)
            if records and not self._transform(poller, records):
                self._go_back(poller, records)

    def _transform(self, poller: Poller, records: list[Received]) -> bool:
        positions = {record.key: record.offset + 1 for record in records}
        offsets_read = [confluent.TopicPartition(*place(key), offset) for key, offset in positions.items()]
        sends = [(f"{TARGET}/{place(record.key)[1]}", f"{self.value()}<{record.value}") for record in records]

        def contents(offsets: dict[str, int], _: object) -> None:
            self.produce(sends, offsets)
            patiently(
                lambda: self.producer.send_offsets_to_transaction(
                    offsets_read, poller.consumer.consumer_group_metadata(), CALL_TIMEOUT_S
                )
            )

        number = self.recorder.invoke(self.process, TRANSACTION, sends)
        return self.transact(number, sends, contents, self.chance.random() < ABORTED_SHARE)

    def _go_back(self, poller: Poller, records: list[Received]) -> None:
        first: dict[str, int] = {}
        for record in records:
            first.setdefault(record.key, record.offset)
        for key, offset in first.items():
            poller.consumer.seek(confluent.TopicPartition(*place(key), offset))
        poller.moved()


class AssignedReader(Client):
    """A consumer to which all keys are assigned."""

    def live(self) -> None:
        poller = Poller(self, {"group.id": "nobody"})
        poller.assign(self.some_positions(list(KEYS)))
        while self.goes_on():
            began, records = poller.poll(0.05, 500)
            poller.write(began, records)
            self.advance(records)


class SubscribedReader(Client):
    """A member of a group of readers, which changes often."""

    def live(self) -> None:
        options = {"group.id": "readers", "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        poller = Poller(self, options)
        poller.subscribe([SOURCE, TARGET])
        while self.goes_on():
            began, records = poller.poll(0.05, 500)
            poller.write(began, records)
            if records and self.chance.random() < 0.1:
                poller.consumer.commit(asynchronous=True)


#: The threads of a process by its role.
ROLES: dict[str, tuple[type[Client], ...]] = {
    "sender": (Sender,),
    "writer": (Writer, Writer),
    "transformer": (Transformer,),
    "reader": (AssignedReader, SubscribedReader, SubscribedReader),
}


def main() -> None:
    role, name, bootstrap_servers, folder = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    targets: dict[str, Callable[[], None]] = {}
    for index, client in enumerate(ROLES[role]):
        each = f"{name}.{index}"
        recorder = Recorder(Path(folder) / f"{each}.jsonl")
        made = client(f"{role}-{index}", each, bootstrap_servers, recorder, stopping)
        targets[each] = made.run
    run_threads(targets)


if __name__ == "__main__":
    main()
