"""A consumer's side of rebalances: its subscription, when it takes part, and the partitions it gains and gives up.

A rebalance has three steps. The first and the last begin while the application is inside `poll`, so it loses no
partition on which it works; the second is in the background.

    prepare    eager: commit, call the listener, give everything up     cooperative: give up unsubscribed topics only
    join       JoinGroup and SyncGroup                                  cooperative: keep reading
    complete   eager: read the assigned partitions                      cooperative: give up partitions that are not
                                                                        assigned any more, read new ones, join again
                                                                        if any were given up

Each step is a task of this object, and one runs at a time. A caller of `poll` only waits for it: a caller that is
cancelled, or whose time is over, leaves the step running, and the next `poll` goes on from there. Records are handed
over between rebalances, and during the second step of a cooperative one.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from protocol_lib.client.assignors import RebalanceProtocol
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.errors import ClientClosedError
from protocol_lib.client.fetcher import Fetcher
from protocol_lib.client.group_membership import GroupMembership, GroupSettings, Joined
from protocol_lib.client.metadata import TopicPartition


class RebalanceListener(Protocol):
    """Callbacks of rebalances. Offsets can be committed in `on_revoked`, not in `on_lost`."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """Finish work on these: they are about to be given up."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start work on these: they are new."""

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        """Drop work on these: others may read them already, or the consumer leaves because of an exception."""


class _NoListener:
    """The default listener, which ignores everything."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


class _Kind(Enum):
    PREPARE = "prepare"
    JOIN = "join"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class _Step:
    """A step of a rebalance, under way or done."""

    kind: _Kind
    #: task whose result is the outcome of a join, None for the other steps
    task: asyncio.Task[Joined | None]


class Rebalancing:
    """Owns the membership of one subscribed consumer."""

    def __init__(
        self, cluster: Cluster, fetcher: Fetcher, settings: GroupSettings, commit: Callable[[], Awaitable[None]]
    ) -> None:
        """Create it; `commit` saves the positions with automatic commits, and raises nothing."""
        self._cluster = cluster
        self._fetcher = fetcher
        self._commit = commit
        self._topics: frozenset[str] = frozenset()
        #: topics of the newest join; other topics than these need another one
        self._joined_topics: frozenset[str] | None = None
        self._pattern: re.Pattern[str] | None = None
        self._listener: RebalanceListener = _NoListener()
        every_one = {assignor.protocol for assignor in settings.assignors}
        self._is_eager = every_one != {RebalanceProtocol.COOPERATIVE}
        self._step: _Step | None = None
        self.membership = GroupMembership(cluster, settings, fetcher.arrived.set)
        cluster.on_metadata(self._look_at_metadata)

    async def subscribe(self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None) -> None:
        """Subscribe to topics instead of those before."""
        self._listener = listener or _NoListener()
        if isinstance(topics, re.Pattern):
            self._pattern = topics
            self._cluster.want_only(None)
        else:
            self._pattern, self._topics = None, frozenset(topics)
            self._cluster.want_only(self._topics)
        await self._cluster.refresh()

    def _look_at_metadata(self) -> None:
        if self._pattern is None:
            return
        known = self._cluster.metadata.topics.values()
        matched = frozenset(
            topic.name
            for topic in known
            if self._pattern.fullmatch(topic.name) and not topic.is_internal and topic.partitions
        )
        if matched != self._topics:
            self._topics = matched
            self._fetcher.arrived.set()

    async def take_part(self, deadline: float) -> bool:
        """Do the next steps for the group, up to a time. Returns whether records may be handed over now; KafkaError
        when the coordinator refuses this member."""
        self.membership.polled()
        while True:
            if self.membership.fault is not None:
                raise self.membership.fault
            step = self._step
            if step is None:
                if not self._must_join:
                    return True
                step = self._begin(_Kind.PREPARE, self._prepare())
            if not step.task.done():
                if self._may_read_on:
                    return True
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                await asyncio.wait({step.task}, timeout=left)  # mutant: step-survives-cancel
                if not step.task.done():
                    return False
            if self._step is step:
                self._go_on_after(step)

    @property
    def _must_join(self) -> bool:
        # mutant: subscription-during-join
        return self.membership.rejoin_needed or self.membership.is_lost or self._topics != self._joined_topics

    @property
    def _may_read_on(self) -> bool:
        """Whether records may be handed over during the step under way."""
        joins = self._step is not None and self._step.kind is _Kind.JOIN  # mutant: records-while-listening
        return joins and not self._is_eager and not self.membership.is_lost and bool(self._fetcher.states)

    def _begin(self, kind: _Kind, work: Coroutine[Any, Any, Joined | None]) -> _Step:
        self._step = _Step(kind, asyncio.create_task(work))
        self._step.task.add_done_callback(lambda _: self._fetcher.arrived.set())
        return self._step

    def _go_on_after(self, step: _Step) -> None:
        """Begin the step after one that is done; raises the error of the one that is done."""
        self._step = None
        if step.task.cancelled():
            raise ClientClosedError("the consumer left its group while this waited")
        joined = step.task.result()
        if step.kind is _Kind.PREPARE:
            self._begin(_Kind.JOIN, self._join())
        elif joined is not None:
            self._begin(_Kind.COMPLETE, self._complete(joined))

    async def leave(self, *, commit: bool) -> None:
        """Give everything up and leave the group. Without `commit` the partitions count as lost, and their records
        since the last commit are read again."""
        step, self._step = self._step, None
        if step is not None:
            if step.kind is _Kind.JOIN:
                step.task.cancel()
            await asyncio.wait({step.task})  # a listener at work comes to its end first
        owned = frozenset(self._fetcher.states)
        try:
            if commit and self.membership.is_member:
                await self._give_up(owned)
            else:
                await self._lose(owned)
        finally:
            self._fetcher.assign(set())
            await self.membership.leave()
        if step is not None and not step.task.cancelled() and step.kind is not _Kind.JOIN:
            step.task.result()  # raises an error of the listener that no `poll` has raised

    # -- steps

    async def _prepare(self) -> None:
        await self._note_loss()
        owned = frozenset(self._fetcher.states)
        # mutant: unsubscribed-revoked
        await self._give_up(owned if self._is_eager else frozenset(p for p in owned if p.topic not in self._topics))

    async def _join(self) -> Joined:
        self._joined_topics = self._topics
        return await self.membership.join(self._topics, frozenset(self._fetcher.states))

    async def _complete(self, joined: Joined) -> None:
        await self._note_loss()
        if not self.membership.is_member:
            return  # lost again before this was examined
        owned = frozenset(self._fetcher.states)
        try:
            if not owned <= joined.assigned:
                self.membership.rejoin_needed = True
                await self._give_up(owned - joined.assigned)
        finally:
            self._fetcher.assign(set(joined.assigned))
            await self._listener.on_assigned(joined.assigned - owned)

    async def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        if not partitions:
            return
        try:
            await self._commit()
            await self._listener.on_revoked(partitions)
        finally:  # after any error of a listener too: others may read these from now on
            self._fetcher.assign(set(self._fetcher.states) - partitions)

    async def _note_loss(self) -> None:
        if self.membership.is_lost:
            self.membership.is_lost = False
            await self._lose(frozenset(self._fetcher.states))

    async def _lose(self, partitions: frozenset[TopicPartition]) -> None:
        self._fetcher.assign(set())
        if partitions:
            await self._listener.on_lost(partitions)
