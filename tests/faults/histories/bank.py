"""A bank whose tellers move money between accounts by transactions, and a clerk that checks each of them.

    python -m tests.faults.histories.bank TELLER BOOTSTRAP_SERVERS

A teller is a number below TELLERS. It carries out the transfers of its partition of `commands` for its accounts: the
accounts whose number modulo TELLERS is its own. A transaction has one or more transfers, and for each of them
two legs in `legs`, two balances in `accounts`, which is compacted, and its offset. A restarted teller reads its
balances from `accounts`. SIGTERM ends it after its transaction.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator

from support.late import confluent

from tests.faults.histories.clients import (
    CALL_TIMEOUT_S,
    CLIENT_OPTIONS,
    CONSUMER_OPTIONS,
    Received,
    patiently,
    received,
)
from tests.faults.histories.nemesis import run_threads

COMMANDS, LEGS, ACCOUNTS = "commands", "legs", "accounts"
TELLERS = 2
PARTITIONS = 3
ACCOUNT_COUNT = 12
#: Money of each account at first.
OPENING = 1000
TOTAL = ACCOUNT_COUNT * OPENING
ABORTED_SHARE = 0.15
TRANSFERS_MAX = 6


def keys(topic: str) -> list[confluent.TopicPartition]:
    return [confluent.TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)]


def read_all(bootstrap_servers: str, topic: str) -> list[Received]:
    """Return all committed records up to the present end. Waits until each transaction before it has ended."""
    options = {**CONSUMER_OPTIONS, "bootstrap.servers": bootstrap_servers, "group.id": "nobody"}
    asking = confluent.Consumer({**options, "isolation.level": "read_uncommitted"})
    reading = confluent.Consumer({**options, "isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        missing = {each.partition: asking.get_watermark_offsets(each, CALL_TIMEOUT_S)[1] for each in keys(topic)}
        missing = {partition: end for partition, end in missing.items() if end > 0}
        reading.assign([confluent.TopicPartition(topic, partition, 0) for partition in missing])
        found = []
        while missing:
            for message in reading.consume(1000, 0.1):
                if (error := message.error()) is None or error.code() != confluent.KafkaError._PARTITION_EOF:
                    found.append(received(message))
                elif (message.offset() or 0) >= missing.get(message.partition() or 0, 0):
                    missing.pop(message.partition() or 0, None)
        return found
    finally:
        asking.close()
        reading.close()


def balances(bootstrap_servers: str) -> dict[int, int]:
    """Return the balance of each account by the topic `accounts`."""
    found = dict.fromkeys(range(ACCOUNT_COUNT), OPENING)
    for record in read_all(bootstrap_servers, ACCOUNTS):
        leg = json.loads(record.value)
        found[leg["account"]] = leg["balance"]
    return found


def commands(chance: random.Random) -> Iterator[tuple[int, str]]:
    """Yield random transfers without an end, each with its teller."""
    while True:
        teller = chance.randrange(TELLERS)
        source, target = chance.sample(range(teller, ACCOUNT_COUNT, TELLERS), 2)
        yield teller, json.dumps({"source": source, "target": target, "amount": chance.randint(1, 50)})


class Teller:
    """One life of a teller after the other. Owner: the program."""

    def __init__(self, number: int, bootstrap_servers: str, stopping: threading.Event) -> None:
        self._name = f"teller-{number}"
        self._commands = confluent.TopicPartition(COMMANDS, number)
        self._options = {**CLIENT_OPTIONS, "bootstrap.servers": bootstrap_servers}
        self._bootstrap_servers = bootstrap_servers
        self._stopping = stopping
        self._chance = random.Random(time.monotonic_ns())

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._live()
            except confluent.KafkaException as error:
                print(f"{self._name}: {error}", file=sys.stderr, flush=True)
                self._stopping.wait(0.1)

    def _live(self) -> None:
        producer = confluent.Producer(
            {**self._options, "transactional.id": self._name, "transaction.timeout.ms": 5_000, "linger.ms": 1}
        )
        patiently(lambda: producer.init_transactions(CALL_TIMEOUT_S))
        consumer = confluent.Consumer(
            {**CONSUMER_OPTIONS, **self._options, "group.id": self._name, "isolation.level": "read_committed"}
        )
        try:
            self._go_to_committed(consumer)
            self._accounts = balances(self._bootstrap_servers)
            while not self._stopping.is_set():
                if messages := consumer.consume(self._chance.randint(1, TRANSFERS_MAX), 0.05):
                    self._transact(producer, consumer, [received(message) for message in messages])
        finally:
            consumer.close()

    def _go_to_committed(self, consumer: confluent.Consumer) -> None:
        (committed,) = consumer.committed([self._commands], CALL_TIMEOUT_S)
        if committed.error is not None:
            raise confluent.KafkaException(committed.error)
        consumer.assign([confluent.TopicPartition(COMMANDS, self._commands.partition, max(0, committed.offset))])

    def _transact(self, producer: confluent.Producer, consumer: confluent.Consumer, records: list[Received]) -> None:
        accounts = dict(self._accounts)
        producer.begin_transaction()
        first, last = records[0].offset, records[-1].offset
        for record in records:
            transfer = json.loads(record.value)
            for account, delta in ((transfer["source"], -transfer["amount"]), (transfer["target"], transfer["amount"])):
                accounts[account] += delta
                leg = {"account": account, "delta": delta, "balance": accounts[account]}
                leg |= {"teller": self._commands.partition, "command": record.offset, "first": first, "last": last}
                for topic in (LEGS, ACCOUNTS):
                    producer.produce(topic, json.dumps(leg), key=f"{account}", partition=account % PARTITIONS)
        offsets = [confluent.TopicPartition(COMMANDS, self._commands.partition, last + 1)]
        try:
            patiently(
                lambda: producer.send_offsets_to_transaction(
                    offsets, consumer.consumer_group_metadata(), CALL_TIMEOUT_S
                )
            )
            if self._chance.random() < ABORTED_SHARE:
                # An abort that overtakes its records leaves a gap in librdkafka's sequence numbers.
                producer.flush(CALL_TIMEOUT_S)
                patiently(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
                self._go_to_committed(consumer)
                return
            patiently(lambda: producer.commit_transaction(CALL_TIMEOUT_S))
        except confluent.KafkaException as error:
            if error.args[0].txn_requires_abort():
                patiently(lambda: producer.abort_transaction(CALL_TIMEOUT_S))
            raise
        self._accounts = accounts


class Clerk:
    """The books of a reader of `legs`: every transaction is whole, in its order, and keeps the sum."""

    def __init__(self) -> None:
        self.balances = dict.fromkeys(range(ACCOUNT_COUNT), OPENING)
        #: Transfers of each teller in the books, which is the offset of its next command.
        self.done = [0] * TELLERS
        self.transactions = 0
        self._last_seen = dict(self.balances)
        self._legs: dict[tuple[int, int], list[dict[str, int]]] = defaultdict(list)

    def add(self, leg: dict[str, int]) -> None:
        """Enter a leg, and each transaction that is whole now. Raises AssertionError if anything is wrong."""
        account = leg["account"]
        assert leg["balance"] == self._last_seen[account] + leg["delta"], f"{leg} after {self._last_seen[account]}"
        self._last_seen[account] = leg["balance"]
        teller = leg["teller"]
        assert leg["first"] >= self.done[teller], f"a transfer again: {leg}"
        self._legs[teller, leg["first"]].append(leg)
        while self._enter(teller):
            pass

    def _enter(self, teller: int) -> bool:
        """Enter the teller's next transaction if all its legs are there."""
        legs = self._legs.get((teller, self.done[teller]), [])
        if not legs or len(legs) < 2 * (legs[0]["last"] - legs[0]["first"] + 1):
            return False
        expected = sorted(2 * list(range(legs[0]["first"], legs[0]["last"] + 1)))
        assert sorted(leg["command"] for leg in legs) == expected, f"legs of two transactions: {legs}"
        for leg in legs:
            self.balances[leg["account"]] += leg["delta"]
        assert sum(self.balances.values()) == TOTAL, f"the sum is {sum(self.balances.values())} after {legs}"
        del self._legs[teller, self.done[teller]]
        self.done[teller] = legs[0]["last"] + 1
        self.transactions += 1
        return True

    @property
    def is_even(self) -> bool:
        """Whether no leg waits for another one."""
        return not self._legs and self._last_seen == self.balances


def main() -> None:
    teller, bootstrap_servers = sys.argv[1:]
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    run_threads({"teller": Teller(int(teller), bootstrap_servers, stopping).run})


if __name__ == "__main__":
    main()
