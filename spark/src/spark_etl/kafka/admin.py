"""Questions to a Kafka cluster by the AdminClient of the connector, which lives in the session's JVM.

No second Kafka client is needed: the driver has this one, with the same security options as the source.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError

from spark_etl.errors import ClusterError
from spark_etl.reasons import java_causes, reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANSWER_SECONDS = 12.0  # of one question; a pipeline whose broker is absent ends within 30 s
_KAFKA_ERRORS = "org.apache.kafka.common.errors."

Offsets = Mapping[str, Mapping[int, int]]  # topic → partition → the offset after the last record


class KafkaAdmin:
    """Answers about one cluster; use it only inside `opened()`."""

    def __init__(self, session: "SparkSession", client: Any, bootstrap_servers: str) -> None:
        jvm: Any = session._jvm
        self._jvm = jvm
        self._client = client
        self._bootstrap_servers = bootstrap_servers

    @classmethod
    @contextmanager
    def opened(
        cls, session: "SparkSession", bootstrap_servers: str, properties: Mapping[str, str] | None = None
    ) -> Iterator["KafkaAdmin"]:
        """Open a client. `properties` are those of Kafka's clients, without Spark's prefix `kafka.`."""
        jvm: Any = session._jvm
        answer_ms = str(int(ANSWER_SECONDS * 1000))
        values = {
            "bootstrap.servers": bootstrap_servers,
            "request.timeout.ms": answer_ms,
            "default.api.timeout.ms": answer_ms,
            **(properties or {}),
        }
        java_properties = jvm.java.util.Properties()
        for name, value in values.items():
            java_properties.setProperty(name, value)
        with _translated(bootstrap_servers):
            client = jvm.org.apache.kafka.clients.admin.AdminClient.create(java_properties)
        try:
            yield cls(session, client, bootstrap_servers)
        finally:
            client.close(jvm.java.time.Duration.ofSeconds(1))

    def cluster_id(self) -> str:
        return str(self._answer(self._client.describeCluster().clusterId()))

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str | None]:
        """Return the id of each topic, None for one that does not exist."""
        names = sorted(set(topics))
        futures = self._client.describeTopics(self._list(names)).topicNameValues()
        found: dict[str, str | None] = {}
        for name in names:
            try:
                found[name] = str(self._answer(futures[name], f"topic {name}").topicId())
            except UnknownTopicError:
                found[name] = None
        return found

    def topics(self) -> list[str]:
        """Return the names of all topics except internal ones."""
        return sorted(str(name) for name in self._answer(self._client.listTopics().names()))

    def exists(self, topic: str) -> bool:
        return self.topic_ids([topic])[topic] is not None

    def topic_setting(self, topic: str, name: str) -> str:
        """Return the value of a topic's setting, such as max.message.bytes, with the cluster's default applied."""
        kinds = self._jvm.org.apache.kafka.common.config
        resource = kinds.ConfigResource(getattr(kinds, "ConfigResource$Type").TOPIC, topic)
        found = self._answer(self._client.describeConfigs(self._list([resource])).all(), f"topic {topic}")
        return str(found.get(resource).get(name).value())

    def create_missing(self, topics: Iterable[str]) -> list[str]:
        """Create the topics that do not exist, with the broker's defaults; return their names."""
        missing = [name for name, topic_id in self.topic_ids(topics).items() if topic_id is None]
        if not missing:
            return []
        optional = self._jvm.java.util.Optional
        new_topic = self._jvm.org.apache.kafka.clients.admin.NewTopic
        wanted = self._list([new_topic(name, optional.empty(), optional.empty()) for name in missing])
        futures = self._client.createTopics(wanted).values()
        created = []
        for name in missing:
            try:
                self._answer(futures[name], f"topic {name}")
                created.append(name)
            except TopicExistsError:  # another driver was faster
                continue
        return created

    def end_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the offset after the last record of each partition."""
        return self._offsets(topics, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())

    def start_offsets(self, topics: Iterable[str]) -> dict[str, dict[int, int]]:
        """Return the offset of the first record of each partition."""
        return self._offsets(topics, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())

    def offsets_at(self, topics: Iterable[str], milliseconds: int) -> dict[str, dict[int, int]]:
        """Return the offset of each partition's first record of a time or later; -1 if there is none."""
        return self._offsets(topics, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(milliseconds))

    def commit(self, group: str, offsets: Offsets) -> None:
        """Store offsets as the committed ones of a group without members."""
        values = self._jvm.java.util.HashMap()
        with_metadata = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata
        for topic, partitions in offsets.items():
            for partition, offset in partitions.items():
                values.put(self._topic_partition(topic, partition), with_metadata(self._jvm.java.lang.Long(offset)))
        self._answer(self._client.alterConsumerGroupOffsets(group, values).all())

    def committed(self, group: str) -> dict[str, dict[int, int]]:
        """Return the committed offsets of a group; empty if it does not exist."""
        found: dict[str, dict[int, int]] = {}
        answer = self._answer(self._client.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata())
        for place in answer:
            if answer[place] is not None:
                found.setdefault(str(place.topic()), {})[int(place.partition())] = int(answer[place].offset())
        return found

    def _offsets(self, topics: Iterable[str], position: Any) -> dict[str, dict[int, int]]:
        names = sorted(set(topics))
        wanted = self._jvm.java.util.HashMap()
        futures = self._client.describeTopics(self._list(names)).topicNameValues()
        for name in names:
            for partition in self._answer(futures[name], f"topic {name}").partitions():
                wanted.put(self._topic_partition(name, int(partition.partition())), position)
        answer = self._answer(self._client.listOffsets(wanted).all())
        found: dict[str, dict[int, int]] = {name: {} for name in names}
        for place in answer:
            found[str(place.topic())][int(place.partition())] = int(answer[place].offset())
        return found

    def _topic_partition(self, topic: str, partition: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, partition)

    def _list(self, items: Iterable[Any]) -> Any:
        values = self._jvm.java.util.ArrayList()
        for item in items:
            values.add(item)
        return values

    def _answer(self, future: Any, subject: str = "") -> Any:
        with _translated(self._bootstrap_servers, subject):
            return future.get(int(ANSWER_SECONDS * 1000) + 1000, self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS)


class UnknownTopicError(ClusterError):
    """The topic does not exist."""


class TopicExistsError(ClusterError):
    """The topic exists already."""


class UnreachableError(ClusterError):
    """No broker answered in time."""

    transient = True


def unreachable(bootstrap_servers: str, text: str) -> UnreachableError:
    """Return the error of a cluster of which no broker answered; `text` is the client's reason."""
    return UnreachableError(
        f"no Kafka broker answered at {bootstrap_servers} within {ANSWER_SECONDS:g} s; one that expects another"
        f" kafka.security.protocol does not answer either ({text})"
    )


@contextmanager
def _translated(bootstrap_servers: str, subject: str = "") -> Iterator[None]:
    """Raise a ClusterError in the place of a Java exception; its text begins with the subject of the question."""
    try:
        yield
    except Py4JJavaError as error:
        root = java_causes(error)[-1]
        text = reason(error)
        if root == f"{_KAFKA_ERRORS}UnknownTopicOrPartitionException":
            raise UnknownTopicError(f"{subject}: {text}") from error
        if root == f"{_KAFKA_ERRORS}TopicExistsException":
            raise TopicExistsError(f"{subject}: {text}") from error
        if root.endswith((".TimeoutException", ".DisconnectException")):
            raise unreachable(bootstrap_servers, text) from error
        if root.endswith(".ConfigException") and "No resolvable bootstrap" in text:  # a container that is to start yet
            raise UnreachableError(f"no address is known of {bootstrap_servers}") from error
        raise ClusterError(f"{subject or f'Kafka at {bootstrap_servers}'}: {text}") from error
