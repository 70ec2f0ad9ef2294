"""Topics as they exist now: the catalog's rows and the directories of their partitions, kept in step.

Creating: the topic's id becomes a deletion, then the directories are made, then the deletion becomes the topic's row.
So the next start removes a topic that was refused, or that a crash left half made.
Growing: the new partitions' directories are made, then the row's number is raised. A start removes the empty ones of a
growth that a crash cut off.
Deleting: the row becomes a deletion, then the directories get other names, durably, then the deletion is forgotten;
after a crash a start finishes the rest. Until then no topic of that name can be created.

Topics of one request are created and deleted together: each change of the catalog is one transaction for all of them,
and the new names of directories are synced once.

A start brings both into step (reconciliation.py).

Each change of the catalog is awaited, and until it is stored all callers find the topic as it was. Changes of one topic
are decided one after the other. A caller that leaves does not end a change that is being stored. A creation or growth
whose caller leaves before that is undone, some partitions at a time. Owner: the storage service's event loop.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, Generic, TypeVar

from service_chassis import logs as service_logs

from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogContents, CatalogTopic
from storage_svc.topics.change_order import ChangeOrder
from storage_svc.topics.names import TakenNames
from storage_svc.topics.reconciliation import Reconciliation, forget_deletions
from storage_svc.topics.topic import Logs, Topic, new_topic_id

log = service_logs.get(__name__)

#: The number of partitions made at a time: each takes 0.2 ms, or 0.6 ms on a busy machine, so ten hold up the event
#: loop for 2 to 6 ms.
_STEP: Final = 10

ConfigT = TypeVar("ConfigT")
T = TypeVar("T")


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
        #: The creations that are under way, by name.
        self._creating: dict[str, asyncio.Task[Any]] = {}
        #: Topics that get partitions, by name, and the end of it.
        self._growing: dict[str, asyncio.Event] = {}
        #: The number of partitions that are being made, of either.
        self._reserved = 0
        #: Topics whose deletion is not decided yet.
        self._ending: Counter[str] = Counter()
        #: Topics that are deleted, while their directories are removed.
        self._going: set[str] = set()
        #: The order of what is stored of each topic.
        self._order = ChangeOrder()
        #: The creations, growths and deletions that are under way.
        self._tasks: set[asyncio.Task[Any]] = set()
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

    async def reconcile(self, contents: CatalogContents) -> None:
        """Bring the catalog, of these contents, and directories into step. Called once, after the logs were opened."""
        for topic in await Reconciliation(self._catalog, self._logs, self._log_config, self._partitions_max).run(
            contents
        ):
            self._admit(topic)
        self._raise_version()

    # -- creating -----------------------------------------------------------------------------------------------------

    async def create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic, while the event loop goes on in between; the caller has checked name, count and configs.

        Raises:
            CatalogError: the catalog cannot be written. Errors of the logs pass through; either leaves nothing.
        """
        topic = self.announce(name, partition_count, configs)
        for error in (await self.create_announced([topic])).values():
            raise error
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
            if self._coming.get(topic.name) is topic:
                del self._coming[topic.name]
                self._reserved -= topic.partition_count
                if topic.name not in self._by_name:
                    self.taken_names.discard(topic.name)

    async def create_announced(self, topics: Sequence[Topic]) -> dict[str, Exception]:
        """Create topics together, while the event loop goes on in between. It frees the names that come to nothing.

        Return the errors of the logs by the name of a topic that could not be made; nothing is left of it.

        Raises:
            CatalogError: the catalog cannot be written, and nothing is left of any.
        """
        steps = _Steps()
        return await self._go_on(self._create(topics, steps), steps, [topic.name for topic in topics])

    async def created(self, names: Collection[str]) -> None:
        """Wait until it is decided whether the topics of these names that are being created will exist."""
        while under_way := {self._creating[name] for name in names if name in self._coming and name in self._creating}:
            await asyncio.wait(under_way)

    async def _create(self, topics: Sequence[Topic], steps: _Steps) -> dict[str, Exception]:
        failed: dict[str, Exception] = {}
        used: dict[str, ConfigT] = {}
        try:
            await self._catalog.begin_topics({topic.id: topic.name for topic in topics})  # mutant: topic-begun-first
            try:
                for topic in topics:
                    try:
                        used[topic.name] = await self._make_logs(topic, range(topic.partition_count), steps)
                    except _CallerLeftError:
                        raise
                    except Exception as error:
                        failed[topic.name] = error
                made = [topic for topic in topics if topic.name not in failed]
                if made:
                    await self._complete(made)
            except Exception:  # not when the process ends: the next start does it
                await self._delete_logs(topics)
                raise
            await self._delete_logs([topic for topic in topics if topic.name in failed])
        finally:
            self.renounce(topics)
        for topic in made:
            if used[topic.name] != self._log_config(topic.configs):  # the broker's defaults were altered in between
                self.apply_defaults(topic.name, range(topic.partition_count))
        return failed

    async def _complete(self, topics: Sequence[Topic]) -> None:
        await self._catalog.add_topics(
            [CatalogTopic(each.name, each.id, each.partition_count, each.configs) for each in topics]
        )
        self.renounce(topics)
        for topic in topics:
            self._admit(topic)
        self._raise_version()

    async def _make_logs(self, topic: Topic, partitions: range, steps: _Steps) -> ConfigT:
        config = self._log_config(topic.configs)
        first = partitions.start
        while first < partitions.stop:
            last = min(first + await steps.room(), partitions.stop)
            self._logs.create_many(topic.name, range(first, last), topic.id, config)
            steps.used += last - first
            first = last
        return config

    async def _go_on(self, work: Coroutine[Any, Any, T], steps: _Steps, creates: Collection[str] = ()) -> T:
        """Do this work, also when the caller is cancelled: its steps learn of that. `creates` names new topics."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        self._creating |= dict.fromkeys(creates, task)

        def over(_: object) -> None:
            self._tasks.discard(task)
            for name in creates:
                if self._creating.get(name) is task:
                    del self._creating[name]

        task.add_done_callback(over)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            steps.wanted = False
            raise

    # -- growing ------------------------------------------------------------------------------------------------------

    async def grow(self, growths: Mapping[str, int]) -> dict[str, Exception]:
        """Give topics more partitions, together, while the event loop goes on in between; the caller has checked the
        numbers, by name.

        Return the errors of the logs by the name of a topic that could not grow; it is as it was. Until it is over
        `is_changing` is true of the topics' names, and their deletion waits.

        Raises:
            CatalogError: the catalog cannot be written, and all topics are as they were.
        """
        added = {name: range(self._by_name[name].partition_count, count) for name, count in growths.items()}
        over = asyncio.Event()
        self._reserved += sum(map(len, added.values()))
        self._growing |= dict.fromkeys(growths, over)
        steps = _Steps()
        return await self._go_on(self._grow(added, over, steps), steps)

    async def _grow(self, added: Mapping[str, range], over: asyncio.Event, steps: _Steps) -> dict[str, Exception]:
        topics = [self._by_name[name] for name in added]
        used: dict[str, ConfigT] = {}
        grown: list[str] = []
        failed: dict[str, Exception] = {}
        try:
            for topic in topics:
                try:
                    used[topic.name] = await self._make_logs(topic, added[topic.name], steps)
                except _CallerLeftError:
                    raise
                except Exception as error:
                    failed[topic.name] = error
            if used:
                await self._order.run(used, partial(self._store_growth, used, added))
                grown += used
            await self._undo_growth(added, grown)
        except Exception:  # not when the process ends: the next start does it
            await self._undo_growth(added, grown)
            raise
        finally:
            self._reserved -= sum(len(added[name]) for name in added if name not in grown)
            for name in added:
                del self._growing[name]
            over.set()
        return failed

    async def _undo_growth(self, added: Mapping[str, range], grown: Collection[str]) -> None:
        undone = [(name, index) for name in added if name not in grown for index in added[name]]
        if undone:
            await self._logs.delete_many(undone)

    async def _store_growth(self, used: Mapping[str, ConfigT], added: Mapping[str, range]) -> None:
        """Store that topics have grown; `used` are the configs that their new logs have."""
        await self._catalog.set_partition_counts({name: added[name].stop for name in used})
        for name, config in used.items():
            self._reserved -= len(added[name])
            grown = replace(self._by_name[name], partition_count=added[name].stop)
            self._admit(grown)
            if config != self._log_config(grown.configs):  # configs or defaults were altered in between
                self.apply_defaults(name, added[name])
        self._raise_version()

    # -- configs ------------------------------------------------------------------------------------------------------

    async def configure(self, name: str, altered: Callable[[Mapping[str, str]], dict[str, str]]) -> Topic | None:
        """Alter the configs of a topic; its logs follow them from now on. Return the topic, or None if there is none.

        Args:
            altered: gets the topic's configs, after all earlier alterations, and returns those that it shall have.

        Raises:
            CatalogError: the catalog cannot be written; the topic is as it was. Errors of `altered` pass through.
        """
        return await self._order.run((name,), partial(self._configure, name, altered))

    async def _configure(self, name: str, altered: Callable[[Mapping[str, str]], dict[str, str]]) -> Topic | None:
        topic = self._by_name.get(name)
        if topic is None:
            return None
        configs = altered(topic.configs)
        if configs == topic.configs:
            return topic
        await self._catalog.set_topic_configs(name, configs)
        configured = replace(topic, configs=configs)
        self._admit(configured)
        self._raise_version()
        self.apply_defaults(name, range(configured.partition_count))
        log.info("altered a topic's configs", topic=name, configs=configs)
        return configured

    def apply_defaults(self, name: str, partitions: range) -> int:
        """Let these logs of a topic follow its configs and the defaults in force; return how many there are."""
        topic = self._by_name.get(name)
        found = [log for index in partitions if topic and (log := self._logs.logs.get((name, index))) is not None]
        config = self._log_config(topic.configs if topic else {})
        for partition in found:
            partition.configure(config)
        return len(found)

    # -- deleting -----------------------------------------------------------------------------------------------------

    async def delete(self, topics: Collection[Topic]) -> Collection[Topic]:
        """Delete topics together and return them, except those that another caller deletes.

        When this returns, no start will find them, and their names are free. The deletion goes on when its caller is
        cancelled. It is one transaction of the catalog: with 1,000 topics 15 ms, in a thread.

        Raises:
            CatalogError: the catalog cannot be written; the topics are as they were.
        """
        self._ending.update({topic.name for topic in topics})
        return await self._go_on(self._delete(topics), _Steps())

    async def _delete(self, topics: Collection[Topic]) -> Collection[Topic]:
        names = {topic.name for topic in topics}
        try:
            while growing := [over for name, over in self._growing.items() if name in names]:
                await growing[0].wait()
            found = await self._order.run(names, partial(self._store_deletion, topics))
        finally:
            self._ending -= Counter(names)
        await self._delete_logs(found)
        return found

    async def _store_deletion(self, topics: Collection[Topic]) -> Sequence[Topic]:
        """Store that topics are deleted, those that there are, and return them: from now on no client finds them."""
        ids = {topic.id: None for topic in topics}
        found = [self._by_id[topic_id] for topic_id in ids if topic_id in self._by_id]
        if not found:
            return ()
        await self._catalog.remove_topics([topic.name for topic in found])
        for topic in found:
            del self._by_name[topic.name], self._by_id[topic.id]
            self._held -= topic.partition_count
            self.taken_names.discard(topic.name)
            self._going.add(topic.name)
        self.deletions += len(found)
        self._raise_version()
        for callback in self.on_deleted:
            callback(found)
        return found

    async def _delete_logs(self, topics: Sequence[Topic]) -> None:
        """Remove the logs of deleted topics, or of creations that are undone. If it fails the next start does it."""
        if not topics:
            return
        try:
            failed = await self._logs.delete_many([key for topic in topics for key in topic.partitions])
            done = {topic.id: topic.name for topic in topics if topic.name not in failed}
            await forget_deletions(self._catalog, done)
            for name in failed:
                log.error("a topic's deletion is left to the next start", topic=name)
        finally:
            self._going.difference_update(topic.name for topic in topics)

    async def finish(self) -> None:
        """Wait for the changes that are under way."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        await self._order.finish()

    def _admit(self, topic: Topic) -> None:
        """Note the topic; the caller raises the version."""
        before = self._by_name.get(topic.name)
        self._held += topic.partition_count - (before.partition_count if before else 0)
        self._by_name[topic.name] = topic
        self.taken_names.add(topic.name)
        self._by_id[topic.id] = topic

    def _raise_version(self) -> None:
        self.version += 1


class _CallerLeftError(Exception):
    """The caller of a creation or growth has left; it is undone."""


class _Steps:
    """The partitions made in one turn of the event loop, of one topic or of several."""

    def __init__(self) -> None:
        self.used = 0
        #: Whether the caller still waits for them.
        self.wanted = True

    async def room(self) -> int:
        """Return the number of partitions that may still be made in this turn, or in the next one.

        Raises:
            _CallerLeftError: nobody waits for them any more.
        """
        if self.used >= _STEP:
            self.used = 0
            await asyncio.sleep(0)
        if not self.wanted:
            raise _CallerLeftError
        return _STEP - self.used
