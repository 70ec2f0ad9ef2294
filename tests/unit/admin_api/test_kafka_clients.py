"""The pool of the gateway's clients: reuse, failures, limits of number and of memory, and nothing left at rest."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerMemory, AnswerTooLargeError
from admin_api.errors import ApiError
from admin_api.kafka_clients import BROWSE, DOWNLOAD, PRODUCE, TAIL, KafkaClients, Use
from protocol_lib.api import ApiKey
from protocol_lib.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from service_chassis.address import Address
from support.scripted_broker import ScriptedBroker, versions

from tests.support.waiting import until_async

ONE = Use("one", 1, 4 * ANSWER_BYTES_MAX)


def answer_of(offset: int = 7, data: bytes = b"") -> FetchResponse:
    row = PartitionData(partition_index=0, error_code=0, high_watermark=offset, records=data, aborted_transactions=())
    return FetchResponse(responses=(FetchableTopicResponse(topic="t", partitions=(row,)),))


EMPTY = answer_of()


def answering(fetched: Callable[[], Any]) -> Callable[[Any, Any], Any]:
    return lambda header, _request: versions() if header.api_key == ApiKey.API_VERSIONS else fetched()


@contextlib.asynccontextmanager
async def broker(fetched: Callable[[], Any] = lambda: EMPTY) -> AsyncIterator[ScriptedBroker]:
    started = await ScriptedBroker(answering(fetched)).start()
    yield started
    await started.stop()


@contextlib.asynccontextmanager
async def pool(*ports: int, timeout_s: float = 60, idle_s: float = 600) -> AsyncIterator[KafkaClients]:
    clients = KafkaClients([Address("127.0.0.1", port) for port in ports], timeout_s=timeout_s, idle_s=idle_s)
    yield clients
    await clients.close()
    assert clients.open == 0
    assert all(memory.free == memory.total for memory in clients._memories.values())


async def fetch(clients: KafkaClients, use: Use = ONE) -> int:
    async with clients.borrow(use) as client:
        (answer,) = await client.fetch("t", {0: 0}, bytes_max=1000)
        return answer.high_watermark


async def test_a_connection_serves_one_borrower_after_the_other() -> None:
    async with broker() as gateway, pool(gateway.port) as clients:
        assert [await fetch(clients) for _ in range(3)] == [7, 7, 7]
        assert (gateway.connections, clients.open, clients.borrowed(ONE)) == (1, 1, 0)
        assert [header.client_id for header, _ in gateway.requests] == ["admin-api"] * 4


async def test_idle_connections_close() -> None:
    async with broker() as gateway, pool(gateway.port, idle_s=0.05) as clients:
        await asyncio.gather(*(fetch(clients, BROWSE) for _ in range(4)))
        assert gateway.connections == clients.open == 4
        await until_async(lambda: clients.open == 0)
        assert clients._idle._timer is None


async def test_nothing_is_connected_before_the_first_request() -> None:
    async with broker() as gateway, pool(gateway.port) as clients:
        async with clients.borrow(ONE) as client:
            assert not client.is_connected
        assert (gateway.connections, clients.open) == (0, 0)


async def test_a_gateway_that_restarts_is_found_again() -> None:
    async with pool(1) as clients:
        async with broker() as gateway:
            clients.addresses = (Address("127.0.0.1", gateway.port),)
            await fetch(clients)
        with pytest.raises(ApiError) as caught:
            await fetch(clients)
        assert (caught.value.status_code, caught.value.error_code) == (503, 50302)
        async with broker() as gateway:
            clients.addresses = (Address("127.0.0.1", gateway.port),)
            assert await fetch(clients) == 7


async def test_a_connection_that_dies_unseen_is_replaced() -> None:
    answers: list[Any] = [EMPTY, None, EMPTY, None, None]
    async with broker(lambda: answers.pop(0)) as gateway, pool(gateway.port) as clients:
        assert [await fetch(clients), await fetch(clients)] == [7, 7]
        assert gateway.connections == 2
        with pytest.raises(ApiError) as caught:
            await fetch(clients)  # once is enough
        assert (caught.value.status_code, caught.value.error_code) == (503, 50302)
        assert (gateway.connections, clients.open) == (3, 0)


async def test_the_next_address_is_tried() -> None:
    async with broker() as gateway, pool(1, gateway.port) as clients:
        assert await fetch(clients) == 7


async def test_a_gateway_that_does_not_answer() -> None:
    async with broker(lambda: asyncio.Event().wait()) as gateway, pool(gateway.port, timeout_s=0.1) as clients:
        with pytest.raises(ApiError) as caught:
            await fetch(clients)
        assert (caught.value.status_code, caught.value.error_code) == (503, 50003)
        assert caught.value.message == "The gateway did not answer in time."
        assert clients.open == 0


async def test_an_answer_that_is_too_large_is_not_read() -> None:
    async with broker(lambda: bytes(ANSWER_BYTES_MAX)) as gateway, pool(gateway.port) as clients:
        with pytest.raises(AnswerTooLargeError, match=f"an answer of more than {ANSWER_BYTES_MAX} bytes"):
            await fetch(clients)
        assert (gateway.connections, clients.open) == (1, 0)


async def test_the_memory_of_a_large_answer_is_held_until_it_is_forgotten() -> None:
    async with (
        broker(lambda: answer_of(data=bytes(200_000))) as gateway,
        pool(gateway.port) as clients,
        clients.borrow(ONE) as client,
    ):
        await client.fetch("t", {0: 0}, bytes_max=1)
        memory = clients._memories["one"]
        assert 200_000 < memory.total - memory.free < 200_100
        client.forget()
        assert memory.free == memory.total


async def test_no_large_answer_is_read_before_there_is_memory_for_it() -> None:
    two = Use("two", 2, 1_500_000)
    async with broker(lambda: answer_of(data=bytes(1_000_000))) as gateway, pool(gateway.port) as clients:
        async with clients.borrow(two) as first, clients.borrow(two) as second:
            (answer,) = await first.fetch("t", {0: 0}, bytes_max=1)
            waits = asyncio.create_task(second.fetch("t", {0: 0}, bytes_max=1))
            await until_async(lambda: bool(clients._memories["two"]._waiting))
            await asyncio.sleep(0.3)
            assert not waits.done()
            assert len(answer.data) == 1_000_000
            first.forget()
            assert len((await waits)[0].data) == 1_000_000
        assert (gateway.connections, clients.open) == (2, 2)


async def test_a_borrower_that_leaves_while_it_waits_for_memory() -> None:
    two = Use("two", 2, 1_500_000)
    async with (
        broker(lambda: answer_of(data=bytes(1_000_000))) as gateway,
        pool(gateway.port) as clients,
        clients.borrow(two) as first,
    ):
        await first.fetch("t", {0: 0}, bytes_max=1)
        waits = asyncio.create_task(fetch(clients, two))
        await until_async(lambda: bool(clients._memories["two"]._waiting))
        waits.cancel()
        await asyncio.wait([waits])
        await until_async(lambda: not clients._memories["two"]._waiting)
        assert clients.open == 1


async def test_a_borrower_that_leaves_before_its_answer_leaves_no_connection() -> None:
    async with broker(lambda: asyncio.Event().wait()) as gateway, pool(gateway.port) as clients:
        task = asyncio.create_task(fetch(clients))
        await until_async(lambda: len(gateway.requests) == 2)
        task.cancel()
        await asyncio.wait([task])
        assert (clients.open, clients.borrowed(ONE)) == (0, 0)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (TAIL, (429, 42901, {"retry-after": "10"}, "Too many requests of this kind at once (tail: 16).")),
        (DOWNLOAD, (429, 42901, {"retry-after": "10"}, "Too many requests of this kind at once (download: 3).")),
        (BROWSE, (503, 50003, {"retry-after": "1"}, "Too many requests of this kind at once (browse: 4).")),
        (PRODUCE, (503, 50003, {"retry-after": "1"}, "Too many requests of this kind at once (produce: 4).")),
    ],
)
async def test_more_borrowers_than_places(use: Use, expected: tuple[int, int, dict[str, str], str]) -> None:
    async with pool(1) as clients, contextlib.AsyncExitStack() as held:
        for _ in range(use.clients_max):
            await held.enter_async_context(clients.borrow(use))
        waiting = [asyncio.create_task(fetch(clients, use)) for _ in range(use.waiting_max)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as caught:
            await held.enter_async_context(clients.borrow(use))
        assert clients.borrowed(use) == use.clients_max
        for each in waiting:
            each.cancel()
        refusal = caught.value
        assert (refusal.status_code, refusal.error_code, dict(refusal.headers or {}), refusal.message) == expected


async def test_a_borrower_waits_for_a_place_and_no_longer_than_its_patience() -> None:
    patient = Use("patient", 1, 4 * ANSWER_BYTES_MAX, waiting_max=1, wait_s=30)
    hasty = Use("hasty", 1, 4 * ANSWER_BYTES_MAX, waiting_max=1, wait_s=0.01)
    async with broker() as gateway, pool(gateway.port) as clients:
        async with clients.borrow(patient):
            waits = asyncio.create_task(fetch(clients, patient))
            await asyncio.sleep(0)
        assert await waits == 7
        async with clients.borrow(hasty):
            with pytest.raises(ApiError) as caught:
                await fetch(clients, hasty)
            assert caught.value.status_code == 503


async def test_a_stop_ends_requests_and_lends_no_more() -> None:
    async with broker(lambda: asyncio.Event().wait()) as gateway, pool(gateway.port) as clients:
        task = asyncio.create_task(fetch(clients))
        await until_async(lambda: len(gateway.requests) == 2)
        clients.stop()
        for again in (task, asyncio.create_task(fetch(clients))):
            with pytest.raises(ApiError) as caught:
                await again
            assert (caught.value.status_code, caught.value.error_code) == (503, 50302)


async def test_memory_is_reserved_in_order() -> None:
    memory = AnswerMemory(10)
    await memory.reserve(6)
    tasks = [asyncio.create_task(memory.reserve(size)) for size in (8, 2, 2)]
    await asyncio.sleep(0)
    assert [task.done() for task in tasks] == [False, False, False]
    tasks[0].cancel()
    await asyncio.wait(tasks)
    assert memory.free == 0
    memory.release(10)
    assert memory.free == 10


async def test_memory_given_to_a_task_that_is_cancelled_is_free_again() -> None:
    memory = AnswerMemory(10)
    await memory.reserve(10)
    task = asyncio.create_task(memory.reserve(4))
    await asyncio.sleep(0)
    memory.release(10)
    task.cancel()
    await asyncio.wait([task])
    assert memory.free == 10
