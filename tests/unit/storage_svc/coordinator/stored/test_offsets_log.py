"""Writes of many callers to `__consumer_offsets` in one turn of the event loop."""

from __future__ import annotations

import asyncio

from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import read_batches
from protocol_lib.records.record import write_tail
from storage_svc.coordinator.stored.internal_log import GATHERED_BYTES
from storage_svc.transaction_ports import Marker

from tests.unit.storage_svc.coordinator.conftest import Node

NOW_MS = 1_700_000_000_000


class Writes:
    """The writes into one partition, with their outcomes by name."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.outcomes: dict[str, int] = {}

    def _ended(self, name: str, code: int) -> None:
        assert name not in self.outcomes, "ended twice"
        self.outcomes[name] = code

    def gather(self, name: str, value: bytes = b"v") -> None:
        tails = [write_tail(name.encode(), value)]
        self._node.offsets_log.gather(1, tails, NOW_MS, lambda code: self._ended(name, code))

    def write(self, name: str) -> None:
        self._node.offsets_log.write(1, [(name.encode(), b"v")], NOW_MS, lambda code: self._ended(name, code))

    async def batches(self) -> list[list[str]]:
        """Return the keys of each batch, once everything is durable."""
        await asyncio.sleep(0)
        log = self._node.logs.logs["__consumer_offsets", 1]
        assert await log.durable(log.log_end_offset) == 0
        keys = [key.decode() for key, _ in self._node.records_of(1)]
        counts = [header.records_count for header, _ in read_batches(log.read_batches(0, 1 << 24))]
        return [[keys.pop(0) for _ in range(count)] for count in counts]


async def test_what_is_gathered_in_one_turn_is_one_batch(node: Node) -> None:
    await node.make_offsets_topic()
    writes = Writes(node)
    for name in "abc":
        writes.gather(name)
    assert await writes.batches() == [["a", "b", "c"]]
    writes.gather("d")
    assert await writes.batches() == [["a", "b", "c"], ["d"]]
    assert writes.outcomes == dict.fromkeys("abcd", 0)


async def test_a_write_comes_after_records_that_were_gathered_before(node: Node) -> None:
    await node.make_offsets_topic()
    writes = Writes(node)
    writes.gather("a")
    writes.gather("b")
    writes.write("c")
    writes.gather("d")
    assert await writes.batches() == [["a", "b"], ["c"], ["d"]]


async def test_a_batch_of_many_callers_has_a_limit(node: Node) -> None:
    await node.make_offsets_topic()
    writes = Writes(node)
    for name in "abc":
        writes.gather(name, bytes(GATHERED_BYTES // 2 - 6))
    assert await writes.batches() == [["a", "b"], ["c"]]


async def test_who_is_too_large_for_the_topic_fails_alone(node: Node) -> None:
    await node.make_offsets_topic()
    writes = Writes(node)
    await node.registry.configure("__consumer_offsets", lambda _: {"max.message.bytes": "1000"})
    writes.gather("a", bytes(400))
    writes.gather("b", bytes(1000))
    writes.gather("c", bytes(400))
    assert await writes.batches() == [["a"], ["c"]]
    assert writes.outcomes == {"a": 0, "b": ErrorCode.MESSAGE_TOO_LARGE, "c": 0}


async def test_one_caller_that_raises_does_not_keep_the_others_from_their_outcome(node: Node) -> None:
    def raises(_: int) -> None:
        raise ValueError("a bug")

    await node.make_offsets_topic()
    writes = Writes(node)
    writes.gather("a")
    node.offsets_log.gather(1, [write_tail(b"x", b"v")], NOW_MS, raises)
    writes.gather("b")
    assert await writes.batches() == [["a", "x", "b"]]
    assert writes.outcomes == {"a": 0, "b": 0}


async def test_a_disk_that_refuses_fails_the_callers_of_its_partition_only(node: Node) -> None:
    await node.make_offsets_topic()
    writes = Writes(node)
    node.logs.logs["__consumer_offsets", 1].take_offline("broken")
    writes.gather("a")
    writes.gather("b")
    assert await node.commit("g", ("orders", 0, 1)) == [0]  # in partition 3
    assert writes.outcomes == {"a": ErrorCode.KAFKA_STORAGE_ERROR, "b": ErrorCode.KAFKA_STORAGE_ERROR}


async def test_a_marker_waits_with_its_transaction_for_the_topic_to_be_made(node: Node) -> None:
    outcomes: list[tuple[str, int]] = []
    over = asyncio.Event()

    def marked(code: int) -> None:
        outcomes.append(("marker", code))
        over.set()

    log = node.offsets_log
    log.write(3, [(b"k", b"v")], NOW_MS, lambda code: outcomes.append(("offset", code)), producer=(7, 0))
    log.mark(3, Marker(7, 0, commit=True, coordinator_epoch=0), marked)
    async with asyncio.timeout(60):
        await over.wait()
    assert outcomes == [("offset", 0), ("marker", 0)]
    assert not log.is_open(3, 7, 0)


async def test_a_topic_that_nobody_makes_needs_no_marker(node: Node) -> None:
    codes: list[int] = []
    node.offsets_log.mark(3, Marker(7, 0, commit=True, coordinator_epoch=0), codes.append)
    assert codes == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
