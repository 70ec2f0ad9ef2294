"""The Kafka cluster of a pipeline: how the connector and Kafka's AdminClient in the JVM reach it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spark_etl.kafka.admin import KafkaAdmin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Options of every frame that reads. At the end of a partition, the consumer leaves a fetch at the broker that waits
#: for more records. The connector's question for the newest offset has to wait for it: 500 ms a task by default.
READING = {"kafka.fetch.max.wait.ms": "10"}


@dataclass(frozen=True)
class Cluster:
    """Addresses of a cluster and the client properties (security, for example) of every client that connects to it."""

    bootstrap_servers: str
    options: Mapping[str, str] = field(default_factory=dict)  # names of Kafka clients, without `kafka.`

    def connector(self) -> dict[str, str]:
        """Return the options of a writer of format `kafka`."""
        own = {f"kafka.{name}": value for name, value in self.options.items()}
        return {**own, "kafka.bootstrap.servers": self.bootstrap_servers}

    def reading(self) -> dict[str, str]:
        """Return the options of a reader of format `kafka`."""
        return {**self.connector(), **READING}

    @contextmanager
    def admin(self, session: "SparkSession") -> Iterator[KafkaAdmin]:
        """Open an AdminClient of the JVM; its calls end after 12 s if no broker answers."""
        with KafkaAdmin.opened(session, self.bootstrap_servers, self.options) as admin:
            yield admin
