"""A group coordinator on real logs, which can be stopped and started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from protocol_lib.consumer_protocol import Subscription, encode_subscription
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import read_batches
from protocol_lib.records.record import read_records
from storage_svc.coordinator.classic.events import (
    Commit,
    GroupState,
    Heartbeat,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.limits import CommitRequest, CoordinatorSettings, NewOffset
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.stored.records import partition_of
from storage_svc.coordinator.transactional_offsets import OfTransaction
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS, effective
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.topics.registry import TopicRegistry
from storage_svc.transaction_ports import Marker
from support.group_calls import answered
from support.scripted_transactions import ScriptedTransactions

from tests.unit.storage_svc.coordinator.consumer_world import World

E = ErrorCode
SUBSCRIPTION = encode_subscription(Subscription(topics=("orders",)))


class DiskThatBreaks(Files):
    fault: Exception | None = None
    sync_fault: Exception | None = None

    def sync_queue(self) -> None:
        """Return no queue: every sync goes through `sync`."""

    def sync(self, descriptor: int) -> None:
        if self.sync_fault is not None:
            raise self.sync_fault
        super().sync(descriptor)

    def read(self, descriptor: int, length: int, position: int) -> bytes:
        if self.fault is not None:
            raise self.fault
        return super().read(descriptor, length, position)


class Node:
    """A coordinator with its data folder; `restart` is an orderly stop and start, `crash` is not."""

    def __init__(self, path: Path, settings: CoordinatorSettings, offsets_partition_count: int = 4) -> None:
        self.path = path
        self.offsets_partition_count = offsets_partition_count
        self.files = Files()
        self.settings = settings
        self.now_ms = 1_700_000_000_000
        self.transactions = ScriptedTransactions()

    async def open(self, *, wait: bool = True) -> Node:
        self.logs = DataFolder.open(self.path, LogSettings(), files=self.files)
        self.catalog = Catalog.open(self.path)

        def log_config(own: Mapping[str, str]) -> LogConfig:
            return LogConfig.from_properties(effective(own, {}))

        self.registry: TopicRegistry[LogConfig] = TopicRegistry(self.catalog, self.logs, log_config)
        await self.registry.reconcile(self.catalog.read())
        self.logs.start(asyncio.get_running_loop())
        if "orders" not in self.registry:
            await self.registry.create("orders", 3, {})
        self.offsets_log = OffsetsLog(self.registry, self.logs, self.offsets_partition_count)

        def exists(topic: str, partition: int) -> bool:
            found = self.registry.get(topic)
            return found is not None and 0 <= partition < found.partition_count

        self.coordinator = GroupCoordinator(
            self.offsets_log, self.settings, exists, self.registry, self.transactions, lambda: self.now_ms
        )
        self.registry.on_deleted.append(lambda _: self.coordinator.offsets.topic_deleted())
        self.loading = self.coordinator.start()
        if wait:
            await self.loading
        return self

    async def make_offsets_topic(self) -> None:
        """Make the topic at once, which a broker does some partitions at a time."""
        await self.registry.create(OFFSETS_TOPIC, self.offsets_partition_count, OFFSETS_TOPIC_CONFIGS)

    async def close(self) -> None:
        await self.coordinator.stop()
        await self.logs.close()
        await self.catalog.close()

    async def crash(self) -> None:
        """Start again without an orderly stop of the logs."""
        await self.coordinator.stop()
        self.logs.release()
        await self.catalog.close()
        await self.open()

    async def restart(self, *, wait: bool = True) -> None:
        await self.close()
        await self.open(wait=wait)

    async def commit(
        self, group: str, *offsets: tuple[str, int, int], member_id: str = "", generation_id: int = -1, **rest: object
    ) -> list[ErrorCode]:
        commit = Commit(request=0, member_id=member_id, generation_id=generation_id)
        new = [NewOffset(*each, 7, f"m{each[2]}") for each in offsets]
        request = CommitRequest(group, commit, new, **rest)  # type: ignore[arg-type]
        return await answered(self.coordinator.offsets.commit, request)  # type: ignore[no-any-return]

    async def commit_open(
        self,
        group: str,
        *offsets: tuple[str, int, int],
        producer: tuple[int, int] = (7, 0),
        version: int = 4,
        transactional_id: str = "x",
        member: tuple[str, int, str | None] = ("", -1, None),
    ) -> list[ErrorCode]:
        """Commit (topic, partition, offset) in the producer's transaction."""
        member_id, generation_id, instance_id = member
        commit = Commit(
            request=0, member_id=member_id, generation_id=generation_id, instance_id=instance_id, is_transactional=True
        )
        request = CommitRequest(group, commit, [NewOffset(*each, 7, f"m{each[2]}") for each in offsets])
        of = OfTransaction(transactional_id, *producer, version)
        return await answered(self.coordinator.transactional_offsets.commit, request, of)  # type: ignore[no-any-return]

    def begin(self, group: str, producer: tuple[int, int] = (7, 0), transactional_id: str = "x") -> None:
        """Begin a transaction with the group's partition, as the transaction coordinator knows it."""
        partition = "__consumer_offsets", partition_of(group, self.offsets_partition_count)
        self.transactions.begin(transactional_id, *producer, partition)

    async def end(
        self, group: str, *, commit: bool, producer: tuple[int, int] = (7, 0), coordinator_epoch: int = 0
    ) -> ErrorCode:
        """Write the marker to the group's partition."""
        marker = Marker(*producer, commit, coordinator_epoch)
        partition = partition_of(group, self.offsets_partition_count)
        self.transactions.ongoing.clear()
        return await answered(self.coordinator.transactional_offsets.end, partition, marker)  # type: ignore[no-any-return]

    def unstable(self, group: str) -> set[tuple[str, int]]:
        return set(self.coordinator.offsets.unstable(group))  # type: ignore[call-overload]

    def fetched(self, group: str) -> dict[tuple[str, int], int]:
        error, found = self.coordinator.offsets.fetch(group, None)
        assert error == E.NONE
        return {key: value.offset for key, value in found if value is not None}

    async def settled(self, group: str) -> None:
        """Wait until everything written for the group is durable, and its machine knows."""
        log = self.logs.logs["__consumer_offsets", partition_of(group, self.offsets_partition_count)]
        assert await log.durable(log.log_end_offset) == 0
        await asyncio.sleep(0)

    def records(self, group: str) -> list[tuple[bytes, bytes | None]]:
        """Return the records of the group's partition."""
        return self.records_of(partition_of(group, self.offsets_partition_count))

    def records_of(self, partition: int) -> list[tuple[bytes, bytes | None]]:
        log = self.logs.logs["__consumer_offsets", partition]
        batches = read_batches(log.read_batches(0, 1 << 24)) if log.log_end_offset else ()
        return [(bytes(each.key or b""), each.value) for _, batch in batches for each in read_records(batch)]

    async def join(self, group: str, member_id: str = "", **fields: object) -> JoinAnswer:
        given: dict[str, object] = {
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 60_000,
            "protocol_type": "consumer",
            "protocols": (("range", SUBSCRIPTION),),
            "client_id": "client",
        }
        given |= fields
        return await self.coordinator.join(group, Join(request=0, member_id=member_id, new_member_id="", **given))  # type: ignore[arg-type]

    async def sync(
        self, group: str, member_id: str, generation_id: int, assignments: dict[str, bytes] | None = None
    ) -> SyncAnswer:
        sync = Sync(request=0, member_id=member_id, generation_id=generation_id, assignments=assignments or {})
        return await self.coordinator.sync(group, sync)

    async def heartbeat(self, group: str, member_id: str, generation_id: int) -> ErrorCode:
        heartbeat = Heartbeat(request=0, member_id=member_id, generation_id=generation_id)
        return await answered(self.coordinator.heartbeat, group, heartbeat)  # type: ignore[no-any-return]

    async def member(self, group: str) -> tuple[str, int]:
        """Return the member and the generation of a group of one, stable."""
        joined = await self.join(group)
        assert joined.error == E.NONE
        synced = await self.sync(group, joined.member_id, joined.generation_id, {joined.member_id: b"all"})
        assert (synced.error, synced.assignment) == (E.NONE, b"all")
        return joined.member_id, joined.generation_id

    def state(self, group: str) -> GroupState | None:
        found = self.coordinator.find(group)[1]
        return None if found is None else found.state


SETTINGS = CoordinatorSettings(initial_rebalance_delay_ms=0, session_timeout_min_ms=1, groups_max=20)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = await Node(tmp_path, SETTINGS).open()
    yield made
    for hosted in made.coordinator.groups.values():
        hosted.entity.check_invariants()
    await made.close()
    made.logs.check_invariants()


@pytest.fixture
def world() -> World:
    made = World()
    made.orders = made.topics.create("orders", 4)  # type: ignore[attr-defined]
    return made
