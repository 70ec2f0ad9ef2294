"""A bank on transactions, under random faults: the sum of all accounts is kept by every transaction.

`histories/bank.py` has the tellers and the clerk. A reader with isolation level read_committed keeps books at the
same time, and a new one does so at the end. Both see each transfer once, in order, with both legs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from support.late import confluent
from up_process import RunningUp

from tests.faults.histories.bank import (
    ACCOUNTS,
    COMMANDS,
    LEGS,
    PARTITIONS,
    TELLERS,
    TOTAL,
    Clerk,
    balances,
    commands,
    keys,
    read_all,
)
from tests.faults.histories.clients import CLIENT_OPTIONS, CONSUMER_OPTIONS, received
from tests.faults.histories.nemesis import Nemesis, Program
from tests.support.waiting import until

ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
TOPICS = ("--topics", f"{COMMANDS}:{TELLERS},{LEGS}:{PARTITIONS}")
ENVIRONMENT = {
    "MILLRACE_LOG_CLEANER_BACKOFF_MS": "500",
    "MILLRACE_TRANSACTION_ABORT_TIMED_OUT_TRANSACTION_CLEANUP_INTERVAL_MS": "1000",
}
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
#: Commands that are not carried out.
BACKLOG_MAX = 60
LAYOUTS = [((), ("broker",)), (("--processes",), ("storage-svc", "gateway-svc"))]


class Loop:
    """Something that a thread repeats until the end of a `with`."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.step()

    def step(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Customers(Loop):
    """The senders of commands. They wait while the tellers are busy."""

    def __init__(self, bootstrap_servers: str, clerk: Clerk) -> None:
        super().__init__()
        self._clerk = clerk
        self._commands = commands(random.Random(5))
        options = {"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "message.timeout.ms": 120_000}
        self._producer = confluent.Producer({**CLIENT_OPTIONS, **options})
        self._chance = random.Random(6)
        self.failures: list[object] = []
        #: Commands of each teller.
        self.sent = [0] * TELLERS

    def step(self) -> None:
        if sum(self.sent) < sum(self._clerk.done) + BACKLOG_MAX:
            for teller, command in itertools.islice(self._commands, self._chance.randint(1, 20)):
                self._producer.produce(COMMANDS, command, partition=teller, on_delivery=self._delivered)
                self.sent[teller] += 1
        self._producer.poll(0.01)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failures.append(error)

    def stop(self) -> None:
        super().stop()
        self._producer.flush(60)
        assert self.failures == []


class Reading(Loop):
    """A consumer of committed legs, which a clerk enters as they come."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__()
        self.clerk = Clerk()
        self.failures: list[object] = []
        options = {"bootstrap.servers": bootstrap_servers, "group.id": "nobody", "isolation.level": "read_committed"}
        self._consumer = confluent.Consumer({**CONSUMER_OPTIONS, **options})
        self._consumer.assign(keys(LEGS))

    def step(self) -> None:
        try:
            for message in self._consumer.consume(1000, 0.1):
                self.clerk.add(json.loads(received(message).value))
        except (AssertionError, confluent.KafkaException) as error:
            self.failures.append(error)
            self._stopping.set()

    def stop(self) -> None:
        super().stop()
        self._consumer.close()


def make_accounts(bootstrap_servers: str) -> None:
    topic = confluent.admin.NewTopic(ACCOUNTS, PARTITIONS, config=COMPACTED)
    admin = confluent.admin.AdminClient({"bootstrap.servers": bootstrap_servers})
    for made in admin.create_topics([topic]).values():
        made.result(30)


def bank_under_faults(up: RunningUp, services: Sequence[str], duration_s: float, tmp_path: Path) -> tuple[Clerk, str]:
    """Run the bank with faults until all commands are carried out; return the books and a line of figures."""
    make_accounts(up.kafka)
    with contextlib.ExitStack() as held:
        programs = []
        for number in range(TELLERS):

            def arguments(_: int, number: int = number) -> Sequence[str]:
                return f"{number}", up.kafka

            log_path = tmp_path / f"teller-{number}.log"
            teller = Program(f"teller-{number}", "tests.faults.histories.bank", arguments, log_path)
            programs.append(held.enter_context(teller))
        reading = held.enter_context(Reading(up.kafka))
        customers = held.enter_context(Customers(up.kafka, reading.clerk))
        nemesis = Nemesis(up, services, programs, seed=11)
        nemesis.run(duration_s)
        customers.stop()
        clerk = reading.clerk
        until(lambda: clerk.done == customers.sent or reading.failures, lambda: f"{clerk.done} of {customers.sent}")
        assert reading.failures == []
        for program in programs:
            program.stop()
    faults = dict(Counter(fault.name for fault in nemesis.faults))
    return (
        clerk,
        f"{sum(clerk.done)} transfers in {clerk.transactions} transactions; {len(nemesis.faults)} faults: {faults}",
    )


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("arguments", "services"), LAYOUTS, ids=["combined", "separate"])
def test_a_bank_keeps_its_sum(
    tmp_path: Path, arguments: tuple[str, ...], services: tuple[str, ...], figures: Any, scaled: Callable[[int], int]
) -> None:
    data = ("--data-dir", str(tmp_path / "data"))
    with RunningUp(*ANY_PORTS, *TOPICS, *data, *arguments, environment=ENVIRONMENT) as up:
        clerk, line = bank_under_faults(up, services, scaled(150), tmp_path)
        again = Clerk()
        for record in read_all(up.kafka, LEGS):
            again.add(json.loads(record.value))
        kept = len(read_all(up.kafka, ACCOUNTS))
        assert (again.done, again.balances, again.is_even) == (clerk.done, clerk.balances, True)
        assert balances(up.kafka) == clerk.balances
        assert sum(clerk.balances.values()) == TOTAL
    figures(f"{line}; {kept} of {2 * sum(clerk.done)} balances left by compaction; the sum is exact")
    assert clerk.transactions > 10
