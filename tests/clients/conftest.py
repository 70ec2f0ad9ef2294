"""The client against Apache Kafka and against Millrace: a test with the fixture `broker` runs against both.

`await broker.needs(ApiKey.X)` skips a test where the broker does not serve an API, by its ApiVersions.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest
from millrace.broker import Broker
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Cluster, Connection, SpecialTimestamp, TopicPartition
from protocol_lib.client.settings import Address
from protocol_lib.client.topic_offsets import list_offsets
from protocol_lib.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

_NUMBERS = itertools.count()


@dataclass(frozen=True)
class RunningBroker:
    """A broker of either kind, shared by every test: names of topics and groups come from `name`."""

    kind: str
    bootstrap: str
    #: smallest session timeout of members that the broker accepts
    session_timeout_min_ms: int = 6_000

    def settings(self, **options: object) -> ClientSettings:
        return ClientSettings(bootstrap_servers=self.bootstrap, **options)  # type: ignore[arg-type]

    @staticmethod
    def name(stem: str) -> str:
        """Return a name that no other test uses."""
        return f"{stem}-{os.getpid()}-{next(_NUMBERS)}"

    async def needs(self, *keys: ApiKey) -> None:
        """Skip the test when the broker does not serve these."""
        connection = await Connection.open(Address.parse(self.bootstrap), self.settings())
        connection.close()
        missing = [key.name for key in keys if key not in connection.versions]
        if missing:
            pytest.skip(f"{self.kind} does not serve {', '.join(missing)}")

    async def topic(self, stem: str = "topic", partitions: int = 1, **configs: str) -> str:
        """Create a topic for one test. Returns its name."""
        name = self.name(stem)
        cluster = Cluster(self.settings())
        try:
            await cluster.start()
            settings = tuple(CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in configs.items())
            topic = CreatableTopic(
                name=name, num_partitions=partitions, replication_factor=1, assignments=(), configs=settings
            )
            response = await cluster.controller_request(CreateTopicsRequest(topics=(topic,)))
            assert response.topics[0].error_code == 0, response.topics[0].error_message
            while len((await cluster.topic(name)).partitions) < partitions:
                await cluster.refresh()
            # Kafka's broker lists partitions a moment before it leads them: with acks=0 records would be lost silently.
            await list_offsets(
                cluster, {TopicPartition(name, index): SpecialTimestamp.LATEST for index in range(partitions)}
            )
        finally:
            await cluster.close()
        return name


@pytest.fixture(scope="session")
def millrace() -> Iterator[RunningBroker]:
    with Broker(
        group_min_session_timeout_ms=1_000, transaction_abort_timed_out_transaction_cleanup_interval_ms=200
    ) as broker:
        yield RunningBroker("Millrace", broker.bootstrap_servers, session_timeout_min_ms=1_000)


@pytest.fixture(scope="session")
def kafka(apache_kafka) -> RunningBroker:
    return RunningBroker("Apache Kafka", apache_kafka.bootstrap)


@pytest.fixture(params=["kafka", "millrace"])
def broker(request: pytest.FixtureRequest) -> RunningBroker:
    found: RunningBroker = request.getfixturevalue(request.param)
    return found


@pytest.fixture
async def cluster(broker: RunningBroker) -> AsyncIterator[Cluster]:
    """A started Cluster for one test."""
    started = Cluster(broker.settings())
    await started.start()
    yield started
    await started.close()
