"""No late or repeated request tears a transaction of kafka-clients (transaction.version 2, KIP-890).

A proxy delays Produce, EndTxn and InitProducerId beyond the client's timeouts, loses answers and cuts connections. The
requests then arrive when the client has aborted, or has begun the next transaction. A read_committed consumer must see
all records of a transaction or none of them, in order: all of each that was committed, none of each that was aborted.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable

import confluent_kafka
import confluent_kafka.admin
import pytest
from clients.disturbances import disturbed
from clients.proxy import KafkaProxy
from conformance.building import TOOLS, built, java_program
from conformance.transaction_traces import Trace, log_lines, state_lines
from protocol_lib.api import ApiKey

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

#: The program ends after this number of committed transactions: it makes several a second.
COMMITS = 20
TIMEOUT_S = 90
LATE = {ApiKey.PRODUCE, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID}
RUN = java_program("DisturbedTransactions")


def committed(bootstrap: str, topic: str) -> dict[int, dict[int, list[int]]]:
    """Return the committed records by transaction and partition, as numbers within their transaction."""
    options = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.partition.eof": True}
    consumer = confluent_kafka.Consumer(options)
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0) for partition in range(2)])
    found: dict[int, dict[int, list[int]]] = defaultdict(lambda: {0: [], 1: []})
    last = {0: -1, 1: -1}
    ended: set[int] = set()
    while len(ended) < 2:
        record = consumer.poll(30)
        assert record is not None
        partition = record.partition()
        if record.error() is not None:
            ended.add(partition)
            continue
        transaction, number = map(int, record.value().split(b"-"))
        assert transaction >= last[partition]
        last[partition] = transaction
        found[transaction][partition].append(number)
    consumer.close()
    return dict(found)


async def run(bootstrap: str, topic: str, folder: str, seed: int) -> tuple[dict[int, str], Counter[str], Trace]:
    """Return the outcome of each transaction, the number of disturbances by kind, and the requests that passed."""
    draw = random.Random(seed)
    async with KafkaProxy(bootstrap) as proxy:
        trace = Trace(proxy)
        async with disturbed(proxy, random.Random(-seed), stall_s=0.2) as network:
            proxy.request_delay = lambda key: draw.choice((0.2, 0.5, 1.0)) if late(key) else 0.0

            def late(key: ApiKey) -> bool:
                is_late = key in LATE and draw.random() < 0.2
                network.kinds["late"] += is_late
                return is_late

            program = await asyncio.create_subprocess_exec(
                *RUN, proxy.bootstrap, topic, str(COMMITS), str(TIMEOUT_S), cwd=folder, stdout=asyncio.subprocess.PIPE
            )
            output, _ = await asyncio.wait_for(program.communicate(), TIMEOUT_S + 30)
        assert program.returncode == 0
    rows = (line.split() for line in output.decode().splitlines())
    return {int(number): outcome for number, outcome in rows}, network.kinds, trace


def check(outcomes: dict[int, str], found: dict[int, dict[int, list[int]]]) -> None:
    """Raise AssertionError if a transaction was torn, or a consumer saw another outcome than the producer."""
    whole = {0: [0, 2, 4], 1: [1, 3, 5]}
    assert found == dict.fromkeys(found, whole)
    expected = {number for number, outcome in outcomes.items() if outcome == "committed"}
    aborted = {number for number, outcome in outcomes.items() if outcome == "aborted"}
    assert expected - found.keys() == set()
    assert aborted & found.keys() == set()
    assert len(expected) == COMMITS


def report(bootstrap: str, topic: str, outcomes: dict[int, str], trace: Trace) -> str:
    """Return the requests that passed the proxy, and the logs that the broker made of them."""
    lines = [*trace.lines(), *log_lines(bootstrap, topic, 2), *state_lines(bootstrap, topic)]
    return "\n".join([*lines, f"outcomes {outcomes}"])


async def test_late_requests_tear_no_transaction(bootstrap: str, layout: str, need: Callable[..., None]) -> None:
    need(*TOOLS["java"])
    folder = await asyncio.to_thread(built, "java")
    topic = f"late-{layout}"
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(topic, 2)])[topic].result(30)

    outcomes, kinds, trace = await run(bootstrap, topic, str(folder), 890)

    # A producer of the same id ends what the last one left open.
    last = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    last.init_transactions(30)
    print(await asyncio.to_thread(report, bootstrap, topic, outcomes, trace))  # shown if the test fails
    check(outcomes, await asyncio.to_thread(committed, bootstrap, topic))
    assert kinds["late"] >= 5
