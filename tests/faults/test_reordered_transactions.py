"""Transactions whose coordinator is far away: its answers, its markers and EndTxn overtake each other in any order.

The rule, which readers of committed records rely on: each record of a transaction is followed by the marker of that
transaction, before any other marker of its producer. So none lands after its marker, and none hangs without one. Logs,
groups and coordinator are the real ones; only what they say to each other waits, each message for a random time.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from broker_contract.data import Append, AppendResponse, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record, read_records
from storage_svc.coordinator.classic.events import Commit
from storage_svc.coordinator.limits import CommitRequest, NewOffset
from storage_svc.coordinator.transactional_offsets import OfTransaction
from storage_svc.coordinator.transactions.events import EndTransaction
from storage_svc.rpc.data import DataService
from storage_svc.topic_partition import TopicPartition
from storage_svc.topics.names import OFFSETS_TOPIC
from storage_svc.transaction_ports import Claim, Marker

from tests.faults.transaction_life import OUTPUTS, SOURCE, Application, Life, Node

RUNS = 40
TRANSACTIONS = 5


class Post:
    """Messages that are under way; each turn of the event loop delivers one, some or none of them."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._haste = chance.choice((0.1, 0.3, 0.6))
        self._messages: list[Callable[[], None]] = []

    def send(self, deliver: Callable[..., None], *arguments: Any) -> None:
        self._messages.append(partial(deliver, *arguments))

    async def deliver_for_ever(self) -> None:
        while True:
            await asyncio.sleep(0)
            while self._messages and self._chance.random() < self._haste:
                self._messages.pop(self._chance.randrange(len(self._messages)))()


class Distant:
    """The coordinator as the logs see it, and the logs as the coordinator sees them, over the post."""

    def __init__(self, node: Node, post: Post, number_of: Callable[[int], int]) -> None:
        self._transactions, self._markers, self._post = node.transactions, node.markers, post
        self._number_of = number_of
        self._known: set[tuple[TopicPartition, int]] = set()
        self._kept: list[Marker] = []
        #: The numbers of the transactions that were ended, of each partition and producer id.
        self.ended: defaultdict[tuple[TopicPartition, int], list[int]] = defaultdict(list)

    def verify(self, claim: Claim, done: Callable[..., None]) -> None:
        self._post.send(self._transactions.verify, claim, partial(self._post.send, done))

    def add(self, claim: Claim, done: Callable[..., None]) -> None:
        self._post.send(self._transactions.add, claim, partial(self._post.send, done))

    def write(self, partition: TopicPartition, marker: Marker, done: Callable[[ErrorCode], None]) -> None:
        if (partition, id(marker)) not in self._known:
            self._known.add((partition, id(marker)))
            self._kept.append(marker)
            self.ended[partition, marker.producer_id].append(self._number_of(marker.producer_id))
        self._post.send(self._markers.write, partition, marker, partial(self._post.send, done))


class Run:
    """Two applications, one of each transaction.version, that do not wait for the answers to what they send."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.life = Life(turns_per_sync=self.chance.choice((1, 3)))
        self.node = self.life.node
        self.post = Post(self.chance)
        self.numbers: dict[int, int] = {}
        self.distant = Distant(self.node, self.post, lambda producer_id: self.numbers[producer_id])
        self.waiting = 0
        self.outcomes: Counter[int] = Counter()

    async def work(self) -> None:
        node = self.node
        await asyncio.gather(*map(node.init, self.life.applications))
        node.data = DataService(node.logs, lambda _: None, self.distant)
        node.groups.transactional_offsets._transactions = self.distant
        node.transactions._delivery.start(self.distant)
        delivering = asyncio.create_task(self.post.deliver_for_ever())
        await asyncio.gather(*map(self._run, self.life.applications))
        while self.waiting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        for each in self.life.applications:
            await node.init(each)  # aborts what is open
        await self.life._settle()
        delivering.cancel()

    async def _run(self, each: Application) -> None:
        for number in range(1, TRANSACTIONS + 1):
            self.numbers[each.producer[0]] = number
            partitions = self.chance.sample(OUTPUTS, 2)
            group = OFFSETS_TOPIC, self.node.offsets_log.partition_of(each.id)
            if each.version < 2:
                await self.node.add(each, [*partitions, group])
            for _ in range(self.chance.randrange(1, 5)):
                if self.chance.random() < 0.25:
                    self._commit(each, number)
                else:
                    self._produce(each, self.chance.choice(partitions), number)
                await self._pause(3)
            if self.chance.random() < 0.3:
                await self._pause(40)
            await self._end(each)

    async def _end(self, each: Application) -> None:
        end = EndTransaction(*each.producer, self.chance.random() < 0.5, 2 if each.version == 2 else 0)
        while True:
            answer = await self.node.transactions.end(each.id, end)
            if answer.error is not ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0)
        if answer.error:  # nothing of the transaction has reached the coordinator yet
            await self.node.init(each)
        elif each.version == 2:
            each.producer = answer.producer_id, answer.producer_epoch

    async def _pause(self, most: int) -> None:
        for _ in range(self.chance.randrange(most)):
            await asyncio.sleep(0)

    def _produce(self, each: Application, partition: TopicPartition, number: int) -> None:
        """Send records with the sequence that their log expects now: it would accept them whenever they arrive."""
        producer_id, epoch = each.producer
        known = self.node.logs.logs[partition].producers.producers.get(producer_id)
        follows = known is not None and known.epoch == epoch and known.batches
        batch = build_batch(
            [Record(0, self.node.now_ms, each.id.encode(), b"%d" % number)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=known.batches[-1].last_sequence + 1 if known and follows else 0,
            transactional=True,
        )
        named = [TopicIdPartition(*partition)]
        request = Append(1, "c", 12 if each.version == 2 else 11, -1, 30_000, named, [batch], each.id)
        self.waiting += 1
        if each.version == 2:  # an old epoch gives it away, however late it is
            self.post.send(self.node.data.append, request, self._answered)
        else:
            self.node.data.append(request, self._answered)

    def _answered(self, response: AppendResponse) -> None:
        self.waiting -= 1
        self.outcomes.update(each.error_code for each in response.outcomes)

    def _commit(self, each: Application, number: int) -> None:
        member = Commit(request=0, member_id="", generation_id=-1, is_transactional=True)
        request = CommitRequest(each.id, member, [NewOffset(SOURCE, 0, number, -1, "")])
        of = OfTransaction(each.id, *each.producer, 5 if each.version == 2 else 3)
        self.waiting += 1
        self.node.groups.transactional_offsets.commit(request, of, self._committed)

    def _committed(self, codes: Sequence[ErrorCode]) -> None:
        self.waiting -= 1
        self.outcomes.update(codes)

    def check(self) -> int:
        """Check the rule in every log, and return the number of records."""
        self.node.check_closed()
        count = 0
        for partition, log in self.node.logs.logs.items():
            left = {
                producer: list(numbers) for (of, producer), numbers in self.distant.ended.items() if of == partition
            }
            for header, batch in read_batches(log.read_batches(log.log_start_offset, 1 << 20)):
                if header.producer_id < 0:
                    continue
                if header.is_control:
                    left.get(header.producer_id, [0]).pop(0)
                    continue
                for record in read_records(batch):
                    value = bytes(record.value or b"")
                    number = int.from_bytes(value[2:10]) if partition[0] == OFFSETS_TOPIC else int(value)
                    assert left[header.producer_id][:1] == [number], f"a record of {number} in {partition}"
                    count += 1
        return count


def test_each_record_is_followed_by_the_marker_of_its_transaction() -> None:
    outcomes: Counter[int] = Counter()
    count = 0
    for seed in range(RUNS):
        run = Run(seed)
        try:
            run.life._run(run.work())
            count += run.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        outcomes += run.outcomes
    # Records land, and others come too late: for the marker, for the coordinator, or under an old epoch.
    assert count > RUNS
    late = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_PRODUCER_EPOCH)
    assert all(outcomes[code] > RUNS / 4 for code in late), outcomes
