"""Figures of consumer groups, by raw frames against `millrace up`: duration of rebalances, cost of groups.

`python bench/groups.py [--scale SHARE]` prints a table; `make bench-parts` runs it. Members are coroutines of one
process; they join, assign (the leader), and send heartbeats as real clients do, every 3 s.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import struct
import time
from pathlib import Path
from typing import Any

import consumer_groups
from consumer_groups import ConsumerMember
from group_wire import Wire, framed
from processes import descendants
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from table import Row, show
from up_process import RunningUp

HEARTBEAT_S = 3.0
SESSION_S = 6.0
DELAY_S = 3.0
MEMBERS = 50
IDLE_GROUPS, IDLE_MEMBERS = 500, 4
COMMITTERS = 50
METADATA = bytes(64)
ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
LAYOUTS = {"combined": (), "separate": ("--processes",)}


class Member:
    def __init__(self, wire: Wire, group: str) -> None:
        self.wire = wire
        self.group = group
        self.member_id = ""
        #: Generation of the last assignment; 0 while there is none.
        self.generation = 0

    async def join(self) -> None:
        """Join until it has an assignment of the newest generation."""
        self.generation = 0
        while True:
            joined = await self.wire.call(11, 5, self._join())
            self.member_id = joined.member_id
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            assert joined.error_code == ErrorCode.NONE, joined
            assignments = tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=METADATA) for each in joined.members
            )
            synced = await self.wire.call(
                14,
                3,
                SyncGroupRequest(
                    group_id=self.group,
                    generation_id=joined.generation_id,
                    member_id=self.member_id,
                    assignments=assignments,
                ),
            )
            if synced.error_code == ErrorCode.NONE:
                self.generation = joined.generation_id
                return
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS, synced

    def _join(self) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=int(SESSION_S * 1000),
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=METADATA),),
        )

    async def live(self) -> None:
        """Join, and join again after each heartbeat that demands it, until cancelled."""
        while True:
            await self.join()
            request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
            beat = framed(12, 3, request)
            code = ErrorCode.NONE
            while code == ErrorCode.NONE:
                await asyncio.sleep(HEARTBEAT_S)
                code = ErrorCode(struct.unpack_from(">h", await self.wire.exchange(beat), 8)[0])
            assert code == ErrorCode.REBALANCE_IN_PROGRESS, code


@contextlib.asynccontextmanager
async def living(members: list[Member]) -> Any:
    tasks = [asyncio.create_task(member.live()) for member in members]
    yield tasks
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for member in members:
        member.wire.close()


async def stable(members: list[Member], tasks: list[asyncio.Task[None]], after: int = 0) -> None:
    """Wait until all have an assignment of one generation after `after`."""
    while len({member.generation for member in members}) != 1 or members[0].generation <= after:
        for task in tasks:
            if task.done() and not task.cancelled():
                task.result()
        await asyncio.sleep(0.01)


async def rebalances(address: str) -> list[Row]:
    members = [Member(await Wire.connect(address), "many") for _ in range(MEMBERS)]
    began = time.perf_counter()
    async with living(members) as tasks:
        await stable(members, tasks)
        joined_s = time.perf_counter() - began
        killed, others = members[0], members[1:]
        tasks[0].cancel()
        killed.wire.close()
        generation = others[0].generation
        began = time.perf_counter()
        await stable(others, tasks[1:], after=generation)
        left_s = time.perf_counter() - began
    return [
        Row(f"{MEMBERS} members join at once, delay 3 s", f"<= {DELAY_S + HEARTBEAT_S + 1:.0f} s", f"{joined_s:.2f} s"),
        Row("one of them is killed, session 6 s", f"<= {SESSION_S + HEARTBEAT_S + 1:.0f} s", f"{left_s:.2f} s"),
    ]


def processor_seconds() -> float:
    """Return the seconds so far of the broker's processes, which are this one's descendants."""
    ticks = 0
    for pid in descendants(os.getpid()):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def idle(address: str, scale: float) -> Row:
    groups = max(1, int(IDLE_GROUPS * scale))
    members = [
        Member(await Wire.connect(address), f"idle-{group}") for group in range(groups) for _ in range(IDLE_MEMBERS)
    ]
    async with living(members) as tasks:
        for start in range(0, len(members), IDLE_MEMBERS):
            await stable(members[start : start + IDLE_MEMBERS], tasks)
        await asyncio.sleep(HEARTBEAT_S)
        share = await share_of_a_core(5 * HEARTBEAT_S)
    return Row(f"{groups} groups of {IDLE_MEMBERS} members, idle", "<= 5 % of a core", f"{share:.1%}")


async def idle_consumers(address: str, scale: float) -> Row:
    """Measure `idle` with members of the consumer protocol."""
    groups = max(1, int(IDLE_GROUPS * scale))
    members = [
        ConsumerMember(await Wire.connect(address), f"idle-consumer-{group}", "ping")
        for group in range(groups)
        for _ in range(IDLE_MEMBERS)
    ]
    async with consumer_groups.living(members, HEARTBEAT_S):
        # Until the last assignment is computed, given and owned.
        await asyncio.sleep(4 * HEARTBEAT_S)
        share = await share_of_a_core(5 * HEARTBEAT_S)
    return Row("the same, KIP-848", "<= 5 % of a core", f"{share:.1%}")


async def share_of_a_core(seconds: float) -> float:
    """Return the share of a core that the broker's processes use in `seconds`."""
    began, before = time.perf_counter(), processor_seconds()
    await asyncio.sleep(seconds)
    return (processor_seconds() - before) / (time.perf_counter() - began)


async def commits(address: str, seconds: float) -> Row:
    """Commit by each consumer to a separate partition, one commit after the other, each acknowledged when it is
    durable.
    """
    done = 0
    latencies: list[float] = []

    async def commit(number: int) -> None:
        nonlocal done
        wire = await Wire.connect(address)
        request = OffsetCommitRequest(
            group_id=f"committers-{number}",
            topics=(
                OffsetCommitRequestTopic(
                    name="ping",
                    partitions=(
                        OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata=""),
                    ),
                ),
            ),
        )
        frame = framed(8, 7, request)
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            answer = await wire.exchange(frame)
            assert answer[-2:] == b"\0\0", answer
            latencies.append(time.perf_counter() - began)
            done += 1
        wire.close()

    await asyncio.gather(*(commit(number) for number in range(COMMITTERS)))
    latencies.sort()
    p99 = latencies[int(len(latencies) * 0.99)] * 1000
    return Row(f"offset commits of {COMMITTERS} consumers", ">= 5,000/s", f"{done / seconds:,.0f}/s, p99 {p99:.1f} ms")


async def measure(address: str, scale: float) -> list[Row]:
    return [
        *await rebalances(address),
        *await consumer_groups.rebalances(address, HEARTBEAT_S),
        # Before thousands of members come and go: their groups would end during the commits.
        await commits(address, 5 * scale),
        await idle(address, scale),
        await idle_consumers(address, scale),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the full amount of work (default 1)")
    parser.add_argument("--layout", choices=LAYOUTS, help="one of the layouts (default both)")
    arguments = parser.parse_args()
    heartbeat_ms = str(int(HEARTBEAT_S * 1000))
    environment = {
        "MILLRACE_FLUSH_POLICY": "group",
        "MILLRACE_TOPICS": "ping:1",
        "MILLRACE_MAX_CONNECTIONS_PER_IP": "10000",
        "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": str(int(DELAY_S * 1000)),
        "MILLRACE_GROUP_CONSUMER_MIN_HEARTBEAT_INTERVAL_MS": heartbeat_ms,
        "MILLRACE_GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS": heartbeat_ms,
    }
    for layout in [arguments.layout] if arguments.layout else LAYOUTS:
        with RunningUp(*ANY_PORTS, *LAYOUTS[layout], environment=environment) as up:
            print(f"\ngroups, {layout}, flush.policy=group")
            show(asyncio.run(measure(up.kafka, arguments.scale)))


if __name__ == "__main__":
    main()
