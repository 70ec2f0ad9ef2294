"""The Kafka cluster of a pipeline: how the connector and Kafka's AdminClient in the JVM reach it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from spark_etl.errors import OutputError

ADMIN_REQUEST_MS = 10_000
ADMIN_CALL_MS = 20_000


@dataclass(frozen=True)
class Cluster:
    """Addresses of a cluster and the client properties (security, for example) of every client that connects to it."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)  # names of Kafka clients, without `kafka.`

    def connector(self) -> dict[str, str]:
        """Return the options of a reader or writer of format `kafka`."""
        own = {f"kafka.{name}": value for name, value in self.options.items()}
        return {**own, "kafka.bootstrap.servers": self.bootstrap_servers}

    @contextmanager
    def admin(self, session: SparkSession) -> Iterator["Admin"]:
        """Open an AdminClient of the JVM; its calls end after 20 s if no broker answers."""
        jvm = session._jvm
        assert jvm is not None
        properties = jvm.java.util.Properties()
        for name, value in {
            "request.timeout.ms": str(ADMIN_REQUEST_MS),
            "default.api.timeout.ms": str(ADMIN_CALL_MS),
            **self.options,
            "bootstrap.servers": self.bootstrap_servers,
        }.items():
            properties.setProperty(name, value)
        client = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        try:
            yield Admin(jvm, client)
        finally:
            client.close(jvm.java.time.Duration.ofSeconds(1))


class Admin:
    """The few administrative calls of a pipeline. A failure is an OutputError with Kafka's reason in one line."""

    def __init__(self, jvm: Any, client: Any) -> None:
        self._jvm = jvm
        self._client = client

    def exists(self, topic: str) -> bool:
        try:
            self._client.describeTopics(self._names(topic)).allTopicNames().get()
        except Py4JJavaError as error:
            if kafka_error(error)[0] == "UnknownTopicOrPartitionException":
                return False
            raise OutputError(f"topic {topic}: {': '.join(kafka_error(error))}") from None
        return True

    def create(self, topic: str) -> None:
        """Create a topic with the broker's default partitions and replicas, unless it exists."""
        none = self._jvm.java.util.Optional.empty()
        new = self._jvm.org.apache.kafka.clients.admin.NewTopic(topic, none, none)
        try:
            self._client.createTopics(self._jvm.java.util.Collections.singleton(new)).all().get()
        except Py4JJavaError as error:
            name, message = kafka_error(error)
            if name != "TopicExistsException":
                raise OutputError(f"topic {topic} cannot be created: {name}: {message}") from None

    def topic_setting(self, topic: str, name: str) -> str:
        """Return the value of a topic's setting, such as max.message.bytes, with the cluster's default applied."""
        kinds = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = kinds(getattr(self._jvm, f"{_CONFIG_RESOURCE}$Type").TOPIC, topic)
        try:
            found = self._client.describeConfigs(self._jvm.java.util.Collections.singleton(resource)).all().get()
        except Py4JJavaError as error:
            raise OutputError(f"topic {topic}: {': '.join(kafka_error(error))}") from None
        return str(found.get(resource).get(name).value())

    def _names(self, topic: str) -> Any:
        return self._jvm.java.util.Collections.singletonList(topic)


_CONFIG_RESOURCE = "org.apache.kafka.common.config.ConfigResource"


def kafka_error(error: Py4JJavaError) -> tuple[str, str]:
    """Return the class and message of the failure of a Kafka call, without the future's wrapper."""
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return str(cause.getClass().getSimpleName()), str(cause.getMessage())
