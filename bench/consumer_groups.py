"""Members of consumer groups (KIP-848) as raw connections: they own their assignment at once, and report it."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Sequence

from group_wire import Wire
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from table import Row

MEMBERS = 50
TOPIC = "many"
_JOIN, _LEAVE = 0, -1


class ConsumerMember:
    def __init__(self, wire: Wire, group: str, topic: str) -> None:
        self.wire = wire
        self.epoch = _JOIN
        #: Partitions that it owns, by topic id.
        self.owned: dict[bytes, tuple[int, ...]] = {}
        self._group = group
        self._topic = topic
        self._member_id = str(uuid.uuid4())

    def _request(self, epoch: int, *, full: bool) -> ConsumerGroupHeartbeatRequest:
        if not full:
            return ConsumerGroupHeartbeatRequest(group_id=self._group, member_id=self._member_id, member_epoch=epoch)
        owned = tuple(TopicPartitions(topic_id=topic, partitions=each) for topic, each in self.owned.items())
        return ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self._member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=(self._topic,),
            topic_partitions=owned,
        )

    async def _beat(self, epoch: int, *, full: bool) -> ConsumerGroupHeartbeatResponse:
        answer: ConsumerGroupHeartbeatResponse = await self.wire.call(68, 1, self._request(epoch, full=full))
        assert answer.error_code == ErrorCode.NONE, answer
        return answer

    async def live(self) -> None:
        """Join, and send heartbeats until cancelled: at once when the assignment has changed, as clients do."""
        answer = await self._beat(_JOIN, full=True)
        while True:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                given = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
                if given != self.owned:
                    self.owned = given
                    answer = await self._beat(self.epoch, full=True)
                    continue
            await asyncio.sleep(answer.heartbeat_interval_ms / 1000)
            answer = await self._beat(self.epoch, full=False)

    async def leave(self) -> None:
        self.owned = {}
        await self._beat(_LEAVE, full=False)


@contextlib.asynccontextmanager
async def living(members: Sequence[ConsumerMember], spread_s: float) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run the members, with heartbeats spread over `spread_s`."""
    tasks = []
    for member in members:
        tasks.append(asyncio.create_task(member.live()))
        await asyncio.sleep(spread_s / len(members))
    yield tasks
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome
    for member in members:
        member.wire.close()


async def settled(members: Sequence[ConsumerMember], partitions: int) -> float:
    """Return the seconds until every partition has one owner, all members own some, and all are of one epoch."""
    began = time.perf_counter()
    while True:
        owned = [(topic, each) for member in members for topic, many in member.owned.items() for each in many]
        if (
            len(owned) == len(set(owned)) == partitions
            and all(member.owned for member in members)
            and len({member.epoch for member in members}) == 1
        ):
            return time.perf_counter() - began
        assert time.perf_counter() - began < 60, "no end of the rebalance"
        await asyncio.sleep(0.01)


async def rebalances(address: str, heartbeat_s: float) -> list[Row]:
    """Measure a member that joins a group of 49 that share 100 partitions, and one that leaves it."""
    partitions = 2 * MEMBERS
    wire = await Wire.connect(address)
    topic = CreatableTopic(name=TOPIC, num_partitions=partitions, replication_factor=1, assignments=(), configs=())
    created = await wire.call(19, 4, CreateTopicsRequest(topics=(topic,), timeout_ms=60_000, validate_only=False))
    assert created.topics[0].error_code == ErrorCode.NONE, created
    members = [ConsumerMember(await Wire.connect(address), "next-generation", TOPIC) for _ in range(MEMBERS)]
    async with living(members[1:], heartbeat_s):
        await settled(members[1:], partitions)
        newcomer = asyncio.create_task(members[0].live())
        joined_s = await settled(members, partitions)
        newcomer.cancel()
        await asyncio.sleep(heartbeat_s / 2)
        await members[0].leave()
        left_s = await settled(members[1:], partitions)
    members[0].wire.close()
    wire.close()
    must = f"<= {2 * heartbeat_s:.0f} s"
    return [
        Row(
            f"KIP-848: a member joins {MEMBERS - 1} others, heartbeats every {heartbeat_s:.0f} s",
            must,
            f"{joined_s:.2f} s",
        ),
        Row("KIP-848: it leaves", must, f"{left_s:.2f} s"),
    ]
