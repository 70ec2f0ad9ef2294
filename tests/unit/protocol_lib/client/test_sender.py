"""The producer and answers that real brokers seldom send."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Producer
from protocol_lib.client.errors import (
    ClientClosedError,
    DeliveryTimeoutError,
    InvalidRecordError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from protocol_lib.client.sender import Sender
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

#: Function that answers a broker's nth Produce request (from 0), by the batch's header; None: no answer, see Leader.
Judge = Callable[[int, BatchHeader], PartitionProduceResponse | None]


def answer(code: ErrorCode, base_offset: int = -1, **more: object) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=0, error_code=code, base_offset=base_offset, **more)  # type: ignore[arg-type]


class Leader:
    """A broker that leads one partition and judges its batches. Connections without an answer end at `hang_up`."""

    def __init__(self, judge: Judge, hang_up: asyncio.Event | None = None) -> None:
        self._judge = judge
        self._hang_up = hang_up or asyncio.Event()
        self.batches: list[BatchHeader] = []
        self.producer_ids = iter(range(7, 100))
        self.asked_for_metadata = 0

    @property
    def numbers(self) -> list[tuple[int, int, int]]:
        """(producer id, epoch, base sequence) of each batch."""
        return [(each.producer_id, each.producer_epoch, each.base_sequence) for each in self.batches]

    async def listen(self, scripted: StartScript) -> ScriptedBroker:
        async def reply(header, request):
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
            if judged is None:
                await self._hang_up.wait()
                return None
            name = request.topic_data[0].name
            return ProduceResponse(responses=(TopicProduceResponse(name=name, partition_responses=(judged,)),))

        broker = await scripted(reply)
        return broker


def producer(broker: ScriptedBroker, request_timeout_ms: int = 30_000, **options: int) -> Producer:
    settings = ClientSettings(
        bootstrap_servers=broker.bootstrap,
        request_timeout_ms=request_timeout_ms,
        retry_backoff_ms=5,
        retry_backoff_max_ms=10,
    )
    return Producer(settings, linger_ms=0, **options)


async def until_sent(leader: Leader, count: int) -> None:
    """Wait until the broker has received this number of batches."""
    while len(leader.batches) < count:  # noqa: ASYNC110 (nothing else signals it)
        await asyncio.sleep(0.001)


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


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        (ErrorCode.NONE, [(7, 0, 0), (7, 0, 1), (7, 0, 2), (7, 0, 2), (7, 0, 3)]),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, [(7, 0, 0), (7, 0, 1), (7, 0, 2), (7, 0, 2), (7, 0, 3)]),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, [(7, 0, 0), (7, 0, 1), (7, 0, 2), (7, 0, 2), (7, 1, 0), (7, 1, 1)]),
    ],
)
async def test_after_a_batch_that_timed_out_the_next_goes_again_under_its_old_number(
    scripted: StartScript, code, expected
) -> None:
    """The broker does not answer 1 and 2 and closes the connection when 1 has timed out. Its answer to 2 decides."""
    hang_up = asyncio.Event()

    def judge(number: int, _: BatchHeader) -> PartitionProduceResponse | None:
        if number in (1, 2):
            return None
        return answer(code if number == 3 else ErrorCode.NONE, number)

    leader = Leader(judge, hang_up)
    async with producer(await leader.listen(scripted), request_timeout_ms=1500) as client:
        await client.send_and_wait("t", b"0")
        patient = client._delivery
        client._delivery = dataclasses.replace(patient, timeout_ms=600)
        first = await client.send("t", b"1")
        client._delivery = patient
        await until_sent(leader, 2)
        second = await client.send("t", b"2")
        await until_sent(leader, 3)
        with pytest.raises(DeliveryTimeoutError):
            await first
        hang_up.set()
        await second
        await client.send_and_wait("t", b"3")
    assert leader.numbers == expected


async def test_a_bug_in_the_sender_fails_every_record_and_every_later_call(
    scripted: StartScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = Leader(lambda number, _: answer(ErrorCode.NONE, number))
    client = producer(await leader.listen(scripted), buffer_bytes=250)
    await client.start()
    await client.send_and_wait("t", b"x")

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Sender, "_request", fail)
    async with asyncio.timeout(20):
        outcomes = await asyncio.gather(
            *(client.send_and_wait("t", b"x" * 100) for _ in range(3)), return_exceptions=True
        )
        for outcome in outcomes:
            assert isinstance(outcome, KafkaError)
            assert "broken: ZeroDivisionError" in str(outcome)
        with pytest.raises(KafkaError, match="broken"):
            await client.send("t", b"x")
        with pytest.raises(KafkaError, match="broken"):
            await client.close()


async def test_close_ends_a_send_that_waits_for_memory(scripted: StartScript) -> None:
    leader = Leader(lambda *_: None, asyncio.Event())
    client = producer(await leader.listen(scripted), buffer_bytes=250)
    await client.start()
    first = await client.send("t", b"x" * 100)
    waiting = asyncio.create_task(client.send("t", b"x" * 100))
    await asyncio.sleep(0.01)
    async with asyncio.timeout(20):
        await client.close(timeout_ms=0)
        with pytest.raises(ClientClosedError):
            await first
        with pytest.raises(ClientClosedError):
            await waiting


async def test_an_answer_is_matched_by_the_topic_ids_of_its_request(scripted: StartScript) -> None:
    """The client forgets the topic while the request is on its way."""
    topic_id = bytes(range(16))
    may_answer = asyncio.Event()

    async def reply(header, request):
        if header.api_key == ApiKey.API_VERSIONS:
            return versions()
        if header.api_key == ApiKey.METADATA:
            response = one_node(broker, request)
            for topic in response.topics:
                topic.topic_id = topic_id
            return response
        if header.api_key == ApiKey.INIT_PRODUCER_ID:
            return InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=0)
        await may_answer.wait()
        topic = TopicProduceResponse(topic_id=topic_id, partition_responses=(answer(ErrorCode.NONE, 5),))
        return ProduceResponse(responses=(topic,))

    broker = await scripted(reply)
    async with producer(broker) as client:
        sent = await client.send("t", b"x")
        while broker.requests[-1][0].api_key != ApiKey.PRODUCE:  # noqa: ASYNC110 (nothing else signals it)
            await asyncio.sleep(0.001)
        cluster, _ = client._running()
        cluster.metadata.forget(["t"])
        may_answer.set()
        assert (await sent).offset == 5


async def test_a_producer_that_starts_again_sends_no_record_that_failed(scripted: StartScript) -> None:
    leader = Leader(lambda number, _: answer(ErrorCode.NONE, number) if number else None, asyncio.Event())
    client = producer(await leader.listen(scripted), batch_bytes=80)
    await client.start()
    failed = [await client.send("t", b"x" * 50) for _ in range(8)]
    await until_sent(leader, 1)
    await client.close(timeout_ms=0)
    for each in failed:
        with pytest.raises(ClientClosedError):
            await each
    before = len(leader.batches)
    await client.start()
    await client.send_and_wait("t", b"y")
    await client.close()
    assert leader.numbers[before:] == [(8, 0, 0)]
