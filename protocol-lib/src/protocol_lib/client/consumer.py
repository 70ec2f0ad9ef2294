"""Reads records: of named partitions, or of topics whose partitions a group shares.

    async with Consumer("localhost:9092", group_id="billing") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.key, record.value)

Records are fetched ahead in the background. Rebalances begin inside `poll` (and so inside the `async for`), where all
records of earlier polls count as finished. A consumer that does not poll for `rebalance_timeout_ms` leaves its group.

Automatic commits cover finished records only, so that a consumer that dies loses none:

    poll, every `auto_commit_interval_ms`        the records of the polls before this one
    poll, when partitions go to other members    the same
    close, end of the `async with` block         all records
    exception in the `async with` block          nothing: the records since the last commit are read again

Every call may be cancelled. `poll` then hands over nothing, and the next one goes on.
"""

import asyncio
import contextlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from protocol_lib.client.assignors import Assignor, RangeAssignor
from protocol_lib.client.automatic_commits import AutomaticCommits
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.cooperative_sticky import CooperativeStickyAssignor
from protocol_lib.client.errors import ClientClosedError, NoOffsetError, ResponseTimeoutError, broker_error
from protocol_lib.client.fetch_state import ConsumerRecord, PartitionState
from protocol_lib.client.fetcher import Fetcher, Fetching
from protocol_lib.client.group_membership import GroupSettings
from protocol_lib.client.group_offsets import Member, OffsetAndMetadata, commit_offsets, fetch_offsets
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.client.rebalancing import RebalanceListener, Rebalancing
from protocol_lib.client.settings import ClientSettings
from protocol_lib.client.topic_offsets import OffsetAndTimestamp, list_offsets
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.list_offsets import SpecialTimestamp

_RESETS: Final = {"earliest": SpecialTimestamp.EARLIEST, "latest": SpecialTimestamp.LATEST, "none": None}
_ISOLATION: Final = {"read_uncommitted": 0, "read_committed": 1}
_POLL_RECORDS: Final = 500
#: Time that one poll of an iteration waits, in milliseconds.
_ITERATION_MS: Final = 1_000
#: Time after which polls that need not wait let other tasks run, in seconds.
_TURN_S: Final = 0.005


class Consumer:
    """`start` (or `async with`) before use, `close` after. Times are in milliseconds."""

    def __init__(
        self,
        settings: str | ClientSettings,
        *,
        group_id: str | None = None,
        group_instance_id: str | None = None,
        auto_offset_reset: str = "latest",
        auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        isolation_level: str = "read_uncommitted",
        assignors: Sequence[Assignor] = (RangeAssignor(), CooperativeStickyAssignor()),
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        rebalance_timeout_ms: int = 300_000,
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        partition_fetch_bytes: int = 1_048_576,
        check_crcs: bool = True,
        rack: str = "",
    ) -> None:
        """Create a consumer; `settings` may be just the bootstrap servers. `auto_offset_reset` is "earliest",
        "latest" or "none": where reading begins without a committed offset, and goes on when the position is not in
        the log any more.

        `fetch_max_bytes` bounds an answer and all records fetched ahead, `partition_fetch_bytes` those of one
        partition; a batch larger than that is fetched all the same. The group uses the first of `assignors` that all
        of its members have.
        """
        if auto_offset_reset not in _RESETS:
            raise ValueError(f"auto_offset_reset={auto_offset_reset!r}")
        if isolation_level not in _ISOLATION:
            raise ValueError(f"isolation_level={isolation_level!r}")
        self._settings = ClientSettings.of(settings)
        self._group = group_id and GroupSettings(
            group_id=group_id,
            group_instance_id=group_instance_id,
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            assignors=tuple(assignors),
        )
        self._fetching = Fetching(
            isolation_level=_ISOLATION[isolation_level],
            min_bytes=fetch_min_bytes,
            max_wait_ms=fetch_max_wait_ms,
            max_bytes=fetch_max_bytes,
            partition_bytes=partition_fetch_bytes,
            check_crcs=check_crcs,
            reset_to=_RESETS[auto_offset_reset],
            rack=rack,
        )
        interval_s = auto_commit_interval_ms / 1000 if auto_commit and group_id else None
        timeout_s = self._settings.request_timeout_ms / 1000
        self._commits = AutomaticCommits(interval_s, timeout_s, self._positions, self._commit)
        self._give_way_at = 0.0
        self._cluster: Cluster | None = None
        self._fetcher: Fetcher | None = None
        self._rebalancing: Rebalancing | None = None

    # -- life

    async def start(self) -> None:
        """Connect; KafkaError when no bootstrap server answers in time."""
        cluster = Cluster(self._settings)
        try:
            await cluster.start()
        except BaseException:
            await cluster.close()
            raise
        self._cluster = cluster
        self._fetcher = Fetcher(cluster, self._fetching, self._find_positions)
        self._fetcher.start()

    async def close(self, *, commit: bool = True) -> None:
        """Commit, with automatic commits, and leave the group. Without `commit` the partitions count as lost."""
        if self._cluster is None or self._fetcher is None:
            return
        try:
            if self._rebalancing is not None:
                await self._rebalancing.leave(commit=commit)
            elif commit:
                await self._commits.finish()
        finally:
            cluster, fetcher = self._cluster, self._fetcher
            self._cluster = self._fetcher = self._rebalancing = None
            self._commits.cancel()
            await fetcher.stop()
            await cluster.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, type_: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.close(commit=type_ is None)  # mutant: no-commit-after-exception

    # -- subscription and records

    async def subscribe(
        self, topics: Iterable[str] | re.Pattern[str], listener: RebalanceListener | None = None
    ) -> None:
        """Read these topics, or all whose whole name matches, sharing their partitions with the group's other
        members. The assignment comes with the next `poll`."""
        cluster, fetcher = self._running()
        if not isinstance(self._group, GroupSettings):
            raise ValueError("subscribe needs a group_id; assign does not")
        if isinstance(topics, str):
            raise TypeError("topics are a list of names")
        if self._rebalancing is None:
            fetcher.assign(set())
            self._rebalancing = Rebalancing(cluster, fetcher, self._group, self._commits.finish)
        await self._rebalancing.subscribe(topics, listener)

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, independently of other consumers."""
        cluster, fetcher = self._running()
        if self._rebalancing is not None:
            raise ValueError("a consumer that subscribed is assigned its partitions by its group")
        topic_partitions = {TopicPartition(*topic_partition) for topic_partition in partitions}
        cluster.want(topic_partition.topic for topic_partition in topic_partitions)
        if any(cluster.metadata.partition(topic_partition) is None for topic_partition in topic_partitions):
            await cluster.refresh()
        fetcher.assign(topic_partitions)

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._running()[1].states)

    async def poll(
        self, timeout_ms: int = 0, *, records_max: int = _POLL_RECORDS, bytes_max: int | None = None
    ) -> list[ConsumerRecord]:
        """Return the next records, at most `records_max`, as soon as there are any; none when none arrive in time.

        With `bytes_max` they end with the record that brings the bytes of keys, values and headers to it. Records that
        were compressed may be a thousand times as large as what was fetched.

        With `records_max=0` it hands over nothing and only takes part in the group. An application that cannot take
        records at the moment stays a member by that.

        Raises once the error that keeps a partition from being read: NoOffsetError, CorruptMessageError, a refusal.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        await self._give_way(loop.time())
        _, fetcher = self._running()
        while True:
            fetcher.arrived.clear()
            if self._rebalancing is None or await self._rebalancing.take_part(deadline):
                self._commits.begin_if_due(loop.time())
                if records := fetcher.take(records_max, bytes_max):
                    return records  # with no await between: a cancelled caller would lose these records
            if loop.time() >= deadline:
                return []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await fetcher.arrived.wait()
            if self._cluster is None:
                raise ClientClosedError("the consumer was closed")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        while self._cluster is not None:
            if records := await self.poll(_ITERATION_MS, records_max=1):
                return records[0]
        raise StopAsyncIteration

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand over no records of these until `resume`."""
        for topic_partition in partitions:
            self._state(topic_partition).is_paused = True

    def resume(self, *partitions: TopicPartition) -> None:
        for topic_partition in partitions:
            self._state(topic_partition).is_paused = False
        _, fetcher = self._running()
        fetcher.wake()
        fetcher.arrived.set()

    # -- positions

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Move to an offset: the next record handed over is the first at or after it."""
        if offset < 0:
            raise ValueError(f"offset {offset}")
        self._state(partition).seek(offset)
        self._running()[1].wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._reset(partitions, SpecialTimestamp.EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._reset(partitions, SpecialTimestamp.LATEST)

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the record that is handed over next, once it is known; else KafkaError."""
        state = self._state(partition)
        _, fetcher = self._running()
        deadline = asyncio.get_running_loop().time() + self._settings.api_timeout_ms / 1000
        while state.position is None:
            if fetcher.broken is not None:
                raise fetcher.broken
            if state.fault is not None:
                fault, state.fault = state.fault, None
                raise fault
            fetcher.arrived.clear()
            fetcher.wake()
            try:
                async with asyncio.timeout_at(deadline):
                    await fetcher.arrived.wait()
            except TimeoutError:
                raise ResponseTimeoutError(f"{partition}: its position is not known in time") from None
        return state.position

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets_at(partitions, SpecialTimestamp.EARLIEST)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets after the last records that can be read at the consumer's isolation level."""
        return await self._offsets_at(partitions, SpecialTimestamp.LATEST)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record of each partition that is not older than its timestamp, None where all are."""
        cluster, _ = self._running()
        found = await list_offsets(cluster, timestamps, isolation_level=self._fetching.isolation_level)
        return {topic_partition: at if at.offset >= 0 else None for topic_partition, at in found.items()}

    # -- committed offsets

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None) -> None:
        """Save these positions, by default those of all assigned partitions. KafkaError when the group refuses: this
        consumer may have lost its partitions."""
        self._running()
        self._group_id()
        if offsets is None:
            positions = self._positions()
        else:
            positions = {
                topic_partition: OffsetAndMetadata(position) if isinstance(position, int) else position
                for topic_partition, position in offsets.items()
            }
        if not positions:
            return
        with self._commits.suspended():
            await self._commit(positions)

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        cluster, _ = self._running()
        wanted = list(partitions)
        found = await fetch_offsets(cluster, self._group_id(), wanted, require_stable=True)
        return {topic_partition: found.get(topic_partition) for topic_partition in wanted}

    # -- inside

    def _running(self) -> tuple[Cluster, Fetcher]:
        if self._cluster is None or self._fetcher is None:
            raise ClientClosedError("the consumer is not started, or closed")
        return self._cluster, self._fetcher

    def _group_id(self) -> str:
        if not isinstance(self._group, GroupSettings):
            raise ValueError("a consumer without group_id has no committed offsets")
        return self._group.group_id

    def _member(self) -> Member:
        if self._rebalancing is None:
            return Member()
        if not self._rebalancing.membership.is_member:
            raise broker_error(ErrorCode.UNKNOWN_MEMBER_ID, f"{self._group_id()}: this consumer is no member now")
        return self._rebalancing.membership.member

    def _state(self, topic_partition: TopicPartition) -> PartitionState:
        state = self._running()[1].states.get(topic_partition)
        if state is None:
            raise ValueError(f"{topic_partition} is not assigned")
        return state

    def _reset(self, partitions: Iterable[TopicPartition], timestamp: int) -> None:
        for topic_partition in partitions:
            self._state(topic_partition).reset(timestamp)
        self._running()[1].wake()

    async def _offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        cluster, _ = self._running()
        wanted = dict.fromkeys(partitions, timestamp)
        found = await list_offsets(cluster, wanted, isolation_level=self._fetching.isolation_level)
        return {topic_partition: at.offset for topic_partition, at in found.items()}

    async def _find_positions(self, states: list[PartitionState]) -> None:
        """Move partitions to the committed offset, else to where `auto_offset_reset` says."""
        cluster, fetcher = self._running()
        committed: dict[TopicPartition, OffsetAndMetadata] = {}
        if isinstance(self._group, GroupSettings) and states:
            topic_partitions = [state.topic_partition for state in states]
            committed = await fetch_offsets(cluster, self._group.group_id, topic_partitions, require_stable=True)
        for state in states:
            if state.position is not None or state.reset_to is not None:
                continue  # the application sought while this waited
            if at := committed.get(state.topic_partition):
                state.seek(at.offset, at.leader_epoch)
            else:
                fetcher.lose(state, NoOffsetError(f"{state.topic_partition} has no committed offset"))

    def _positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {
            topic_partition: OffsetAndMetadata(state.position, leader_epoch=state.leader_epoch)
            for topic_partition, state in self._running()[1].states.items()
            if state.position is not None
        }

    async def _give_way(self, now: float) -> None:
        """Let other tasks run, heartbeats among them, even when polls never have to wait."""
        if now >= self._give_way_at:
            self._give_way_at = now + _TURN_S
            await asyncio.sleep(0)

    async def _commit(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        cluster, _ = self._running()
        await commit_offsets(cluster, self._group_id(), positions, self._member())
