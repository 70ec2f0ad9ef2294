"""Lists of everything a broker has are made in turns: others are served while thousands of rows are made."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from broker_contract import groups_pb2, logs_pb2, transactions_pb2
from gateway_svc.errors import AnswerTooLarge
from gateway_svc.handlers import describe_producers, list_groups, list_transactions
from gateway_svc.requests.rights import TOTAL
from protocol_lib.messages.describe_producers import DescribeProducersRequest, TopicRequest
from protocol_lib.messages.list_groups import ListGroupsRequest
from protocol_lib.messages.list_transactions import ListTransactionsRequest

COUNT = 5000
#: Rows of one turn are 500.
TURNS = COUNT // 500


def answering(answer: Any) -> Any:
    """Return a context whose storage has this answer to all of its calls."""

    async def listed(_request: Any) -> Any:
        return answer

    calls = SimpleNamespace(list_groups=listed, list_transactions=listed, describe_producers=listed)
    return SimpleNamespace(groups=calls, transactions=calls, logs=calls)


async def turns_of(handling: Any) -> tuple[Any, int]:
    """Return the response, and the turns of the event loop until it was made."""
    task, turns = asyncio.create_task(handling), 0
    while not task.done():
        await asyncio.sleep(0)
        turns += 1
    return task.result()[0], turns


async def test_transactional_ids_are_listed_in_turns() -> None:
    rows = [
        transactions_pb2.ListTransactionsResponse.Listed(transactional_id=f"t{number}", producer_id=number)
        for number in range(COUNT)
    ]
    context = answering(transactions_pb2.ListTransactionsResponse(transactions=rows))
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    call: Any = SimpleNamespace(correlation_id=1, size=100, rights=TOTAL)
    response, turns = await turns_of(list_transactions.handle(call, request, context))
    assert [each.transactional_id for each in response.transaction_states] == [f"t{n}" for n in range(COUNT)]
    assert turns >= TURNS


async def test_groups_are_listed_in_turns() -> None:
    rows = [groups_pb2.ListGroupsResponse.Group(group_id=f"g{number}") for number in range(COUNT)]
    context = answering(groups_pb2.ListGroupsResponse(groups=rows))
    call: Any = SimpleNamespace(correlation_id=1, size=100, rights=TOTAL)
    response, turns = await turns_of(list_groups.handle(call, ListGroupsRequest(), context))
    assert [each.group_id for each in response.groups] == [f"g{number}" for number in range(COUNT)]
    assert turns >= TURNS


async def test_producers_are_described_in_turns() -> None:
    producers = [logs_pb2.DescribeProducersResponse.Producer(id=number) for number in range(COUNT)]
    partition = logs_pb2.DescribeProducersResponse.Partition(producers=producers)
    context = answering(logs_pb2.DescribeProducersResponse(partitions=[partition]))
    request = DescribeProducersRequest(topics=(TopicRequest(name="t", partition_indexes=(0,)),))
    call: Any = SimpleNamespace(correlation_id=1, size=100, rights=TOTAL)
    response, turns = await turns_of(describe_producers.handle(call, request, context))
    states = response.topics[0].partitions[0].active_producers
    assert [each.producer_id for each in states] == list(range(COUNT))
    assert turns >= TURNS


async def test_long_names_count_for_the_memory_of_a_list() -> None:
    rows = [transactions_pb2.ListTransactionsResponse.Listed(transactional_id="x" * 30_000) for _ in range(2000)]
    context = answering(transactions_pb2.ListTransactionsResponse(transactions=rows))
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=())
    call: Any = SimpleNamespace(correlation_id=1, size=100, rights=TOTAL)
    with pytest.raises(AnswerTooLarge):
        await list_transactions.handle(call, request, context)
