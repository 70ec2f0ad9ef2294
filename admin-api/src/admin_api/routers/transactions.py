"""Transactions: those that their coordinator knows, those that are open in the logs of a topic, and their abort.

The coordinator aborts the transaction of a transactional id, and fences its producer (Kafka's fenceProducers). One that
no coordinator knows hangs: readers at read_committed stop before it. A marker in its partition aborts it
(kafka-transactions.sh abort).
"""

from __future__ import annotations

import time
from typing import Annotated

from broker_contract import logs_pb2, transactions_pb2
from broker_contract.acls import Operation
from fastapi import FastAPI, Query, Request
from service_chassis.http import audit

from admin_api import errors
from admin_api.needs import HIDES, Calls, on_cluster, on_topic, on_transactional_id
from admin_api.paging import BATCH, PageQuery
from admin_api.routers.insight import ROWS_MAX, next_url
from admin_api.routers.operations import Operations
from admin_api.schemas.transactions import (
    AbortInPartition,
    OpenInPartition,
    OpenInPartitionList,
    Transaction,
    TransactionList,
    TransactionPartition,
)
from admin_api.storage import StorageCalls
from admin_api.view import TopicName, TransactionalId

PATH = "/api/v1/transactions"
OF_TOPIC = "/api/v1/topics/{topic_name}/transactions"
#: Partitions of a transaction that are named.
PARTITIONS_SHOWN_MAX = 100
#: Partitions of a topic in one question to storage.
_PARTITIONS_BATCH = 100
#: The states of a transaction that holds up readers.
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")
#: Kafka: the transaction is being ended. The answer to a fence that has begun an abort.
_CONCURRENT_TRANSACTIONS = 51
_TRANSACTIONAL_ID_NOT_FOUND = 105

_Description = transactions_pb2.DescribeTransactionsResponse.Description
_Producer = logs_pb2.DescribeProducersResponse.Producer


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Transactions (api/v1)")
    operations.get(PATH, "listTransactions", list_transactions, needs=HIDES)
    operations.add(
        "POST",
        f"{PATH}/{{transactional_id}}/abort",
        "abortTransaction",
        abort_transaction,
        needs=on_transactional_id(Operation.WRITE),
    )
    operations.get(
        f"{PATH}/{{transactional_id}}", "getTransaction", get_transaction, needs=on_transactional_id(Operation.DESCRIBE)
    )
    operations.get(OF_TOPIC, "listOpenTransactions", list_open_transactions, needs=on_topic(Operation.READ))
    operations.change(
        "POST",
        f"{OF_TOPIC}:abort",
        "abortOpenTransaction",
        abort_open_transaction,
        needs=on_cluster(Operation.ALTER, Operation.CLUSTER_ACTION) & on_topic(Operation.READ),
    )


async def list_transactions(
    calls: Calls,
    request: Request,
    paging: PageQuery,
    is_open: Annotated[bool, Query(alias="open", description="Only those that are not ended.")] = True,
    q: Annotated[str, Query(max_length=1000, description="A part of the transactional id, in any case.")] = "",
) -> TransactionList:
    """List transactions by transactional id; at most 1,000 a page."""
    part = q.lower()
    listed = await calls.transactions(_OPEN if is_open else ())
    chosen = [each.transactional_id for each in listed if part in each.transactional_id.lower()]
    page = paging.cut(chosen, lambda transactional_id: (transactional_id,), rows_max=ROWS_MAX)
    rows = []
    for at in range(0, len(page.rows), BATCH):
        names = page.rows[at : at + BATCH]
        for name, found in zip(names, await calls.describe_transactions(names), strict=True):
            if not found.error_code and (found.state in _OPEN or not is_open):  # else it has just ended
                rows.append(_transaction(name, found))
    return TransactionList(data=rows, next=next_url(request, page.next_query))


async def get_transaction(calls: Calls, transactional_id: TransactionalId) -> Transaction:
    """Return the last transaction of a transactional id."""
    return _transaction(transactional_id, await _describe(calls, transactional_id))


async def abort_transaction(calls: Calls, transactional_id: TransactionalId) -> Transaction:
    """Abort the open transaction of a transactional id (409 without one). Its producer is fenced, and fails."""
    found = await _describe(calls, transactional_id)
    if found.state != "Ongoing":  # mutant: abort-open-only
        raise errors.ApiError(409, 40901, f"The transaction is {found.state}: there is nothing to abort.")
    code = await calls.fence_producer(transactional_id, found.timeout_ms)
    if code != _CONCURRENT_TRANSACTIONS:
        errors.check(code)
    return _transaction(transactional_id, await _describe(calls, transactional_id))


async def list_open_transactions(calls: Calls, topic_name: TopicName) -> OpenInPartitionList:
    """List the transactions that are open in the partitions of a topic, as its logs know them."""
    partitions = range((await calls.topic(topic_name)).partition_count)
    found: list[tuple[int, _Producer]] = []
    at = 0
    while at < len(partitions) and len(found) < ROWS_MAX:
        answers = await calls.producers(topic_name, partitions[at : at + _PARTITIONS_BATCH])
        for partition, answer in zip(partitions[at:], answers, strict=False):
            found += [(partition, each) for each in answer.producers if each.transaction_first_offset >= 0]
        at += max(len(answers), 1)
    found = found[:ROWS_MAX]
    known = await _known(calls, [each for _, each in found])
    rows = [_open(partition, each, known.get(each.id)) for partition, each in found]
    return OpenInPartitionList(
        topic_name=topic_name, data=sorted(rows, key=lambda row: (row.partition_id, row.start_offset))
    )


async def abort_open_transaction(
    calls: Calls, topic_name: TopicName, given: AbortInPartition, request: Request
) -> None:
    """Abort a hanging transaction in one partition. 409 if its coordinator knows it, and will end it."""
    audit.note(request, partition=given.partition_id, start_offset=given.start_offset)
    if given.partition_id >= (await calls.topic(topic_name)).partition_count:
        raise errors.partition_not_found()
    (answer,) = await calls.producers(topic_name, [given.partition_id])
    errors.check(answer.error_code)
    for producer in answer.producers:
        if producer.transaction_first_offset == given.start_offset:
            break
    else:
        raise errors.not_found("No transaction is open at this offset of the partition.")
    known = (await _known(calls, [producer])).get(producer.id)
    if known is not None:  # mutant: only-hanging-aborted
        raise errors.ApiError(409, 40901, f"This is the transaction of {known}: abort that one.")
    await calls.abort_in_partition(topic_name, given.partition_id, producer)


async def _describe(calls: StorageCalls, transactional_id: str) -> _Description:
    (found,) = await calls.describe_transactions([transactional_id])
    if found.error_code == _TRANSACTIONAL_ID_NOT_FOUND:
        raise errors.not_found("There is no such transactional id.")
    errors.check(found.error_code)
    return found


async def _known(calls: StorageCalls, producers: list[_Producer]) -> dict[int, str]:
    """Return the transactional ids of those producers whose transactions a coordinator has open, by producer id."""
    ids = sorted({each.id for each in producers})
    if not ids:
        return {}
    return {each.producer_id: each.transactional_id for each in await calls.transactions(_OPEN, ids)}


def _transaction(transactional_id: str, found: _Description) -> Transaction:
    named = [
        TransactionPartition(topic_name=topic.name, partition_id=partition)
        for topic in found.topics[:PARTITIONS_SHOWN_MAX]
        for partition in topic.partitions[:PARTITIONS_SHOWN_MAX]
    ]
    # wall clock: the age of a transaction, whose begin is stored
    now_ms = time.time_ns() // 1_000_000
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=found.state,
        timeout_ms=found.timeout_ms,
        started_at=found.start_ms if found.start_ms >= 0 else None,
        age_ms=max(0, now_ms - found.start_ms) if found.start_ms >= 0 and found.state in _OPEN else None,
        partitions_count=sum(len(topic.partitions) for topic in found.topics),
        partitions=named[:PARTITIONS_SHOWN_MAX],
    )


def _open(partition: int, producer: _Producer, transactional_id: str | None) -> OpenInPartition:
    return OpenInPartition(
        partition_id=partition,
        start_offset=producer.transaction_first_offset,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        coordinator_epoch=producer.coordinator_epoch,
        last_timestamp=producer.last_timestamp if producer.last_timestamp >= 0 else None,
        transactional_id=transactional_id,
        is_hanging=transactional_id is None,
    )
