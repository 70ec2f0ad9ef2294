"""The cost of members that only send heartbeats, and the rate at which consumers commit, by raw frames.

These rows compare two versions of Millrace (against.py); groups.py measures groups at length.
"""

from __future__ import annotations

import asyncio
import struct
import time

from drivers import Driver
from group_wire import Wire, framed
from groups import Member
from processes import cpu_seconds
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sides import Layout, Side
from workload import Measure, Sample, Workload

MEMBERS = 200
COMMITTERS = 50
_OURS = (Layout.COMBINED, Layout.SEPARATE)


async def _beating(address: str, seconds: float, broker: list[int]) -> tuple[int, float]:
    """Send heartbeats, one after the other on each connection, for `seconds`.

    Returns the number of answers, and the processor seconds that the broker's processes used once all had joined.
    """
    members = [Member(await Wire.connect(address), f"beating-{number}") for number in range(MEMBERS)]
    await asyncio.gather(*(member.join() for member in members))
    until = time.perf_counter() + seconds
    answered, used = 0, cpu_seconds(broker)

    async def beat(member: Member) -> None:
        nonlocal answered
        request = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
        frame = framed(12, 3, request)
        while time.perf_counter() < until:
            (code,) = struct.unpack_from(">h", await member.wire.exchange(frame), 8)
            assert code == 0, code
            answered += 1

    await asyncio.gather(*map(beat, members))
    used = cpu_seconds(broker) - used
    for member in members:
        member.wire.close()
    return answered, used


def beating(address: str, seconds: float, broker: list[int]) -> tuple[int, float]:
    return asyncio.run(_beating(address, seconds, broker))


async def _committing(address: str, topic: str, seconds: float) -> int:
    """Commit, one after the other on each connection, with a rising offset; return the number of acknowledgements."""
    until = time.perf_counter() + seconds
    acknowledged = 0

    async def commit(number: int) -> None:
        nonlocal acknowledged
        wire = await Wire.connect(address)
        offset = 0
        while time.perf_counter() < until:
            partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
            topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
            answer = await wire.exchange(
                framed(8, 7, OffsetCommitRequest(group_id=f"committing-{number}", topics=topics))
            )
            assert answer[-2:] == b"\0\0", answer
            acknowledged += 1
            offset += 1
        wire.close()

    await asyncio.gather(*(commit(number) for number in range(COMMITTERS)))
    return acknowledged


def committing(address: str, topic: str, seconds: float) -> int:
    return asyncio.run(_committing(address, topic, seconds))


class Heartbeats(Workload):
    name = "heartbeats"
    title = f"heartbeats of {MEMBERS} members"
    layouts = _OURS
    measures = (Measure("processor", "µs a heartbeat", "less"),)
    seconds = 6.0

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name), side.watch() as usage:
            pids = list(side.processes().values())
            answered, used = Driver.shared().call(beating, side.address, self.seconds, pids).result
        return Sample({"processor": used / answered * 1e6}, usage.seconds, usage=usage)


class Commits(Workload):
    name = "commits"
    title = f"offset commits of {COMMITTERS} consumers"
    layouts = _OURS
    measures = (Measure("rate", "a second"),)
    seconds = 3.0

    def run(self, side: Side, amount: int) -> Sample:
        with side.topic(self.name), side.watch() as usage:
            acknowledged = Driver.shared().call(committing, side.address, self.name, self.seconds).result
        return Sample({"rate": acknowledged / self.seconds}, usage.seconds, usage=usage)


WORKLOADS: list[Workload] = [Heartbeats(), Commits()]
