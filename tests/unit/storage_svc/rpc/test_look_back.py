"""A producer whose older batches the snapshot does not have: a thread looks for them, and the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.errors import StorageFailure
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition import producer_look_back
from storage_svc.log.partition.producer_look_back import ProducerLookBack
from storage_svc.rpc.data import DataService
from support.scripted_transactions import NoTransactions

NOW_MS = 1_700_000_000_000


def produced(sequence: int, producer_id: int = 7) -> bytes:
    return build_batch(
        [Record(0, NOW_MS, None, b"v" * 100)], producer_id=producer_id, producer_epoch=0, base_sequence=sequence
    )


class Searches:
    """The reading half of every search: counted, held up and failed as the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_read = threading.Event()
        self.may_read.set()
        self.threads: list[int] = []
        self.failure: StorageFailure | None = None
        read = ProducerLookBack._read

        def slow(searched: ProducerLookBack, step: Any) -> Any:
            self.threads.append(threading.get_ident())
            assert self.may_read.wait(60)
            if self.failure is not None:
                raise self.failure
            return read(searched, step)

        monkeypatch.setattr(ProducerLookBack, "_read", slow)


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> Searches:
    return Searches(monkeypatch)


@pytest.fixture
async def service(tmp_path: Path, searches: Searches) -> AsyncIterator[DataService]:
    """Two partitions. In partition 0 producer 7 has written five batches, then others many; storage was restarted."""
    settings = LogSettings(flush_policy=FlushPolicy.GROUP)
    first = DataFolder.open(tmp_path, settings, clock=lambda: NOW_MS)
    log, _ = first.create_many("t", range(2), bytes(16), LogConfig())
    for sequence in range(5):
        log.append(produced(sequence))
    for _ in range(100):
        log.append(produced(-1, producer_id=-1))
    await first.close()
    directory = DataFolder.open(tmp_path, settings, clock=lambda: NOW_MS)
    directory.start(asyncio.get_running_loop())
    made = DataService(directory, lambda _: None, NoTransactions())
    yield made
    searches.may_read.set()
    await made.close()
    directory.check_invariants()
    await directory.close()


def send(service: DataService, batch: bytes, partition: int = 0) -> asyncio.Future[AppendResponse]:
    answer: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
    named = [TopicIdPartition("t", partition)]
    service.append(Append(1, "client", 9, -1, 60_000, named, [batch]), answer.set_result)
    return answer


async def outcome(answer: asyncio.Future[AppendResponse]) -> tuple[int, int]:
    ((appended),) = (await asyncio.wait_for(answer, 60)).outcomes
    return appended.error_code, appended.base_offset


async def test_the_event_loop_goes_on_while_a_thread_reads(
    service: DataService, searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producer_look_back, "STEP_BYTES", 4096)
    searches.may_read.clear()
    repeated = send(service, produced(1))
    following = send(service, produced(5))
    assert await outcome(send(service, produced(0), partition=1)) == (ErrorCode.NONE, 0)
    await asyncio.sleep(0)
    assert (repeated.done(), following.done()) == (False, False)
    searches.may_read.set()
    assert [await outcome(repeated), await outcome(following)] == [(ErrorCode.NONE, 1), (ErrorCode.NONE, 105)]
    assert len(searches.threads) == 5
    assert threading.get_ident() not in searches.threads


async def test_a_search_that_finds_nothing_is_not_repeated(service: DataService, searches: Searches) -> None:
    refused = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
    assert await outcome(send(service, produced(9))) == refused
    steps = len(searches.threads)
    assert steps == 1
    assert await outcome(send(service, produced(9))) == refused
    assert await outcome(send(service, produced(0))) == (ErrorCode.NONE, 0)
    assert len(searches.threads) == steps


async def test_a_disk_that_does_not_answer_refuses_the_batch(service: DataService, searches: Searches) -> None:
    searches.failure = StorageFailure("broken")
    assert await outcome(send(service, produced(1))) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    searches.failure = None
    assert await outcome(send(service, produced(1))) == (ErrorCode.NONE, 1)


async def test_a_batch_that_follows_waits_for_no_search(service: DataService, searches: Searches) -> None:
    assert await outcome(send(service, produced(5))) == (ErrorCode.NONE, 105)
    assert searches.threads == []
