"""The consumer and brokers that answer fetches as real ones seldom do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Consumer, TopicPartition
from protocol_lib.client.errors import InvalidResponseError, KafkaError, ResponseTimeoutError
from protocol_lib.client.fetch_state import Fetched, PartitionState
from protocol_lib.client.fetcher import Fetcher
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from protocol_lib.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from protocol_lib.messages.metadata import MetadataResponseBroker
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from support.scripted_broker import ScriptedBroker, StartScript, one_node, versions

PLACE = TopicPartition("t", 0)
WAIT_MS = 20_000
#: Function that answers a node's nth fetch (from 0) from an offset.
Serve = Callable[[int, int], PartitionData]


def batch(offset: int) -> bytes:
    return build_batch([Record(offset, 1000, None, b"%d" % offset)], base_offset=offset)


def data(records: bytes | None = b"", code: ErrorCode = ErrorCode.NONE, replica: int = -1) -> PartitionData:
    return PartitionData(
        partition_index=0, error_code=code, high_watermark=100, preferred_read_replica=replica, records=records
    )


class Nodes:
    """Node 1 leads the partition and node 2 follows; a test's function answers each one's fetches."""

    def __init__(self, leader: Serve, follower: Serve) -> None:
        self._serve = {1: leader, 2: follower}
        #: (node, offset) of each fetch
        self.fetches: list[tuple[int, int]] = []
        self._brokers: dict[int, ScriptedBroker] = {}

    async def listen(self, scripted: StartScript) -> str:
        for node_id in self._serve:
            self._brokers[node_id] = await scripted(self._reply(node_id))
        return self._brokers[1].bootstrap

    def _reply(self, node_id: int):
        def reply(header, request):
            match header.api_key:
                case ApiKey.API_VERSIONS:
                    return versions()
                case ApiKey.METADATA:
                    answer = one_node(self._brokers[1], request)
                    other = MetadataResponseBroker(node_id=2, host="127.0.0.1", port=self._brokers[2].port)
                    answer.brokers += (other,)
                    return answer
                case ApiKey.LIST_OFFSETS:
                    first = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=0)
                    return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(first,)),))
            offset = request.topics[0].partitions[0].fetch_offset
            served = self._serve[node_id](sum(node == node_id for node, _ in self.fetches), offset)
            self.fetches.append((node_id, offset))
            return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(served,)),))

        return reply


async def reading(scripted: StartScript, nodes: Nodes) -> AsyncIterator[Consumer]:
    settings = ClientSettings(
        bootstrap_servers=await nodes.listen(scripted), retry_backoff_ms=5, retry_backoff_max_ms=10
    )
    async with Consumer(settings, auto_offset_reset="earliest", rack="here") as consumer:
        await consumer.assign([PLACE])
        yield consumer


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        polled = await consumer.poll(WAIT_MS, records_max=count - len(found))
        assert polled, found
        found += [record.offset for record in polled]
    return found


async def test_the_replica_that_the_leader_names_is_read(scripted: StartScript) -> None:
    nodes = Nodes(lambda *_: data(replica=2), lambda _, offset: data(batch(offset)))
    async for consumer in reading(scripted, nodes):
        assert await read(consumer, 3) == [0, 1, 2]
    assert nodes.fetches[:3] == [(1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize("code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
async def test_a_fetch_that_a_replica_refuses_goes_to_the_leader_at_the_same_offset(
    scripted: StartScript, code
) -> None:
    nodes = Nodes(
        lambda number, offset: data(batch(offset)) if number else data(replica=2),
        lambda number, offset: data(code=code) if number else data(batch(offset)),
    )
    async for consumer in reading(scripted, nodes):
        assert await read(consumer, 3) == [0, 1, 2]
    assert nodes.fetches[:4] == [(1, 0), (2, 0), (2, 1), (1, 1)]


async def test_the_wait_for_a_position_ends(scripted: StartScript) -> None:
    def reply(header, request):
        if header.api_key == ApiKey.LIST_OFFSETS:
            return None
        return versions() if header.api_key == ApiKey.API_VERSIONS else one_node(broker, request)

    broker = await scripted(reply)
    async with Consumer(ClientSettings(bootstrap_servers=broker.bootstrap, api_timeout_ms=50)) as consumer:
        await consumer.assign([PLACE])
        with pytest.raises(ResponseTimeoutError, match="t-0"):
            await asyncio.wait_for(consumer.position(PLACE), 20)


async def test_records_of_before_the_position_do_not_move_it_back(scripted: StartScript) -> None:
    nodes = Nodes(lambda number, _: data(batch(0 if number % 2 else 5)), lambda *_: data())
    async for consumer in reading(scripted, nodes):
        consumer.seek(PLACE, 5)
        assert await read(consumer, 1) == [5]
        with pytest.raises(InvalidResponseError, match="t-0: offset 6 was asked for"):
            await consumer.poll(WAIT_MS)
        assert await consumer.position(PLACE) == 6


async def test_a_broker_that_refuses_every_session_is_asked_again_after_a_pause(scripted: StartScript) -> None:
    refused = 0
    may_open = asyncio.Event()

    def reply(header, request):
        nonlocal refused
        match header.api_key:
            case ApiKey.API_VERSIONS:
                return versions()
            case ApiKey.METADATA:
                return one_node(broker, request)
            case ApiKey.LIST_OFFSETS:
                first = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=0)
                return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(first,)),))
        if not may_open.is_set():
            refused += 1
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=())
        return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(data(batch(0)),)),))

    broker = await scripted(reply)
    settings = ClientSettings(bootstrap_servers=broker.bootstrap, retry_backoff_ms=50, retry_backoff_max_ms=50)
    async with Consumer(settings, auto_offset_reset="earliest") as consumer:
        await consumer.assign([PLACE])
        asyncio.get_running_loop().call_later(0.5, may_open.set)
        assert await read(consumer, 1) == [0]
    assert 1 <= refused <= 0.5 / (0.8 * 0.05) + 2


async def test_a_bug_in_the_fetcher_fails_every_later_call(
    scripted: StartScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Fetcher, "_wanted", fail)
    nodes = Nodes(lambda *_: data(), lambda *_: data())
    async for consumer in reading(scripted, nodes):
        async with asyncio.timeout(20):
            for _ in range(2):
                with pytest.raises(KafkaError, match="broken: ZeroDivisionError"):
                    await consumer.poll(WAIT_MS)
            consumer.seek_to_end(PLACE)
            with pytest.raises(KafkaError, match="broken: ZeroDivisionError"):
                await consumer.position(PLACE)


async def test_a_partition_without_a_leader_does_not_keep_others_from_their_positions(scripted: StartScript) -> None:
    def reply(header, request):
        match header.api_key:
            case ApiKey.API_VERSIONS:
                return versions()
            case ApiKey.METADATA:
                response = one_node(broker, request, partitions=2)
                for topic in response.topics:
                    with_leader, without = topic.partitions
                    topic.partitions = (with_leader, replace(without, leader_id=-1))
                return response
            case ApiKey.LIST_OFFSETS:
                first = ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=0)
                return ListOffsetsResponse(topics=(ListOffsetsTopicResponse(name="t", partitions=(first,)),))
        return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(data(batch(0)),)),))

    broker = await scripted(reply)
    async with Consumer(ClientSettings(bootstrap_servers=broker.bootstrap), auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition("t", 1), PLACE])
        assert await asyncio.wait_for(read(consumer, 1), 60) == [0]


def test_the_record_that_reaches_the_limit_of_bytes_is_the_last() -> None:
    """Records of the same batch come with the next calls, and none is lost."""
    state = PartitionState(PLACE)
    state.seek(0)
    sizes = [3, 3, 5, 1, 9, 1]
    records = [Record(offset, 1000, b"k", b"v" * (size - 2), (("h", None),)) for offset, size in enumerate(sizes)]
    state.add(Fetched(iter(records[:4]), 12, 4, 0))
    state.add(Fetched(iter(records[4:]), 12, 6, 0))
    taken = []
    for _ in range(5):
        taken.append([each.offset for each in state.take(500, 6)[0]])
    assert (taken, state.position) == ([[0, 1], [2, 3], [4], [5], []], 6)
