"""Consume-transform-produce on a simulated disk: the coordinators and logs of one storage, and two applications.

Both applications copy: each transaction writes a record to some partitions and commits an offset of its source.
One speaks transaction.version 2 (Produce 12, TxnOffsetCommit 5, EndTxn 5), the other version 1. Transaction `n` of an
application writes the value `n` everywhere, and commits the offset `n`; some are aborted.

A crash may come at any write, sync, rename or creation. `check` then demands of every transaction:

- it is visible everywhere, records and offset, or nowhere;
- it is visible if a commit was answered, and not if its application never asked for one;
- it is open nowhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from broker_contract.data import Append, TopicIdPartition
from faults.simulated_disk import PowerCut, SimulatedDisk
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.record import Record, read_records
from storage_svc.coordinator.classic.events import Commit
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.limits import CommitRequest, CoordinatorSettings, NewOffset
from storage_svc.coordinator.stored.internal_log import InternalLog
from storage_svc.coordinator.stored.markers import LogMarkerWriter
from storage_svc.coordinator.stored.offsets_log import OffsetsLog
from storage_svc.coordinator.transactional_offsets import OfTransaction
from storage_svc.coordinator.transactions.coordinator import TransactionCoordinator
from storage_svc.coordinator.transactions.events import AbortTimedOut, AddPartitions, EndTransaction, InitProducer
from storage_svc.coordinator.transactions.settings import TransactionSettings
from storage_svc.coordinator.transactions.transaction import PREPARED
from storage_svc.log.config import LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc.data import DataService
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.catalog_file import CatalogContents, CatalogTopic
from storage_svc.topics.configs import effective
from storage_svc.topics.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from storage_svc.topics.producer_ids import ProducerIds
from storage_svc.topics.registry import TopicRegistry

OUTPUTS: Final[list[TopicPartition]] = [("copy", 0), ("copy", 1), ("copy", 2)]
SOURCE: Final = "source"
TIMEOUT_MS: Final = 60_000
#: Segments so small that the script rolls each topic.
SEGMENT: Final = {"segment.bytes": "700", "index.interval.bytes": "200", "flush.policy": "group"}
COMPACTED: Final = {**SEGMENT, "cleanup.policy": "compact"}
TOPICS: Final = [
    CatalogTopic("copy", bytes([1]) * 16, 3, SEGMENT),
    CatalogTopic(SOURCE, bytes([2]) * 16, 1, SEGMENT),
    CatalogTopic(OFFSETS_TOPIC, bytes([3]) * 16, 2, COMPACTED),
    CatalogTopic(TRANSACTIONS_TOPIC, bytes([4]) * 16, 2, COMPACTED),
]
#: Turns of the event loop without any change on the disk, after which nothing is under way.
QUIET_TURNS: Final = 30
#: Turns after which a transaction that has not ended hangs.
SETTLED_TURNS: Final = 10_000

T = TypeVar("T")


class SameThread(ThreadPoolExecutor):
    """An executor whose work is done when it is accepted, so that every run is the same."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(work(*args, **kwargs))
        except Exception as error:
            done.set_exception(error)
        return done


@dataclass(eq=False)
class Attempt:
    """One transaction, as its application remembers it."""

    number: int
    commit: bool
    has_asked_to_end: bool = False
    is_answered: bool = False


@dataclass(eq=False)
class Application:
    """A copier: the id is its transactional id, and the name of its group."""

    id: str
    version: int
    producer: tuple[int, int] = (-1, -1)
    #: The partitions' next sequences.
    sequences: dict[TopicPartition, int] = field(default_factory=dict)
    attempts: list[Attempt] = field(default_factory=list)


class Node:
    """The storage of one run, from a start to the next crash."""

    def __init__(self, disk: SimulatedDisk, now_ms: int, blocks: Iterator[int]) -> None:
        """Open the data folder. Build it on the event loop."""
        self.now_ms = now_ms
        self.logs = DataFolder.open(Path("/data"), LogSettings(), files=disk, clock=lambda: self.now_ms)

        def log_config(own: Mapping[str, str]) -> LogConfig:
            return LogConfig.from_properties(effective(own, {}))

        # No crash reaches the catalog: the topics exist before the script begins.
        registry: TopicRegistry[LogConfig] = TopicRegistry(None, self.logs, log_config)  # type: ignore[arg-type]
        with contextlib.suppress(StopIteration):
            registry.reconcile(CatalogContents(TOPICS)).send(None)  # it has nothing to wait for
        self.logs.sync_recovered()
        self.offsets_log = OffsetsLog(registry, self.logs, 2)
        transactions_log = InternalLog(registry, self.logs, TRANSACTIONS_TOPIC, COMPACTED, 2)

        async def allocate(count: int) -> range:
            first = 7 + next(blocks) * count
            return range(first, first + count)

        self.transactions = TransactionCoordinator(
            transactions_log, TransactionSettings(), ProducerIds(allocate), lambda: self.now_ms
        )
        settings = CoordinatorSettings(initial_rebalance_delay_ms=0)
        self.groups = GroupCoordinator(
            self.offsets_log, settings, lambda *_: True, registry, self.transactions, lambda: self.now_ms
        )
        self.data = DataService(self.logs, registry.name_of, self.transactions)
        self.markers = LogMarkerWriter(self.logs.logs, self.groups.transactional_offsets.end)

    async def load(self) -> None:
        await asyncio.gather(self.groups.start(), self.transactions.start(self.markers))

    # --- calls of a client ------------------------------------------------------------------------------------------

    async def produce(self, each: Application, partitions: list[TopicPartition], value: bytes) -> None:
        batches = []
        for partition in partitions:
            sequence = each.sequences.get(partition, 0)
            each.sequences[partition] = sequence + 1
            producer_id, epoch = each.producer
            batches.append(
                build_batch(
                    [Record(0, self.now_ms, each.id.encode(), value)],
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    base_sequence=sequence,
                    transactional=True,
                )
            )
        named = [TopicIdPartition(*partition) for partition in partitions]
        version = 12 if each.version == 2 else 11
        request = Append(1, "c", version, -1, 30_000, named, batches, each.id)

        async def send() -> list[int]:
            answer = await answered(self.data.append, request)
            return [outcome.error_code for outcome in answer.outcomes]

        assert await repeated(send) == [0] * len(partitions)

    async def add(self, each: Application, partitions: list[TopicPartition]) -> None:
        add = AddPartitions(*each.producer, frozenset(partitions))

        async def send() -> list[int]:
            return [await self.transactions.add_partitions(each.id, add)]

        assert await repeated(send) == [0]

    async def commit_offset(self, each: Application, offset: int) -> None:
        member = Commit(request=0, member_id="", generation_id=-1, is_transactional=True)
        request = CommitRequest(each.id, member, [NewOffset(SOURCE, 0, offset, -1, "")])
        of = OfTransaction(each.id, *each.producer, 5 if each.version == 2 else 3)

        async def send() -> list[int]:
            return list(await answered(self.groups.transactional_offsets.commit, request, of))

        assert await repeated(send) == [0]

    async def init(self, each: Application) -> None:
        while True:
            answer = await self.transactions.init_producer(each.id, InitProducer(TIMEOUT_MS))
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0)
        assert answer.error is ErrorCode.NONE
        each.producer = answer.producer_id, answer.producer_epoch
        each.sequences = {}

    async def copy(self, each: Application, attempt: Attempt) -> None:
        """Carry out one transaction."""
        each.attempts.append(attempt)
        partitions = OUTPUTS[attempt.number % 2 :]
        group = OFFSETS_TOPIC, self.offsets_log.partition_of(each.id)
        value = b"%d" % attempt.number
        if each.version < 2:
            await self.add(each, partitions)
        await self.produce(each, partitions, value)
        if each.version < 2:
            await self.add(each, [group])
        await self.commit_offset(each, attempt.number)
        attempt.has_asked_to_end = True
        end = EndTransaction(*each.producer, attempt.commit, 2 if each.version == 2 else 0)
        answer = await self.transactions.end(each.id, end)
        assert answer.error is ErrorCode.NONE
        attempt.is_answered = True
        if each.version == 2:
            assert answer.producer_id == each.producer[0]
            each.producer = answer.producer_id, answer.producer_epoch
            each.sequences = {}

    # --- what a reader sees -----------------------------------------------------------------------------------------

    def committed_records(self, partition: TopicPartition) -> dict[str, list[int]]:
        """Return the numbers that a committed reader gets of each application, by Kafka's rules."""
        log = self.logs.logs[partition]
        found: dict[str, list[int]] = {}
        spans = log.spans(log.log_start_offset, 1 << 20, min_one=True, committed=True)
        aborted = sorted(log.transactions.aborted(log.log_start_offset, spans), key=lambda each: each[1])
        dropped: set[int] = set()
        for header, batch in read_batches(log.read_batches(log.log_start_offset, 1 << 20)):
            if header.base_offset >= log.last_stable_offset:
                break
            while aborted and aborted[0][1] <= header.last_offset:
                dropped.add(aborted.pop(0)[0])
            if header.is_control:
                (record,) = read_records(batch)
                marker = read_marker(record)
                assert marker is not None
                if marker.type is ControlType.ABORT:
                    dropped.discard(header.producer_id)
                continue
            if header.producer_id not in dropped:
                for record in read_records(batch):
                    found.setdefault(bytes(record.key or b"").decode(), []).append(int(bytes(record.value or b"")))
        return found

    def committed_offset(self, each: Application) -> int:
        error, found = self.groups.offsets.fetch(each.id, None)
        assert error is ErrorCode.NONE
        return next((value.offset for _, value in found if value is not None), -1)

    @property
    def is_settled(self) -> bool:
        """Whether no transaction waits for its markers, or for a record."""
        entries = [each.entity for each in self.transactions.hosted.values() if each.entity is not None]
        return not any(each.pending or (each.stored and each.stored.state in PREPARED) for each in entries)

    def check_closed(self) -> None:
        """Check that no transaction is open, in a log or in a group."""
        for log in self.logs.logs.values():
            assert log.offline is None
            assert _ends(log) == [log.log_end_offset] * 3, f"{log.topic}-{log.partition} is open"
        for group in ("one", "two"):
            assert not self.groups.offsets.unstable(group)
        self.logs.check_invariants()
        for hosted in self.transactions.hosted.values():
            assert hosted.entity is not None
            hosted.entity.check_invariants()


def _ends(log: PartitionLog) -> list[int]:
    return [log.last_stable_offset, log.high_watermark, log.log_end_offset]


async def answered(call: Callable[..., None], *arguments: Any) -> Any:
    """Make a call, and return the value that its `done` gets."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(*arguments, answer.set_result)
    return await answer


async def repeated(send: Callable[[], Coroutine[Any, Any, list[int]]]) -> list[int]:
    """Send a request until its transaction does not wait for the one before, as clients do; return the codes."""
    while ErrorCode.CONCURRENT_TRANSACTIONS in (codes := await send()):  # noqa: ASYNC110
        await asyncio.sleep(0)
    return codes


class Life:
    """All runs of one storage, and its applications."""

    def __init__(self, turns_per_sync: int = 1) -> None:
        """Let the disk sync after each turn of the event loop, or after some, so that more is unsynced at a crash."""
        self.disk = SimulatedDisk()
        self._turns_per_sync = turns_per_sync
        self.now_ms = 1_700_000_000_000
        self.applications = [Application("two", 2), Application("one", 1)]
        self._blocks = itertools.count()
        self._node: Node | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._run(self._open())
        self.disk.changes = 0

    @property
    def node(self) -> Node:
        """The storage that runs."""
        assert self._node is not None
        return self._node

    # --- the event loop, on which syncs run between the turns ---------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run until it is done.

        Raises:
            PowerCut: somebody on the loop has met it.
        """
        if self._loop is None:
            # The disk's work is done on the loop, and nobody watches how long that takes (loop_guard.py).
            self._loop = asyncio.SelectorEventLoop()
            self._loop.set_default_executor(SameThread())
            self._loop.set_exception_handler(lambda _, context: None)  # `_turns` raises a PowerCut of any callback
        return self._loop.run_until_complete(self._turns(self._loop.create_task(work)))

    async def _turns(self, task: asyncio.Task[T]) -> T:
        while not task.done():
            for _ in range(self._turns_per_sync):
                if not self.disk.powered:
                    raise PowerCut
                await asyncio.sleep(0)
            if self._node is not None:
                self._node.logs.flusher.sync_now()
        return task.result()

    async def _open(self) -> None:
        self.now_ms += 1000
        self._node = Node(self.disk, self.now_ms, self._blocks)
        await self._node.load()

    async def _settle(self) -> None:
        """Wait until the markers of all transactions are written."""
        quiet = 0
        for _ in range(SETTLED_TURNS):
            changes = self.disk.changes
            await asyncio.sleep(0)
            quiet = quiet + 1 if self.disk.changes == changes else 0
            if quiet > QUIET_TURNS and self.node.is_settled:
                return
        raise AssertionError("a transaction hangs")

    # --- the script ---------------------------------------------------------------------------------------------------

    def script(self) -> None:
        """Begin, copy, write checkpoints and copy again; PowerCut passes through."""

        async def work() -> None:
            node = self.node
            await asyncio.gather(*(self._copy_some(node, each, 4) for each in self.applications))
            node.logs.checkpoints.write_all()
            await asyncio.gather(*(self._copy_some(node, each, 2) for each in self.applications))
            await self._settle()

        self._run(work())

    async def _copy_some(self, node: Node, each: Application, count: int) -> None:
        if each.producer == (-1, -1):
            await node.init(each)
        for _ in range(count):
            number = len(each.attempts) + 1
            await node.copy(each, Attempt(number, commit=number % 3 != 0))

    # --- after a crash ------------------------------------------------------------------------------------------------

    def crashed(self) -> None:
        """Abandon the run as the crash left it."""
        assert self._loop is not None
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()
        self._loop = self._node = None

    def start_again(self, *, by_time_out: bool) -> None:
        """Start, and end all open transactions: by the sweep for time-outs, or by new instances of the applications."""

        async def work() -> None:
            await self._open()
            if by_time_out:
                self.node.now_ms += 2 * TIMEOUT_MS
                await self.node.transactions.sweep(list(self.node.transactions.hosted), AbortTimedOut())
                await self._settle()
            for each in self.applications:
                await self.node.init(each)
            await self._settle()

        self._run(work())

    def check(self) -> int:
        """Check the fate of every transaction, and return how many are visible."""
        node = self.node
        node.check_closed()
        records = {partition: node.committed_records(partition) for partition in OUTPUTS}
        count = 0
        for each in self.applications:
            visible: list[int] = []
            for attempt in each.attempts:
                number = attempt.number
                partitions = OUTPUTS[number % 2 :]
                places = [number in records[partition].get(each.id, ()) for partition in partitions]
                assert len(set(places)) == 1, f"transaction {number} of {each.id} is torn: {places}"
                if places[0]:
                    assert attempt.commit, f"transaction {number} of {each.id} was aborted"
                    assert attempt.has_asked_to_end, f"transaction {number} of {each.id} was never committed"
                    visible.append(number)
                else:
                    assert not (attempt.commit and attempt.is_answered), f"{number} of {each.id} is lost"
            for partition in OUTPUTS:
                wanted = [number for number in visible if partition in OUTPUTS[number % 2 :]]
                assert records[partition].get(each.id, []) == wanted
            assert node.committed_offset(each) == (visible[-1] if visible else -1), f"offset of {each.id}"
            count += len(visible)
        return count

    def go_on(self) -> None:
        """Check that the next transaction of each application commits."""

        async def work() -> None:
            for each in self.applications:
                await self.node.copy(each, Attempt(len(each.attempts) + 1, commit=True))
            await self._settle()

        self._run(work())
        assert all(each.attempts[-1].is_answered for each in self.applications)
