"""Offsets that are part of transactions: invisible until the COMMIT marker, through crashes, deletion and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from broker_contract import groups_pb2
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import GroupState
from storage_svc.coordinator.stored.records import partition_of
from storage_svc.rpc.groups import GroupsService
from storage_svc.transaction_ports import Marker
from support.group_calls import answered

from tests.unit.storage_svc.coordinator.conftest import Node

E = ErrorCode
ORDERS = ("orders", 0)
OTHER = (8, 0)


@pytest.mark.parametrize("end", ["commit", "abort"])
@pytest.mark.parametrize("starts", ["none", "restart", "crash"])
async def test_offsets_are_visible_once_the_transaction_is_committed(node: Node, end: str, starts: str) -> None:
    assert await node.commit("g", ("orders", 0, 5)) == [E.NONE]
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 9), ("orders", 1, 3)) == [E.NONE] * 2
    if starts != "none":
        await getattr(node, starts)()
    assert node.fetched("g") == {ORDERS: 5}
    assert node.unstable("g") == {ORDERS, ("orders", 1)}
    assert await node.end("g", commit=end == "commit") == E.NONE
    expected = {ORDERS: 9, ("orders", 1): 3} if end == "commit" else {ORDERS: 5}
    for _ in range(2):
        assert (node.fetched("g"), node.unstable("g")) == (expected, set())
        await node.crash()


@pytest.mark.parametrize("starts", ["none", "crash"])
@pytest.mark.parametrize(("first", "second"), [(True, True), (True, False), (False, True)])
async def test_the_later_commit_counts_whichever_transaction_ends_first(
    node: Node, starts: str, first: bool, second: bool
) -> None:
    for producer, transactional_id, offset in (((7, 0), "x", 100), (OTHER, "y", 200)):
        node.begin("g", producer, transactional_id)
        codes = await node.commit_open("g", ("orders", 0, offset), producer=producer, transactional_id=transactional_id)
        assert codes == [E.NONE]
    assert await node.end("g", commit=second, producer=OTHER) == E.NONE
    assert node.fetched("g") == ({ORDERS: 200} if second else {})
    assert node.unstable("g") == {ORDERS}
    if starts == "crash":
        await node.crash()
    assert await node.end("g", commit=first) == E.NONE
    for _ in range(2):
        assert node.fetched("g") == {ORDERS: 200 if second else 100}
        await node.crash()


async def test_a_later_commit_outside_outdates_one_inside(node: Node) -> None:
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 100))
    assert await node.commit("g", ("orders", 0, 150)) == [E.NONE]
    assert (node.fetched("g"), node.unstable("g")) == ({ORDERS: 150}, {ORDERS})
    await node.end("g", commit=True)
    for _ in range(2):
        assert (node.fetched("g"), node.unstable("g")) == ({ORDERS: 150}, set())
        await node.crash()


@pytest.mark.parametrize(("version", "code"), [(0, 48), (3, 48), (4, 120)])
async def test_the_groups_partition_must_be_in_the_transaction(node: Node, version: int, code: int) -> None:
    assert await node.commit_open("g", ("orders", 0, 1), version=version) == [code]
    assert "g" not in node.coordinator.groups
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 1), version=version) == [E.NONE]
    assert node.transactions.added == []
    node.transactions.ongoing.clear()
    assert await node.commit_open("g", ("orders", 0, 2), version=version) == [E.NONE]  # it is open in the log


@pytest.mark.parametrize("version", [3, 4, 5])
async def test_an_epoch_that_the_log_knows_as_an_old_one_is_not_asked_for(node: Node, version: int) -> None:
    node.begin("g", producer=(7, 1))
    assert await node.commit_open("g", ("orders", 0, 1), producer=(7, 1)) == [E.NONE]
    offsets = ("orders", 0, 1), ("nowhere", 0, 1)
    answered = await node.commit_open("g", *offsets, producer=(7, 0), version=version, transactional_id="another")
    assert answered == [E.INVALID_PRODUCER_EPOCH, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.transactions.added == []


async def test_topics_are_judged_before_the_groups_name(node: Node) -> None:
    answered = await node.commit_open("", ("orders", 0, 1), ("nowhere", 0, 1))
    assert answered == [E.INVALID_GROUP_ID, E.UNKNOWN_TOPIC_OR_PARTITION]


async def test_version_5_adds_the_groups_partition(node: Node) -> None:
    for offset in (1, 2):
        assert await node.commit_open("g", ("orders", 0, offset), version=5) == [E.NONE]
    assert node.transactions.added == [((("__consumer_offsets", partition_of("g", 4))),)]


@pytest.mark.parametrize(
    ("code", "answer"),
    [
        (E.PRODUCER_FENCED, 47),
        (E.INVALID_PRODUCER_EPOCH, 47),
        (E.INVALID_PRODUCER_ID_MAPPING, 49),
        (E.CONCURRENT_TRANSACTIONS, 51),
        (E.COORDINATOR_LOAD_IN_PROGRESS, 14),
        (E.COORDINATOR_NOT_AVAILABLE, 15),
        (E.NOT_COORDINATOR, 16),
        (E.NETWORK_EXCEPTION, 14),
    ],
)
@pytest.mark.parametrize("version", [3, 5])
async def test_codes_of_the_transaction_coordinator(node: Node, version: int, code: ErrorCode, answer: int) -> None:
    node.transactions.code = code
    codes = await node.commit_open("g", ("orders", 0, 1), ("gone", 0, 1), version=version)
    assert codes == [answer, E.UNKNOWN_TOPIC_OR_PARTITION]
    assert "g" not in node.coordinator.groups


async def test_what_is_wrong_with_single_offsets(node: Node) -> None:
    assert await node.commit_open("g", ("gone", 0, 1), version=5) == [E.UNKNOWN_TOPIC_OR_PARTITION]
    assert node.transactions.added == []  # nothing would be part of the transaction
    assert await node.commit_open("", ("orders", 0, 1), version=5) == [E.INVALID_GROUP_ID]
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 1), ("orders", 3, 1)) == [E.NONE, E.UNKNOWN_TOPIC_OR_PARTITION]
    await node.end("g", commit=True)
    assert node.fetched("g") == {ORDERS: 1}


async def test_members_of_a_classic_group_are_fenced(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    node.begin("g")

    async def commit(*member: object) -> list[ErrorCode]:
        return await node.commit_open("g", ("orders", 0, 1), member=member)  # type: ignore[arg-type]

    assert await commit(member_id, generation_id, None) == [E.NONE]
    assert await commit("", -1, None) == [E.NONE]  # before KIP-447 no member was named
    assert await commit("nobody", generation_id, None) == [E.UNKNOWN_MEMBER_ID]
    assert await commit("nobody", -1, None) == [E.UNKNOWN_MEMBER_ID]
    assert await commit(member_id, generation_id + 1, None) == [E.ILLEGAL_GENERATION]
    assert await commit(member_id, generation_id - 1, None) == [E.ILLEGAL_GENERATION]
    assert await commit(member_id, -1, None) == [E.ILLEGAL_GENERATION]
    assert await commit(member_id, generation_id, "static") == [E.UNKNOWN_MEMBER_ID]


async def test_a_static_member_that_was_replaced_is_fenced(node: Node) -> None:
    joined = await node.join("g", instance_id="s")
    await node.sync("g", joined.member_id, joined.generation_id, {joined.member_id: b"all"})
    node.begin("g")
    member = ("another", joined.generation_id, "s")
    assert await node.commit_open("g", ("orders", 0, 1), member=member) == [E.FENCED_INSTANCE_ID]
    member = (joined.member_id, joined.generation_id, "s")
    assert await node.commit_open("g", ("orders", 0, 1), member=member) == [E.NONE]


async def test_a_rebalance_does_not_hold_up_a_transaction(node: Node) -> None:
    joined = await node.join("g")
    assert node.state("g") is GroupState.COMPLETING_REBALANCE
    node.begin("g")
    member = (joined.member_id, joined.generation_id, None)
    assert await node.commit_open("g", ("orders", 0, 1), member=member) == [E.NONE]
    plain = await node.commit("g", ("orders", 0, 1), member_id=joined.member_id, generation_id=joined.generation_id)
    assert plain == [E.REBALANCE_IN_PROGRESS]


async def test_a_group_that_nobody_knows(node: Node) -> None:
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 1), member=("m", 3, None)) == [E.ILLEGAL_GENERATION]
    assert "g" not in node.coordinator.groups
    assert await node.commit_open("g", ("orders", 0, 1)) == [E.NONE]
    assert node.coordinator.groups.keys() == {"g"}
    await node.end("g", commit=False)
    assert node.coordinator.groups.keys() == set()


async def test_a_producer_of_an_older_epoch_is_fenced_by_the_log(node: Node) -> None:
    node.begin("g", (7, 1))
    assert await node.commit_open("g", ("orders", 0, 5), producer=(7, 1)) == [E.NONE]
    node.begin("g", (7, 0))
    assert await node.commit_open("g", ("orders", 0, 9), producer=(7, 0)) == [E.INVALID_PRODUCER_EPOCH]
    assert await node.end("g", commit=True, producer=(7, 0)) == E.INVALID_PRODUCER_EPOCH
    assert await node.end("g", commit=True, producer=(7, 1), coordinator_epoch=3) == E.NONE
    assert await node.end("g", commit=True, producer=(7, 1), coordinator_epoch=2) == E.TRANSACTION_COORDINATOR_FENCED
    assert node.fetched("g") == {ORDERS: 5}


@pytest.mark.parametrize("what", ["group", "offset", "topic"])
@pytest.mark.parametrize("starts", ["none", "crash"])
async def test_a_deletion_drops_open_commits(node: Node, what: str, starts: str) -> None:
    """Kafka: a tombstone deletes them, too; the COMMIT that follows finds nothing."""
    await node.commit("g", ("orders", 0, 5))
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9), ("orders", 1, 9))
    if what == "group":
        assert await node.coordinator.delete_group("g") == E.NONE
    elif what == "offset":
        assert (await node.coordinator.offsets.delete("g", [ORDERS, ("orders", 1)]))[1] == [E.NONE] * 2
    else:
        topic = node.registry.get("orders")
        assert topic is not None
        await node.registry.delete([topic])
        await asyncio.sleep(0)  # the sweep begins
        await asyncio.sleep(0)
        await node.settled("g")
    if starts == "crash":
        await node.crash()
    assert node.unstable("g") == set()
    await node.end("g", commit=True)
    assert node.fetched("g") == {}
    await node.crash()
    assert node.fetched("g") == {}


async def test_a_commit_after_a_deletion_stays(node: Node) -> None:
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9))
    await node.coordinator.offsets.delete("g", [ORDERS])
    await node.commit_open("g", ("orders", 0, 10))
    await node.end("g", commit=True)
    assert node.fetched("g") == {ORDERS: 10}
    await node.crash()
    assert node.fetched("g") == {ORDERS: 10}


async def test_nothing_expires_under_an_open_transaction(node: Node) -> None:
    await node.commit("g", ("orders", 0, 5), ("orders", 1, 5))
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9))
    node.now_ms += node.settings.offsets_retention_ms
    node.coordinator.offsets.expire()
    await node.settled("g")
    assert node.fetched("g") == {ORDERS: 5}
    await node.end("g", commit=False)
    node.coordinator.offsets.expire()
    await node.settled("g")
    assert (node.fetched("g"), node.coordinator.groups.keys()) == ({}, set())


async def test_a_group_with_nothing_but_open_commits_stays(node: Node) -> None:
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9))
    for _ in range(2):
        node.coordinator.offsets.expire()
        await node.settled("g")
        assert node.coordinator.groups.keys() == {"g"}
        await node.crash()


@pytest.mark.parametrize(("version", "code"), [(3, 48), (4, 120), (5, 120)])
async def test_a_commit_whose_transaction_ends_before_the_coordinator_has_answered(
    node: Node, version: int, code: int
) -> None:
    await node.make_offsets_topic()
    node.begin("g")
    node.transactions.holds = True
    commit = asyncio.create_task(node.commit_open("g", ("orders", 0, 9), version=version))
    await asyncio.sleep(0)
    assert await node.end("g", commit=True) == E.NONE
    node.transactions.answers[0](E.NONE)
    assert await commit == [code]
    assert (node.fetched("g"), node.unstable("g")) == ({}, set())
    node.transactions.holds = False
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 9), version=version) == [E.NONE]


async def test_a_commit_after_the_marker_that_waits_for_the_disk(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 1)) == [E.NONE]
    handed_over: list[Callable[[], None]] = []
    offsets_log = node.offsets_log
    mark = offsets_log.mark
    monkeypatch.setattr(offsets_log, "mark", lambda *marker: handed_over.append(lambda: mark(*marker)))
    ending = asyncio.create_task(node.end("g", commit=True))
    await asyncio.sleep(0)
    node.transactions.code = E.CONCURRENT_TRANSACTIONS
    assert await node.commit_open("g", ("orders", 0, 2)) == [E.CONCURRENT_TRANSACTIONS]
    handed_over[0]()
    assert await ending == E.NONE
    assert (node.fetched("g"), node.unstable("g")) == ({ORDERS: 1}, set())
    node.transactions.code = E.NONE
    node.begin("g")
    assert await node.commit_open("g", ("orders", 0, 2)) == [E.NONE]
    assert await node.commit_open("g", ("orders", 0, 3)) == [E.NONE]


async def test_markers_of_other_partitions_and_of_none(node: Node) -> None:
    marker = Marker(7, 0, True, 0)
    assert await answered(node.coordinator.transactional_offsets.end, 0, marker) == E.UNKNOWN_TOPIC_OR_PARTITION
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9))
    other = (partition_of("g", 4) + 1) % 4
    assert await answered(node.coordinator.transactional_offsets.end, other, marker) == E.NONE
    assert node.unstable("g") == {ORDERS}


async def test_a_marker_waits_until_the_groups_are_loaded(node: Node) -> None:
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9))
    await node.restart(wait=False)
    assert await node.end("g", commit=True) == E.COORDINATOR_LOAD_IN_PROGRESS
    await node.loading
    assert await node.end("g", commit=True) == E.NONE
    assert node.fetched("g") == {ORDERS: 9}


@pytest.mark.parametrize("require_stable", [False, True])
async def test_a_reader_may_require_stable_offsets(node: Node, require_stable: bool) -> None:
    await node.commit("g", ("orders", 0, 5), ("orders", 1, 6))
    node.begin("g")
    await node.commit_open("g", ("orders", 0, 9), ("orders", 2, 9))
    group = groups_pb2.FetchOffsetsRequest.Group(
        group_id="g", partitions=[groups_pb2.TopicPartition(topic="orders", partition=index) for index in range(3)]
    )
    every = groups_pb2.FetchOffsetsRequest.Group(group_id="g", all=True)
    request = groups_pb2.FetchOffsetsRequest(groups=[group, every], require_stable=require_stable)
    answer = await GroupsService(node.coordinator).fetch_offsets(request)
    named, known = ([(each.partition, each.offset, each.error_code) for each in one.offsets] for one in answer.groups)
    first = (0, -1, E.UNSTABLE_OFFSET_COMMIT) if require_stable else (0, 5, E.NONE)
    last = (2, -1, E.UNSTABLE_OFFSET_COMMIT) if require_stable else (2, -1, E.NONE)
    assert named == [first, (1, 6, E.NONE), last]
    assert known == [first, (1, 6, E.NONE)]


@pytest.mark.parametrize(("version", "code"), [(0, 15), (3, 15), (4, 120), (5, 120)])
async def test_offsets_beyond_the_memory_of_open_transactions_are_refused(node: Node, version: int, code: int) -> None:
    pending = node.coordinator._hosted.pending
    node.begin("g")
    node.begin("h", OTHER, "y")
    assert await node.commit_open("g", ("orders", 0, 1), ("orders", 1, 1)) == [E.NONE] * 2
    pending.bytes_max = node.coordinator.pending_offsets_bytes
    refused = ("orders", 0, 5)
    codes = await node.commit_open("h", refused, producer=OTHER, transactional_id="y", version=version)
    assert codes == [code]
    assert (node.fetched("h"), node.unstable("h")) == ({}, set())
    assert "h" not in node.coordinator.groups
    assert await node.commit("g", ("orders", 2, 3)) == [E.NONE]  # outside of transactions
    await node.restart()
    pending = node.coordinator._hosted.pending
    assert 2000 < pending.used < 3000
    pending.bytes_max = pending.used
    node.begin("h", OTHER, "y")
    assert (await node.commit_open("h", refused, producer=OTHER, transactional_id="y", version=version)) == [code]
    assert await node.end("g", commit=True) == E.NONE
    assert pending.used == 0
    node.begin("h", OTHER, "y")
    assert await node.commit_open("h", refused, producer=OTHER, transactional_id="y", version=version) == [E.NONE]
    assert await node.end("h", commit=True, producer=OTHER) == E.NONE
    assert node.fetched("h") == {ORDERS: 5}
