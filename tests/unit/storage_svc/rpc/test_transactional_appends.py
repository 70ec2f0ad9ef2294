"""Appends of transactional producers: the answers to each Produce version, and the order of batches."""

from __future__ import annotations

import asyncio
import mmap
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from broker_contract.data import Append, AppendResponse, Buffer, TopicIdPartition
from protocol_lib.errors import ErrorCode
from protocol_lib.records.batch import build_batch, read_batches
from protocol_lib.records.record import Record
from storage_svc.log.config import FlushPolicy, LogConfig, LogSettings
from storage_svc.log.folder.data_folder import DataFolder
from storage_svc.log.partition.partition_log import Appended
from storage_svc.log.partition.transaction_end import end_transaction
from storage_svc.rpc import transactional_appends
from storage_svc.rpc.data import DataService
from support.scripted_transactions import ScriptedTransactions

NOW_MS = 1_700_000_000_000
PRODUCER, EPOCH = 7, 3
ABORTABLE, INVALID_TXN_STATE, NOT_ENOUGH_REPLICAS, CONCURRENT = 120, 48, 19, 51
OUT_OF_ORDER, INVALID_EPOCH, INVALID_MAPPING = 45, 47, 49


class Bench:
    """A data service with topic t of three partitions, and a scripted coordinator."""

    def __init__(self, path: Path, policy: FlushPolicy = FlushPolicy.OS, *, verifies: bool = True) -> None:
        self.directory = DataFolder.open(path, LogSettings(flush_policy=policy), clock=lambda: NOW_MS)
        self.logs = self.directory.create_many("t", range(3), bytes(16), LogConfig(segment_bytes=1 << 20))
        self.directory.start(asyncio.get_running_loop())
        self.transactions = ScriptedTransactions()
        self.service = DataService(self.directory, lambda _: None, self.transactions, verifies=verifies)

    def send(
        self, version: int, *batches: tuple[int, Buffer], transactional_id: str | None = "x"
    ) -> asyncio.Future[AppendResponse]:
        answer: asyncio.Future[AppendResponse] = asyncio.get_running_loop().create_future()
        partitions = [TopicIdPartition("t", partition) for partition, _ in batches]
        records = [each for _, each in batches]
        request = Append(1, "c", version, 1, 60_000, partitions, records, transactional_id)
        self.service.append(request, answer.set_result)
        return answer

    async def codes(self, version: int, *batches: tuple[int, Buffer]) -> list[tuple[int, int]]:
        return codes(await self.send(version, *batches))

    def producers(self, partition: int) -> list[tuple[int, int]]:
        """Return (producer id, sequence) of each batch in a partition."""
        data = self.logs[partition].read_batches(0, 1 << 20)
        return [(header.producer_id, header.base_sequence) for header, _ in read_batches(data)]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    await bench.service.close()
    bench.directory.check_invariants()
    await bench.directory.close()


def batch(sequence: int = 0, *, producer: int = PRODUCER, epoch: int = EPOCH, transactional: bool = True) -> bytes:
    sent = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence, "transactional": transactional}
    return build_batch([Record(0, NOW_MS, b"k", b"value")], **sent)


def codes(response: AppendResponse) -> list[tuple[int, int]]:
    return [(each.error_code, each.base_offset) for each in response.outcomes]


@pytest.mark.parametrize(("version", "code"), [(3, INVALID_TXN_STATE), (10, INVALID_TXN_STATE), (11, ABORTABLE)])
async def test_a_batch_outside_of_the_transaction_is_refused(bench: Bench, version: int, code: int) -> None:
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 1))
    assert await bench.codes(version, (0, batch()), (1, batch())) == [(code, -1), (0, 0)]
    assert bench.transactions.added == []
    assert [log.last_stable_offset for log in bench.logs] == [0, 0, 0]


async def test_the_coordinator_is_asked_once_a_transaction_and_partition(bench: Bench) -> None:
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 1))
    for sequence in range(4):
        assert await bench.codes(9, (1, batch(sequence))) == [(0, sequence)]
    assert await bench.codes(9, (1, batch(2))) == [(0, 2)]  # a repetition
    assert bench.transactions.asked == [("t", 1)]
    end_transaction(bench.logs[1], PRODUCER, EPOCH, commit=True, coordinator_epoch=0)
    bench.transactions.ongoing.clear()
    assert await bench.codes(9, (1, batch(3))) == [(INVALID_TXN_STATE, -1)]  # a repetition, as Kafka answers it
    assert await bench.codes(9, (1, batch(4))) == [(INVALID_TXN_STATE, -1)]
    assert bench.transactions.asked == [("t", 1)] * 3


async def test_the_transaction_is_judged_before_the_sequence(bench: Bench) -> None:
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 1))
    assert await bench.codes(9, (1, batch())) == [(0, 0)]
    end_transaction(bench.logs[1], PRODUCER, EPOCH, commit=True, coordinator_epoch=0)
    bench.transactions.ongoing.clear()
    for version, code in ((9, INVALID_TXN_STATE), (11, ABORTABLE)):
        assert await bench.codes(version, (1, batch(5))) == [(code, -1)]
        assert await bench.codes(version, (1, batch(5, epoch=EPOCH + 1))) == [(code, -1)]
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 1))
    assert await bench.codes(9, (1, batch(5))) == [(OUT_OF_ORDER, -1)]
    assert await bench.codes(9, (1, batch())) == [(0, 0)]  # a repetition


@pytest.mark.parametrize("version", [12, 13])
async def test_version_12_adds_the_partitions_of_a_request_by_one_call(bench: Bench, version: int) -> None:
    plain = batch(producer=8, transactional=False)
    answered = await bench.codes(version, (0, batch()), (1, plain), (2, batch()), (9, batch()))
    assert answered == [(0, 0), (0, 0), (0, 0), (3, -1)]
    assert bench.transactions.added == [(("t", 0), ("t", 2))]
    assert await bench.codes(version, (0, batch(1)), (1, batch())) == [(0, 1), (0, 1)]
    assert bench.transactions.added == [(("t", 0), ("t", 2)), (("t", 1),)]


async def test_requests_of_a_producer_wait_in_order_while_others_go_on(bench: Bench) -> None:
    bench.transactions.holds = True
    first, second = bench.send(12, (0, batch())), bench.send(12, (0, batch(1)))
    other = bench.send(12, (0, batch(producer=8, transactional=False)), transactional_id="y")
    plain = bench.send(9, (0, batch(producer=9, transactional=False)), transactional_id=None)
    assert codes(await other) == [(0, 0)]
    assert codes(await plain) == [(0, 1)]
    third = bench.send(12, (0, batch(2)))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not first.done()
    (answer,) = bench.transactions.answers
    answer(ErrorCode.NONE)
    assert [codes(await each) for each in (first, second, third)] == [[(0, 2)], [(0, 3)], [(0, 4)]]
    assert bench.producers(0) == [(8, 0), (9, 0), (7, 0), (7, 1), (7, 2)]
    assert bench.transactions.added == [(("t", 0),)]


async def test_later_requests_of_a_turn_do_not_overtake_one_that_waited(bench: Bench) -> None:
    bench.transactions.holds = True
    first, second = bench.send(12, (0, batch())), bench.send(12, (0, batch(1)))
    await asyncio.sleep(0)
    third = bench.send(12, (0, batch(2)))  # collected for the end of this turn
    bench.transactions.answers[0](ErrorCode.NONE)
    await asyncio.gather(first, second, third)
    assert bench.producers(0) == [(7, 0), (7, 1), (7, 2)]


async def test_a_request_that_waits_keeps_bytes_that_its_gateway_uses_again(bench: Bench) -> None:
    area = mmap.mmap(-1, 4096)
    bench.transactions.holds = True
    data = batch()
    area[: len(data)] = data
    answer = bench.send(12, (0, memoryview(area)[: len(data)]))
    await asyncio.sleep(0)
    area[: len(data)] = bytes(len(data))
    bench.transactions.answers[0](ErrorCode.NONE)
    assert codes(await answer) == [(0, 0)]


@pytest.mark.parametrize(
    ("code", "before_12", "from_12"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
        (ErrorCode.REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS),
        (ErrorCode.CONCURRENT_TRANSACTIONS, NOT_ENOUGH_REPLICAS, CONCURRENT),
        (ErrorCode.PRODUCER_FENCED, INVALID_EPOCH, INVALID_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, INVALID_EPOCH, INVALID_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, INVALID_MAPPING, INVALID_MAPPING),
        (ErrorCode.INVALID_REQUEST, 42, 42),
    ],
)
async def test_codes_of_the_coordinator(
    bench: Bench, code: ErrorCode, before_12: int, from_12: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transactional_appends, "_RETRY_MAX_S", 0.0)
    bench.transactions.code = code
    assert await bench.codes(11, (0, batch())) == [(before_12, -1)]
    assert await bench.codes(12, (0, batch()), (1, batch(producer=8, transactional=False))) == [(from_12, -1), (0, 0)]
    bench.transactions.code = ErrorCode.NONE
    assert await bench.codes(12, (0, batch())) == [(0, 0)]


async def test_a_transaction_that_ends_is_waited_for(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactional_appends, "_RETRY_S", 0.0)
    monkeypatch.setattr(transactional_appends, "_RETRY_MAX_S", 3600.0)
    bench.transactions.code = ErrorCode.CONCURRENT_TRANSACTIONS
    first, second = bench.send(12, (0, batch())), bench.send(12, (0, batch(1)))
    await bench.transactions.asked_times(3)
    bench.transactions.code = ErrorCode.NONE
    assert [codes(await each) for each in (first, second)] == [[(0, 0)], [(0, 1)]]


async def test_no_transaction_begins_without_partitions(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log goes offline while the transaction before it ends."""
    monkeypatch.setattr(transactional_appends, "_RETRY_S", 0.0)
    monkeypatch.setattr(transactional_appends, "_RETRY_MAX_S", 3600.0)
    bench.transactions.code = ErrorCode.CONCURRENT_TRANSACTIONS
    answer = bench.send(12, (0, batch()))
    await bench.transactions.asked_times(1)
    bench.logs[0].take_offline("a test")
    bench.transactions.code = ErrorCode.NONE
    assert codes(await answer) == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]
    assert () not in bench.transactions.added
    assert bench.transactions.ongoing == {}


async def test_records_of_two_producers_are_refused(bench: Bench) -> None:
    for other in (batch(producer=8), batch(epoch=EPOCH + 1)):
        assert await bench.codes(9, (0, batch()), (1, other)) == [(INVALID_MAPPING, -1)] * 2
    assert [log.log_end_offset for log in bench.logs] == [0, 0, 0]


async def test_an_unknown_producer_begins_where_it_was_refused(bench: Bench) -> None:
    """Batches that follow a refused one must not become the first (Kafka's VerificationStateEntry)."""
    bench.transactions.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert await bench.codes(11, (0, batch(5))) == [(NOT_ENOUGH_REPLICAS, -1)]
    bench.transactions.code = ErrorCode.NONE
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 0), ("t", 1))
    assert await bench.codes(11, (0, batch(6))) == [(OUT_OF_ORDER, -1)]
    assert await bench.codes(11, (1, batch(6))) == [(0, 0)]
    assert await bench.codes(11, (0, batch(5))) == [(0, 0)]
    assert await bench.codes(11, (0, batch(6))) == [(0, 1)]


async def test_from_version_12_on_an_unknown_producer_begins_at_0(bench: Bench) -> None:
    assert await bench.codes(12, (0, batch(1))) == [(OUT_OF_ORDER, -1)]
    assert await bench.codes(12, (0, batch(0))) == [(0, 0)]


async def test_without_verification_only_version_12_asks(tmp_path: Path) -> None:
    bench = Bench(tmp_path, verifies=False)
    assert await bench.codes(11, (0, batch())) == [(0, 0)]
    assert bench.transactions.asked == []
    assert await bench.codes(12, (1, batch())) == [(0, 0)]
    assert (bench.transactions.asked, bench.transactions.added) == ([], [(("t", 1),)])
    await bench.service.close()
    await bench.directory.close()


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("is_open", [True, False])
async def test_a_batch_that_waits_for_the_disk_has_a_guard(tmp_path: Path, ends: bool, is_open: bool) -> None:
    """It is refused if its transaction ends before the segment is durable, and nobody is asked again."""
    bench = Bench(tmp_path, FlushPolicy.GROUP)
    filling = build_batch([Record(0, NOW_MS, b"k", bytes((1 << 20) - 100))])
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 0))
    if is_open:
        assert await bench.codes(9, (0, batch(0))) == [(0, 0)]
    answers = [bench.send(9, (0, filling), transactional_id=None), bench.send(9, (0, batch(int(is_open))))]
    await asyncio.sleep(0)
    if ends:
        end_transaction(bench.logs[0], PRODUCER, EPOCH, commit=True, coordinator_epoch=0)
    first = is_open + (is_open and ends)  # it waits, too, if it is not the first of its segment
    last = (INVALID_TXN_STATE, -1) if ends else (0, 1 + is_open)
    assert [codes(await each)[0] for each in answers] == [(0, first), last]
    assert bench.transactions.asked == [("t", 0)]
    await bench.service.close()
    await bench.directory.close()


def end(bench: Bench, epoch: int = EPOCH, version: int = 0) -> None:
    """Write the marker that ends the producer's transaction in partition 0."""
    end_transaction(
        bench.logs[0], PRODUCER, epoch, commit=False, coordinator_epoch=0, transaction_version=version, may_wait=True
    )


@pytest.mark.parametrize("has_begun", [False, True])
async def test_an_answer_from_before_the_marker_is_worth_nothing(bench: Bench, has_begun: bool) -> None:
    """Also if the next transaction of the producer is open by then, under the same epoch."""
    bench.transactions.holds = True
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 0))
    late, later = bench.send(9, (0, batch())), bench.send(9, (0, batch()))
    await asyncio.sleep(0)
    end(bench)
    if has_begun:
        appended = bench.logs[0].append(batch())
        assert isinstance(appended, Appended)
        assert appended.error_code == 0
    (answer,) = bench.transactions.answers
    answer(ErrorCode.NONE)
    assert [codes(await each) for each in (late, later)] == [[(INVALID_TXN_STATE, -1)]] * 2
    assert bench.producers(0) == [(7, -1), (7, 0)][: 1 + has_begun]
    assert len(bench.transactions.answers) == 1  # the coordinator was not asked for the one behind it
    bench.transactions.holds = False
    assert await bench.codes(9, (0, batch(int(has_begun)))) == [(0, 1 + has_begun)]


async def test_the_marker_of_the_last_transaction_leaves_the_guard_of_the_next_one(bench: Bench) -> None:
    """From transaction.version 2 on a marker has the epoch of the next transaction, and may be written late."""
    assert await bench.codes(12, (0, batch())) == [(0, 0)]
    bench.transactions.holds = True
    answer = bench.send(12, (0, batch(epoch=EPOCH + 1)))
    await asyncio.sleep(0)
    end(bench, EPOCH + 1, version=2)
    bench.transactions.answers[0](ErrorCode.NONE)
    assert codes(await answer) == [(0, 2)]


async def test_guards_are_kept_only_as_long_as_they_may_be_used(bench: Bench) -> None:
    guards = bench.logs[0].producers.guards
    assert await bench.codes(9, (0, batch())) == [(INVALID_TXN_STATE, -1)]
    assert len(guards) == 0
    bench.transactions.code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    for producer in range(1100):
        assert await bench.codes(9, (0, batch(producer=producer))) == [(NOT_ENOUGH_REPLICAS, -1)]
    assert len(guards) == 1000
    bench.transactions.code = ErrorCode.NONE
    bench.transactions.begin("x", 1099, EPOCH, ("t", 0))
    assert await bench.codes(9, (0, batch(producer=1099))) == [(0, 0)]
    end_transaction(bench.logs[0], 1099, EPOCH, commit=True, coordinator_epoch=0)
    assert len(guards) == 999


async def test_a_refusal_leaves_the_guard_to_others_who_ask(bench: Bench) -> None:
    """Somebody sends records of this producer under another transactional id."""
    bench.transactions.holds = True
    bench.transactions.begin("x", PRODUCER, EPOCH, ("t", 0))
    wrong, right = bench.send(9, (0, batch()), transactional_id="y"), bench.send(9, (0, batch()))
    await asyncio.sleep(0)
    bench.transactions.answers[0](ErrorCode.NONE)
    assert codes(await wrong) == [(INVALID_TXN_STATE, -1)]
    bench.transactions.answers[1](ErrorCode.NONE)
    assert codes(await right) == [(0, 0)]


async def test_a_stop_answers_requests_that_wait(bench: Bench) -> None:
    bench.transactions.holds = True
    answers: Sequence[asyncio.Future[AppendResponse]] = [bench.send(12, (0, batch(n))) for n in range(2)]
    await asyncio.sleep(0)
    await bench.service.close()
    assert [codes(await each) for each in answers] == [[(6, -1)], [(6, -1)]]
    bench.transactions.answers[0](ErrorCode.NONE)
    assert bench.logs[0].log_end_offset == 0
