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
from aiokafka.protocol.fetch import FetchRequest
from protocol_lib.api import ApiKey
from protocol_lib.messages.fetch import FetchResponse
from service_chassis.address import Address
from support.scripted_broker import ScriptedBroker, versions

from tests.support.waiting import until_async

ONE = Use("one", 1, 4 * ANSWER_BYTES_MAX)
FETCH = FetchRequest(0, 0, 1000, 0, [("t", [(0, 0, 1000)])])
EMPTY = FetchResponse(session_id=7, responses=())


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


async def fetch(clients: KafkaClients, use: Use = ONE, *, repeatable: bool = True) -> int:
    async with clients.borrow(use) as client:
        answer = await client.send(FETCH, repeatable=repeatable)
        session_id: int = answer.session_id
        return session_id


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
        assert clients._idle_timer is None


async def test_nothing_is_connected_before_the_first_request() -> None:
    async with broker() as gateway, pool(gateway.port) as clients:
        async with clients.borrow(ONE) as client:
            assert not client.is_connected
        assert (gateway.connections, clients.open) == (0, 0)


async def test_a_gateway_that_restarts_is_found_again() -> None:
    async with pool(1) as clients:
        async with broker() as gateway:
            clients._addresses = (Address("127.0.0.1", gateway.port),)
            await fetch(clients)
        with pytest.raises(ApiError) as caught:
            await fetch(clients)
        assert (caught.value.status_code, caught.value.error_code) == (503, 50302)
        async with broker() as gateway:
            clients._addresses = (Address("127.0.0.1", gateway.port),)
            assert await fetch(clients) == 7


async def test_a_connection_that_dies_unseen_is_replaced_for_a_request_that_may_be_repeated() -> None:
    answers: list[Any] = [EMPTY, None, EMPTY, None]
    async with broker(lambda: answers.pop(0)) as gateway, pool(gateway.port) as clients:
        assert [await fetch(clients), await fetch(clients)] == [7, 7]
        assert gateway.connections == 2
        with pytest.raises(ApiError) as caught:
            await fetch(clients, repeatable=False)
        assert (caught.value.status_code, caught.value.error_code) == (503, 50302)
        assert (gateway.connections, clients.open) == (2, 0)


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
        with pytest.raises(AnswerTooLargeError, match=f"an answer of {ANSWER_BYTES_MAX + 4} bytes"):
            await fetch(clients)
        assert (gateway.connections, clients.open) == (1, 0)


async def test_the_memory_of_an_answer_is_held_until_it_is_forgotten() -> None:
    async with broker() as gateway, pool(gateway.port) as clients, clients.borrow(ONE) as client:
        await client.send(FETCH, repeatable=True)
        memory = clients._memories["one"]
        held = 4 * ANSWER_BYTES_MAX - memory.free
        assert held == 2 * 18  # correlation id, throttle time, error, session, no topics
        client.forget()
        assert memory.free == 4 * ANSWER_BYTES_MAX


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
