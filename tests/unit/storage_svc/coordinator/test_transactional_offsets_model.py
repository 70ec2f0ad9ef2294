"""Commits, transactions, deletions and starts in any order, against Kafka's rules for reading the log.

At every step the coordinator's memory must equal the state that OffsetMetadataManager.replay makes of the log's
records, and the log must have everything that was acknowledged, in that order.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from protocol_lib.errors import ErrorCode
from protocol_lib.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from protocol_lib.internal.record import read_key, read_value
from protocol_lib.records.batch import read_batches
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.record import read_records
from storage_svc.coordinator.stored.records import OWN_KEYS
from storage_svc.log.config import LogConfig
from storage_svc.log.folder.maintenance import Maintenance
from storage_svc.topics.configs import OFFSETS_TOPIC_CONFIGS, effective

from tests.unit.storage_svc.coordinator.conftest import SETTINGS, Node

E = ErrorCode
GROUPS = st.sampled_from(["g", "h"])
PARTITIONS = st.lists(st.integers(0, 2), min_size=1, max_size=3, unique=True)
PRODUCERS = st.sampled_from([7, 8, 9])
Key = tuple[str, tuple[str, int]]


class Replayed:
    """The offsets that Kafka's rules make of a log."""

    def __init__(self) -> None:
        self.offsets: dict[Key, tuple[int, int]] = {}
        self.pending: dict[int, dict[Key, tuple[int, int]]] = {}

    def record(self, position: int, producer_id: int, key: Key, offset: int | None) -> None:
        if offset is None:
            self.offsets.pop(key, None)
            for each in self.pending.values():
                each.pop(key, None)
        elif producer_id < 0:
            self.offsets[key] = position, offset
        else:
            self.pending.setdefault(producer_id, {})[key] = position, offset

    def marker(self, producer_id: int, *, commit: bool) -> None:
        for key, found in self.pending.pop(producer_id, {}).items():
            if commit and (key not in self.offsets or self.offsets[key][0] < found[0]):
                self.offsets[key] = found


def replayed(node: Node) -> Replayed:
    state = Replayed()
    for (topic, _), log in node.logs.logs.items():
        if topic != "__consumer_offsets" or log.log_end_offset == log.log_start_offset:
            continue
        for header, batch in read_batches(log.read_batches(log.log_start_offset, 1 << 26)):
            for record in read_records(batch) if header.records_count else ():
                if header.is_control:
                    marker = read_marker(record)
                    assert marker is not None
                    state.marker(header.producer_id, commit=marker.type is ControlType.COMMIT)
                    continue
                assert record.key is not None
                key = read_key(OWN_KEYS, bytes(record.key))
                if isinstance(key, OffsetCommitKey):
                    value = None if record.value is None else read_value(OffsetCommitValue, bytes(record.value))
                    offset = None if value is None else value.offset
                    producer_id = header.producer_id if header.is_transactional else -1
                    state.record(record.offset, producer_id, (key.group, (key.topic, key.partition)), offset)
    return state


class TransactionalOffsetsModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="offsets"))
        self.loop = asyncio.new_event_loop()
        self.offset = 0
        #: The acknowledged calls, by the same rules, in the order of their answers.
        self.acknowledged = Replayed()
        self.acknowledged_count = 0

    def _run(self, call: Coroutine[Any, Any, Any]) -> Any:
        return self.loop.run_until_complete(call)

    @initialize()
    def begin(self) -> None:
        async def opened() -> Node:
            node = await Node(self.folder, SETTINGS, offsets_partition_count=1).open()
            await node.make_offsets_topic()
            return node

        self.node = self._run(opened())

    def teardown(self) -> None:
        if hasattr(self, "node"):
            self._run(self.node.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    def _next(self, partitions: list[int]) -> list[tuple[str, int, int]]:
        self.offset += 1
        return [("orders", partition, self.offset) for partition in partitions]

    def _note(self, group: str, offsets: list[tuple[str, int, int]], producer_id: int = -1) -> None:
        self.acknowledged_count += 1
        for topic, partition, offset in offsets:
            self.acknowledged.record(self.acknowledged_count, producer_id, (group, (topic, partition)), offset)

    # -- calls, each answered before the next -------------------------------------------------------------------------

    @rule(group=GROUPS, partitions=PARTITIONS)
    def commit(self, group: str, partitions: list[int]) -> None:
        offsets = self._next(partitions)
        assert set(self._run(self.node.commit(group, *offsets))) == {E.NONE}
        self._note(group, offsets)

    @rule(group=GROUPS, partitions=PARTITIONS, producer_id=PRODUCERS, version=st.sampled_from([3, 5]))
    def commit_in_transaction(self, group: str, partitions: list[int], producer_id: int, version: int) -> None:
        offsets, producer = self._next(partitions), (producer_id, 0)
        self.node.begin(group, producer)
        answer = self.node.commit_open(group, *offsets, producer=producer, version=version)
        assert set(self._run(answer)) == {E.NONE}
        self._note(group, offsets, producer_id)

    @rule(producer_id=PRODUCERS, commit=st.booleans())
    def end(self, producer_id: int, commit: bool) -> None:
        assert self._run(self.node.end("g", commit=commit, producer=(producer_id, 0))) == E.NONE
        self.acknowledged.marker(producer_id, commit=commit)

    @rule(group=GROUPS, partitions=PARTITIONS)
    def delete_offsets(self, group: str, partitions: list[int]) -> None:
        keys = [("orders", partition) for partition in partitions]
        error, _ = self._run(self.node.coordinator.offsets.delete(group, keys))
        assert error in (E.NONE, E.GROUP_ID_NOT_FOUND)
        for key in keys:
            self.acknowledged.record(0, -1, (group, key), None)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        assert self._run(self.node.coordinator.delete_group(group)) in (E.NONE, E.GROUP_ID_NOT_FOUND)
        for partition in range(3):
            self.acknowledged.record(0, -1, (group, ("orders", partition)), None)

    @rule(group=GROUPS, partitions=PARTITIONS, producer_id=PRODUCERS, commit=st.booleans())
    def at_once(self, group: str, partitions: list[int], producer_id: int, commit: bool) -> None:
        """Send a commit inside, one outside and a marker; none waits for the one before."""
        inside, outside, producer = self._next(partitions), self._next(partitions[:1]), (producer_id, 0)

        async def all_three() -> list[Any]:
            self.node.begin(group, producer)
            calls = (
                self.node.commit_open(group, *inside, producer=producer),
                self.node.commit(group, *outside),
                self.node.end(group, commit=commit, producer=producer),
            )
            return await asyncio.gather(*calls)

        *codes, ended = self._run(all_three())
        assert [set(each) for each in codes] == [{E.NONE}] * 2
        assert ended == E.NONE
        self._note(group, inside, producer_id)
        self._note(group, outside)
        self.acknowledged.marker(producer_id, commit=commit)

    # -- starts -------------------------------------------------------------------------------------------------------

    @rule(how=st.sampled_from(["restart", "crash"]))
    def start_again(self, how: str) -> None:
        start: Callable[[], Coroutine[Any, Any, None]] = getattr(self.node, how)
        self._run(start())

    @rule()
    def compact(self) -> None:
        log = self.node.logs.logs["__consumer_offsets", 0]
        if not log.segments.active.size:
            return

        async def clean() -> None:
            log.configure(LogConfig.from_properties(effective(OFFSETS_TOPIC_CONFIGS, {})))
            log.roll(self.node.logs.clock())
            log.request_sync()
            assert await log.durable(log.log_end_offset) == 0
            Maintenance(self.node.logs).cleaner.clean_now(log)

        self._run(clean())

    # -- what must hold -----------------------------------------------------------------------------------------------

    @invariant()
    def memory_is_what_the_log_says(self) -> None:
        if not hasattr(self, "node"):
            return
        found = replayed(self.node)
        offsets = {key: offset for key, (_, offset) in found.offsets.items()}
        assert offsets == {key: offset for key, (_, offset) in self.acknowledged.offsets.items()}
        pending = {key for each in found.pending.values() for key in each}
        assert pending == {key for each in self.acknowledged.pending.values() for key in each}
        hosted = self.node.coordinator._hosted
        for each in hosted._opened.values():
            each.check_invariants()
        assert hosted.pending.used == sum(each._bytes for each in hosted._opened.values())
        for group in ("g", "h"):
            assert self.node.fetched(group) == {key: offset for (name, key), offset in offsets.items() if name == group}
            assert self.node.unstable(group) == {key for name, key in pending if name == group}


TransactionalOffsetsModel.TestCase.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
TestTransactionalOffsets = TransactionalOffsetsModel.TestCase
