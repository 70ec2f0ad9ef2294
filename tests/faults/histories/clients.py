"""Clients of confluent-kafka that write their history: the common parts of the roles in `roles.py`."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from support.late import confluent

from tests.faults.histories.history import ASSIGN, FAIL, INFO, OK, POLL, Recorder, Records

SOURCE, TARGET = "source", "target"
PARTITIONS = 5
KEYS = tuple(f"{topic}/{partition}" for topic in (SOURCE, TARGET) for partition in range(PARTITIONS))
#: Options of all clients, and those of a consumer that must not lose its place.
CLIENT_OPTIONS: dict[str, Any] = {
    "reconnect.backoff.max.ms": 200,
    # docs/clients.md, "librdkafka: transactions that hang after a restart"
    "metadata.recovery.strategy": "none",
    "error_cb": lambda _: None,
}
CONSUMER_OPTIONS = {**CLIENT_OPTIONS, "enable.auto.commit": False, "auto.offset.reset": "error"}
CALL_TIMEOUT_S = 10.0
#: A client whose call fails so long is replaced.
PATIENCE_S = 30.0
#: Mean time between the crashes of a client; a new one replaces it.
CRASH_EVERY_S = 8.0


def place(key: str) -> tuple[str, int]:
    topic, _, partition = key.partition("/")
    return topic, int(partition)


@dataclass(frozen=True, slots=True)
class Received:
    """A record with its place."""

    key: str
    offset: int
    value: str


def received(message: confluent.Message) -> Received:
    """Return the record of a message. Raises KafkaException if it is an error."""
    if (error := message.error()) is not None:
        raise confluent.KafkaException(error)
    offset, value = message.offset(), message.value()
    assert offset is not None
    assert value is not None
    return Received(f"{message.topic()}/{message.partition()}", offset, value.decode())


def patiently(call: Callable[[], None]) -> None:
    """Call again while another call may cure the error, and the patience lasts."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return call()
        except confluent.KafkaException as error:
            if time.monotonic() > deadline or not error.args[0].retriable():
                raise


class CrashError(Exception):
    """The client ends as it is: a new one takes its place."""


def acknowledged_offset(error: confluent.KafkaError | None, message: confluent.Message) -> int | None:
    """Return the offset that a delivery report names. None: it names none."""
    offset = message.offset()
    return offset if error is None and offset is not None and offset >= 0 else None


class Poller:
    """A consumer of committed records; its polls and assignments are in the history."""

    def __init__(self, owner: Client, options: dict[str, Any]) -> None:
        self._owner = owner
        self._was_rebalanced = False
        self.consumer = confluent.Consumer(
            {**CONSUMER_OPTIONS, **owner.options, "isolation.level": "read_committed", **options}
        )
        owner.poller = self

    def assign(self, positions: dict[str, int]) -> None:
        self.consumer.assign([confluent.TopicPartition(*place(key), offset) for key, offset in positions.items()])

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(
            topics, on_assign=self._rebalanced, on_revoke=self._rebalanced, on_lost=self._rebalanced
        )

    def _rebalanced(self, *_: object) -> None:
        self._was_rebalanced = True

    def moved(self) -> None:
        """Write that the next poll may begin anywhere."""
        recorder, process = self._owner.recorder, self._owner.process
        recorder.event(process, recorder.invoke(process, ASSIGN), OK)

    def poll(self, wait_s: float, limit: int) -> tuple[int, list[Received]]:
        """Poll up to `limit` records; return the time of the first call and the records.

        After a change of the assignment only the records that came later count.
        """
        began = time.monotonic_ns()
        found: list[Received] = []
        while len(found) < limit and (message := self.consumer.poll(0 if found else wait_s)) is not None:
            if self._was_rebalanced:
                self._was_rebalanced = False
                self.write(began, found)
                self.moved()
                began, found = time.monotonic_ns(), []
            error = message.error()
            assert error is None or error.code() != confluent.KafkaError._AUTO_OFFSET_RESET, (
                "a position is out of the log"
            )
            found.append(received(message))
        return began, found

    def write(self, began: int, records: list[Received]) -> None:
        """Write an operation that is nothing but a poll."""
        if records:
            number = self._owner.recorder.invoke(self._owner.process, POLL, at=began)
            self._owner.recorder.event(self._owner.process, number, OK, polls=[polled(records)])


def polled(records: list[Received]) -> tuple[int, Records]:
    """Return the records in the form of a history, with the time."""
    by_key: Records = {}
    for record in records:
        by_key.setdefault(record.key, []).append((record.offset, record.value))
    return time.monotonic_ns(), by_key


class Client:
    """One client after the other, in one thread; each is a process of the history. Owner: the program."""

    poller: Poller | None = None

    def __init__(
        self, identity: str, name: str, bootstrap_servers: str, recorder: Recorder, stopping: threading.Event
    ) -> None:
        """Create the clients of one thread: `identity` is the same after a restart of the program, `name` is not."""
        self.recorder = recorder
        self.identity = identity
        self.options = {**CLIENT_OPTIONS, "bootstrap.servers": bootstrap_servers}
        self.process = ""
        self._stopping = stopping
        self.chance = random.Random(name)
        self._name = name
        self._lives = 0
        self._last_value = 0
        self._crash_at = 0.0
        #: Offset after the last record of each key that this thread has polled.
        self.positions = dict.fromkeys(KEYS, 0)

    def run(self) -> None:
        while not self._stopping.is_set():
            self._lives += 1
            self.process = f"{self._name}.{self._lives}"
            self._crash_at = time.monotonic() + self.chance.expovariate(1 / CRASH_EVERY_S)
            try:
                self.live()
            except CrashError:
                if self.poller is not None and self.chance.random() < 0.5:
                    self.poller.consumer.close()  # the others stay in their groups until their sessions end
            except confluent.KafkaException as error:
                print(f"{self.process} at {time.monotonic_ns()}: {error}", file=sys.stderr, flush=True)
                self._stopping.wait(0.1)

    def live(self) -> None:
        """Run one client until it crashes or the program ends."""
        raise NotImplementedError

    def goes_on(self) -> bool:
        """Return whether the program goes on; make the client crash now and then."""
        if time.monotonic() > self._crash_at:
            raise CrashError
        return not self._stopping.is_set()

    def values(self, count: int) -> list[tuple[str, str]]:
        keys = self.chance.choices(KEYS, k=count)
        return [(key, self.value()) for key in keys]

    def value(self) -> str:
        self._last_value += 1
        return f"{self._name}-{self._last_value}"

    def advance(self, records: list[Received]) -> None:
        for record in records:
            self.positions[record.key] = record.offset + 1

    def some_positions(self, keys: list[str]) -> dict[str, int]:
        """Return places at which a new consumer begins: at most 200 offsets before the last one's end."""
        return {key: max(0, self.positions[key] - self.chance.randint(0, 200)) for key in keys}


class Transactional(Client):
    """A transactional producer. Its subclasses know the contents of the transactions."""

    producer: confluent.Producer

    def start_producer(self) -> None:
        self.producer = confluent.Producer(
            {**self.options, "transactional.id": self.identity, "transaction.timeout.ms": 5_000, "linger.ms": 1}
        )
        patiently(lambda: self.producer.init_transactions(CALL_TIMEOUT_S))

    def produce(self, sends: list[tuple[str, str]], offsets: dict[str, int]) -> None:
        """Send the values; `offsets` receives the offset of each that is acknowledged."""

        def delivered(error: confluent.KafkaError | None, message: confluent.Message) -> None:
            if (offset := acknowledged_offset(error, message)) is not None:
                offsets[(message.value() or b"").decode()] = offset

        for key, value in sends:
            topic, partition = place(key)
            self.producer.produce(topic, value, partition=partition, on_delivery=delivered)

    def transact(
        self,
        number: int,
        sends: list[tuple[str, str]],
        contents: Callable[[dict[str, int], list[tuple[int, Records]]], None],
        must_abort: bool,
    ) -> bool:
        """Run one transaction, and write its end; return whether it is committed.

        Raises KafkaException if the producer is of no more use.
        """
        offsets: dict[str, int] = {}
        polls: list[tuple[int, Records]] = []
        outcome = INFO
        try:
            self.producer.begin_transaction()
            try:
                contents(offsets, polls)
                if must_abort:
                    patiently(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S))
                    outcome = FAIL
                else:
                    self.recorder.event(self.process, number, "commit")
                    patiently(lambda: self.producer.commit_transaction(CALL_TIMEOUT_S))
                    outcome = OK
            except confluent.KafkaException as error:
                if error.args[0].txn_requires_abort():
                    patiently(lambda: self.producer.abort_transaction(CALL_TIMEOUT_S))
                    outcome = FAIL
                raise
        finally:
            did = [(key, value, offsets.get(value)) for key, value in sends]
            self.recorder.event(self.process, number, outcome, sends=did, polls=polls)
        return outcome == OK
