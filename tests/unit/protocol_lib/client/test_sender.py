"""The producer and answers that real brokers seldom send."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Producer
from protocol_lib.client.errors import DeliveryTimeoutError, InvalidRecordError, TopicAuthorizationFailedError
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.init_producer_id import InitProducerIdResponse
from protocol_lib.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from protocol_lib.records.batch import BatchHeader, read_batch_header
from support.scripted_broker import ScriptedBroker, StartScript, one_node, versions

#: Function that answers a broker's nth Produce request (from 0), by the batch's header.
Judge = Callable[[int, BatchHeader], PartitionProduceResponse]


def answer(code: ErrorCode, base_offset: int = -1, **more: object) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset, **more)  # type: ignore[arg-type]


class Leader:
    """A broker that leads one partition and judges its batches."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self.batches: list[BatchHeader] = []
        self.producer_ids = iter(range(7, 100))
        self.asked_for_metadata = 0

    @property
    def numbers(self) -> list[tuple[int, int, int]]:
        """(producer id, epoch, base sequence) of each batch."""
        return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in self.batches]

    async def listen(self, scripted: StartScript) -> ScriptedBroker:
        def reply(header, request):
            if header.api_key == ApiKey.API_VERSIONS:
                return versions()
            if header.api_key == ApiKey.METADATA:
                self.asked_for_metadata += 1
                return one_node(broker, request)
            if header.api_key == ApiKey.INIT_PRODUCER_ID:
                return InitProducerIdResponse(error_code=0, producer_id=next(self.producer_ids), producer_epoch=0)
            ((data,),) = [topic.partition_data for topic in request.topic_data]
            batch = read_batch_header(data.records)
            judged = self._judge(len(self.batches), batch)
            self.batches.append(batch)
            name = request.topic_data[0].name
            return ProduceResponse(responses=(TopicProduceResponse(name=name, partition_responses=(judged,)),))

        broker = await scripted(reply)
        return broker


def producer(broker: ScriptedBroker, **options: int) -> Producer:
    settings = ClientSettings(bootstrap_servers=broker.bootstrap, retry_backoff_ms=5, retry_backoff_max_ms=10)
    return Producer(settings, linger_ms=0, **options)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_a_broker_that_lost_the_sequence_is_sent_the_next_epoch_from_0(scripted: StartScript, code) -> None:
    leader = Leader(lambda number, _: answer(code) if number == 2 else answer(ErrorCode.NONE, number))
    async with producer(await leader.listen(scripted)) as client:
        for _ in range(4):
            await client.send_and_wait("t", b"x")
    assert leader.numbers == [(7, 0, 0), (7, 0, 1), (7, 0, 2), (7, 1, 0), (7, 1, 1)]


async def test_a_duplicate_is_there(scripted: StartScript) -> None:
    leader = Leader(lambda *_: answer(ErrorCode.DUPLICATE_SEQUENCE_NUMBER))
    async with producer(await leader.listen(scripted)) as client:
        assert (await client.send_and_wait("t", b"x")).offset == -1
    assert len(leader.batches) == 1


async def test_a_leader_that_is_none_any_more_is_asked_for_again(scripted: StartScript) -> None:
    leader = Leader(lambda number, _: answer(ErrorCode.NOT_LEADER_OR_FOLLOWER if number < 2 else ErrorCode.NONE, 5))
    async with producer(await leader.listen(scripted)) as client:
        await client.partitions("t")
        before = leader.asked_for_metadata
        assert (await client.send_and_wait("t", b"x")).offset == 5
        assert leader.asked_for_metadata > before
    assert leader.numbers == [(7, 0, 0)] * 3


async def test_a_refusal_is_not_tried_again_and_leaves_no_gap(scripted: StartScript) -> None:
    leader = Leader(
        lambda number, _: answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED) if number == 1 else answer(ErrorCode.NONE, 0)
    )
    async with producer(await leader.listen(scripted)) as client:
        await client.send_and_wait("t", b"x")
        with pytest.raises(TopicAuthorizationFailedError, match="t-0"):
            await client.send_and_wait("t", b"x")
        await client.send_and_wait("t", b"x")
    assert leader.numbers == [(7, 0, 0), (7, 0, 1), (7, 1, 0)]


async def test_time_is_over_on_time_while_the_broker_names_no_producer_id(scripted: StartScript) -> None:
    late = asyncio.Event()

    async def reply(header, request):
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            await late.wait()
        return versions() if header.api_key == ApiKey.API_VERSIONS else one_node(broker, request)

    broker = await scripted(reply)
    async with producer(broker, delivery_timeout_ms=50) as client:
        with pytest.raises(DeliveryTimeoutError, match="0 tries"):
            await client.send_and_wait("t", b"x")
        # It still waits for that answer.
        while broker.requests[-1][0].api_key != ApiKey.INIT_PRODUCER_ID:  # noqa: ASYNC110 (nothing else signals it)
            await asyncio.sleep(0.001)
        late.set()


async def test_the_brokers_message_about_a_record_is_passed_on(scripted: StartScript) -> None:
    about = (BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="no key"),)
    leader = Leader(lambda *_: answer(ErrorCode.INVALID_RECORD, record_errors=about))
    async with producer(await leader.listen(scripted)) as client:
        with pytest.raises(InvalidRecordError, match="no key"):
            await client.send_and_wait("t", b"x")
