"""Open transactions over HTTP: what is listed, and what can be aborted in which way."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from broker_contract import transactions_pb2 as pb
from broker_contract.data import Append, AppendResponse, TopicIdPartition
from protocol_lib.records.batch import build_batch
from protocol_lib.records.record import Record
from support.group_calls import answered

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

TRANSACTIONS = "/api/v1/transactions"


def append(stack: Stack, topic: str, partition: int, producer: tuple[int, int], transactional_id: str) -> None:
    """Append a transactional record of a producer."""
    batch = build_batch(
        [Record(0, 1_700_000_000_000, None, b"value")],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )
    request = Append(
        correlation_id=1,
        client_id="test",
        version=9,
        acks=-1,
        timeout_ms=10_000,
        partitions=[TopicIdPartition(topic, partition)],
        batches=[batch],
        transactional_id=transactional_id,
    )

    answer: AppendResponse = stack.loop.run(answered(stack.core.data.append, request))
    assert [each.error_code for each in answer.outcomes] == [0]


@pytest.fixture
def begin(stack: Stack) -> Callable[..., tuple[int, int]]:
    """Begins a transaction in partitions of a topic, and returns the producer's id and epoch."""

    def begun(transactional_id: str, topic: str, *partitions: int) -> tuple[int, int]:
        service = stack.core.transactions
        request = pb.InitProducerRequest(
            transactional_id=transactional_id, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        made = stack.loop.run(service.init_producer(request))
        assert made.error_code == 0
        producer = made.producer_id, made.producer_epoch
        transaction = pb.AddPartitionsRequest.Transaction(
            transactional_id=transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[pb.TransactionTopic(name=topic, partitions=partitions)],
        )
        added = stack.loop.run(service.add_partitions(pb.AddPartitionsRequest(transactions=[transaction])))
        assert set(added.results[0].error_codes) == {0}
        for partition in partitions:
            append(stack, topic, partition, producer, transactional_id)
        return producer

    return begun


def test_open_transactions_are_listed(stack: Stack, begin: Callable[..., tuple[int, int]]) -> None:
    stack.create_topic("paid", 3)
    stack.append("paid", 1, 5)
    # wall clock: the times that a transaction tells are times of day
    before_ms = time.time_ns() // 1_000_000
    first = begin("pay-a", "paid", 0, 1)
    second = begin("pay-b", "paid", 2)
    answer = stack.http.get(TRANSACTIONS, params={"q": "PAY-"}).json()
    assert answer["next"] is None
    for row in answer["data"]:
        started_at, age_ms = row.pop("started_at"), row.pop("age_ms")
        # wall clock: as above
        assert before_ms <= started_at <= started_at + age_ms <= time.time_ns() // 1_000_000
    rows = {
        "pay-a": (first, [{"topic_name": "paid", "partition_id": each} for each in (0, 1)]),
        "pay-b": (second, [{"topic_name": "paid", "partition_id": 2}]),
    }
    assert answer["data"] == [
        {
            "transactional_id": name,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "state": "Ongoing",
            "timeout_ms": 60_000,
            "partitions_count": len(partitions),
            "partitions": partitions,
        }
        for name, (producer, partitions) in rows.items()
    ]
    page = stack.http.get(TRANSACTIONS, params={"q": "pay-", "page_size": 1}).json()
    following = stack.http.get(page["next"]).json()
    assert [each["transactional_id"] for each in (*page["data"], *following["data"])] == ["pay-a", "pay-b"]
    opened = stack.http.get("/api/v1/topics/paid/transactions").json()["data"]
    assert [(row["partition_id"], row["start_offset"], row["transactional_id"]) for row in opened] == [
        (0, 0, "pay-a"),
        (1, 5, "pay-a"),
        (2, 0, "pay-b"),
    ]
    assert {row["is_hanging"] for row in opened} == {False}
    assert opened[1]["last_timestamp"] == 1_700_000_000_000


def test_the_coordinator_aborts_an_open_transaction(stack: Stack, begin: Callable[..., tuple[int, int]]) -> None:
    stack.create_topic("given-up", 1)
    producer = begin("give up/1", "given-up", 0)
    path = f"{TRANSACTIONS}/give%20up%2F1"
    answer = stack.http.post(f"{path}/abort")
    assert (answer.status_code, answer.json()["transactional_id"]) == (200, "give up/1")
    deadline = time.monotonic() + 20
    while (found := stack.http.get(path).json())["state"] != "CompleteAbort":
        assert time.monotonic() < deadline, found
    assert (found["producer_id"], found["age_ms"], found["partitions"]) == (producer[0], None, [])
    assert found["producer_epoch"] > producer[1], "the producer is fenced"
    assert stack.http.get("/api/v1/topics/given-up/transactions").json()["data"] == []
    again = stack.http.post(f"{path}/abort")
    message = "The transaction is CompleteAbort: there is nothing to abort."
    assert (again.status_code, again.json()) == (409, {"error_code": 40901, "message": message})
    assert stack.http.get(TRANSACTIONS, params={"q": "give up"}).json()["data"] == []
    ended = stack.http.get(TRANSACTIONS, params={"q": "give up", "open": False}).json()["data"]
    assert [row["state"] for row in ended] == ["CompleteAbort"]


def test_only_a_hanging_transaction_is_aborted_in_its_partition(
    stack: Stack, begin: Callable[..., tuple[int, int]]
) -> None:
    stack.create_topic("stuck", 1)
    known = begin("known", "stuck", 0)
    stack.core.data.set_verification(verifies=False)
    append(stack, "stuck", 0, (known[0] + 1_000_000, 0), "unknown")
    stack.core.data.set_verification(verifies=True)
    opened = stack.http.get("/api/v1/topics/stuck/transactions").json()["data"]
    assert [(row["start_offset"], row["transactional_id"], row["is_hanging"]) for row in opened] == [
        (0, "known", False),
        (1, None, True),
    ]
    path = "/api/v1/topics/stuck/transactions:abort"
    refused = stack.http.post(path, json={"partition_id": 0, "start_offset": 0})
    message = "This is the transaction of known: abort that one."
    assert (refused.status_code, refused.json()) == (409, {"error_code": 40901, "message": message})
    absent = stack.http.post(path, json={"partition_id": 0, "start_offset": 7})
    message = "No transaction is open at this offset of the partition."
    assert (absent.status_code, absent.json()) == (404, {"error_code": 404, "message": message})
    assert stack.http.post(path, json={"partition_id": 1, "start_offset": 0}).status_code == 404
    assert stack.http.post(path, json={"partition_id": 0, "start_offset": 1}).status_code == 204
    opened = stack.http.get("/api/v1/topics/stuck/transactions").json()["data"]
    assert [row["start_offset"] for row in opened] == [0]
