"""Keeps the buffers of assigned partitions filled. One fetch is on its way to each leader of partitions with room, for
all of them together, in a session.

A task decides; each fetch is another task. `wake` signals the first that there may be something to fetch, `arrived`
signals consumers that there may be records.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.client.backoff import Backoff
from protocol_lib.client.cluster import Cluster, Purpose
from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import InvalidResponseError, KafkaError, NoOffsetError, broker_error
from protocol_lib.client.fetch_session import FetchSession, Wanted
from protocol_lib.client.fetch_state import ConsumerRecord, Fetched, PartitionState
from protocol_lib.client.isolation import readable_records, whole_batches
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.client.rounds import Rounds
from protocol_lib.client.topic_offsets import OffsetAndTimestamp, list_offsets
from protocol_lib.errors import DecodeError, ErrorCode, ProtocolError
from protocol_lib.messages.fetch import FetchRequest, FetchResponse, PartitionData
from protocol_lib.schema import ZERO_UUID

#: The last version that names topics.
_BY_NAME: Final = 12
_NO_REPLICA: Final = -1
_SESSION_ERRORS: Final = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """Settings of fetches. Times are in milliseconds."""

    isolation_level: int
    min_bytes: int
    max_wait_ms: int
    #: limit of one answer, and of all records fetched ahead
    max_bytes: int
    #: limit of one partition in an answer, and of its records fetched ahead
    partition_bytes: int
    check_crcs: bool
    #: new position for one outside the log, a SpecialTimestamp; None raises an error
    reset_to: int | None
    rack: str


class Fetcher:
    """Buffers of the assigned partitions. `find_positions` seeks or resets the partitions that have no position."""

    def __init__(
        self,
        cluster: Cluster,
        fetching: Fetching,
        find_positions: Callable[[list[PartitionState]], Awaitable[None]],
    ) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        #: event that is set when there may be records
        self.arrived = asyncio.Event()
        #: error of every call from now on, after a bug in this class
        self.broken: KafkaError | None = None
        self._cluster = cluster
        self._fetching = fetching
        self._find_positions = find_positions
        self._rounds = Rounds(self._start_what_is_due, self._break)
        self._busy: set[int] = set()
        self._positioning = False
        self._sessions: dict[int, tuple[Connection, FetchSession]] = {}
        self._backoffs: dict[int, Backoff] = defaultdict(lambda: Backoff(cluster.settings))
        self._node_not_before: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        self._turn = 0

    def start(self) -> None:
        self._cluster.on_metadata(self._rounds.wake)
        self._rounds.start()

    def wake(self) -> None:
        self._rounds.wake()

    async def stop(self) -> None:
        await self._rounds.stop()

    def assign(self, topic_partitions: set[TopicPartition]) -> None:
        """Read these from now on; partitions that stay keep their position."""
        self.states = {
            topic_partition: self.states.get(topic_partition) or PartitionState(topic_partition)
            for topic_partition in sorted(topic_partitions)
        }
        self._rounds.wake()

    def take(self, count: int, bytes_max: int | None = None) -> list[ConsumerRecord]:
        """Return at most `count` records, of one partition after the other; the next call begins with another one.

        With `bytes_max` they end with the record that reaches it.
        """
        if self.broken is not None:
            raise self.broken
        states = list(self.states.values())
        records: list[ConsumerRecord] = []
        for index in range(len(states)):
            state = states[(self._turn + index) % len(states)]
            if state.is_paused or not state.has_something:
                continue
            try:
                taken, bytes_max = state.take(count - len(records), bytes_max)
            except KafkaError as fault:
                self._rounds.wake()
                if records:  # the records before it are handed over first
                    state.fault = fault
                    break
                raise
            records += taken
            if len(records) >= count or (bytes_max is not None and bytes_max <= 0):
                self._turn = (self._turn + index) % len(states)
                break
        else:
            self._turn += 1
        if records:
            self._rounds.wake()
        return records

    def _break(self, fault: Exception) -> None:
        """Fail every later call: a bug of ours must not leave a caller waiting for records."""
        self.broken = KafkaError(f"the consumer is broken: {fault!r}")
        self.broken.__cause__ = fault
        self.arrived.set()

    # -- deciding

    def _start_what_is_due(self, now: float) -> float | None:
        """Return after how many seconds there may be more to do, None for not by itself."""
        wake_at: list[float] = []
        lost: list[PartitionState] = []
        by_node: dict[int, list[PartitionState]] = defaultdict(list)
        room = self._fetching.max_bytes - sum(state.buffered_bytes for state in self.states.values())
        for state in self.states.values():
            if state.not_before > now:
                wake_at.append(state.not_before)
            elif state.fault is None and state.fetch_offset is None and state.position is None:
                lost.append(state)
            elif self._has_room(state) and room > 0:
                node_id = self._source(state, now)
                if node_id is None:
                    self._wait(state, now)
                    wake_at.append(state.not_before)
                    self._cluster.refresh_soon()
                else:
                    by_node[node_id].append(state)
        if lost and not self._positioning:
            self._positioning = True
            self._rounds.help(self._position(lost))
        for node_id, states in by_node.items():
            not_before = self._node_not_before.get(node_id, 0)
            if not_before > now:
                wake_at.append(not_before)
            elif node_id not in self._busy:
                self._busy.add(node_id)
                self._rounds.help(self._fetch(node_id, states))
        return max(0.0, min(wake_at) - now) if wake_at else None

    def _source(self, state: PartitionState, now: float) -> int | None:
        """Return the node to fetch from: the leader, or the replica that it named."""
        replica = state.replica(now)
        if replica in self._cluster.metadata.nodes:
            return replica
        return self._cluster.metadata.leader(state.topic_partition)

    def _has_room(self, state: PartitionState) -> bool:
        return (
            state.fetch_offset is not None
            and state.fault is None
            and not state.is_paused
            and state.buffered_bytes < self._fetching.partition_bytes
        )

    def _wait(self, state: PartitionState, now: float) -> None:
        state.not_before = now + self._cluster.settings.retry_backoff_ms / 1000

    # -- positions

    async def _position(self, states: list[PartitionState]) -> None:
        """Find positions for partitions that have none. `take` raises a failure, unless it is retriable."""
        try:
            await self._find_positions([state for state in states if state.reset_to is None])
            wanted = {state.topic_partition: state.reset_to for state in states if state.reset_to is not None}
            await self._seek_to_timestamps(wanted)
        except KafkaError as fault:
            self._cluster.refresh_soon()
            for state in states:
                if state.position is None:
                    self._wait(state, self._loop.time())
                    if not fault.retriable:
                        state.fault = fault
        finally:
            self._positioning = False
            self._rounds.wake()
            self.arrived.set()

    async def _seek_to_timestamps(self, wanted: dict[TopicPartition, int]) -> None:
        """Move partitions to offsets of timestamps; KafkaError when any has none, after moving the others."""
        found: dict[TopicPartition, OffsetAndTimestamp] = {}
        try:
            level = self._fetching.isolation_level
            await list_offsets(self._cluster, wanted, isolation_level=level, timeout_ms=0, found=found)
        finally:
            for topic_partition, at in found.items():
                state = self.states.get(topic_partition)
                if state is not None and state.reset_to == wanted[topic_partition]:
                    state.seek(at.offset, at.leader_epoch)

    def lose(self, state: PartitionState, fault: KafkaError) -> None:
        """Start a partition over whose position is not in the log, or let `take` raise the error."""
        if self._fetching.reset_to is None:
            state.stop(fault)
        else:
            state.reset(self._fetching.reset_to)

    # -- fetching

    async def _fetch(self, node_id: int, states: list[PartitionState]) -> None:
        asked = {state.topic_partition: (state, state.journey, state.fetch_offset) for state in states}
        try:
            response, version = await self._ask(node_id, states)
            self._backoffs[node_id].reset()
            self._take_in(response, version, asked)
        except ProtocolError as fault:
            self._sessions.pop(node_id, None)
            for state in states:
                state.forget_replica()
            self._node_not_before[node_id] = self._loop.time() + self._backoffs[node_id].next_delay()
            error = fault if isinstance(fault, KafkaError) else KafkaError(f"Fetch: {fault}")
            if error.retriable:
                self._cluster.refresh_soon()
            else:
                for state in states:
                    state.fault = error
                self.arrived.set()
        finally:
            self._busy.discard(node_id)
            self._rounds.wake()

    async def _ask(self, node_id: int, states: list[PartitionState]) -> tuple[FetchResponse, int]:
        cluster, fetching = self._cluster, self._fetching
        connection = await cluster.connection(node_id, Purpose.FETCH)
        known, session = self._sessions.get(node_id, (None, FetchSession()))
        if known is not connection:
            session = FetchSession()
            self._sessions[node_id] = connection, session
        wanted = {state.topic_partition: self._wanted(state) for state in states if state.fetch_offset is not None}
        every_id = all(each.topic_id != ZERO_UUID for each in wanted.values())
        version = connection.version_for(ApiKey.FETCH, None if every_id else _BY_NAME)
        topics, forgotten = session.request(wanted)
        request = FetchRequest(
            max_wait_ms=fetching.max_wait_ms,
            min_bytes=fetching.min_bytes,
            max_bytes=fetching.max_bytes,
            isolation_level=fetching.isolation_level,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id=fetching.rack,
        )
        timeout_ms = cluster.settings.request_timeout_ms + fetching.max_wait_ms
        response: FetchResponse = await connection.submit(request, version, timeout_ms=timeout_ms)
        if response.error_code:
            opens = request.session_id == 0
            session.reset()
            # One more request opens a session; a broker that refuses that, too, is asked again after a pause.
            if opens or ErrorCode.of(response.error_code) not in _SESSION_ERRORS:  # mutant: refused-session-pauses
                raise broker_error(response.error_code, "Fetch")
        else:
            session.answered(response.session_id)
        return response, version

    def _wanted(self, state: PartitionState) -> Wanted:
        metadata = self._cluster.metadata
        partition = metadata.partition(state.topic_partition)
        return Wanted(
            offset=state.fetch_offset or 0,
            bytes_max=self._fetching.partition_bytes,
            leader_epoch=-1 if partition is None else partition.leader_epoch,
            topic_id=metadata.topic_id(state.topic_partition.topic),
        )

    def _take_in(
        self,
        response: FetchResponse,
        version: int,
        asked: dict[TopicPartition, tuple[PartitionState, int, int | None]],
    ) -> None:
        """Buffer an answer, but only of partitions that have not moved since the request."""
        names = self._cluster.metadata.names
        for topic in response.responses:
            name = topic.topic if version <= _BY_NAME else names.get(topic.topic_id, "")
            for data in topic.partitions:
                state, *position = asked.get(TopicPartition(name, data.partition_index), (None,))
                if state is None or position != [state.journey, state.fetch_offset]:
                    continue
                if self.states.get(state.topic_partition) is not state:
                    continue
                if data.error_code:
                    self._refused(state, ErrorCode.of(data.error_code), data)
                else:
                    self._buffer(state, data)
        self.arrived.set()

    def _buffer(self, state: PartitionState, data: PartitionData) -> None:
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica != _NO_REPLICA:
            age_s = self._cluster.settings.metadata_max_age_ms / 1000
            state.prefer(data.preferred_read_replica, self._loop.time() + age_s)
        if not data.records or state.fetch_offset is None:
            return
        try:
            batches = list(whole_batches(memoryview(data.records)))  # type: ignore[arg-type]
        except DecodeError as fault:
            state.fault = KafkaError(f"{state.topic_partition}: {fault}")
            return
        if not batches:
            state.fault = broker_error(
                ErrorCode.MESSAGE_TOO_LARGE, f"{state.topic_partition}: offset {state.fetch_offset}"
            )
            return
        last = batches[-1]
        if last.last_offset < state.fetch_offset:
            state.fault = InvalidResponseError(f"{state.topic_partition}: offset {state.fetch_offset} was asked for")
            return
        aborted = data.aborted_transactions or () if self._fetching.isolation_level else ()
        records = readable_records(
            batches,
            aborted,
            from_offset=state.fetch_offset,
            check_crcs=self._fetching.check_crcs,
            about=str(state.topic_partition),
        )
        state.add(Fetched(records, len(data.records), last.last_offset + 1, last.leader_epoch))

    def _refused(self, state: PartitionState, code: ErrorCode, data: PartitionData) -> None:
        fault = broker_error(code, str(state.topic_partition))
        if state.forget_replica():  # only its leader's errors count
            self._wait(state, self._loop.time())
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self.lose(state, NoOffsetError(f"{state.topic_partition}: offset {state.fetch_offset} is not in the log"))
        elif fault.retriable and code is not ErrorCode.CORRUPT_MESSAGE:
            self._wait(state, self._loop.time())
            if data.current_leader is not None:
                leader = data.current_leader
                self._cluster.metadata.set_leader(state.topic_partition, leader.leader_id, leader.leader_epoch)
            if code.means_stale_metadata or code is ErrorCode.UNKNOWN_LEADER_EPOCH:
                self._cluster.refresh_soon()
        else:
            state.fault = fault
