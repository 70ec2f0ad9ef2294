"""The group coordinator on real logs: durability, restarts, loading, many members at once."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from storage_svc.coordinator.classic.events import (
    GroupState,
    JoinAnswer,
    Leave,
    Leaver,
)
from storage_svc.coordinator.limits import CoordinatorSettings
from storage_svc.coordinator.stored.records import encode_offset_key, partition_of
from storage_svc.log.errors import StorageFailure

from tests.unit.storage_svc.conftest import PlayedTime
from tests.unit.storage_svc.coordinator.conftest import DiskThatBreaks, E, Node


async def test_the_empty_group_id_may_commit_but_not_join(node: Node) -> None:
    assert await node.commit("", ("orders", 0, 1)) == [E.NONE]
    assert node.fetched("") == {("orders", 0): 1}
    assert (await node.join("")).error == E.INVALID_GROUP_ID
    assert await node.heartbeat("", "m", 1) == E.INVALID_GROUP_ID


async def test_a_group_id_the_format_cannot_hold(node: Node) -> None:
    assert await node.commit("g" * 32_768, ("orders", 0, 1)) == [E.INVALID_GROUP_ID]
    assert await node.commit("é" * 16_384, ("orders", 0, 1)) == [E.INVALID_GROUP_ID]
    assert await node.commit("g" * 32_767, ("orders", 0, 1)) == [E.NONE]


# --- membership -----------------------------------------------------------------------------------------------------


async def test_a_group_reloads_with_members_assignment_and_generation(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    await node.commit("g", ("orders", 0, 4), member_id=member_id, generation_id=generation_id)
    await node.restart()
    assert node.state("g") is GroupState.STABLE
    assert await node.heartbeat("g", member_id, generation_id) == E.NONE
    assert (await node.sync("g", member_id, generation_id)).assignment == b"all"
    assert await node.commit("g", ("orders", 0, 5), member_id=member_id, generation_id=generation_id) == [E.NONE]
    _, group = node.coordinator.find("g")
    assert group is not None
    assert group.members[member_id].client_id == "client"


async def test_members_that_do_not_come_back_after_a_restart_are_out(node: Node, played: PlayedTime) -> None:
    await node.member("g")
    joined = await node.join("h", session_timeout_ms=5_000)
    await node.sync("h", joined.member_id, 1, {})
    await node.restart()
    assert node.state("h") is GroupState.STABLE
    await played.go_on(7)
    assert node.state("h") is GroupState.EMPTY
    assert node.state("g") is GroupState.STABLE


async def test_an_emptied_group_is_stored_as_empty(node: Node) -> None:
    member_id, _ = await node.member("g")
    left = await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))
    assert left.members == (E.NONE,)
    await node.restart()
    _, group = node.coordinator.find("g")
    assert group is not None
    assert (group.state, group.generation_id, group.protocol_type) == (GroupState.EMPTY, 2, "consumer")


async def test_the_id_is_given_first_when_the_client_can_take_it(node: Node) -> None:
    first = await node.join("g", require_known_member_id=True)
    assert first.error == E.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("client-")
    assert len(first.member_id) == len("client-") + 36
    second = await node.join("g", first.member_id, require_known_member_id=True)
    assert (second.error, second.member_id, second.leader, second.generation_id) == (
        E.NONE,
        first.member_id,
        first.member_id,
        1,
    )


async def test_a_member_that_never_comes_for_its_id_leaves_nothing(node: Node, played: PlayedTime) -> None:
    await node.join("g", require_known_member_id=True)
    assert node.state("g") is GroupState.EMPTY
    await played.go_on(11)
    assert node.coordinator.groups == {}
    assert "__consumer_offsets" not in node.registry


async def test_fifty_members_at_once_get_one_generation_and_their_own_assignments(node: Node) -> None:
    async def life(number: int) -> tuple[JoinAnswer, bytes]:
        given = await node.join("g", require_known_member_id=True, client_id=f"c{number}")
        joined = await node.join("g", given.member_id, client_id=f"c{number}")
        while True:
            assert joined.error == E.NONE
            shares = {each.member_id: each.member_id.encode() for each in joined.members}
            synced = await node.sync("g", joined.member_id, joined.generation_id, shares)
            if synced.error == E.NONE:
                return joined, synced.assignment
            assert synced.error == E.REBALANCE_IN_PROGRESS
            joined = await node.join("g", given.member_id, client_id=f"c{number}")

    async with asyncio.timeout(60):
        lives = await asyncio.gather(*(life(number) for number in range(50)))
    assert len({joined.generation_id for joined, _ in lives}) == 1
    assert len({joined.leader for joined, _ in lives}) == 1
    assert [assignment for _, assignment in lives] == [joined.member_id.encode() for joined, _ in lives]
    assert sum(len(joined.members) == 50 for joined, _ in lives) == 1
    assert node.state("g") is GroupState.STABLE
    await node.restart()
    _, group = node.coordinator.find("g")
    assert group is not None
    assert len(group.members) == 50


async def test_the_initial_delay_gathers_members(tmp_path: Path, played: PlayedTime) -> None:
    made = await Node(tmp_path, CoordinatorSettings(initial_rebalance_delay_ms=3_000), 1).open()
    first = asyncio.create_task(made.join("g"))
    await played.go_on(1)
    second = asyncio.create_task(made.join("g"))
    await played.go_on(3)
    assert (first.done(), second.done()) == (False, False)  # delayed once more
    await played.go_on(3)
    answers = [await first, await second]
    assert [answer.generation_id for answer in answers] == [1, 1]
    assert sorted(len(answer.members) for answer in answers) == [0, 2]
    await made.close()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"session_timeout_ms": 0}, E.INVALID_SESSION_TIMEOUT),
        ({"session_timeout_ms": 1_800_001}, E.INVALID_SESSION_TIMEOUT),
        ({"protocols": (("range", b"x" * (1 << 20) + b"x"),)}, E.INVALID_REQUEST),
        ({"protocols": (("r", b""),) * 65}, E.INVALID_REQUEST),
        ({"client_id": "c" * 32_704}, E.INVALID_REQUEST),
        ({"instance_id": "i" * 32_704}, E.INVALID_REQUEST),
        ({"rebalance_timeout_ms": -1}, E.INVALID_REQUEST),
        ({"protocols": ()}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_type": ""}, E.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "m"}, E.UNKNOWN_MEMBER_ID),
    ],
)
async def test_joins_that_are_refused_leave_no_group(node: Node, fields: dict[str, object], expected: E) -> None:
    assert (await node.join("g", **fields)).error == expected  # type: ignore[arg-type]
    assert node.coordinator.groups == {}


async def test_the_number_of_groups_is_bounded(node: Node) -> None:
    for number in range(20):
        assert await node.commit(f"g{number}", ("orders", 0, 1)) == [E.NONE]
    assert await node.commit("one too many", ("orders", 0, 1)) == [E.POLICY_VIOLATION]
    assert (await node.join("one too many")).error == E.POLICY_VIOLATION
    assert await node.commit("g3", ("orders", 0, 2)) == [E.NONE]


# --- life -----------------------------------------------------------------------------------------------------------


async def test_calls_have_to_wait_while_their_partition_loads(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    other = next(f"h{n}" for n in range(100) if partition_of(f"h{n}", 4) != partition_of("g", 4))
    await node.restart(wait=False)
    assert node.coordinator.is_loading()
    assert node.coordinator.offsets.fetch("g", None) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert await node.commit("g", ("orders", 0, 2)) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert await node.heartbeat("g", "m", 1) == E.COORDINATOR_LOAD_IN_PROGRESS
    assert (await node.join("g")).error == E.COORDINATOR_LOAD_IN_PROGRESS
    assert node.coordinator.offsets.fetch(other, None) == (E.NONE, [])
    await node.loading
    assert node.fetched("g") == {("orders", 0): 1}


@pytest.mark.parametrize("fault", [StorageFailure("broken"), RuntimeError("broken")], ids=["disk", "bug"])
async def test_a_partition_that_cannot_be_read_is_not_served_without_its_offsets(node: Node, fault: Exception) -> None:
    await node.commit("g", ("orders", 0, 1))
    await node.close()
    node.files = DiskThatBreaks()
    await node.open(wait=False)
    node.files.fault = fault
    await node.loading
    assert node.coordinator.fault == f"cannot load partition {partition_of('g', 4)} of __consumer_offsets: broken"
    assert node.coordinator.offsets.fetch("g", None) == (E.COORDINATOR_LOAD_IN_PROGRESS, [])
    assert await node.commit("g", ("orders", 0, 1)) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    node.files.fault = None
    await node.restart()
    assert node.fetched("g") == {("orders", 0): 1}


async def test_a_partition_whose_log_goes_offline_is_not_served_from_memory(node: Node) -> None:
    """Records that were appended and never synced may be gone at the next start, so no answer may follow from them."""
    disk = node.files = DiskThatBreaks()
    await node.restart()
    member_id, generation_id = await node.member("g")
    other = next(name for name in "abcdefgh" if partition_of(name, 4) != partition_of("g", 4))
    await node.member(other)
    await node.commit("g", ("orders", 0, 1), member_id=member_id, generation_id=generation_id)
    parked = asyncio.create_task(node.join("g"))
    await asyncio.sleep(0)
    disk.sync_fault = StorageFailure("broken")
    assert await node.commit("g", ("orders", 0, 2), member_id=member_id, generation_id=generation_id) == [
        E.NOT_COORDINATOR
    ]
    assert (await parked).error == E.NOT_COORDINATOR
    disk.sync_fault = None
    assert await node.heartbeat("g", member_id, generation_id) == E.NOT_COORDINATOR
    assert node.coordinator.offsets.fetch("g", None) == (E.NOT_COORDINATOR, [])
    assert list(node.coordinator.groups) == [other]
    assert (
        node.coordinator.fault
        == f"partition {partition_of('g', 4)} of __consumer_offsets is offline: sync failed: broken"
    )
    await node.restart()
    assert node.fetched("g")["orders", 0] in (1, 2)
    assert await node.heartbeat("g", member_id, generation_id) == E.NONE


async def test_many_records_that_are_too_large_together_are_compressed(node: Node) -> None:
    """A single one is not: it may be somebody's metadata, which is refused as it comes."""
    await node.make_offsets_topic()
    outcomes: list[int] = []
    small = [(encode_offset_key("g", "orders", number), b"v" * 40_000) for number in range(100)]
    large = [(encode_offset_key("g", "orders", 100), b"v" * 2_000_000)]
    random = [(encode_offset_key("g", "orders", 101 + number), os.urandom(40_000)) for number in range(100)]
    for records in (small, large, random, small * 3):
        node.offsets_log.write(partition_of("g", 4), records, 0, outcomes.append, may_compress=True)
    await node.settled("g")
    assert sorted(outcomes) == [0, E.MESSAGE_TOO_LARGE, E.MESSAGE_TOO_LARGE, E.MESSAGE_TOO_LARGE]
    assert node.records("g") == small


async def test_stopping_while_loading(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    await node.restart(wait=False)
    await node.restart()
    assert node.fetched("g") == {("orders", 0): 1}


async def test_stopping_answers_what_is_parked(node: Node) -> None:
    await node.member("g")
    parked = asyncio.create_task(node.join("g"))
    joined = await node.join("h")
    synced = asyncio.create_task(node.sync("h", "nobody", joined.generation_id))
    await asyncio.sleep(0)
    await node.coordinator.stop()
    async with asyncio.timeout(20):
        assert (await parked).error == E.NOT_COORDINATOR
        assert (await synced).error == E.UNKNOWN_MEMBER_ID
    assert (await node.join("g")).error == E.NOT_COORDINATOR
    assert await node.commit("g", ("orders", 0, 1)) == [E.NOT_COORDINATOR]


async def test_a_caller_that_goes_away_does_not_hold_the_group_up(node: Node) -> None:
    member_id, generation_id = await node.member("g")
    parked = asyncio.create_task(node.join("g"))
    await asyncio.sleep(0)
    parked.cancel()
    await asyncio.gather(parked, return_exceptions=True)
    assert await node.heartbeat("g", member_id, generation_id) == E.REBALANCE_IN_PROGRESS
    joined = await node.join("g", member_id)
    assert (joined.error, len(joined.members)) == (E.NONE, 1)


@pytest.mark.parametrize("instance_id", [None, "static"])
async def test_a_new_member_whose_client_goes_before_it_has_its_id_does_not_stay(
    node: Node, instance_id: str | None
) -> None:
    """A static one may come back by its name."""
    first, generation = await node.member("g")
    gone = asyncio.create_task(node.join("g", instance_id=instance_id))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    members = node.coordinator.groups["g"].entity.members
    assert len(members) == (1 if instance_id is None else 2)
    again = asyncio.create_task(node.join("g", first))
    if instance_id is None:
        assert (await again).generation_id > generation
    again.cancel()


async def test_unreadable_records_are_skipped_not_fatal(node: Node) -> None:
    await node.commit("g", ("orders", 0, 1))
    partition = partition_of("g", 4)
    done: list[int] = []
    node.offsets_log.write(partition, [(b"\x00\x01\x00\x05x", b"?"), (b"\x00\x09other kinds", b"?")], 0, done.append)
    await node.commit("g", ("orders", 1, 2))
    assert done == [0]
    await node.restart()
    assert node.fetched("g") == {("orders", 0): 1, ("orders", 1): 2}
