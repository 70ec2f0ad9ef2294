"""Topics as they exist now: the catalog's rows and the directories of their partitions, kept in step.

Creating: the topic's id becomes a deletion, then the directories are made, then the deletion becomes the topic's row.
So the next start removes a topic that was refused, or that a crash left half made.
Growing: the new partitions' directories are made, then the row's number is raised. A start removes the empty ones of a
growth that a crash cut off.
Deleting: the row becomes a deletion, then the directories get other names, durably, then the deletion is forgotten;
after a crash a start finishes the rest. Until then no topic of that name can be created.

A start makes the missing directories of each row. It never removes a directory that neither a row nor a deletion
explains: its topic is adopted into the catalog under the id in its partition.metadata, and a warning says so. One whose
number is too large, or whose topic has no legal name, is withheld.

A directory without an id gets its topic's. So does one whose id differs from its topic's in one character (a damaged
byte: two random ids never come that close). One whose id contradicts its topic's row is withheld, for a person to
decide: that partition is offline, all others are served.

The logs are seen through the Protocols below, so that this package does not know the log package.
Owner: the storage service's event loop.
"""

from __future__ import annotations

import asyncio
import uuid
from base64 import urlsafe_b64encode
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, Protocol, TypeVar

from service_chassis import logs as service_logs

from storage_svc.topics.catalog import Catalog, CatalogError, CatalogTopic
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS
from storage_svc.topics.names import INTERNAL_TOPICS, name_fault

log = service_logs.get(__name__)

#: The configs of a topic of unknown settings: nothing of it is deleted until an operator says so.
_ADOPTED: Final[Mapping[str, str]] = {"retention.ms": "-1"}
_ADOPTED_INTERNAL: Final = OFFSETS_TOPIC_CONFIGS

#: The number of partitions made at a time: each takes 0.2 ms, or 0.6 ms on a busy machine, so ten hold up the event
#: loop for 2 to 6 ms.
_STEP: Final = 10

ConfigT = TypeVar("ConfigT")
ConfigT_contra = TypeVar("ConfigT_contra", contravariant=True)

NO_ID = bytes(16)


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
    """The directory of all logs, by (topic, partition)."""

    @property
    def logs(self) -> Mapping[tuple[str, int], Log[ConfigT_contra]]: ...
    def create_many(self, topic: str, partitions: Iterable[int], topic_id: bytes, config: ConfigT_contra) -> object: ...
    def make_missing(
        self, topic: str, partitions: Iterable[int], topic_id: bytes, config: ConfigT_contra
    ) -> object: ...
    def identify(self, topic: str, partition: int, topic_id: bytes) -> None: ...
    def delete_at_once(self, topic: str, partitions: Sequence[int]) -> bool: ...
    async def delete_many(self, topic: str, partitions: Sequence[int]) -> bool: ...


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


class TopicRegistry(Generic[ConfigT]):
    def __init__(
        self,
        catalog: Catalog,
        logs: Logs[ConfigT],
        log_config: Callable[[Mapping[str, str]], ConfigT],
        partitions_max: int = 2**31,
    ) -> None:
        self._catalog = catalog
        self._logs = logs
        #: The number of partitions from which on no directory is adopted.
        self._partitions_max = partitions_max
        #: A topic's own settings -> the effective settings of its logs.
        self._log_config = log_config
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        #: Topics that `create_in_steps` has not finished: no client finds them yet, but their names are in use.
        self._coming: dict[str, Topic] = {}
        #: Topics that get partitions, by name: the number of all partitions, and the end of it.
        self._growing: dict[str, tuple[int, asyncio.Event]] = {}
        #: The deletions that are under way, by name.
        self._going: dict[str, asyncio.Task[None]] = {}
        #: Raised whenever a topic comes, goes or changes its partition count.
        self.version = 0
        #: Called whenever the version was raised.
        self.on_changed: list[Callable[[], None]] = []
        #: Functions that get each topic after it was deleted.
        self.on_deleted: list[Callable[[Topic], None]] = []

    def __len__(self) -> int:
        return len(self._by_name)

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def names(self) -> list[str]:
        return sorted(self._by_name)

    def get(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def get_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    def is_changing(self, name: str) -> bool:
        """Return whether a topic of this name is being made or deleted, or is getting partitions."""
        return name in self._coming or name in self._going or name in self._growing

    def taken_names(self) -> list[str]:
        """Return the names of all topics, and of those that are being made."""
        return sorted({*self._by_name, *self._coming})

    def partition_count(self) -> int:
        """Return the number of partitions of all topics, and of those that are being made."""
        held = sum(topic.partition_count for topics in (self._by_name, self._coming) for topic in topics.values())
        return held + sum(count - self._by_name[name].partition_count for name, (count, _) in self._growing.items())

    def leader_epochs(self, topic: Topic) -> list[int]:
        """Return each partition's leader epoch."""
        found = (self._logs.logs.get((topic.name, index)) for index in range(topic.partition_count))
        return [0 if partition is None else partition.leader_epoch for partition in found]

    def reconcile(self) -> None:
        """Bring catalog and directories into step. Called once, after the logs were opened.

        Raises:
            CatalogError: the catalog cannot be read.
        """
        rows = self._catalog.topics()
        self._finish_deletions({row.name for row in rows})
        for row in rows:
            self._admit(Topic(row.name, row.id, row.partition_count, row.configs))
        self._adopt_strays()
        for topic in self._by_name.values():
            self._make_missing(topic)
            self.apply_defaults(topic.name, range(topic.partition_count))
            for index in range(topic.partition_count):
                self._identify(topic, index)

    def _identify(self, topic: Topic, index: int) -> None:
        """Give the directory to the topic, or withhold it from all readers."""
        partition = self._logs.logs[topic.name, index]
        found = partition.topic_id
        if found == topic.id:
            return
        if found == NO_ID or _differ_in_one_character(found, topic.id):
            log.warning("wrote the topic id of a directory", topic=topic.name, partition=index, found=_spelled(found))
            self._logs.identify(topic.name, index, topic.id)
        else:
            # mutant: folder-of-its-topic
            partition.withhold(
                f"directory {topic.name}-{index} belongs to topic id {_spelled(found)}, the catalog knows {topic.name}"
                f" as {_spelled(topic.id)}: move one of them away"
            )

    def _finish_deletions(self, existing: Collection[str]) -> None:
        """Remove the directories of deleted topics; one without an id is a deleted topic's if no other has its name."""
        for topic_id, name in self._catalog.deletions().items():
            left = [
                index
                for (topic, index), partition in self._logs.logs.items()
                if topic == name
                and (
                    partition.topic_id == topic_id
                    or _differ_in_one_character(partition.topic_id, topic_id)
                    or (partition.topic_id == NO_ID and name not in existing)
                )
            ]
            if self._logs.delete_at_once(name, left):
                self._forget_deletion(topic_id, name)
                log.info("finished the deletion of a topic", topic=name, partitions=len(left))
            else:
                log.error("a topic's deletion cannot be finished", topic=name, partitions=len(left))

    def _forget_deletion(self, topic_id: bytes, name: str) -> None:
        try:
            self._catalog.forget_deletion(topic_id)
        except CatalogError as error:  # the disk is full, most likely; the next start tries again
            log.warning("deletion not forgotten", topic=name, reason=str(error))

    def _adopt_strays(self) -> None:
        strays: dict[str, list[int]] = {}
        unfinished: dict[str, list[int]] = {}
        for name, index in self._logs.logs:
            topic = self._by_name.get(name)
            if topic is None:
                strays.setdefault(name, []).append(index)
            elif index >= topic.partition_count and self._is_unfinished(topic, index):
                unfinished.setdefault(name, []).append(index)
            elif index >= topic.partition_count:
                log.warning("directory beyond the topic's partitions is left alone", topic=name, partition=index)
        for name, partitions in unfinished.items():
            log.info("removing partitions of a growth that was cut off", topic=name, partitions=len(partitions))
            self._logs.delete_at_once(name, partitions)
        for name, partitions in sorted(strays.items(), key=lambda each: -len(each[1])):  # copies of a topic last
            self._adopt(name, partitions)

    def _is_unfinished(self, topic: Topic, index: int) -> bool:
        """Return whether a directory beyond the topic's partitions is an empty one of the topic."""
        partition = self._logs.logs[topic.name, index]
        return partition.topic_id == topic.id and partition.log_end_offset == 0

    def _adopt(self, name: str, partitions: list[int]) -> None:
        """Add the topic of directories that the catalog does not know, or withhold them."""
        ids = Counter(self._logs.logs[name, index].topic_id for index in partitions)
        del ids[NO_ID]
        topic_id = ids.most_common(1)[0][0] if ids else new_topic_id()
        legal = [index for index in partitions if index < self._partitions_max]
        reason = name_fault(name)
        if reason is None and topic_id in self._by_id:
            reason = f"topic {self._by_id[topic_id].name} has the same id"
        if reason is None and not legal:
            reason = f"no partition's number is less than {self._partitions_max}"
        for index in partitions if reason else set(partitions) - set(legal):
            why = f"directory {name}-{index} is not adopted: {reason or 'its number is too large'}"
            self._logs.logs[name, index].withhold(why)
        if reason is not None:
            return
        configs = adopted_configs(name)
        topic = Topic(name, topic_id, max(legal) + 1, configs)
        try:
            self._catalog.add_topic(CatalogTopic(topic.name, topic.id, topic.partition_count, topic.configs))
        except CatalogError as error:  # the disk is full, most likely; the next start adopts it again
            log.error("adopted topic not stored", topic=name, reason=str(error))
        self._admit(topic)
        log.warning(
            "adopted a topic the catalog did not know",
            topic=name,
            partitions=topic.partition_count,
            configs=configs,
        )

    def _make_missing(self, topic: Topic) -> None:
        existing = self._logs.logs
        missing = [index for index in range(topic.partition_count) if (topic.name, index) not in existing]
        if missing:
            log.info("making missing partitions", topic=topic.name, partitions=len(missing))
            self._logs.make_missing(topic.name, missing, topic.id, self._log_config(topic.configs))

    def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic; the caller has checked its name, count and configs.

        Raises:
            CatalogError: the catalog cannot be written. Errors of the logs pass through; either leaves nothing.
        """
        topic = self._begin(name, partition_count, configs)
        try:
            self._logs.create_many(name, range(partition_count), topic.id, self._log_config(configs))
            self._complete(topic)
        except BaseException:
            self._take_back(topic)
            raise
        return topic

    async def create_in_steps(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic while the event loop goes on in between. Until it is made `is_changing` is true of its name,
        and no other one of that name can be created."""
        topic = self._begin(name, partition_count, configs)
        self._coming[name] = topic
        try:
            config = await self._make_logs(topic, range(partition_count))
            self._complete(topic)
        except BaseException:
            self._take_back(topic)
            raise
        finally:
            del self._coming[name]
        if config != self._log_config(configs):  # the broker's defaults were altered in between
            self.apply_defaults(name, range(partition_count))
        return topic

    async def _make_logs(self, topic: Topic, partitions: range) -> ConfigT:
        config = self._log_config(topic.configs)
        for first in range(0, len(partitions), _STEP):
            if first:
                await asyncio.sleep(0)
            self._logs.create_many(topic.name, partitions[first : first + _STEP], topic.id, config)
        return config

    async def grow(self, topic: Topic, partition_count: int) -> None:
        """Give a topic more partitions while the event loop goes on in between; the caller has checked the number.

        Until it is over `is_changing` is true of the topic's name, and a deletion waits.

        Raises:
            CatalogError: the catalog cannot be written. Errors of the logs pass through; either leaves the topic as it
                was.
        """
        added = range(topic.partition_count, partition_count)
        over = asyncio.Event()
        self._growing[topic.name] = partition_count, over
        try:
            await self._make_logs(topic, added)
            self._catalog.set_partition_count(topic.name, partition_count)
        except BaseException:
            self._logs.delete_at_once(topic.name, added)
            raise
        finally:
            del self._growing[topic.name]
            over.set()
        self._admit(replace(self._by_name[topic.name], partition_count=partition_count))
        self.apply_defaults(topic.name, added)  # configs may have changed in between

    def _begin(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        topic = Topic(name, new_topic_id(), partition_count, dict(configs))
        self._catalog.begin_topic(topic.id, name)  # mutant: topic-begun-first
        return topic

    def _complete(self, topic: Topic) -> None:
        self._catalog.add_topic(CatalogTopic(topic.name, topic.id, topic.partition_count, topic.configs))
        self._admit(topic)

    def _take_back(self, topic: Topic) -> None:
        """Undo a creation, because its logs could not all be made, or its row. If that fails the next start does it."""
        if self._logs.delete_at_once(topic.name, range(topic.partition_count)):
            self._forget_deletion(topic.id, topic.name)

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the topic; its logs follow them from now on.

        Raises:
            CatalogError: the catalog cannot be written; the topic is as it was.
        """
        self._catalog.set_topic_configs(topic.name, configs)
        self._admit(replace(topic, configs=dict(configs)))
        self.apply_defaults(topic.name, range(topic.partition_count))

    def apply_defaults(self, name: str, partitions: range) -> int:
        """Let these logs of a topic follow its configs and the defaults in force; return how many there are."""
        topic = self._by_name.get(name)
        found = [log for index in partitions if topic and (log := self._logs.logs.get((name, index))) is not None]
        config = self._log_config(topic.configs if topic else {})
        for partition in found:
            partition.configure(config)
        return len(found)

    async def delete(self, topic: Topic) -> None:
        """Delete a topic. When this returns, no start will find it, and its name is free.

        The deletion goes on when its caller is cancelled.

        Raises:
            CatalogError: the catalog cannot be written; the topic is as it was.
        """
        while topic.name in self._growing:
            await self._growing[topic.name][1].wait()
        current = self._by_id.get(topic.id)
        if current is None:  # another caller deletes it
            return
        topic = current
        self._catalog.remove_topic(topic.name)
        del self._by_name[topic.name], self._by_id[topic.id]
        self._raise_version()
        for callback in self.on_deleted:
            callback(topic)
        going = self._going[topic.name] = asyncio.create_task(self._delete_logs(topic))
        await asyncio.shield(going)

    async def _delete_logs(self, topic: Topic) -> None:
        try:
            if await self._logs.delete_many(topic.name, range(topic.partition_count)):
                self._forget_deletion(topic.id, topic.name)
            else:
                log.error("a topic's deletion is left to the next start", topic=topic.name)
        finally:
            del self._going[topic.name]

    async def finish(self) -> None:
        """Wait for the deletions that are under way."""
        while self._going:
            await asyncio.wait(self._going.values())

    def _admit(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._by_id[topic.id] = topic
        self._raise_version()

    def _raise_version(self) -> None:
        self.version += 1
        for callback in self.on_changed:
            callback()


def adopted_configs(name: str) -> dict[str, str]:
    """Return the configs of a topic that is known from its folders only."""
    return dict(_ADOPTED_INTERNAL if name in INTERNAL_TOPICS else _ADOPTED)


def _differ_in_one_character(one: bytes, other: bytes) -> bool:
    """Return whether two ids are spelled alike in partition.metadata but for one character."""
    return sum(a != b for a, b in zip(_spelled(one), _spelled(other), strict=True)) == 1


def _spelled(topic_id: bytes) -> str:
    """Return an id in 22 characters, as Kafka writes ids."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def new_topic_id() -> bytes:
    """Return a random id whose base64 form does not begin with '-', which command lines would read as an option
    (Kafka)."""
    while True:
        topic_id = uuid.uuid4().bytes
        if not urlsafe_b64encode(topic_id).startswith(b"-"):
            return topic_id
