"""A consumer's side of rebalances: its subscription, when it takes part, and the partitions it gains and gives up.

A rebalance has three parts. The first and the last run while the application is inside `poll`, so it loses no partition
on which it works; the second is in the background.

    prepare    eager: commit, call the listener, give everything up     cooperative: keep everything
    join       JoinGroup and SyncGroup                                  cooperative: keep reading
    complete   eager: read the assigned partitions                      cooperative: give up partitions that are not
                                                                        assigned any more, read new ones, join again
                                                                        if any were given up
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from protocol_lib.client.assignors import RebalanceProtocol
from protocol_lib.client.cluster import Cluster
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
        """Drop work on these: they are gone already, and others may read them."""


class _NoListener:
    """The default listener, which ignores everything."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        pass

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        pass


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
        self._pattern: re.Pattern[str] | None = None
        self._listener: RebalanceListener = _NoListener()
        every_one = {assignor.protocol for assignor in settings.assignors}
        self._is_eager = every_one != {RebalanceProtocol.COOPERATIVE}
        self._joining: asyncio.Task[Joined] | None = None
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
        self.membership.rejoin_needed = True

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
            self.membership.rejoin_needed = True
            self._fetcher.arrived.set()

    async def take_part(self, deadline: float) -> bool:
        """Do the next steps for the group, up to a time. Returns whether records may be handed over now; KafkaError
        when the coordinator refuses this member."""
        self.membership.polled()
        while True:
            if self._joining is None:
                if self.membership.fault is not None:
                    raise self.membership.fault
                if not self.membership.rejoin_needed:
                    return True
                self._joining = asyncio.create_task(self._prepare_and_join())
                self._joining.add_done_callback(lambda _: self._fetcher.arrived.set())
            if not self._joining.done():
                if not self._is_eager and self._fetcher.states:
                    return True
                left = max(0.0, deadline - asyncio.get_running_loop().time())
                await asyncio.wait({self._joining}, timeout=left)
                if not self._joining.done():
                    return False
            done, self._joining = self._joining, None
            # A caller that is cancelled here must not leave half of a rebalance.
            await asyncio.shield(self._complete(done.result()))

    async def leave(self) -> None:
        """Give everything up and leave the group."""
        if self._joining is not None:
            self._joining.cancel()
            await asyncio.gather(self._joining, return_exceptions=True)
        owned = frozenset(self._fetcher.states)
        try:
            if self.membership.is_member and owned:
                await self._commit()
                await self._listener.on_revoked(owned)
        finally:
            self._fetcher.assign(set())
            await self.membership.leave()

    async def _prepare_and_join(self) -> Joined:
        await self._tell_of_loss()
        owned = frozenset(self._fetcher.states)
        if self._is_eager and owned:
            await self._commit()
            await self._listener.on_revoked(owned)
            self._fetcher.assign(set())
            owned = frozenset()
        return await self.membership.join(self._topics, owned)

    async def _complete(self, joined: Joined) -> None:
        await self._tell_of_loss()
        if not self.membership.is_member:
            return  # lost again before this was examined
        owned = frozenset(self._fetcher.states)
        revoked, added = owned - joined.assigned, joined.assigned - owned
        try:
            if revoked:
                self.membership.rejoin_needed = True
                await self._commit()
                await self._listener.on_revoked(revoked)
        finally:  # after any error of a listener too: others may read the revoked partitions by now
            self._fetcher.assign(set(joined.assigned))
            await self._listener.on_assigned(added)

    async def _tell_of_loss(self) -> None:
        if not self.membership.is_lost:
            return
        self.membership.is_lost = False
        owned = frozenset(self._fetcher.states)
        self._fetcher.assign(set())
        if owned:
            await self._listener.on_lost(owned)
