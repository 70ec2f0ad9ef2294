"""A topic as it exists now, its id, and the logs of its partitions as this package sees them."""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.names import INTERNAL_TOPICS

ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)

NO_ID: Final = bytes(16)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    id: bytes
    partition_count: int
    #: The configs set for this topic alone.
    configs: Mapping[str, str]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS

    @property
    def partitions(self) -> list[TopicPartition]:
        return [(self.name, index) for index in range(self.partition_count)]


class Log(Protocol[ConfigT_contra]):
    """One partition's log."""

    @property
    def topic_id(self) -> bytes: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def configure(self, config: ConfigT_contra) -> None: ...
    def withhold(self, reason: str) -> None: ...


class Logs(Protocol[ConfigT_contra]):
    """The directory of all logs, by (topic, partition). Deletions return the names of topics that are not gone."""

    @property
    def logs(self) -> Mapping[TopicPartition, Log[ConfigT_contra]]: ...
    def create_many(self, topic: str, partitions: Iterable[int], topic_id: bytes, config: ConfigT_contra) -> object: ...
    def make_missing(
        self, topic: str, partitions: Iterable[int], topic_id: bytes, config: ConfigT_contra
    ) -> object: ...
    def identify(self, topic: str, partition: int, topic_id: bytes) -> None: ...
    def delete_at_once(self, partitions: Collection[TopicPartition]) -> Collection[str]: ...
    async def delete_many(self, partitions: Sequence[TopicPartition]) -> Collection[str]: ...


def spelled(topic_id: bytes) -> str:
    """Return an id in 22 characters, as Kafka writes ids."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def new_topic_id() -> bytes:
    """Return a random id whose base64 form does not begin with '-', which command lines would read as an option
    (Kafka)."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id
