"""kafka-clients' transactional producer (transaction.version 2): the same outcomes with Apache Kafka and Millrace."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from conformance.building import TOOLS, built
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

RUN = (
    "java",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
    "-cp",
    "target/classes:target/lib/*",
    "Transactions",
)
OUTCOMES = """\
epochs: [1, 2, 3, 4]
committed: [[0-0, 2-0], [0-1, 2-1]]
all: [[0-0, 1-0, 2-0, 3-0], [0-1, 1-1, 2-1, 3-1]]
fenced commit: ProducerFencedException
fenced begin: ProducerFencedException
fenced send: InvalidProducerEpochException
after fences: [[kept], []]
epoch after the time-out: 1
late commit: InvalidTxnStateException
after a time-out: [[], []]
too long a timeout: KafkaException
classic offsets after an abort: []
classic offsets: [0=3copied, 1=3copied]
classic copy: [[0, 2, 4], [1, 3, 5]]
consumer offsets after an abort: []
consumer offsets: [0=3copied, 1=3copied]
consumer copy: [[0, 2, 4], [1, 3, 5]]
"""


def outcomes(bootstrap: str, prefix: str, need: Callable[..., None]) -> str:
    need(*TOOLS["java"])
    done = subprocess.run([*RUN, bootstrap, prefix], cwd=built("java"), capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return done.stdout


def test_every_outcome_with_apache_kafka(apache_kafka: ApacheKafka, need: Callable[..., None]) -> None:
    assert outcomes(apache_kafka.bootstrap, "transactions", need) == OUTCOMES


def test_every_outcome_with_millrace(bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    assert outcomes(bootstrap, f"transactions-{layout}", need) == OUTCOMES
