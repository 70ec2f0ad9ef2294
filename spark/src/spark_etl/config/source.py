"""The `source` section: topics to read, and the place where a new pipeline begins. The `kafka` section: client options.

source:
  topics: [orders]                  # or pattern: orders\\..*
  start: earliest                   # latest, {timestamp: 2026-01-31T00:00:00Z}, {offsets: {orders: {0: 17}}}
  isolation: read_committed
  min_partitions: 8                 # tasks of a batch, at least
  max_offsets_per_trigger: 50000
  client: {request.timeout.ms: 60000}
kafka: {security.protocol: SASL_SSL, sasl.mechanism: SCRAM-SHA-512, sasl.jaas.config: "${JAAS}"}
"""

import json
import re
import warnings
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import Field, RootModel, SecretStr, field_validator, model_validator

from spark_etl.config.clients import ConsumerOptions
from spark_etl.config.model import Section, Topic

Partition = Annotated[int, Field(ge=0, le=2**31 - 1)]
Offset = Annotated[int, Field(ge=0, le=2**63 - 1)] | Literal["earliest", "latest"]
_SPECIAL = {"earliest": -2, "latest": -1}


class StartTimestamp(Section):
    """A start at the first record of each partition that is not older, or at the end of a partition without one."""

    timestamp: datetime

    @field_validator("timestamp")
    @classmethod
    def _in_utc(cls, value: datetime) -> datetime:
        value = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if value.timestamp() < 0:
            raise ValueError("must not be before 1970")
        return value

    @property
    def milliseconds(self) -> int:
        return int(self.timestamp.timestamp() * 1000)


class StartOffsets(Section):
    """A start at these offsets. Every partition must be listed: Spark refuses a part of them."""

    offsets: dict[Topic, dict[Partition, Offset]] = Field(min_length=1)

    @property
    def numbers(self) -> dict[str, dict[int, int]]:
        """The offsets as the connector counts them: -2 is the first one, -1 that after the last."""
        return {
            topic: {number: _SPECIAL[at] if isinstance(at, str) else at for number, at in partitions.items()}
            for topic, partitions in self.offsets.items()
        }

    @property
    def document(self) -> str:
        """The JSON text that the connector reads as startingOffsets."""
        return json.dumps(self.numbers)


class Source(Section):
    topics: list[Topic] = Field(default=[], max_length=10_000)
    pattern: str | None = Field(default=None, min_length=1, max_length=1_000)
    start: Literal["earliest", "latest"] | StartTimestamp | StartOffsets = "earliest"
    isolation: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    min_partitions: int | None = Field(default=None, ge=1, le=100_000)
    max_offsets_per_trigger: int | None = Field(default=None, ge=1)
    max_bytes_per_trigger: int | None = Field(default=None, ge=1)
    on_topic_change: Literal["fail", "restart"] = "fail"
    on_data_loss: Literal["fail", "continue"] = "fail"
    client: ConsumerOptions = ConsumerOptions({})

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, value: str | None) -> str | None:
        """Refuse a text that is no regular expression, or one that Java reads otherwise: sets inside of sets."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", FutureWarning)
                re.compile(value or "")
        except (re.error, FutureWarning) as error:
            raise ValueError(f"not a regular expression: {error}") from None
        return value

    @model_validator(mode="after")
    def _names_topics(self) -> Self:
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError("either topics or pattern is needed")
        if isinstance(self.start, StartOffsets) and self.topics:
            others = sorted(set(self.topics) ^ set(self.start.offsets))
            if others:
                raise ValueError(f"start.offsets and topics must name the same topics, {others[0]} is in one only")
        return self

    def matches(self, topic: str) -> bool:
        """Return whether the pattern covers a topic. The connector asks Java: see `_is_a_pattern`."""
        return self.pattern is not None and re.fullmatch(self.pattern, topic) is not None

    def reads(self, topic: str) -> bool:
        """Return whether the source has a topic of this name."""
        return topic in self.topics or self.matches(topic)


class KafkaOptions(RootModel[dict[str, SecretStr]]):
    """The client options of every connection of a pipeline: of security only. Values are never printed."""

    @field_validator("root", mode="before")
    @classmethod
    def _of_security(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            raise ValueError("must be a mapping of client options")
        for name in value:
            if not re.match(r"^(security|sasl|ssl)\.[a-z.]{1,100}$", str(name)):
                raise ValueError(f"{str(name)[:100]}: only options that begin with security., sasl. or ssl.")
        return {name: str(item) if isinstance(item, int | float) else item for name, item in value.items()}

    @property
    def properties(self) -> dict[str, str]:
        """The options as a Kafka client reads them."""
        return {name: secret.get_secret_value() for name, secret in self.root.items()}
