"""Topics of two names are created, used, deleted and created again, and the process is killed at any moment.

No acknowledged record is lost, none of another topic appears, no deleted or refused topic comes back. Calls run as
tasks: a rule starts one, `go_on` lets all of them take some steps. Each record's value begins with its topic's id.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import AsyncGenerator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from broker_contract import topics_pb2 as topics
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from protocol_lib.errors import DecodeError
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.app import Storage
from storage_svc.log.cleaner.choice import cleanable
from storage_svc.log.cleaner.job import Cleaning, CleaningJob, CleaningStatistics
from storage_svc.log.disk.files import Buffer, Files
from storage_svc.log.errors import Stopped
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import apply_retention
from storage_svc.log.partition.segment_swap import CleanedGroup
from support.storage_lives import NOW_MS, append, delete, delete_records, started, values_of

KINDS = {
    "plain": {"retention.ms": "-1", "file.delete.delay.ms": "1"},
    "short": {"retention.ms": "1", "file.delete.delay.ms": "1"},
    "compact": {"cleanup.policy": "compact,delete", "retention.ms": "-1", "file.delete.delay.ms": "1"},
}
NAMES = st.sampled_from(["a", "a", "a", "b"])
KEYS = st.lists(st.sampled_from([b"k0", b"k1", b"k2"]), min_size=1, max_size=8)
#: Turns of the event loop before the next rule; None: until every call is answered.
TURNS = st.sampled_from([None, None, None, 0, 1, 2, 5])


@dataclass
class Topic:
    """One topic as its clients know it."""

    tag: bytes
    kind: str = ""
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    #: The largest log start that may be found.
    may_start: int = 0
    #: The smallest log start that may be found.
    must_start: int = 0
    may_be_gone: bool = False
    is_gone: bool = False
    is_damaged: bool = False


class SlowFiles(Files):
    """Files of a helper that has a low priority."""

    def append(self, descriptor: int, parts: list[Buffer], position: int, size: int) -> None:
        time.sleep(0.005)
        super().append(descriptor, parts, position, size)

    def open(self, path: str, *, create: bool) -> int:
        time.sleep(0.005)
        return super().open(path, create=create)


class ThreadedCleaning:
    """The cleaner's helper as a thread: it writes by path, too, and a kill ends it."""

    def __init__(self) -> None:
        self._stopped = False
        self._running: asyncio.Future[CleanedGroup | None] | None = None

    async def run(self, job: CleaningJob, statistics: CleaningStatistics) -> AsyncGenerator[CleanedGroup, None]:
        self._stopped = False
        work = Cleaning(SlowFiles(), job, lambda: self._stopped)
        groups = work.run()
        while True:
            self._running = asyncio.get_running_loop().run_in_executor(None, next, groups, None)
            group = await asyncio.shield(self._running)
            if group is None:
                break
            yield group
        if self._stopped:
            raise Stopped
        for name in statistics.__slots__:
            setattr(statistics, name, getattr(work.statistics, name))

    async def close(self) -> None:
        self._stopped = True
        if self._running is not None:
            await asyncio.wait([self._running])


class Life:
    """One run of the storage core, on an event loop that goes on only while a rule runs it."""

    def __init__(self, folder: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self.loop.set_exception_handler(lambda *_: None)  # of tasks that a kill abandons
        self._threads = ThreadPoolExecutor(4)
        self.loop.set_default_executor(self._threads)
        self.storage: Storage = self.run(started(folder, log_cleaner_backoff_ms=3_600_000))
        self.cleaning = ThreadedCleaning()
        self.storage.maintenance.cleaner._process = self.cleaning
        self.tasks: set[asyncio.Task[None]] = set()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(work)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = self.loop.create_task(work)
        self.tasks.add(task)

    def go_on(self, turns: int) -> None:
        for _ in range(turns):
            self.run(asyncio.sleep(0.0005))
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            task.result()

    def settle(self) -> None:
        if self.tasks:
            self.run(asyncio.wait(self.tasks, timeout=30))
        self.go_on(1)
        assert not self.tasks

    def kill(self) -> None:
        self.cleaning._stopped = True
        self._threads.shutdown(wait=True)
        logs, maintenance = self.storage.logs, self.storage.maintenance
        of_purposes = (
            *(logs._threads, logs.checkpoints._threads, logs._deletion._threads, maintenance._threads),
            *(maintenance.scrubber._threads, maintenance.cleaner._threads, self.storage.data._slow._threads),
        )
        for threads in of_purposes:
            threads.end(wait=True)
        logs.release()
        for flusher in (logs.flusher, logs.background):
            assert flusher._thread is not None
            flusher._thread.join()
        self.storage._catalog._thread.shutdown()
        self.storage._catalog.file.close()
        self.loop.close()


class TopicLives(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self._root = tempfile.TemporaryDirectory()
        self.folder = Path(self._root.name) / "data"
        self.topics: dict[bytes, Topic] = {}
        #: Names of creations that were not answered before a kill.
        self.may_come: set[str] = set()
        self.count = 0
        self.life = Life(self.folder)

    def teardown(self) -> None:
        try:
            self.life.settle()
            self.check()
            self.life.kill()
            self.start_again()
        finally:
            self.life.kill()
            self._root.cleanup()

    # -- the model ----------------------------------------------------------------------------------------------------

    def topic(self, topic_id: bytes) -> Topic:
        return self.topics.setdefault(topic_id, Topic(topic_id.hex()[:8].encode()))

    def log(self, name: str) -> tuple[Topic, PartitionLog] | None:
        storage = self.life.storage
        found, log = storage.topic_registry.get(name), storage.logs.logs.get((name, 0))
        if found is None or log is None:
            return None
        assert log.topic_id == found.id
        return self.topic(found.id), log

    def check(self) -> None:
        registry = self.life.storage.topic_registry
        ids = {found.id for name in registry.names() if (found := registry.get(name)) is not None}
        for topic_id, topic in self.topics.items():
            assert topic_id not in ids or not topic.is_gone, "a deleted topic is there"
            assert topic_id in ids or topic.is_gone or topic.may_be_gone, "a topic is lost"
            topic.is_gone = topic_id not in ids
        for name in registry.names():
            known = self.log(name)
            assert known is not None
            self.check_log(*known)
        self.life.storage.logs.check_invariants()

    def check_log(self, topic: Topic, log: PartitionLog) -> None:
        if topic.is_damaged and log.offline is not None:
            return
        try:
            values = values_of(log)
        except DecodeError:
            assert topic.is_damaged
            return
        assert {value[:8] for value in values.values()} <= {topic.tag}, "records of another topic"
        if topic.is_damaged:
            return
        assert log.offline is None
        half_done = [name for name in os.listdir(log.folder) if name.endswith((".cleaned", ".swap"))]
        assert log.compaction.running or half_done == []
        assert topic.must_start <= log.log_start_offset <= topic.may_start
        wanted = {at: value for at, value in topic.acknowledged.items() if at >= log.log_start_offset}
        if topic.kind == "compact":
            newest = {value[8:10]: at for at, value in sorted(wanted.items())}
            later = {value[8:10]: at for at, value in sorted(values.items())}
            wanted = {at: wanted[at] for key, at in newest.items() if later.get(key, -1) <= at}
        assert {at: values.get(at) for at in wanted} == wanted, "acknowledged records are lost"

    # -- calls of clients ---------------------------------------------------------------------------------------------

    @rule(name=NAMES, kind=st.sampled_from(list(KINDS)), partitions=st.sampled_from([1, 1, 40]), turns=TURNS)
    def create(self, name: str, kind: str, partitions: int, turns: int | None) -> None:
        entries = [topics.ConfigEntry(name=key, value=value) for key, value in KINDS[kind].items()]
        wanted = topics.NewTopic(name=name, partition_count=partitions, replication_factor=1, configs=entries)
        self.may_come.add(name)

        async def create() -> None:
            created = await self.life.storage.topics.create_topics(topics.CreateTopicsRequest(topics=[wanted]))
            if created.topics[0].error_code == 0:
                self.topic(created.topics[0].id).kind = kind

        self.life.begin(create())
        self.turn()
        self.wait(turns)

    @rule(name=NAMES, turns=TURNS)
    def delete(self, name: str, turns: int | None) -> None:
        found = self.life.storage.topic_registry.get(name)
        if found is None:
            return
        topic = self.topic(found.id)
        topic.may_be_gone = True

        async def go() -> None:
            if await delete(self.life.storage, name) == 0:
                topic.is_gone = True

        self.life.begin(go())
        self.wait(turns)

    @rule(name=NAMES, kind=st.sampled_from(list(KINDS)), keys=KEYS, first=TURNS, second=TURNS, third=TURNS)
    def create_again(
        self, name: str, kind: str, keys: list[bytes], first: int | None, second: int | None, third: int | None
    ) -> None:
        """Delete a topic, create one of its name and write to that."""
        self.delete(name, first)
        self.create(name, kind, 1, second)
        self.produce(name, keys, third)

    @rule(name=NAMES, keys=KEYS, turns=TURNS)
    def produce(self, name: str, keys: list[bytes], turns: int | None = None) -> None:
        async def produce(key: bytes) -> None:
            if (found := self.log(name)) is None or found[1].deleted:
                return
            self.count += 1
            value = found[0].tag + key + b" %d" % self.count
            appended = await append(self.life.storage, name, build_batch([Record(0, NOW_MS, key, value)]))
            if appended.error_code == 0:
                found[0].acknowledged[appended.base_offset] = value

        for key in keys:
            self.life.begin(produce(key))
        self.wait(turns)

    @rule(name=NAMES, share=st.floats(0, 1), turns=TURNS)
    def delete_records(self, name: str, share: float, turns: int | None) -> None:
        if (found := self.log(name)) is None:
            return
        topic, log = found
        offset = int(log.high_watermark * share)
        topic.may_start = max(topic.may_start, offset)

        async def go() -> None:
            if (await delete_records(self.life.storage, name, offset)).error_code == 0:
                topic.must_start = max(topic.must_start, offset)

        self.life.begin(go())
        self.wait(turns)

    # -- background work ----------------------------------------------------------------------------------------------

    @rule(name=NAMES)
    def roll(self, name: str) -> None:
        if (found := self.log(name)) is not None and found[1].segments.active.size and found[1].offline is None:
            found[1].roll(NOW_MS)

    @rule(name=NAMES)
    def retain(self, name: str) -> None:
        if (found := self.log(name)) is not None:
            apply_retention(found[1], found[1].now_ms())
            found[0].may_start = max(found[0].may_start, found[1].log_start_offset)

    @rule(name=NAMES)
    def compact(self, name: str) -> None:
        if (found := self.log(name)) is None:
            return
        log, cleaner = found[1], self.life.storage.maintenance.cleaner
        if log.config.compacted and log.offline is None and cleaner._cleaned is None and not log.compaction.running:
            job = cleanable(log, log.now_ms())
            if job.end_offset > job.dirty_from:
                self.life.begin(cleaner._clean(job))
                self.turn()

    @rule(name=NAMES, is_damaged=st.booleans(), number=st.integers(0, 5))
    def scrub(self, name: str, is_damaged: bool, number: int) -> None:
        if (found := self.log(name)) is None:
            return
        topic, log = found
        segment = log.segments[number % len(log.segments)]
        if is_damaged and segment.size > 0:
            topic.is_damaged = True
            with open(segment.path, "r+b") as file:
                file.seek(segment.size - 1)
                file.write(b"!")

        async def go() -> None:
            await self.life.storage.maintenance.scrubber.repair(log, segment.base_offset)

        self.life.begin(go())

    @rule()
    def checkpoint(self) -> None:
        self.life.storage.logs.checkpoints.write_all()

    # -- time ---------------------------------------------------------------------------------------------------------

    def wait(self, turns: int | None) -> None:
        if turns is None:
            self.life.settle()
            self.check()
        else:
            self.life.go_on(turns)

    @rule()
    def turn(self) -> None:
        self.life.run(asyncio.sleep(0))

    @rule(turns=TURNS)
    def go_on(self, turns: int | None) -> None:
        self.wait(turns)

    @rule()
    def kill(self) -> None:
        for task in self.life.tasks:
            if task.done():
                task.result()
        self.life.kill()
        self.start_again()

    @rule()
    def stop_and_start(self) -> None:
        self.life.settle()
        self.life.run(self.life.storage.stop())
        self.life.loop.close()
        self.start_again()

    def start_again(self) -> None:
        self.life = Life(self.folder)
        registry = self.life.storage.topic_registry
        for name in registry.names():
            found = registry.get(name)
            assert found is not None
            if found.id not in self.topics:
                assert name in self.may_come, "a topic that nobody made"
                self.topic(found.id)
            if not self.topics[found.id].kind:
                self.topics[found.id].kind = next(kind for kind, configs in KINDS.items() if configs == found.configs)
        self.may_come = set()
        self.check()
        for topic_id, topic in self.topics.items():
            topic.may_be_gone = False
            topic.is_gone = registry.get_by_id(topic_id) is None


def run(examples: int, steps: int, *, same: bool) -> None:
    run_state_machine_as_test(
        TopicLives,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            derandomize=same,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate,),
        ),
    )


@pytest.mark.filterwarnings("ignore")  # a kill abandons coroutines
def test_topics_of_one_name_have_nothing_of_each_other() -> None:
    run(20, 20, same=True)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(1800)
def test_topics_of_one_name_have_nothing_of_each_other_at_length() -> None:
    run(round(500 * float(os.environ.get("FAULTS_SCALE", "1"))), 60, same=False)
