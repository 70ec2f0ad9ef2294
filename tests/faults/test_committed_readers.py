"""A read_committed reader never sees a record of an aborted transaction, in any order of requests and markers.

Two transaction.version 2 clients write over the same partitions. Requests are delayed, and some arrive twice: the
second copy of a Produce, EndTxn or InitProducerId may come in a later transaction. Each marker is delayed, and so is
the sign that it is written; syncs come at any turn. Readers read from the begin, in a loop.

The clock is played: a turn of the event loop takes TURN_S, so that a seed repeats its schedule. Nothing is done in a
thread: on a busy machine it would take thousands of turns, and transactions seemed to hang.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

import pytest
from broker_contract.data import Append, ReadPartition, ReadRequest, ReadResult, TopicIdPartition
from clients.disturbances import scaled
from faults.simulated_disk import SimulatedDisk
from faults.transaction_life import Node, SameThread, answered
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.record import Record, read_records
from storage_svc.coordinator.transactions.events import EndTransaction, InitProducer
from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import Marker

TURN_S: Final = 0.002
#: Turns after which a run hangs: many times as many as it takes.
TURNS_MAX: Final = 50_000
PARTITIONS: Final[list[TopicPartition]] = [("copy", 0), ("copy", 1)]
TRANSACTIONS: Final = 12
#: Longest delay of a request, of its late copy, and of a marker, in seconds; a client waits ANSWER_S for an answer.
DELAY_S, LATE_S, MARKER_S, ANSWER_S = 0.02, 0.4, 0.03, 0.03
END_TRIES: Final = 30
START_MS: Final = 1_700_000_000_000

#: A record of an answer: partition, offset and value.
Seen = tuple[int, int, str]


class PlayedLoop(asyncio.SelectorEventLoop):
    """A loop whose time moves when somebody adds to `now`."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__()
        self.set_default_executor(SameThread())

    def time(self) -> float:
        return self.now


class Schedule:
    """One storage, two clients and some readers, in the order that a seed draws."""

    def __init__(self, seed: int, loop: PlayedLoop) -> None:
        self.draw = random.Random(seed)
        self.loop = loop
        self.node = Node(SimulatedDisk(), START_MS, itertools.count())
        self._write_marker = self.node.markers.write
        self.node.markers.write = self._marker_later  # type: ignore[method-assign]
        #: Outcome by value, the records in the answers to all readers, and numbers of events.
        self.outcomes: dict[str, str] = {}
        self.seen: set[Seen] = set()
        self.counts: defaultdict[str, int] = defaultdict(int)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._is_over = False

    def _marker_later(self, partition: TopicPartition, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        def written(code: ErrorCode) -> None:
            self.loop.call_later(self.draw.uniform(0, MARKER_S), done, code)

        self.loop.call_later(self.draw.uniform(0, MARKER_S), self._write_marker, partition, marker, written)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _after(self, delay_s: float, send: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(delay_s)
        return await send()

    async def _sent(self, send: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request, and perhaps a late copy; return the answer, None if it is late."""
        delays = [self.draw.choice((0.0, self.draw.uniform(0, DELAY_S), self.draw.uniform(0, LATE_S)))]
        if self.draw.random() < 0.4:
            delays.append(self.draw.uniform(0, LATE_S))
        copies = [self._begun(self._after(delay_s, send)) for delay_s in delays]
        done, _ = await asyncio.wait(copies, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
        return next((each.result() for each in copies if each in done), None)

    def _begun(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = self.loop.create_task(work)
        self._under_way.add(task)
        return task

    # --- a client -----------------------------------------------------------------------------------------------------

    async def client(self, name: str) -> None:
        producer: tuple[int, int] | None = None
        for number in range(TRANSACTIONS):
            while producer is None:
                answer = await self._sent(lambda: self.node.transactions.init_producer(name, InitProducer(60_000)))
                if answer is not None and answer.error is ErrorCode.NONE:
                    producer = answer.producer_id, answer.producer_epoch
            value = f"{name}{number}"
            is_whole = await self._written(name, producer, value)
            commits = is_whole and self.draw.random() < 0.5
            self.outcomes[value] = "unknown"
            producer = await self._ended(name, producer, commits=commits)
            if producer is not None:
                self.outcomes[value] = "committed" if commits else "aborted"

    async def _written(self, name: str, producer: tuple[int, int], value: str) -> bool:
        """Write some batches to each partition; return whether all were acknowledged."""
        for sequence in range(self.draw.choice((1, 1, 2))):
            batch = build_batch(
                [Record(0, START_MS, None, value.encode())],
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=sequence,
                transactional=True,
            )
            named = [TopicIdPartition(*each) for each in PARTITIONS]
            request = Append(1, "c", 12, -1, 30_000, named, [batch] * len(named), name)
            for _ in range(3):
                answer = await self._sent(lambda request=request: answered(self.node.data.append, request))
                if answer is not None and not any(each.error_code for each in answer.outcomes):
                    break
            else:
                return False
        return True

    async def _ended(self, name: str, producer: tuple[int, int], *, commits: bool) -> tuple[int, int] | None:
        """End the transaction; return the producer's next id and epoch, None if the client cannot go on."""
        end = EndTransaction(*producer, commits, 2)
        for _ in range(END_TRIES):
            answer = await self._sent(lambda: self.node.transactions.end(name, end))
            if answer is None or answer.error is ErrorCode.CONCURRENT_TRANSACTIONS:
                continue
            self.counts[f"end {answer.error.name}"] += 1
            return None if answer.error else (answer.producer_id, answer.producer_epoch)
        return None

    # --- a reader -----------------------------------------------------------------------------------------------------

    async def reader(self, partition: int) -> None:
        while not self._is_over:
            await self._read_to_the_end(partition)
            await asyncio.sleep(self.draw.uniform(0, 0.02))

    async def _read_to_the_end(self, partition: int) -> set[Seen]:
        """Read from the begin to the last stable offset; return the records for a consumer."""
        offset, found = 0, set[Seen]()
        while True:
            wanted = ReadPartition(TopicIdPartition("copy", partition), offset, self.draw.choice((1, 200, 1 << 20)))
            read = ReadRequest(1, "c", 20, 1, 1 << 20, 1, False, [wanted])
            (result,) = (await answered(self.node.data.read, read)).partitions
            assert result.error_code == 0
            if not result.records:
                return found
            offset = self._take(partition, result, found)
            self.seen |= found

    def _take(self, partition: int, result: ReadResult, found: set[Seen]) -> int:
        """Add the records of an answer, by Kafka's rules; return the next offset."""
        assert result.aborted is not None
        aborted = sorted(result.aborted, key=lambda each: each[1])
        dropped: set[int] = set()
        for header, batch in read_batches(result.records):
            while aborted and aborted[0][1] <= header.last_offset:
                dropped.add(aborted.pop(0)[0])
            records = list(read_records(batch))
            if header.is_control:
                marker = read_marker(records[0])
                assert marker is not None
                if marker.type is ControlType.ABORT:
                    dropped.discard(header.producer_id)
            elif header.producer_id not in dropped:
                found |= {(partition, each.offset, bytes(each.value or b"").decode()) for each in records}
            else:
                self.counts["dropped"] += 1
        return header.last_offset + 1

    # --- the run ------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        await self.node.load()
        readers = [self.loop.create_task(self.reader(partition)) for partition in (0, 0, 1)]
        await asyncio.gather(*(self.client(name) for name in ("x", "y")))
        await asyncio.gather(*self._under_way)  # also the latest copies
        for name in ("x", "y"):  # the last instance ends what is open
            while (await self.node.transactions.init_producer(name, InitProducer(60_000))).error:  # noqa: ASYNC110
                await asyncio.sleep(TURN_S)
        self._is_over = True
        await asyncio.gather(*readers)
        last = {each for partition in (0, 1) for each in await self._read_to_the_end(partition)}
        assert self.seen == last
        self.node.check_closed()
        self.check()

    def check(self) -> None:
        places: defaultdict[str, set[int]] = defaultdict(set)
        for partition, _, value in self.seen:
            places[value].add(partition)
        for value, outcome in self.outcomes.items():
            self.counts[outcome] += 1
            wanted = {"committed": ({0, 1},), "aborted": (set(),), "unknown": (set(), {0, 1})}[outcome]
            assert places[value] in wanted, f"{value} was {outcome}, and is seen in {places[value]}"
        assert self.counts["committed"]
        assert self.counts["aborted"]


def run(seed: int) -> Schedule:
    loop = PlayedLoop()

    async def turns() -> Schedule:
        schedule = Schedule(seed, loop)
        task = loop.create_task(schedule.run())
        for _ in range(TURNS_MAX):
            await asyncio.sleep(0)
            loop.now += TURN_S
            if schedule.draw.random() < 0.3:
                schedule.node.logs.flusher.sync_now()
            if task.done():
                task.result()
                return schedule
        raise AssertionError("a transaction hangs")

    try:
        return loop.run_until_complete(turns())
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("storage_svc.log.disk.threads.ThreadPoolExecutor", SameThread)


@pytest.fixture
def _batches_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each batch wait until its records are checked, as a long one does."""
    monkeypatch.setattr("storage_svc.log.batch.admission.QUICK_STEPS", 0)
    monkeypatch.setattr("storage_svc.log.batch.room._TURN_S", 0)


@pytest.mark.parametrize("seed", range(10))
def test_a_reader_sees_no_aborted_record(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.usefixtures("_batches_wait")
def test_a_reader_sees_no_aborted_record_when_batches_wait(seed: int) -> None:
    run(seed)


@pytest.mark.slow
def test_a_reader_sees_no_aborted_record_at_length() -> None:
    for seed in range(100, 100 + scaled(500)):
        run(seed)


@pytest.mark.slow
@pytest.mark.usefixtures("_batches_wait")
def test_a_reader_sees_no_aborted_record_when_batches_wait_at_length() -> None:
    for seed in range(1000, 1000 + scaled(60)):
        run(seed)
