"""Any system call of the file layer fails: every request of the turn is answered, and later ones are carried out.

The errors that end by themselves (no descriptor, no memory, no space) leave nothing that only a restart would mend.
"""

from __future__ import annotations

import asyncio
import errno
import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from faults.refusing_system import FAILING, PASSING, RefusingSystem
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.disk.files import Files
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.rpc.data import DataService
from support.scripted_transactions import NoTransactions

NOW_MS = 1_700_000_000_000
#: Each batch begins a segment.
SMALL = LogConfig(segment_bytes=100, index_interval_bytes=1, file_delete_delay_ms=0)
#: Errors of which every call is tried; the others are treated like one of these.
EACH_CALL = (errno.EMFILE, errno.ENOMEM, errno.ENOSPC, errno.EIO)
NAMES = {number: errno.errorcode[number] for number in FAILING}


class OneByOne(Files):
    """Real files without a queue of syncs: each is a call that can fail."""

    def sync_queue(self) -> None:
        return None


class Turns:
    """A data service with two partitions, and batches that are sent to both in one turn of the event loop."""

    def __init__(self, path: Path, policy: FlushPolicy) -> None:
        self.directory = DataFolder.open(path, LogSettings(flush_policy=policy), files=OneByOne(), clock=lambda: NOW_MS)
        self.logs = self.directory.create_many("t", range(2), bytes(range(16)), SMALL)
        self.directory.start(asyncio.get_running_loop())
        self.service = DataService(self.directory, lambda _: None, NoTransactions())
        self.sent: dict[bytes, int] = {}
        self.acknowledged: set[tuple[int, int, bytes]] = set()

    def send(self, partition: int, acks: int) -> asyncio.Future[int]:
        value = b"%d" % len(self.sent)
        self.sent[value] = partition
        answered: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def done(response: AppendResponse) -> None:
            (outcome,) = response.outcomes
            if not outcome.error_code:
                self.acknowledged.add((partition, outcome.base_offset, value))
            answered.set_result(outcome.error_code)

        batch = build_batch([Record(0, NOW_MS, None, value)])
        self.service.append(Append(1, "c", 9, acks, 60_000, [TopicIdPartition("t", partition)], [batch]), done)
        return answered

    async def turn(self, during: Any = None) -> list[int]:
        """Return the error codes of four requests of one turn, all of which are answered."""
        answers = [self.send(partition, acks) for acks in (-1, 1) for partition in (0, 1)]
        await asyncio.wait(answers, timeout=0.02)
        if during is not None:
            during()
        return [await asyncio.wait_for(each, 20) for each in answers]

    def check(self) -> None:
        """Check that readers find every acknowledged record at its offset."""
        for number, log in enumerate(self.logs):
            there = {(number, offset, value) for offset, value in values(log).items()}
            assert {each for each in self.acknowledged if each[0] == number} <= there

    async def stop(self) -> None:
        await self.service.close()
        await self.directory.close()


def values(log: PartitionLog) -> dict[int, bytes]:
    found, offset = {}, 0
    while data := log.read_batches(offset, 1 << 20):
        for header, batch in read_batches(data):
            found[header.base_offset] = bytes(batch).rsplit(b"\x01", 1)[1][1:-1]
            offset = header.last_offset + 1
    return found


WAYS = [
    pytest.param(once, number, policy, id=f"{name}-{NAMES[number]}-{policy.name}")
    for once, name in ((True, "one call"), (False, "from one call on"))
    for number in FAILING
    for policy in FlushPolicy
]
in_each_way = pytest.mark.parametrize(("once", "number", "policy"), WAYS)


@in_each_way
async def test_every_request_of_the_turn_is_answered(tmp_path, monkeypatch, figures, policy, number, once):
    """Every third call in each of the ways: together, the ways try every call with each error."""
    begin = (2 * list(FlushPolicy).index(policy) + once) % 3
    assert await _refuse_calls(tmp_path, monkeypatch, figures, policy, number, once, count(begin, 3)) >= 3


@pytest.mark.slow
@in_each_way
async def test_every_request_is_answered_whatever_call_fails(tmp_path, monkeypatch, figures, policy, number, once):
    calls = count(step=1 if number in EACH_CALL else 3)
    assert await _refuse_calls(tmp_path, monkeypatch, figures, policy, number, once, calls) > 3


async def _refuse_calls(tmp_path, monkeypatch, figures, policy, number, once, calls):
    system = RefusingSystem(monkeypatch)
    refused, kinds = 0, set()
    for call in calls:
        turns = Turns(tmp_path / str(call), policy)
        assert await turns.turn() == [0] * 4
        for log in turns.logs:
            await log.durable(log.log_end_offset)
        assert turns.logs[0].segments.active.release_unused()
        system.refused.clear()
        system.refuse(number, after=call, once=once)
        await turns.turn(system.work_again)
        system.work_again()
        refused += len(system.refused)
        kinds |= set(system.refused)
        if number in PASSING:
            assert [log.offline for log in turns.logs] == [None, None], system.refused
            assert await turns.turn() == [0] * 4, system.refused
            assert [await log.durable(log.log_end_offset) for log in turns.logs] == [0, 0]
        turns.check()
        turns.directory.check_invariants()
        over = not system.refused
        await turns.stop()
        again = DataFolder.open(tmp_path / str(call), LogSettings(flush_policy=policy), clock=lambda: NOW_MS)
        turns.logs = [again.logs["t", partition] for partition in (0, 1)]
        turns.check()
        again.release()
        if over:
            break
    figures(f"{refused} calls failed with {os.strerror(number)}: {', '.join(sorted(kinds))}")
    return refused
