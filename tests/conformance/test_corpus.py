"""The recorded requests of stock clients (tests/corpus) get the same answers from Apache Kafka and from Millrace."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pprint import pformat

import pytest
from conformance.raw_connection import Connection, until_led
from millrace.broker import Broker
from protocol_lib.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from support.kafka_broker import ApacheKafka
from support.maven import need_java
from up_process import RunningUp

from tests.corpus.frames import RECORDED, Recording, names
from tests.corpus.replay import Answer, Replay
from tests.corpus.state import PARTITIONS, fill

pytestmark = pytest.mark.conformance

BYTES_MAX = 300_000
#: Nobody waits for more members, and targets are computed at once.
QUICK_GROUPS = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "MILLRACE_GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS": "0"}
#: Recordings grow old.
KEEP = CreatableTopicConfig(name="retention.ms", value="-1")
#: Requests of versions that Kafka 4 does not serve.
DROPPED: dict[str, int] = {}
#: The answers to each recording; its groups and topics have changed when the next layout is asked.
_kafkas_answers: dict[str, list[Answer]] = {}


@dataclass
class Peer:
    """A broker in the state in which each recording began."""

    bootstrap: str
    topic_ids: dict[str, bytes] = field(default_factory=dict)

    def prepare(self) -> None:
        connection = Connection(self.bootstrap)
        for name in names():
            topic = f"corpus-{name}"
            made = CreatableTopic(
                name=topic, num_partitions=PARTITIONS, replication_factor=1, assignments=(), configs=(KEEP,)
            )
            created = connection.call(19, 7, CreateTopicsRequest(topics=(made,), timeout_ms=10_000)).topics[0]
            assert created.error_code == 0
            self.topic_ids[topic] = bytes(created.topic_id)
            until_led(self.bootstrap, topic, PARTITIONS)
            fill(self.bootstrap, topic)
        for name in names():  # Kafka makes __consumer_offsets for the first of them
            deadline = time.monotonic() + 60
            groups = tuple(f"corpus-{name}{suffix}" for suffix in ("", "-classic", "-consumer", "-new"))
            asked = FindCoordinatorRequest(key_type=0, coordinator_keys=groups)
            while any(each.error_code for each in connection.call(10, 4, asked).coordinators):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        while connection.call(22, 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)).error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        connection.close()

    def answers(self, name: str) -> list[Answer]:
        topic = f"corpus-{name}"
        replay = Replay(self.bootstrap, Recording.read(name), topic, {topic: self.topic_ids[topic]})
        return asyncio.run(replay.run())


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    need_java()
    settings = {"group.consumer.assignment.interval.ms": "0", "group.consumer.assignor.offload.enable": "false"}
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), settings) as node:
        peer = Peer(node.bootstrap)
        peer.prepare()
        yield peer


@pytest.fixture(scope="module", params=["combined", "separate"])
def millrace(request: pytest.FixtureRequest) -> Iterator[Peer]:
    with contextlib.ExitStack() as running:
        if request.param == "combined":
            broker = running.enter_context(Broker(group_consumer_assignment_interval_ms=0))
            peer = Peer(broker.bootstrap_servers)
        else:
            arguments = ("--kafka-port", "0", "--http-port", "0", "--processes")
            peer = Peer(running.enter_context(RunningUp(*arguments, environment=QUICK_GROUPS)).kafka)
        peer.prepare()
        yield peer


@pytest.mark.parametrize("name", names())
def test_a_clients_requests_get_the_same_answers(name: str, kafka: Peer, millrace: Peer) -> None:
    if name not in _kafkas_answers:
        _kafkas_answers[name] = kafka.answers(name)
    expected, answers = _kafkas_answers[name], millrace.answers(name)
    # Kafka 4 has dropped versions that Millrace still serves: it closes the connection.
    compared = [(one, other) for one, other in zip(answers, expected, strict=True) if other[1] != "closed"]
    dropped = Counter(name for name, answer in expected if answer == "closed" and "ApiVersions" not in name)
    assert dropped.total() <= DROPPED.get(name, 0), dropped
    differing = [
        "\n".join(
            difflib.unified_diff(*(pformat(each, width=100).splitlines() for each in (other, one)), "Kafka", "ours")
        )
        for one, other in compared
        if one != other
    ]
    assert not differing, "\n".join(differing)


def test_the_recordings_are_small() -> None:
    assert sum(path.stat().st_size for path in RECORDED.glob("*.gz")) < BYTES_MAX
