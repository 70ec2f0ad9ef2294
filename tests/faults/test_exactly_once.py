"""Exactly once: a copy between two topics by transactions, while kill -9 hits brokers and copier.

transactional_copier.py reads `source`, writes the same values to `copy`, and commits its offsets in the same
transaction. A consumer with isolation level read_committed sees each value once and in the order of its partition,
both while all of that happens and afterwards.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest
from support.late import confluent
from up_process import RunningUp

from tests.faults.histories.nemesis import BACK_TIMEOUT_S, Program
from tests.support.waiting import until

PARTITIONS = 3
TOPICS = ("--topics", f"source:{PARTITIONS},copy:{PARTITIONS}")
ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
ENVIRONMENT = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}
COPIER = "copier"


class CommittedReader:
    """A consumer of `copy` with isolation level read_committed, in a thread."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.values: dict[int, list[int]] = defaultdict(list)
        #: Partitions whose last stable offset the reader has reached at some time.
        self.ended: set[int] = set()
        self._stop = threading.Event()
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "reader",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "reconnect.backoff.max.ms": 200,
            }
        )
        self._consumer.assign([confluent.TopicPartition("copy", partition, 0) for partition in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        return sum(map(len, list(self.values.values())))

    def _run(self) -> None:
        while not self._stop.is_set():
            for record in self._consumer.consume(500, 0.1):
                if (error := record.error()) is None:
                    self.values[record.partition()].append(int(record.value()))
                elif error.code() == confluent.KafkaError._PARTITION_EOF:
                    self.ended.add(record.partition())

    def until(self, count: int) -> None:
        until(lambda: self.count >= count, lambda: f"{self.count} of {count} values")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(30)
        self._consumer.close()


def _fill(bootstrap_servers: str, begin: int, end: int) -> None:
    producer = confluent.Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "linger.ms": 5})
    for number in range(begin, end):
        producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(BACK_TIMEOUT_S) == 0


def copy_with_kills(up: RunningUp, victims: Sequence[str], per_kill: int, tmp_path: Path) -> None:
    """Copy, while the victims are killed one by one, and check that each value is seen once, in order.

    A kill hits among the values that were written since the one before.
    """
    total = (len(victims) + 1) * per_kill
    expected = {partition: list(range(partition, total, PARTITIONS)) for partition in range(PARTITIONS)}
    program = Program(COPIER, "tests.faults.transactional_copier", lambda _: [up.kafka], tmp_path / "copier.log")
    with program as copier, CommittedReader(up.kafka) as reader:
        for done, victim in zip(itertools.count(0, per_kill), victims):
            _fill(up.kafka, done, done + per_kill)
            reader.until(done + per_kill // 4)
            copier.kill_and_start() if victim == COPIER else up.kill(victim)
        _fill(up.kafka, total - per_kill, total)
        reader.until(total)
        copier.stop()
        assert dict(reader.values) == expected
    with CommittedReader(up.kafka) as again:
        until(lambda: len(again.ended) == PARTITIONS, lambda: again.ended)
    assert dict(again.values) == expected


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("arguments", "victims"),
    [((), ("broker", COPIER)), (("--processes",), ("storage-svc", "gateway-svc"))],
    ids=["combined", "separate"],
)
def test_a_copy_is_exact_though_processes_are_killed(
    arguments: tuple[str, ...], victims: tuple[str, ...], tmp_path: Path
) -> None:
    with RunningUp(*ANY_PORTS, *TOPICS, *arguments, environment=ENVIRONMENT) as up:
        copy_with_kills(up, victims, 600, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("arguments", "services"),
    [((), ("broker", COPIER)), (("--processes",), ("storage-svc", "gateway-svc", COPIER))],
    ids=["combined", "separate"],
)
def test_a_copy_is_exact_after_fifty_kills(
    arguments: tuple[str, ...], services: tuple[str, ...], tmp_path: Path, scaled: Callable[[int], int]
) -> None:
    kills = scaled(50)
    victims = random.Random(8).choices(services, k=kills)
    with RunningUp(*ANY_PORTS, *TOPICS, *arguments, environment=ENVIRONMENT) as up:
        copy_with_kills(up, victims, 400, tmp_path)
