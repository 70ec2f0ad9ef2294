"""One of two gateways stands still, and goes on: requests of clients that have left it are not carried out."""

import asyncio
import contextlib

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.delete_topics import DeleteTopicsRequest
from protocol_lib.messages.metadata import MetadataRequest, MetadataRequestTopic

from tests.faults.two_gateways import two_gateways
from tests.groups.talk import GroupTalk
from tests.support.frozen import frozen


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with two_gateways(tmp_path_factory.mktemp("paused") / "data", "orders:2,other:1") as (gateways, addresses):
        yield gateways[0].pid, addresses


@contextlib.asynccontextmanager
async def talks(addresses, group):
    """Yield one conversation through each gateway."""
    made = []
    for address in addresses:
        host, _, port = address.rpartition(":")
        made.append(GroupTalk((host, int(port)), group, {}))
    try:
        yield made
    finally:
        for talk in made:
            await talk.close()


async def leave_behind(ask):
    """Send a request to a gateway that stands still, and leave without an answer."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask, 1)


@pytest.mark.parametrize("before", ["connected before", "connects meanwhile"])
async def test_a_static_member_is_not_fenced_by_a_join_of_a_client_that_has_left(cluster, before):
    pid, addresses = cluster
    async with talks(addresses, f"fenced {before}") as (stopped, living):
        if before == "connected before":
            await stopped.describe("a")
        with frozen(pid):
            await leave_behind(stopped.join("a", version=5, group_instance_id="s1"))
            await stopped.close()
            joined = await living.join("b", version=5, group_instance_id="s1")
            assert joined.error_code == 0
            member, generation = joined.member_id, joined.generation_id
            synced = await living.sync("b", member, generation, group_instance_id="s1", assignments={member: b"all"})
            assert synced.error_code == 0
        for _ in range(20):
            beat = await living.heartbeat("b", member, generation, group_instance_id="s1")
            assert beat.error_code == 0
            await asyncio.sleep(0.1)
        (group,) = (await living.describe("b")).groups
        assert [each.member_id for each in group.members] == [member]


async def test_a_commit_of_a_client_that_has_left_does_not_undo_a_later_one(cluster):
    pid, addresses = cluster
    async with talks(addresses, "commits") as (stopped, living):
        for offset in (98, 99):  # repeated ones are recognised by their bytes
            await stopped.commit("a", ("orders", 0, offset), version=7)
        with frozen(pid):
            await leave_behind(stopped.commit("a", ("orders", 0, 100), version=7))
            await stopped.close()
            await living.commit("b", ("orders", 0, 200), version=7)
        await asyncio.sleep(1)
        (fetched,) = (await living.fetch("b", ("orders", 0))).groups
        assert fetched.topics[0].partitions[0].committed_offset == 200


async def test_a_topic_is_not_deleted_for_a_client_that_has_left(cluster):
    pid, addresses = cluster
    async with talks(addresses, "topics") as (stopped, living):
        with frozen(pid):
            await leave_behind(stopped.ask("a", 20, 3, DeleteTopicsRequest(topic_names=("other",), timeout_ms=1000)))
            await stopped.close()
        await asyncio.sleep(1)
        asked = MetadataRequest(topics=(MetadataRequestTopic(name="other"),))
        assert (await living.ask("b", 3, 8, asked)).topics[0].error_code == ErrorCode.NONE


async def test_requests_of_living_clients_are_carried_out_after_the_pause(cluster):
    pid, addresses = cluster
    # Two groups, since a commit without a member is refused once the join is carried out.
    async with talks(addresses, "joined") as (stopped, living), talks(addresses, "committed") as (also_stopped, _):
        with frozen(pid):
            joining = asyncio.create_task(stopped.join("a", version=3))
            committing = asyncio.create_task(also_stopped.commit("b", ("orders", 1, 7), version=7))
            await asyncio.sleep(1)
        assert (await joining).error_code == 0
        (committed,) = (await committing).topics
        assert committed.partitions[0].error_code == 0
        await living.describe("a")


async def test_members_outlive_a_pause_of_their_gateway_that_is_longer_than_their_session(cluster):
    pid, addresses = cluster
    session = {"session_timeout_ms": 6000, "rebalance_timeout_ms": 6000}
    async with talks(addresses, "sessions") as (stopped, living):
        first = await stopped.join("a", version=3, **session)
        rejoining = await stopped.join_later("b", version=3, **session)
        again = await stopped.join("a", version=3, member_id=first.member_id, **session)
        other = await rejoining
        members = {"a": again.member_id, "b": other.member_id}
        generation = again.generation_id
        synced = await stopped.sync_later("b", other.member_id, generation)
        await stopped.sync("a", again.member_id, generation, assignments=dict.fromkeys(members.values(), b"x"))
        await synced
        for _ in range(3):
            for who, member in members.items():
                assert (await stopped.heartbeat(who, member, generation)).error_code == 0
            await asyncio.sleep(0.3)
        with frozen(pid):
            beats = [asyncio.create_task(stopped.heartbeat(who, each, generation)) for who, each in members.items()]
            await asyncio.sleep(9)
            (group,) = (await living.describe("c")).groups
            assert (group.group_state, len(group.members)) == ("Stable", 2)
        assert [(await each).error_code for each in beats] == [0, 0]
        for who, member in members.items():
            assert (await stopped.heartbeat(who, member, generation)).error_code == 0
