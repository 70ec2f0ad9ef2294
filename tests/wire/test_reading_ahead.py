"""A consumer that reads a partition from end to end, and changes of the log before its next request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from protocol_lib.messages.delete_topics import DeleteTopicsRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from storage_svc.log.partition.environment import DeletionReason
from storage_svc.log.partition.partition_log import PartitionLog
from storage_svc.log.partition.retention import drop_oldest

from tests.wire.conftest import Running, StartBroker, Wire, batch, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

BATCHES = 12
SENT = [batch(bytes([65 + number]) * 100_000) for number in range(BATCHES)]
SIZE = len(SENT[0])


@pytest.fixture(params=["combined", "separate"])
async def reader(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path
) -> AsyncIterator[tuple[Running, Wire]]:
    """A connection of a consumer that has the first two of 12 batches, and for which the rest was read ahead."""
    async with contextlib.AsyncExitStack() as at_end:
        if request.param == "separate":
            storage = RemoteStorage(tmp_path)
            at_end.push_async_callback(storage.stop)
            await storage.start()
            data_dir = str(storage.settings.data_dir)
            broker = await at_end.enter_async_context(gateway_of(storage, "one", gateway_data_dir=data_dir))
        else:
            broker = await start_broker(topics="single:1")
        wire = await broker.connect()
        for number in range(BATCHES):
            assert await produce(wire, "single", SENT[number], acks=-1) == (0, number)
        for offset in range(2):
            assert await read(wire, offset) == (0, BATCHES, kept(offset))
        assert await given(broker, BATCHES)
        yield broker, wire


def kept(offset: int) -> bytes:
    return SENT[offset][17:]


async def given(broker: Running, batches: int) -> bool:
    """Return whether storage soon has returned `batches` batches, and no more."""
    await until(lambda: broker.core.data.read_bytes["file"] >= batches * SIZE)
    return broker.core.data.read_bytes["file"] == batches * SIZE


def asked(offset: int) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=SIZE + 10)
    return FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=SIZE + 10, topics=(FetchTopic(topic="single", partitions=(partition,)),)
    )


async def read(wire: Wire, offset: int) -> tuple[int, int, bytes]:
    """Return error code, high watermark, and the batch without its offset and leader epoch."""
    return shown(await wire.call(1, 11, asked(offset)))


def shown(response: FetchResponse) -> tuple[int, int, bytes]:
    (partition,) = response.responses[0].partitions
    return partition.error_code, partition.high_watermark, bytes(partition.records or b"")[17:]


async def test_a_session_keeps_a_partition_while_another_is_named_and_forgotten(start_broker: StartBroker) -> None:
    broker = await start_broker(topics="pair:2")
    wire = await broker.connect()
    for partition in (0, 1):
        for number in range(3):
            assert await produce(wire, "pair", SENT[number], partition=partition, acks=-1) == (0, number)
    session_id = epoch = 0

    async def fetched(named: dict[int, int], *forgotten: int) -> list[tuple[int, int]]:
        """Return partition and first offset of the records in the answer to one request of the session."""
        nonlocal session_id, epoch
        partitions = tuple(
            FetchPartition(partition=each, fetch_offset=offset, partition_max_bytes=SIZE + 10)
            for each, offset in named.items()
        )
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=10 * SIZE,
            session_id=session_id,
            session_epoch=epoch,
            topics=(FetchTopic(topic="pair", partitions=partitions),),
            forgotten_topics_data=tuple(ForgottenTopic(topic="pair", partitions=(each,)) for each in forgotten),
        )
        response: FetchResponse = await wire.call(1, 11, request)
        assert response.error_code == 0
        session_id, epoch = response.session_id, epoch + 1
        return [
            (each.partition_index, int.from_bytes(bytes(each.records)[:8], "big"))
            for topic in response.responses
            for each in topic.partitions
            if each.records
        ]

    assert await fetched({0: 3, 1: 0}) == [(1, 0)]
    assert await fetched({0: 3}) == [(1, 0)]
    assert await fetched({0: 3}, 0) == [(1, 0)]
    for _ in range(3):
        assert await fetched({0: 3}) == [(1, 0)]
    broker.gateway.check_invariants()


def log_of(broker: Running) -> PartitionLog:
    return broker.core.logs.logs["single", 0]


class Consumer:
    """Reads the partition from end to end, over and over."""

    def __init__(self, wire: Wire, version: int, *, session: bool) -> None:
        self.wire = wire
        self.version = version
        self.session_id = 0
        self.epoch = 0 if session else -1

    async def read(self, offset: int) -> tuple[int, int, bytes]:
        request = asked(offset)
        request.session_id, request.session_epoch = self.session_id, self.epoch
        response: FetchResponse = await self.wire.call(1, self.version, request)
        assert response.error_code == 0
        if self.epoch >= 0:
            assert response.session_id == self.session_id or not self.epoch
            self.session_id = response.session_id
            self.epoch += 1
        return shown(response)


@pytest.mark.parametrize(
    ("version", "session"), [(4, False), (11, False), (12, False), (7, True), (11, True), (12, True)]
)
async def test_consumers_with_and_without_a_session_are_answered_from_read_ahead(
    reader: tuple[Running, Wire], version: int, session: bool
) -> None:
    """Results are good for a tenth of a second; on a slow machine it takes more than one round until one is used."""
    broker, _ = reader
    consumer = Consumer(await broker.connect(), version, session=session)
    counted = broker.gateway.metrics
    of_api = counted.api("Fetch")
    before = counted.fetches_read_ahead
    for offset in [*range(BATCHES)] * 200:
        read_bytes, ahead, answers = (
            broker.core.data.read_bytes["file"],
            counted.fetches_read_ahead,
            of_api.answers.total(),
        )
        assert await consumer.read(offset) == (0, BATCHES, kept(offset))
        assert of_api.answers.total() == answers + 1
        if counted.fetches_read_ahead == ahead:
            assert broker.core.data.read_bytes["file"] > read_bytes  # storage was asked
        if counted.fetches_read_ahead == before + 5:
            return
    pytest.fail(f"{counted.fetches_read_ahead - before} requests were answered from read-ahead")


async def test_a_request_that_asks_for_something_else_is_not_answered_from_read_ahead(
    reader: tuple[Running, Wire],
) -> None:
    """The first reads uncommitted records, for which an answer has no list of aborted transactions."""
    broker, wire = reader
    request = asked(2)
    request.isolation_level = 1
    ahead = broker.gateway.metrics.fetches_read_ahead
    response = await wire.call(1, 11, request)
    assert response.responses[0].partitions[0].aborted_transactions == ()
    assert shown(response) == (0, BATCHES, kept(2))
    assert broker.gateway.metrics.fetches_read_ahead == ahead


async def test_what_is_known_waits_for_what_was_asked_before(reader: tuple[Running, Wire]) -> None:
    _, wire = reader
    ids = [wire.send(0, 7, produce_request("absent", SENT[0])), wire.send(1, 11, asked(2)), wire.send(1, 11, asked(3))]
    answers = [await wire.receive() for _ in ids]
    assert [correlation_id for correlation_id, _ in answers] == ids
    assert [shown(response) for _, response in answers[1:]] == [(0, BATCHES, kept(2)), (0, BATCHES, kept(3))]


async def test_who_goes_elsewhere_is_given_what_is_there(reader: tuple[Running, Wire]) -> None:
    _, wire = reader
    for offset in (5, 0, 11):
        assert await read(wire, offset) == (0, BATCHES, kept(offset))


async def test_deleted_records_are_not_read_once_that_was_said(reader: tuple[Running, Wire]) -> None:
    broker, wire = reader
    other = await broker.connect()
    assert await read(wire, 2) == (0, BATCHES, kept(2))
    deletion = DeleteRecordsTopic(name="single", partitions=(DeleteRecordsPartition(partition_index=0, offset=9),))
    deleted = await other.call(21, 2, DeleteRecordsRequest(topics=(deletion,), timeout_ms=1000))
    assert deleted.topics[0].partitions[0].low_watermark == 9
    assert await read(wire, 3) == (ErrorCode.OFFSET_OUT_OF_RANGE, BATCHES, b"")


async def test_a_deleted_topic_is_not_read_once_that_was_said(reader: tuple[Running, Wire]) -> None:
    broker, wire = reader
    other = await broker.connect()
    deleted = await other.call(20, 4, DeleteTopicsRequest(topic_names=("single",), timeout_ms=1000))
    assert deleted.responses[0].error_code == 0
    assert await read(wire, 2) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, b"")


async def test_expired_segments_are_not_read(reader: tuple[Running, Wire]) -> None:
    broker, wire = reader
    log = log_of(broker)
    log.roll(log.now_ms())
    drop_oldest(log, [DeletionReason.TIME])
    assert await read(wire, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, BATCHES, b"")


async def test_the_high_watermark_is_told_as_it_is(reader: tuple[Running, Wire]) -> None:
    broker, wire = reader
    other = await broker.connect()
    assert await produce(other, "single", SENT[0], acks=-1) == (0, BATCHES)
    assert await read(wire, 2) == (0, BATCHES + 1, kept(2))


async def test_what_is_known_is_not_for_another_storage(tmp_path: Path) -> None:
    storage = RemoteStorage(tmp_path)
    await storage.start()
    async with contextlib.AsyncExitStack() as at_end:
        at_end.push_async_callback(storage.stop)
        data_dir = str(storage.settings.data_dir)
        broker = await at_end.enter_async_context(gateway_of(storage, "one", gateway_data_dir=data_dir))
        wire = await broker.connect()
        for number in range(BATCHES):
            assert await produce(wire, "single", SENT[number], acks=-1) == (0, number)
        for offset in range(2):
            await read(wire, offset)
        assert await given(broker, BATCHES)
        await storage.stop()
        await storage.start()
        assert storage.core is not None
        storage.core.logs.logs["single", 0].raise_log_start(9)
        for _ in range(3000):  # until the gateway has found it again
            found = await read(wire, 2)
            if found[0] != ErrorCode.NOT_LEADER_OR_FOLLOWER:
                break
            await asyncio.sleep(0.02)
        assert found == (ErrorCode.OFFSET_OUT_OF_RANGE, BATCHES, b"")
