"""The transaction coordinator on real logs: the durable state, the state after a crash, and the end of its work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.transaction_log import TransactionState
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.transactions import marker_delivery, waiting_additions
from storage_svc.coordinator.transactions.coordinator import TransactionCoordinator
from storage_svc.coordinator.transactions.events import (
    AbortTimedOut,
    AddPartitions,
    EndTransaction,
    Expire,
    InitProducer,
    TransactionAnswer,
)
from storage_svc.coordinator.transactions.loaded_transactions import LoadedTransactions
from storage_svc.coordinator.transactions.settings import TransactionSettings
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.catalog import Catalog, CatalogError
from storage_svc.topics.configs import effective
from storage_svc.topics.names import TRANSACTIONS_TOPIC
from storage_svc.topics.producer_ids import ProducerIds
from storage_svc.topics.registry import TopicRegistry
from storage_svc.transaction_ports import Claim, Marker

from tests.unit.storage_svc.coordinator.conftest import DiskThatBreaks

S, E = TransactionState, ErrorCode
ORDERS = [("orders", index) for index in range(3)]
INIT = InitProducer(60_000)


class Markers:
    """A MarkerWriter that only remembers its markers."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, Marker]] = []
        #: The codes of the next markers; then NONE.
        self.codes: list[ErrorCode] = []
        #: Whether markers wait for ever.
        self.hang = False

    def write(self, partition: TopicPartition, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        self.written.append((partition, marker))
        if not self.hang:
            done(self.codes.pop(0) if self.codes else E.NONE)


class Host:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks = count()
        self.ids_are_there = True
        self.now_ms = 1_700_000_000_000
        self.files = DiskThatBreaks()

    async def open(self) -> None:
        self.markers = Markers()
        self.logs = DataFolder.open(self.path, LogSettings(), files=self.files)
        self.catalog = Catalog.open(self.path)
        registry: TopicRegistry[LogConfig] = TopicRegistry(
            self.catalog, self.logs, lambda own: LogConfig.from_properties(effective(own, {}))
        )
        await registry.reconcile(self.catalog.read())
        self.logs.start(asyncio.get_running_loop())
        log = InternalLog(registry, self.logs, TRANSACTIONS_TOPIC, {"cleanup.policy": "compact"}, 2)
        self.coordinator = TransactionCoordinator(
            log, TransactionSettings(), ProducerIds(self.allocate), lambda: self.now_ms
        )
        await self.coordinator.start(self.markers)

    async def allocate(self, count: int) -> range:
        await asyncio.sleep(0)
        if not self.ids_are_there:
            raise CatalogError("a test")
        first = next(self.blocks) * count
        return range(first, first + count)

    async def close(self) -> None:
        await self.coordinator.stop()
        await self.logs.close()
        await self.catalog.close()

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def begin(self, name: str = "t") -> TransactionAnswer:
        """Return the producer of an ongoing transaction in all partitions of orders."""
        answer = await self.coordinator.init_producer(name, INIT)
        assert answer.error == 0
        add = AddPartitions(answer.producer_id, answer.producer_epoch, frozenset(ORDERS), 2)
        assert await self.coordinator.add_partitions(name, add) == 0
        return answer

    async def commit(self, producer: TransactionAnswer, name: str = "t") -> TransactionAnswer:
        return await self.coordinator.end(
            name, EndTransaction(producer.producer_id, producer.producer_epoch, commit=True, client_version=2)
        )

    def state(self, name: str = "t") -> TransactionState | None:
        found = self.coordinator.find(name)[1]
        return None if found is None else found.state

    async def until(self, state: TransactionState | None, name: str = "t") -> None:
        async with asyncio.timeout(60):
            while self.state(name) is not state:  # noqa: ASYNC110
                await asyncio.sleep(0.001)


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    made = Host(tmp_path)
    await made.open()
    yield made
    for hosted in made.coordinator.hosted.values():
        assert hosted.entity is not None
        hosted.entity.check_invariants()
    await made.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a repetition short."""
    monkeypatch.setattr(marker_delivery, "RETRY_S", 0.001)
    monkeypatch.setattr("storage_svc.coordinator.transactions.machine.RECOVERY_MS", 1)


async def test_a_commit_writes_every_marker_once_and_completes(host: Host) -> None:
    producer = await host.begin()
    assert await host.commit(producer) == TransactionAnswer(producer_id=0, producer_epoch=1)
    await host.until(S.COMPLETE_COMMIT)
    marker = Marker(0, 1, commit=True, coordinator_epoch=0, transaction_version=2, is_own=True)
    assert host.markers.written == [(each, marker) for each in ORDERS]


async def test_prepare_is_durable_before_the_answer_and_markers_follow_after_a_crash(host: Host) -> None:
    host.markers.hang = True
    producer = await host.begin()
    assert (await host.commit(producer)).error == 0
    assert host.state() is S.PREPARE_COMMIT
    await host.restart()
    await host.until(S.COMPLETE_COMMIT)
    marker = Marker(0, 1, commit=True, coordinator_epoch=0, transaction_version=2, is_own=True)
    assert host.markers.written == [(each, marker) for each in ORDERS]
    assert await host.commit(producer) == TransactionAnswer(producer_id=0, producer_epoch=1)  # its answer was lost


async def test_an_ongoing_transaction_survives_a_restart(host: Host) -> None:
    producer = await host.begin()
    await host.restart()
    assert host.markers.written == []
    assert host.coordinator.faults(Claim("t", 0, 0, ORDERS)) == [0, 0, 0]
    assert (await host.commit(producer)).error == 0


async def test_markers_are_written_again_until_each_partition_has_one(host: Host) -> None:
    host.markers.codes = [E.NOT_LEADER_OR_FOLLOWER, E.UNKNOWN_TOPIC_OR_PARTITION, E.KAFKA_STORAGE_ERROR]
    await host.commit(await host.begin())
    await host.until(S.COMPLETE_COMMIT)
    written = [partition for partition, _ in host.markers.written]
    assert written[:3] == ORDERS
    assert sorted(written[3:]) == [ORDERS[0], ORDERS[2]]


async def test_a_partition_that_refuses_its_marker_is_one_warning(
    host: Host, capsys: pytest.CaptureFixture[str]
) -> None:
    host.markers.codes = [E.KAFKA_STORAGE_ERROR] * 20
    await host.commit(await host.begin())
    await host.until(S.COMPLETE_COMMIT)
    assert len(host.markers.written) == 23
    assert capsys.readouterr().err.count("marker is written again later") == 3


async def test_nothing_is_kept_of_markers_that_are_written(host: Host) -> None:
    host.markers.codes = [E.NOT_LEADER_OR_FOLLOWER]
    await host.commit(await host.begin())
    assert len(host.coordinator._delivery) == 1
    await host.until(S.COMPLETE_COMMIT)
    assert len(host.coordinator._delivery) == 0


async def test_what_is_under_way_is_described(host: Host) -> None:
    host.markers.hang = True
    await host.commit(await host.begin())
    _, found = host.coordinator.find("t")
    assert found is not None
    assert (found.state, found.partitions) == (S.PREPARE_COMMIT, frozenset(ORDERS))
    assert host.coordinator.counts()["PrepareCommit"] == 1
    assert host.coordinator.faults(Claim("t", 0, 1, ORDERS)) == [E.CONCURRENT_TRANSACTIONS] * 3


async def test_the_next_transaction_waits_for_the_markers_of_the_last(host: Host) -> None:
    done: list[int] = []
    answer = await host.commit(await host.begin())
    for partition in ORDERS[:2]:
        host.coordinator.add(Claim("t", answer.producer_id, answer.producer_epoch, [partition]), done.append)
    assert done == []
    await host.until(S.ONGOING)
    await asyncio.sleep(0)
    assert done == [0, 0]
    _, found = host.coordinator.find("t")
    assert found is not None
    assert (found.partitions, found.client_version) == (frozenset(ORDERS[:2]), 2)
    log = host.logs.logs[TRANSACTIONS_TOPIC, 0] if host.logs.logs[TRANSACTIONS_TOPIC, 0].log_end_offset else None
    log = log or host.logs.logs[TRANSACTIONS_TOPIC, 1]
    assert log.log_end_offset == 5  # Empty, Ongoing, PrepareCommit, CompleteCommit, and one Ongoing for both


async def test_an_addition_does_not_wait_for_ever(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_additions, "WAIT_S", 0.001)
    host.markers.hang = True
    answer = await host.commit(await host.begin())
    add = AddPartitions(answer.producer_id, answer.producer_epoch, frozenset(ORDERS))
    assert await host.coordinator.add_partitions("t", add) is E.CONCURRENT_TRANSACTIONS


async def test_a_stop_answers_additions_that_wait(host: Host) -> None:
    host.markers.hang = True
    answer = await host.commit(await host.begin())
    done: list[int] = []
    host.coordinator.add(Claim("t", answer.producer_id, answer.producer_epoch, ORDERS), done.append)
    await host.restart()
    assert done == [E.NOT_COORDINATOR]


async def test_the_sweep_aborts_and_the_id_expires(host: Host) -> None:
    producer = await host.begin()
    host.now_ms += 60_000
    await host.coordinator.sweep(["t"], AbortTimedOut())
    assert host.state() is S.ONGOING
    host.now_ms += 1
    await host.coordinator.sweep(["t", "nobody"], AbortTimedOut())
    await host.until(S.COMPLETE_ABORT)
    assert [marker.commit for _, marker in host.markers.written] == [False] * 3
    assert (await host.commit(producer)).error is E.INVALID_TXN_STATE  # as a retry, but of an abort
    host.now_ms += 1000
    await host.coordinator.sweep(["t"], Expire(1000))
    await host.until(None)
    await host.restart()
    assert host.coordinator.find("t") == (0, None)


async def test_no_producer_id_no_answer_but_an_error(host: Host) -> None:
    host.ids_are_there = False
    assert await host.coordinator.init_producer("t", INIT) == TransactionAnswer(E.COORDINATOR_NOT_AVAILABLE)
    assert host.coordinator.hosted == {}
    host.ids_are_there = True
    assert await host.coordinator.init_producer("t", INIT) == TransactionAnswer(producer_id=0, producer_epoch=0)


async def test_a_partition_that_goes_offline_is_not_served(host: Host) -> None:
    producer = await host.begin()
    host.files.sync_fault = OSError(5, "broken")
    assert (await host.commit(producer)).error is E.NOT_COORDINATOR
    assert host.coordinator.faults(Claim("t", 0, 0, ORDERS[:1])) == [E.NOT_COORDINATOR]
    assert "is offline" in (host.coordinator.fault_of_service or "")
    await asyncio.sleep(0)
    assert host.coordinator.hosted == {}
    host.files.sync_fault = None
    await host.restart()
    assert host.state() in (S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT)


async def test_a_fence_that_the_log_refuses_is_no_fence(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's coordinator of transaction.version 2 keeps the epoch, too: no client got the next one."""
    producer = await host.begin()
    gather = host.coordinator._log.gather

    def refuse(_partition: int, _tails: object, _now_ms: int, done: Callable[[int], None]) -> None:
        done(E.NOT_ENOUGH_REPLICAS)

    monkeypatch.setattr(host.coordinator._log, "gather", refuse)
    assert await host.coordinator.init_producer("t", INIT) == TransactionAnswer(E.COORDINATOR_NOT_AVAILABLE)
    host.now_ms += 60_001
    await host.coordinator.sweep(["t"], AbortTimedOut())
    assert host.state() is S.ONGOING
    assert host.coordinator.faults(Claim("t", 0, 0, ORDERS)) == [0, 0, 0]
    monkeypatch.setattr(host.coordinator._log, "gather", gather)
    assert await host.coordinator.init_producer("t", INIT) == TransactionAnswer(E.CONCURRENT_TRANSACTIONS)
    await host.until(S.COMPLETE_ABORT)
    assert [(marker.producer_epoch, marker.commit) for _, marker in host.markers.written] == [(1, False)] * 3
    add = AddPartitions(producer.producer_id, producer.producer_epoch, frozenset(ORDERS), 2)
    assert await host.coordinator.add_partitions("t", add) is E.PRODUCER_FENCED
    assert await host.coordinator.init_producer("t", INIT) == TransactionAnswer(producer_id=0, producer_epoch=2)


async def test_a_record_that_cannot_be_read_is_skipped(host: Host) -> None:
    await host.begin("good")
    log = next(each for each in host.logs.logs.values() if each.log_end_offset)
    partition = log.partition
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    writer = host.coordinator._log
    writer.write(partition, [(b"\0\0\0\1x", b"?"), (b"\0\7later", b"kind")], 0, done.set_result)
    assert await done == 0
    await host.restart()
    assert list(host.coordinator.hosted) == ["good"]


@pytest.mark.parametrize("name", ["", "x" * 32_768])
async def test_names_that_no_record_can_hold(host: Host, name: str) -> None:
    assert await host.coordinator.init_producer(name, INIT) == TransactionAnswer(E.INVALID_REQUEST)
    assert host.coordinator.faults(Claim(name, 0, 0, ORDERS[:1])) == [E.INVALID_REQUEST]


async def test_a_partition_of_very_many_ids_is_held_in_turns(host: Host) -> None:
    await host.begin()
    _, transaction = host.coordinator.find("t")
    assert transaction is not None
    loaded = LoadedTransactions({f"t{number}": transaction for number in range(1000)})
    counts: list[int] = []
    holding = asyncio.create_task(host.coordinator._install(0, loaded))
    while not holding.done():
        counts.append(len(host.coordinator.hosted) - 1)
        await asyncio.sleep(0)
    assert counts[:6] == [0, 200, 400, 600, 800, 1000]


async def test_no_ids_are_held_of_a_partition_that_is_lost_while_it_loads(host: Host) -> None:
    await host.begin()
    _, transaction = host.coordinator.find("t")
    assert transaction is not None
    loaded = LoadedTransactions({f"t{number}": transaction for number in range(1000)})
    holding = asyncio.create_task(host.coordinator._install(0, loaded))
    await asyncio.sleep(0)
    host.coordinator._partitions.lost(0, "test")
    await holding
    assert len(host.coordinator.hosted) == 1 + 200


async def test_a_name_is_hashed_only_while_partitions_are_not_served(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[str] = []
    monkeypatch.setattr(InternalLog, "partition_of", lambda _, name: hashed.append(name) or 0)
    assert host.coordinator.faults(Claim("x", 0, 0, ORDERS)) == [E.INVALID_PRODUCER_ID_MAPPING] * 3
    assert host.coordinator.find("x") == (0, None)
    assert hashed == []
    host.coordinator._partitions.lost(0, "test")
    assert host.coordinator.faults(Claim("x", 0, 0, ORDERS)) == [E.NOT_COORDINATOR] * 3
    assert hashed == ["x"]


async def test_a_sweep_waits_for_the_records_that_it_writes(host: Host) -> None:
    names = [f"t{number}" for number in range(1000)]
    for begin in range(0, len(names), 100):
        await asyncio.gather(*map(host.begin, names[begin : begin + 100]))
    host.now_ms += 60_001
    sweep = asyncio.create_task(host.coordinator.sweep(names, AbortTimedOut()))
    most = 0
    while not sweep.done():
        entries = [each.entity for each in host.coordinator.hosted.values() if each.entity is not None]
        pending = [each.pending.state for each in entries if each.pending is not None]
        most = max(most, pending.count(S.PREPARE_ABORT))
        await asyncio.sleep(0)
    assert 0 < most <= 200
    for name in names:
        await host.until(S.COMPLETE_ABORT, name)


async def test_the_partitions_of_all_transactions_are_bounded(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_svc.coordinator.transactions.coordinator._PARTITIONS_MAX", 5)
    producer = await host.begin()
    other = await host.coordinator.init_producer("u", INIT)
    three = AddPartitions(other.producer_id, other.producer_epoch, frozenset(ORDERS))
    two = AddPartitions(other.producer_id, other.producer_epoch, frozenset(ORDERS[:2]))
    assert await host.coordinator.add_partitions("u", three) is E.POLICY_VIOLATION
    assert await host.coordinator.add_partitions("u", two) is E.NONE
    await host.commit(producer)
    await host.until(S.COMPLETE_COMMIT)
    assert await host.coordinator.add_partitions("u", three) is E.NONE
    await host.restart()
    producer = await host.coordinator.init_producer("v", INIT)
    more = AddPartitions(producer.producer_id, producer.producer_epoch, frozenset(ORDERS))
    assert await host.coordinator.add_partitions("v", more) is E.POLICY_VIOLATION
