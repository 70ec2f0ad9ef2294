"""Transactions at the socket: begin, end, fence, describe and list, in every version, with exact error codes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from protocol_lib.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.describe_transactions import DescribeTransactionsRequest
from protocol_lib.messages.end_txn import EndTxnRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.init_producer_id import InitProducerIdRequest
from protocol_lib.messages.list_transactions import ListTransactionsRequest
from protocol_lib.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from protocol_lib.records.batch import read_batches
from protocol_lib.records.control import ControlType, read_marker
from protocol_lib.records.record import read_records

from tests.wire.conftest import Running, StartBroker, Wire

E = ErrorCode
TIMEOUT_MS = 60_000


@pytest.fixture
async def running(start_broker: StartBroker) -> Running:
    return await start_broker()


@pytest.fixture
async def wire(running: Running) -> AsyncIterator[Wire]:
    made = await running.connect()
    yield made
    await made.close()


async def init(
    wire: Wire, name: str, version: int = 5, timeout_ms: int = TIMEOUT_MS, expected: tuple[int, int] = (-1, -1)
) -> tuple[int, int, int]:
    """Return (error code, producer id, epoch)."""
    fields = {"producer_id": expected[0], "producer_epoch": expected[1]} if version >= 3 else {}
    request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=timeout_ms, **fields)
    response = await wire.call(ApiKey.INIT_PRODUCER_ID, version, request)
    return response.error_code, response.producer_id, response.producer_epoch


async def ready(wire: Wire, name: str, version: int = 5) -> tuple[int, int]:
    """Return the producer id and epoch once no transaction stands in the way."""
    while (answer := await init(wire, name, version))[0] == E.CONCURRENT_TRANSACTIONS:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert answer[0] == 0
    return answer[1:]


async def add(
    wire: Wire, name: str, producer: tuple[int, int], partitions: dict[str, tuple[int, ...]], version: int = 3
) -> dict[tuple[str, int], int]:
    topics = tuple(AddPartitionsToTxnTopic(name=topic, partitions=each) for topic, each in partitions.items())
    response = await wire.call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        version,
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=topics,
        ),
    )
    return codes(response.results_by_topic_v3_and_below)


def codes(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }


async def verify(wire: Wire, name: str, producer: tuple[int, int], *partitions: int, only: bool = True) -> list[int]:
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=name,
        producer_id=producer[0],
        producer_epoch=producer[1],
        verify_only=only,
        topics=(AddPartitionsToTxnTopic(name="orders", partitions=partitions),),
    )
    response = await wire.call(ApiKey.ADD_PARTITIONS_TO_TXN, 5, AddPartitionsToTxnRequest(transactions=(transaction,)))
    (result,) = response.results_by_transaction
    return list(codes(result.topic_results).values())


async def end(
    wire: Wire, name: str, producer: tuple[int, int], version: int, *, commit: bool = True
) -> tuple[int, int, int]:
    response = await wire.call(
        ApiKey.END_TXN,
        version,
        EndTxnRequest(transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit),
    )
    return response.error_code, response.producer_id, response.producer_epoch


async def described(wire: Wire, name: str) -> Any:
    response = await wire.call(ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=(name,)))
    return response.transaction_states[0]


async def in_state(wire: Wire, name: str, state: str) -> Any:
    """Return the transaction once it is in this state."""
    while (found := await described(wire, name)).transaction_state != state:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    return found


async def listed(wire: Wire, version: int = 2, **filters: Any) -> list[tuple[str, str]]:
    request = ListTransactionsRequest(**{"state_filters": (), "producer_id_filters": (), **filters})
    response = await wire.call(ApiKey.LIST_TRANSACTIONS, version, request)
    assert (response.error_code, response.unknown_state_filters) == (0, ())
    return sorted((each.transactional_id, each.transaction_state) for each in response.transaction_states)


def markers(running: Running, topic: str, partition: int) -> list[tuple[int, int, bool]]:
    """Return the (producer id, epoch, commit) of the partition's markers."""
    log = running.core.logs.logs[topic, partition]
    found = []
    for header, data in read_batches(log.read_batches(0, 1 << 20)) if log.log_end_offset else ():
        for record in read_records(data) if header.is_control else ():
            marker = read_marker(record)
            assert marker is not None
            found.append((header.producer_id, header.producer_epoch, marker.type is ControlType.COMMIT))
    return found


async def test_the_first_producer_makes_the_topic(running: Running, wire: Wire) -> None:
    answer = await wire.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="t", key_type=1))
    assert (answer.error_code, answer.node_id) == (0, 1)
    topic = running.core.topic_registry.get("__transaction_state")
    assert topic is not None
    assert (topic.partition_count, topic.is_internal) == (3, True)
    assert topic.configs == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "delete.retention.ms": "60000",
        "min.insync.replicas": "1",
        "segment.bytes": "8388608",
        "segment.ms": "3600000",
        "unclean.leader.election.enable": "false",
    }


async def test_version_2_is_advertised_as_a_finalized_feature(wire: Wire) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = await wire.call(ApiKey.API_VERSIONS, 4, request)
    (supported,) = (each for each in response.supported_features if each.name == "transaction.version")
    (finalized,) = (each for each in response.finalized_features if each.name == "transaction.version")
    assert (supported.min_version, supported.max_version) == (0, 2)
    assert (finalized.min_version_level, finalized.max_version_level) == (2, 2)


@pytest.mark.parametrize("version", range(6))
async def test_each_init_raises_the_epoch(wire: Wire, version: int) -> None:
    assert await init(wire, "t", version) == (0, 0, 0)
    assert await init(wire, "t", version) == (0, 0, 1)
    assert await init(wire, "u", version) == (0, 1, 0)
    assert await init(wire, "", version) == (E.INVALID_REQUEST, -1, -1)
    assert await init(wire, "t", version, timeout_ms=900_000) == (0, 0, 2)
    assert await init(wire, "t", version, timeout_ms=900_001) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)
    assert await init(wire, "t", version, timeout_ms=0) == (E.INVALID_TRANSACTION_TIMEOUT, -1, -1)


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_a_producer_goes_on_with_the_epoch_it_has(wire: Wire, version: int) -> None:
    fenced = E.PRODUCER_FENCED if version >= 4 else E.INVALID_PRODUCER_EPOCH
    assert await init(wire, "t", version) == (0, 0, 0)
    assert await init(wire, "t", version, expected=(0, 0)) == (0, 0, 1)
    assert await init(wire, "t", version, expected=(0, 0)) == (0, 0, 1)  # its answer was lost
    assert await init(wire, "t", version, expected=(0, 1)) == (0, 0, 2)
    assert await init(wire, "t", version, expected=(0, 0)) == (fenced, -1, -1)
    assert await init(wire, "t", version, expected=(7, 2)) == (fenced, -1, -1)
    assert await init(wire, "t", version, expected=(0, -1)) == (E.INVALID_REQUEST, -1, -1)
    assert await init(wire, "t", version, expected=(-1, 0)) == (E.INVALID_REQUEST, -1, -1)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", range(6))
async def test_a_transaction_from_begin_to_markers(running: Running, wire: Wire, version: int, commit: bool) -> None:
    producer = await ready(wire, "t")
    both = {"orders": (0, 2)}
    assert await add(wire, "t", producer, both) == {("orders", 0): 0, ("orders", 2): 0}
    assert await add(wire, "t", producer, both) == {("orders", 0): 0, ("orders", 2): 0}
    ongoing = await described(wire, "t")
    assert (ongoing.error_code, ongoing.transaction_state, ongoing.transaction_timeout_ms) == (0, "Ongoing", TIMEOUT_MS)
    assert (ongoing.producer_id, ongoing.producer_epoch) == producer
    assert [(each.topic, each.partitions) for each in ongoing.topics] == [("orders", (0, 2))]
    assert ongoing.transaction_start_time_ms > 1_700_000_000_000
    raised = (producer[0], producer[1] + 1)
    answer = await end(wire, "t", producer, version, commit=commit)
    assert answer == ((0, *raised) if version == 5 else (0, -1, -1))
    done = await in_state(wire, "t", "CompleteCommit" if commit else "CompleteAbort")
    assert done.topics == ()
    now = raised if version == 5 else producer
    assert (done.producer_id, done.producer_epoch) == now
    for partition in (0, 2):
        assert markers(running, "orders", partition) == [(*now, commit)]
    assert markers(running, "orders", 1) == []
    # The same again is a retry; its opposite is an error.
    assert await end(wire, "t", producer, version, commit=commit) == answer
    assert (await end(wire, "t", producer, version, commit=not commit))[0] == E.INVALID_TXN_STATE
    if version == 5:
        assert await add(wire, "t", producer, both) == {("orders", 0): 90, ("orders", 2): 90}
    assert await add(wire, "t", now, {"single": (0,)}) == {("single", 0): 0}


@pytest.mark.parametrize("version", range(6))
async def test_faults_of_an_end(wire: Wire, version: int) -> None:
    producer = await ready(wire, "t")
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    other = producer[0], producer[1] + 1
    assert (await end(wire, "t", producer, version))[0] == E.INVALID_TXN_STATE
    assert (await end(wire, "t", other, version))[0] == fenced
    assert (await end(wire, "t", (99, 0), version))[0] == E.INVALID_PRODUCER_ID_MAPPING
    assert (await end(wire, "nobody", producer, version))[0] == E.INVALID_PRODUCER_ID_MAPPING
    assert (await end(wire, "", producer, version))[0] == E.INVALID_REQUEST
    # A client of version 5 may abort a transaction that never began.
    answer = await end(wire, "t", producer, version, commit=False)
    assert answer == ((0, *other) if version == 5 else (E.INVALID_TXN_STATE, -1, -1))


@pytest.mark.parametrize("version", range(4))
async def test_faults_of_an_addition(wire: Wire, version: int) -> None:
    producer = await ready(wire, "t")
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH
    orders, key = {"orders": (0,)}, ("orders", 0)
    assert await add(wire, "t", (producer[0], 7), orders, version) == {key: fenced}
    assert await add(wire, "t", (99, 0), orders, version) == {key: E.INVALID_PRODUCER_ID_MAPPING}
    assert await add(wire, "nobody", producer, orders, version) == {key: E.INVALID_PRODUCER_ID_MAPPING}
    assert await add(wire, "", producer, orders, version) == {key: E.INVALID_REQUEST}
    some = {"orders": (0, 3), "nowhere": (0,)}
    assert await add(wire, "t", producer, some, version) == {
        ("orders", 0): E.OPERATION_NOT_ATTEMPTED,
        ("orders", 3): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await described(wire, "t")).transaction_state == "Empty"


async def test_partitions_of_internal_topics_are_not_added(wire: Wire) -> None:
    producer = await ready(wire, "t")
    partitions = {"__consumer_offsets": (0,), "orders": (1,), "__transaction_state": (1, 2), "nowhere": (0,)}
    assert await add(wire, "t", producer, partitions) == {
        ("__consumer_offsets", 0): E.TOPIC_AUTHORIZATION_FAILED,
        ("orders", 1): E.OPERATION_NOT_ATTEMPTED,
        ("__transaction_state", 1): E.TOPIC_AUTHORIZATION_FAILED,
        ("__transaction_state", 2): E.TOPIC_AUTHORIZATION_FAILED,
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert (await described(wire, "t")).transaction_state == "Empty"


async def test_brokers_verify_and_add_many_transactions(wire: Wire) -> None:
    producer = await ready(wire, "t")
    assert await verify(wire, "t", producer, 0) == [E.TRANSACTION_ABORTABLE]
    assert await verify(wire, "t", producer, 0, 1, only=False) == [0, 0]
    assert await verify(wire, "t", producer, 0, 1, 2) == [0, 0, E.TRANSACTION_ABORTABLE]
    assert await verify(wire, "t", (producer[0], 9), 0) == [E.PRODUCER_FENCED]
    assert await verify(wire, "t", (9, 0), 0) == [E.INVALID_PRODUCER_ID_MAPPING]
    assert await verify(wire, "nobody", producer, 0) == [E.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("version", range(5))
async def test_offsets_are_added_by_the_partition_of_their_group(running: Running, wire: Wire, version: int) -> None:
    await wire.call(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g"))
    producer = await ready(wire, "t")
    fenced = E.PRODUCER_FENCED if version >= 2 else E.INVALID_PRODUCER_EPOCH

    async def add_offsets(name: str, producer: tuple[int, int]) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], group_id="my-group"
        )
        return (await wire.call(ApiKey.ADD_OFFSETS_TO_TXN, version, request)).error_code  # type: ignore[no-any-return]

    assert await add_offsets("nobody", producer) == E.INVALID_PRODUCER_ID_MAPPING
    assert await add_offsets("t", (producer[0], 9)) == fenced
    assert await add_offsets("t", producer) == 0
    (topic,) = (await described(wire, "t")).topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", (0,))  # "my-group" of 3
    assert (await end(wire, "t", producer, 3))[0] == 0
    await in_state(wire, "t", "CompleteCommit")
    assert markers(running, "__consumer_offsets", 0) == [(*producer, True)]


async def test_a_second_producer_aborts_what_the_first_began(running: Running, wire: Wire) -> None:
    first = await ready(wire, "t")
    await add(wire, "t", first, {"orders": (0,)})
    assert await init(wire, "t") == (E.CONCURRENT_TRANSACTIONS, -1, -1)
    await in_state(wire, "t", "CompleteAbort")
    assert markers(running, "orders", 0) == [(first[0], first[1] + 1, False)]
    assert await init(wire, "t") == (0, first[0], first[1] + 2)
    assert (await end(wire, "t", first, 5))[0] == E.PRODUCER_FENCED
    assert await add(wire, "t", first, {"orders": (0,)}) == {("orders", 0): E.PRODUCER_FENCED}


async def test_a_transaction_that_times_out_is_aborted_and_its_producer_fenced(start_broker: StartBroker) -> None:
    running = await start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=10)
    wire = await running.connect()
    error, *producer = await init(wire, "t", timeout_ms=1)
    assert error == 0
    await add(wire, "t", (producer[0], producer[1]), {"orders": (0,)})
    await in_state(wire, "t", "CompleteAbort")
    assert markers(running, "orders", 0) == [(producer[0], producer[1] + 1, False)]
    assert (await end(wire, "t", (producer[0], producer[1]), 3))[0] == E.PRODUCER_FENCED
    await wire.close()


async def test_an_unused_transactional_id_expires(start_broker: StartBroker) -> None:
    running = await start_broker(
        transactional_id_expiration_ms=1, transaction_remove_expired_transaction_cleanup_interval_ms=10
    )
    wire = await running.connect()
    producer = await ready(wire, "t")
    while (await described(wire, "t")).error_code != E.TRANSACTIONAL_ID_NOT_FOUND:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    code = E.CONCURRENT_TRANSACTIONS  # until the tombstone is on disk
    while code == E.CONCURRENT_TRANSACTIONS:
        code = (await end(wire, "t", producer, 5))[0]
    assert code == E.INVALID_PRODUCER_ID_MAPPING
    await wire.close()


async def test_transactional_ids_are_bounded(start_broker: StartBroker) -> None:
    wire = await (await start_broker(transactional_ids_max=2)).connect()
    assert [(await init(wire, name))[0] for name in ("a", "b", "c", "a")] == [0, 0, E.POLICY_VIOLATION, 0]
    await wire.close()


async def test_list_filters(wire: Wire) -> None:
    producer = await ready(wire, "orders-1")
    await ready(wire, "orders-2")
    third = await ready(wire, "payments")
    await add(wire, "orders-1", producer, {"orders": (0,)})
    everything = [("orders-1", "Ongoing"), ("orders-2", "Empty"), ("payments", "Empty")]
    assert await listed(wire, 0) == everything
    assert await listed(wire, 0, state_filters=("Ongoing",)) == everything[:1]
    assert await listed(wire, 0, producer_id_filters=(third[0], 999)) == everything[2:]
    assert await listed(wire, 1, duration_filter=600_000, state_filters=("Ongoing",)) == []
    assert await listed(wire, 1, duration_filter=-1) == everything
    assert await listed(wire, 2, transactional_id_pattern="orders-.*") == everything[:2]
    assert await listed(wire, 2, transactional_id_pattern="orders") == []
    assert await listed(wire, 2, transactional_id_pattern="") == everything
    request = ListTransactionsRequest(state_filters=(), producer_id_filters=(), transactional_id_pattern="(")
    assert (await wire.call(ApiKey.LIST_TRANSACTIONS, 2, request)).error_code == E.INVALID_REGULAR_EXPRESSION


async def test_a_long_name_does_not_hold_up_the_broker(wire: Wire) -> None:
    """The hash of one takes milliseconds, and took seconds for a thousand partitions."""
    assert await verify(wire, "x" * 32_000, (1, 0), *([0] * 1000)) == [E.INVALID_PRODUCER_ID_MAPPING]


@pytest.mark.parametrize("producer", [(-1, 0), (1, -1)])
async def test_no_marker_is_written_for_a_producer_that_cannot_be(
    running: Running, wire: Wire, producer: tuple[int, int]
) -> None:
    topic = WritableTxnMarkerTopic(name="orders", partition_indexes=(0,))
    marker = WritableTxnMarker(
        producer_id=producer[0],
        producer_epoch=producer[1],
        transaction_result=False,
        topics=(topic,),
        coordinator_epoch=0,
    )
    response = await wire.call(ApiKey.WRITE_TXN_MARKERS, 1, WriteTxnMarkersRequest(markers=(marker,)))
    assert [each.error_code for each in response.markers[0].topics[0].partitions] == [E.UNKNOWN_SERVER_ERROR]
    assert running.core.logs.logs["orders", 0].log_end_offset == 0
