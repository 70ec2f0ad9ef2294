"""A member, and a coordinator that a test moves."""

from __future__ import annotations

import asyncio

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client import ClientSettings, Cluster, RangeAssignor, TopicPartition
from protocol_lib.client.errors import FencedInstanceIdError, GroupAuthorizationFailedError
from protocol_lib.client.group_membership import GroupMembership, GroupSettings
from protocol_lib.consumer_protocol import Assignment, TopicPartitions, decode_subscription, encode_assignment
from protocol_lib.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from protocol_lib.messages.heartbeat import HeartbeatResponse
from protocol_lib.messages.join_group import JoinGroupResponse
from protocol_lib.messages.leave_group import LeaveGroupResponse
from protocol_lib.messages.sync_group import SyncGroupResponse
from support.scripted_broker import ScriptedBroker, StartScript, one_node, versions


class Coordinating:
    """A coordinator; its answers have the codes of its lists, 0 when those are empty."""

    def __init__(self) -> None:
        self.join: list[int] = []
        self.sync: list[int] = []
        self.heartbeat: list[int] = []
        self.generation = 0
        #: answers to JoinGroup wait for it
        self.may_join = asyncio.Event()
        self.may_join.set()
        self.broker: ScriptedBroker

    async def reply(self, header, request):
        match header.api_key:
            case ApiKey.API_VERSIONS:
                return versions()
            case ApiKey.METADATA:
                return one_node(self.broker, request)
            case ApiKey.FIND_COORDINATOR:
                node = {"key": "g", "node_id": 1, "host": "127.0.0.1", "port": self.broker.port}
                return FindCoordinatorResponse(coordinators=(Coordinator(error_code=0, error_message=None, **node),))
            case ApiKey.JOIN_GROUP:
                await self.may_join.wait()
                code = self.join.pop(0) if self.join else 0
                self.generation += code == 0
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=self.generation,
                    protocol_type="consumer",
                    protocol_name="range",
                    leader="somebody",
                    member_id=request.member_id or "m",
                    members=(),
                )
            case ApiKey.SYNC_GROUP:
                code = self.sync.pop(0) if self.sync else 0
                assigned = Assignment(assigned_partitions=(TopicPartitions(topic="t", partitions=(0, 2)),))
                return SyncGroupResponse(error_code=code, assignment=encode_assignment(assigned))
            case ApiKey.HEARTBEAT:
                return HeartbeatResponse(error_code=self.heartbeat.pop(0) if self.heartbeat else 0)
        return LeaveGroupResponse(error_code=0)

    def asked(self, key: ApiKey) -> list:
        return [request for header, request in self.broker.requests if header.api_key == key]


class Membership:
    """A member of the group, and its cluster. Its LeaveGroup may last one heartbeat interval."""

    def __init__(self, coordinator: Coordinating, cluster: Cluster, heartbeat_interval_ms: int) -> None:
        self.changed = asyncio.Event()
        self.cluster = cluster
        self.coordinator = coordinator
        self.member = GroupMembership(
            cluster,
            GroupSettings(
                group_id="g",
                group_instance_id=None,
                session_timeout_ms=30_000,
                heartbeat_interval_ms=heartbeat_interval_ms,
                rebalance_timeout_ms=5000,
                assignors=(RangeAssignor(),),
            ),
            self.changed.set,
        )


@pytest.fixture
async def there(scripted: StartScript, request: pytest.FixtureRequest):
    """A member that has not joined; `parametrize` may set the heartbeat interval in milliseconds."""
    coordinator = Coordinating()
    coordinator.broker = await scripted(coordinator.reply)
    settings = ClientSettings(bootstrap_servers=coordinator.broker.bootstrap, retry_backoff_ms=5)
    cluster = Cluster(settings)
    await cluster.start()
    there = Membership(coordinator, cluster, getattr(request, "param", 10))
    yield there
    await there.member.leave()
    await cluster.close()


async def test_joining_brings_an_assignment(there: Membership) -> None:
    joined = await there.member.join(["t"], [])
    assert joined.assigned == {TopicPartition("t", 0), TopicPartition("t", 2)}
    assert (there.member.member_id, there.member.generation_id, there.member.rejoin_needed) == ("m", 1, False)


async def test_a_member_id_that_is_required_is_used(there: Membership) -> None:
    there.coordinator.join = [79]
    await there.member.join(["t"], [])
    assert [request.member_id for request in there.coordinator.asked(ApiKey.JOIN_GROUP)] == ["", "m"]


@pytest.mark.parametrize("code", [27, 22, 25, 14, 15, 16])
async def test_a_rebalance_that_starts_again_is_joined_again(there: Membership, code: int) -> None:
    there.coordinator.sync = [code]
    await there.member.join(["t"], [])
    requests = there.coordinator.asked(ApiKey.JOIN_GROUP)
    assert len(requests) == 2
    assert requests[1].member_id == ("" if code in (22, 25) else "m")


async def test_a_refusal_is_raised(there: Membership) -> None:
    there.coordinator.join = [30]
    with pytest.raises(GroupAuthorizationFailedError):
        await there.member.join(["t"], [])
    assert there.member.rejoin_needed


async def test_heartbeats_report_a_rebalance_and_wait_while_it_is_joined(there: Membership) -> None:
    await there.member.join(["t"], [])
    there.coordinator.heartbeat = [27]
    await asyncio.wait_for(there.changed.wait(), 20)
    assert (there.member.rejoin_needed, there.member.is_lost, there.member.is_member) == (True, False, True)
    there.coordinator.may_join.clear()
    joining = asyncio.create_task(there.member.join(["t"], []))
    while len(there.coordinator.asked(ApiKey.JOIN_GROUP)) < 2:  # noqa: ASYNC110 (nothing else signals it)
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    there.coordinator.may_join.set()
    await joining
    keys = [header.api_key for header, _ in there.coordinator.broker.requests]
    second = len(keys) - 1 - keys[::-1].index(ApiKey.JOIN_GROUP)
    assert keys[second + 1] == ApiKey.SYNC_GROUP  # no heartbeat followed JoinGroup


@pytest.mark.parametrize("code", [25, 22])
async def test_a_member_that_is_not_known_any_more_has_lost_what_it_owned(there: Membership, code: int) -> None:
    await there.member.join(["t"], [])
    there.coordinator.heartbeat = [code]
    await asyncio.wait_for(there.changed.wait(), 20)
    assert (there.member.rejoin_needed, there.member.is_lost, there.member.member_id) == (True, True, "")


async def test_a_member_that_another_replaced_gets_a_fault(there: Membership) -> None:
    await there.member.join(["t"], [])
    there.coordinator.heartbeat = [82]
    await asyncio.wait_for(there.changed.wait(), 20)
    assert isinstance(there.member.fault, FencedInstanceIdError)
    assert not there.member.is_member


@pytest.mark.parametrize("there", [30_000], indirect=True)
async def test_leaving_sends_leave_group(there: Membership) -> None:
    await there.member.join(["t"], [])
    await there.member.leave()
    (request,) = there.coordinator.asked(ApiKey.LEAVE_GROUP)
    assert [member.member_id for member in request.members] == ["m"]
    await there.member.leave()
    assert len(there.coordinator.asked(ApiKey.LEAVE_GROUP)) == 1


async def test_a_member_that_is_lost_while_it_joins_claims_nothing_any_more(there: Membership) -> None:
    await there.member.join(["t"], [])
    there.coordinator.join = [25]
    await there.member.join(["t"], [TopicPartition("t", 0)])
    claims = [
        [each.topic for each in decode_subscription(request.protocols[0].metadata).owned_partitions]
        for request in there.coordinator.asked(ApiKey.JOIN_GROUP)
    ]
    assert claims == [[], ["t"], []]
    assert there.member.is_lost


async def test_a_bug_in_the_heartbeats_is_a_fault(there: Membership, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(GroupMembership, "_survives", fail)
    await there.member.join(["t"], [])
    there.coordinator.heartbeat = [27]
    await asyncio.wait_for(there.changed.wait(), 20)
    assert "heartbeats are broken: ZeroDivisionError" in str(there.member.fault)
