"""Topics as they exist now: the catalog's rows and the directories of their partitions, kept in step.

Creating: the topic's id becomes a deletion, then the directories are made, then the deletion becomes the topic's row.
So the next start removes a topic that was refused, or that a crash left half made.
Growing: the new partitions' directories are made, then the row's number is raised. A start removes the empty ones of a
growth that a crash cut off.
Deleting: the row becomes a deletion, then the directories get other names, durably, then the deletion is forgotten;
after a crash a start finishes the rest. Until then no topic of that name can be created.

Topics of one request are created and deleted together: each change of the catalog is one transaction for all of them,
and the new names of directories are synced once.

A start brings both into step (reconciliation.py). Owner: the storage service's event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar

from service_chassis import logs as service_logs

from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.catalog import Catalog, CatalogTopic
from storage_svc.topics.names import TakenNames
from storage_svc.topics.reconciliation import Reconciliation, forget_deletions
from storage_svc.topics.topic import Logs, Topic, new_topic_id

log = service_logs.get(__name__)

#: The number of partitions made at a time: each takes 0.2 ms, or 0.6 ms on a busy machine, so ten hold up the event
#: loop for 2 to 6 ms.
_STEP: Final = 10

ConfigT = TypeVar("ConfigT")


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
        #: The number of partitions of these topics.
        self._held = 0
        #: The names of all topics, and of those that are being made.
        self.taken_names = TakenNames()
        self._by_id: dict[bytes, Topic] = {}
        #: Topics that were announced and are not made yet: no client finds them yet, but their names are in use.
        self._coming: dict[str, Topic] = {}
        #: Topics that get partitions, by name, and the end of it.
        self._growing: dict[str, asyncio.Event] = {}
        #: The number of partitions that are being made, of either.
        self._reserved = 0
        #: Topics whose deletion waits until they have grown.
        self._ending: Counter[str] = Counter()
        #: The deletions that are under way, by name.
        self._going: dict[str, asyncio.Task[None]] = {}
        #: Raised whenever a topic comes, goes or changes its partition count.
        self.version = 0
        #: The number of topics that were deleted.
        self.deletions = 0
        #: Functions that get the topics that were deleted together.
        self.on_deleted: list[Callable[[Sequence[Topic]], None]] = []

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
        return name in self._coming or name in self._going or name in self._growing or name in self._ending

    def partition_count(self) -> int:
        """Return the number of partitions of all topics, and of those that are being made."""
        return self._held + self._reserved

    def leader_epochs(self, topic: Topic) -> list[int]:
        """Return each partition's leader epoch."""
        found = (self._logs.logs.get((topic.name, index)) for index in range(topic.partition_count))
        return [0 if partition is None else partition.leader_epoch for partition in found]

    def reconcile(self) -> None:
        """Bring catalog and directories into step. Called once, after the logs were opened.

        Raises:
            CatalogError: the catalog cannot be read.
        """
        for topic in Reconciliation(self._catalog, self._logs, self._log_config, self._partitions_max).run():
            self._admit(topic)
        self._raise_version()

    def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic; the caller has checked its name, count and configs.

        Raises:
            CatalogError: the catalog cannot be written. Errors of the logs pass through; either leaves nothing.
        """
        topic = Topic(name, new_topic_id(), partition_count, dict(configs))
        self._begin([topic])
        try:
            self._logs.create_many(name, range(partition_count), topic.id, self._log_config(configs))
            self._complete([topic])
        except BaseException:
            failed = self._logs.delete_at_once(list(topic.partitions))
            forget_deletions(self._catalog, {} if failed else {topic.id: name})
            raise
        return topic

    def announce(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Return a topic for `create_announced`; the caller has checked its name, count and configs.

        Until that is over no client finds it, but `is_changing` is true of its name, and its partitions count.
        """
        topic = self._coming[name] = Topic(name, new_topic_id(), partition_count, dict(configs))
        self._reserved += partition_count
        self.taken_names.add(name)
        return topic

    def renounce(self, topics: Iterable[Topic]) -> None:
        """Free the names of topics that were announced and will not be created."""
        for topic in topics:
            if self._coming.pop(topic.name, None) is not None:
                self._reserved -= topic.partition_count
                if topic.name not in self._by_name:
                    self.taken_names.discard(topic.name)

    async def create_announced(self, topics: Sequence[Topic]) -> dict[str, Exception]:
        """Create topics together, while the event loop goes on in between.

        Return the errors of the logs by the name of a topic that could not be made; nothing is left of it.

        Raises:
            CatalogError: the catalog cannot be written, and nothing is left of any.
        """
        failed: dict[str, Exception] = {}
        used: dict[str, ConfigT] = {}
        try:
            self._begin(topics)
            try:
                steps = _Steps()
                for topic in topics:
                    try:
                        used[topic.name] = await self._make_logs(topic, range(topic.partition_count), steps)
                    except Exception as error:
                        failed[topic.name] = error
                made = [topic for topic in topics if topic.name not in failed]
                if made:
                    self._complete(made)
            except BaseException:
                await self._remove(topics)
                raise
            await self._remove([topic for topic in topics if topic.name in failed])
        finally:
            self.renounce(topics)
        for topic in made:
            if used[topic.name] != self._log_config(topic.configs):  # the broker's defaults were altered in between
                self.apply_defaults(topic.name, range(topic.partition_count))
        return failed

    async def create_in_steps(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic while the event loop goes on in between; errors are raised as by `create`."""
        topic = self.announce(name, partition_count, configs)
        for error in (await self.create_announced([topic])).values():
            raise error
        return topic

    async def _make_logs(self, topic: Topic, partitions: range, steps: _Steps) -> ConfigT:
        config = self._log_config(topic.configs)
        first = partitions.start
        while first < partitions.stop:
            last = min(first + await steps.room(), partitions.stop)
            self._logs.create_many(topic.name, range(first, last), topic.id, config)
            steps.used += last - first
            first = last
        return config

    async def grow(self, growths: Mapping[str, int]) -> dict[str, Exception]:
        """Give topics more partitions, together, while the event loop goes on in between; the caller has checked the
        numbers, by name.

        Return the errors of the logs by the name of a topic that could not grow; it is as it was. Until it is over
        `is_changing` is true of the topics' names, and their deletion waits.

        Raises:
            CatalogError: the catalog cannot be written, and all topics are as they were.
        """
        topics = [self._by_name[name] for name in growths]
        added = {topic.name: range(topic.partition_count, growths[topic.name]) for topic in topics}
        over = asyncio.Event()
        reserved = sum(map(len, added.values()))
        self._reserved += reserved
        self._growing |= dict.fromkeys(growths, over)
        used: dict[str, ConfigT] = {}
        failed: dict[str, Exception] = {}
        try:
            steps = _Steps()
            for topic in topics:
                try:
                    used[topic.name] = await self._make_logs(topic, added[topic.name], steps)
                except Exception as error:
                    failed[topic.name] = error
            if used:
                self._catalog.set_partition_counts({name: growths[name] for name in used})
        except BaseException:
            used = {}
            raise
        finally:
            self._reserved -= reserved
            self._admit_grown(growths, used, added)
            undone = [(name, index) for name in growths if name not in used for index in added[name]]
            if undone:
                going = asyncio.create_task(self._undo_growth(undone, growths, over))
                self._going |= dict.fromkeys(growths, going)
                await asyncio.shield(going)
            else:
                self._end_growth(growths, over)
        return failed

    def _admit_grown(self, growths: Mapping[str, int], used: Mapping[str, ConfigT], added: Mapping[str, range]) -> None:
        """Note topics that have grown, with the configs that their new logs have."""
        for name, config in used.items():
            grown = replace(self._by_name[name], partition_count=growths[name])
            self._admit(grown)
            if config != self._log_config(grown.configs):  # configs or defaults were altered in between
                self.apply_defaults(name, added[name])
        if used:
            self._raise_version()

    async def _undo_growth(self, logs: Sequence[TopicPartition], names: Collection[str], over: asyncio.Event) -> None:
        try:
            await self._logs.delete_many(logs)
        finally:
            for name in names:
                del self._going[name]
            self._end_growth(names, over)

    def _end_growth(self, names: Collection[str], over: asyncio.Event) -> None:
        for name in names:
            del self._growing[name]
        over.set()

    def _begin(self, topics: Sequence[Topic]) -> None:
        self._catalog.begin_topics({topic.id: topic.name for topic in topics})  # mutant: topic-begun-first

    def _complete(self, topics: Sequence[Topic]) -> None:
        self._catalog.add_topics(
            [CatalogTopic(each.name, each.id, each.partition_count, each.configs) for each in topics]
        )
        for topic in topics:
            self._admit(topic)
        self._raise_version()

    def configure(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Set these configs and no others for the topic; its logs follow them from now on.

        Raises:
            CatalogError: the catalog cannot be written; the topic is as it was.
        """
        self._catalog.set_topic_configs(topic.name, configs)
        self._admit(replace(topic, configs=dict(configs)))
        self._raise_version()
        self.apply_defaults(topic.name, range(topic.partition_count))

    def apply_defaults(self, name: str, partitions: range) -> int:
        """Let these logs of a topic follow its configs and the defaults in force; return how many there are."""
        topic = self._by_name.get(name)
        found = [log for index in partitions if topic and (log := self._logs.logs.get((name, index))) is not None]
        config = self._log_config(topic.configs if topic else {})
        for partition in found:
            partition.configure(config)
        return len(found)

    async def delete(self, topics: Collection[Topic]) -> Collection[Topic]:
        """Delete topics together and return them, except those that another caller deletes.

        When this returns, no start will find them, and their names are free. The deletion goes on when its caller is
        cancelled. It is one transaction of the catalog, which holds up the event loop for 15 ms with 1,000 topics.

        Raises:
            CatalogError: the catalog cannot be written; the topics are as they were.
        """
        await self._grown({topic.name for topic in topics})
        found = [self._by_id[topic_id] for topic_id in {topic.id: None for topic in topics} if topic_id in self._by_id]
        if not found:
            return ()
        self._catalog.remove_topics([topic.name for topic in found])
        for topic in found:
            del self._by_name[topic.name], self._by_id[topic.id]
            self._held -= topic.partition_count
            self.taken_names.discard(topic.name)
        self.deletions += len(found)
        self._raise_version()
        for callback in self.on_deleted:
            callback(found)
        await self._remove(found)
        return found

    async def _grown(self, names: Collection[str]) -> None:
        """Wait until none of these topics is getting partitions. None of them begins to."""
        self._ending.update(names)
        try:
            while growing := [over for name, over in self._growing.items() if name in names]:
                await growing[0].wait()
        finally:
            self._ending -= Counter(names)

    async def _remove(self, topics: Sequence[Topic]) -> None:
        """Remove the logs of deleted topics, or of creations that are undone. It goes on when its caller is cancelled.

        If it fails the next start does it.
        """
        if topics:
            going = asyncio.create_task(self._delete_logs(topics))
            self._going |= dict.fromkeys((topic.name for topic in topics), going)
            await asyncio.shield(going)

    async def _delete_logs(self, topics: Sequence[Topic]) -> None:
        try:
            failed = await self._logs.delete_many([key for topic in topics for key in topic.partitions])
            forget_deletions(self._catalog, {topic.id: topic.name for topic in topics if topic.name not in failed})
            for name in failed:
                log.error("a topic's deletion is left to the next start", topic=name)
        finally:
            for topic in topics:
                del self._going[topic.name]

    async def finish(self) -> None:
        """Wait for the deletions that are under way."""
        while self._going:
            await asyncio.wait(set(self._going.values()))

    def _admit(self, topic: Topic) -> None:
        """Note the topic; the caller raises the version."""
        before = self._by_name.get(topic.name)
        self._held += topic.partition_count - (before.partition_count if before else 0)
        self._by_name[topic.name] = topic
        self.taken_names.add(topic.name)
        self._by_id[topic.id] = topic

    def _raise_version(self) -> None:
        self.version += 1


class _Steps:
    """The partitions made in one turn of the event loop, of one topic or of several."""

    def __init__(self) -> None:
        self.used = 0

    async def room(self) -> int:
        """Return the number of partitions that may still be made in this turn, or in the next one."""
        if self.used >= _STEP:
            self.used = 0
            await asyncio.sleep(0)
        return _STEP - self.used
