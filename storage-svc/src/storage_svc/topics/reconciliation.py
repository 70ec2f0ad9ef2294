"""The step of a start that brings the catalog's rows and the directories of partitions into step.

It finishes deletions and removes what is left of creations and growths that were cut off. It makes the missing
directories of each row. It never removes a directory that neither a row nor a deletion explains: its topic is adopted
into the catalog under the id in its partition.metadata, and a warning says so. One whose number is too large, or whose
topic has no legal name, is withheld.

A directory without an id gets its topic's. So does one whose id differs from its topic's in one character (a damaged
byte: two random ids never come that close). One whose id contradicts its topic's row is withheld, for a person to
decide: that partition is offline, all others are served.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Final, Generic, TypeVar

from broker_contract.topic_names import name_fault
from service_chassis import logs as service_logs

from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogContents, CatalogError, CatalogTopic
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS
from storage_svc.topics.names import INTERNAL_TOPICS
from storage_svc.topics.topic import NO_ID, Logs, Topic, new_topic_id, spelled

log = service_logs.get(__name__)

#: The configs of a topic of unknown settings: nothing of it is deleted until an operator says so.
_ADOPTED: Final[Mapping[str, str]] = {"retention.ms": "-1"}
_ADOPTED_INTERNAL: Final = OFFSETS_TOPIC_CONFIGS

ConfigT = TypeVar("ConfigT")


class Reconciliation(Generic[ConfigT]):
    """One start's work on the catalog and the logs, which were opened before."""

    def __init__(
        self,
        catalog: Catalog,
        logs: Logs[ConfigT],
        log_config: Callable[[Mapping[str, str]], ConfigT],
        partitions_max: int,
    ) -> None:
        self._catalog = catalog
        self._logs = logs
        #: A topic's own settings -> the effective settings of its logs.
        self._log_config = log_config
        #: The number of partitions from which on no directory is adopted.
        self._partitions_max = partitions_max
        self._by_name: dict[str, Topic] = {}
        self._name_by_id: dict[bytes, str] = {}

    async def run(self, contents: CatalogContents) -> Collection[Topic]:
        """Return the topics that exist, after all is in step with the catalog, of these contents."""
        rows = contents.topics
        await finish_deletions(self._catalog, self._logs, contents.deletions, {row.name for row in rows})
        for row in rows:
            self._admit(Topic(row.name, row.id, row.partition_count, row.configs))
        await self._adopt_strays()
        for topic in self._by_name.values():
            self._make_missing(topic)
            config = self._log_config(topic.configs)
            for key in topic.partitions:
                self._logs.logs[key].configure(config)
                self._identify(topic, key)
        return self._by_name.values()

    def _admit(self, topic: Topic) -> None:
        self._by_name[topic.name] = topic
        self._name_by_id[topic.id] = topic.name

    def _identify(self, topic: Topic, key: TopicPartition) -> None:
        """Give the directory to the topic, or withhold it from all readers."""
        partition = self._logs.logs[key]
        found, index = partition.topic_id, key[1]
        if found == topic.id:
            return
        if found == NO_ID or _differ_in_one_character(found, topic.id):
            log.warning("wrote the topic id of a directory", topic=topic.name, partition=index, found=spelled(found))
            self._logs.identify(topic.name, index, topic.id)
        else:
            # mutant: folder-of-its-topic
            partition.withhold(
                f"directory {topic.name}-{index} belongs to topic id {spelled(found)}, the catalog knows {topic.name}"
                f" as {spelled(topic.id)}: move one of them away"
            )

    async def _adopt_strays(self) -> None:
        strays: dict[str, list[int]] = {}
        unfinished: list[TopicPartition] = []
        for name, index in self._logs.logs:
            topic = self._by_name.get(name)
            if topic is None:
                strays.setdefault(name, []).append(index)
            elif index >= topic.partition_count and self._is_unfinished(topic, index):
                unfinished.append((name, index))
            elif index >= topic.partition_count:
                log.warning("directory beyond the topic's partitions is left alone", topic=name, partition=index)
        for name, count in Counter(name for name, _ in unfinished).items():
            log.info("removing partitions of a growth that was cut off", topic=name, partitions=count)
        if unfinished:
            self._logs.delete_at_once(unfinished)
        for name, partitions in sorted(strays.items(), key=lambda each: -len(each[1])):  # copies of a topic last
            await self._adopt(name, partitions)

    def _is_unfinished(self, topic: Topic, index: int) -> bool:
        """Return whether a directory beyond the topic's partitions is an empty one of the topic."""
        partition = self._logs.logs[topic.name, index]
        return partition.topic_id == topic.id and partition.log_end_offset == 0

    async def _adopt(self, name: str, partitions: list[int]) -> None:
        """Add the topic of directories that the catalog does not know, or withhold them."""
        ids = Counter(self._logs.logs[name, index].topic_id for index in partitions)
        del ids[NO_ID]
        topic_id = ids.most_common(1)[0][0] if ids else new_topic_id()
        legal = [index for index in partitions if index < self._partitions_max]
        reason = name_fault(name)
        if reason is None and topic_id in self._name_by_id:
            reason = f"topic {self._name_by_id[topic_id]} has the same id"
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
            await self._catalog.add_topics([CatalogTopic(topic.name, topic.id, topic.partition_count, topic.configs)])
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
        missing = [key[1] for key in topic.partitions if key not in existing]
        if missing:
            log.info("making missing partitions", topic=topic.name, partitions=len(missing))
            self._logs.make_missing(topic.name, missing, topic.id, self._log_config(topic.configs))


async def finish_deletions(
    catalog: Catalog, logs: Logs[ConfigT], deletions: Mapping[bytes, str], existing: Collection[str]
) -> None:
    """Remove the directories of deleted topics; one without an id is a deleted topic's if no other has its name."""
    ids = defaultdict(list)
    for topic_id, name in deletions.items():
        ids[name].append(topic_id)
    left = [
        (name, index)
        for (name, index), partition in logs.logs.items()
        if (partition.topic_id == NO_ID and name in ids and name not in existing)
        or any(
            partition.topic_id == topic_id or _differ_in_one_character(partition.topic_id, topic_id)
            for topic_id in ids.get(name, ())
        )
    ]
    counts = Counter(name for name, _ in left)
    failed = logs.delete_at_once(left) if deletions else ()
    await forget_deletions(catalog, {topic_id: name for topic_id, name in deletions.items() if name not in failed})
    for name in ids:
        if name in failed:
            log.error("a topic's deletion cannot be finished", topic=name, partitions=counts[name])
        else:
            log.info("finished the deletion of a topic", topic=name, partitions=counts[name])


async def forget_deletions(catalog: Catalog, deletions: Mapping[bytes, str]) -> None:
    """Forget finished deletions, by id. If the catalog refuses, the next start does it."""
    try:
        if deletions:
            await catalog.forget_deletions(list(deletions))
    except CatalogError as error:  # the disk is full, most likely; the next start tries again
        log.warning("deletions not forgotten", topics=list(deletions.values())[:10], reason=str(error))


def adopted_configs(name: str) -> dict[str, str]:
    """Return the configs of a topic that is known from its folders only."""
    return dict(_ADOPTED_INTERNAL if name in INTERNAL_TOPICS else _ADOPTED)


def _differ_in_one_character(one: bytes, other: bytes) -> bool:
    """Return whether two ids are spelled alike in partition.metadata but for one character."""
    return sum(a != b for a, b in zip(spelled(one), spelled(other), strict=True)) == 1
