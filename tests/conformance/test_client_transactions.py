"""Transactions of kafka-clients, franz-go, sarama and KafkaJS: the same outcomes with Apache Kafka and Millrace.

Each client's program commits and aborts, is fenced, lets transactions time out, and copies records with the offsets of
its group. tests/clients do the same with the other clients.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from conformance.building import TOOLS, built, java_program
from support.kafka_broker import ApacheKafka

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

CLIENTS = {"franz-go": ("bin/transactions",), "sarama": ("bin/transactions",), "kafkajs": ("node", "transactions.js")}
CLIENTS["java"] = java_program("Transactions")
#: Errors of a commit and a send after a fence, and after a time-out: franz-go's client has transaction.version 2.
#: sarama prints numbers; 90 is PRODUCER_FENCED, 47 INVALID_PRODUCER_EPOCH.
REFUSALS = {
    "franz-go": ('"PRODUCER_FENCED"', '"INVALID_PRODUCER_EPOCH"', '"INVALID_TXN_STATE"', '"INVALID_PRODUCER_EPOCH"'),
    "sarama": ("90", "47", "90", "47"),
    "kafkajs": ('"INVALID_PRODUCER_EPOCH"',) * 4,
}
OUTCOMES = """\
committed: [["0-0","2-0","end"],["0-1","2-1","end"]]
all: [["0-0","1-0","2-0","3-0","end"],["0-1","1-1","2-1","3-1","end"]]
refused commit: {0}
refused send: {1}
committed: [["end"],["end"]]
all: [["lost","end"],["lost","end"]]
refused commit: {2}
refused send: {3}
committed: [["end"],["end"]]
all: [["lost","end"],["lost","end"]]
offsets after an abort: []
offsets: ["0=9","1=9"]
copy: [["0-0","2-0","end"],["0-1","2-1","end"]]
"""
#: kafka-clients has transaction.version 2, and copies with both kinds of group.
JAVAS_OUTCOMES = """\
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


def check(client: str, bootstrap: str, prefix: str) -> None:
    done = subprocess.run(
        [*CLIENTS[client], bootstrap, prefix], cwd=built(client), capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout == (JAVAS_OUTCOMES if client == "java" else OUTCOMES.format(*REFUSALS[client]))


@pytest.mark.parametrize("client", CLIENTS)
def test_every_outcome_with_apache_kafka(client: str, apache_kafka: ApacheKafka, need: Callable[..., None]) -> None:
    need(*TOOLS[client])
    check(client, apache_kafka.bootstrap, f"transactions-{client}")


@pytest.mark.parametrize("client", CLIENTS)
def test_every_outcome_with_millrace(client: str, bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    need(*TOOLS[client])
    check(client, bootstrap, f"transactions-{client}-{layout}")
