"""The groups service over gRPC."""

from __future__ import annotations

import asyncio

from broker_contract import groups_pb2 as groups
from protocol_lib.errors import ErrorCode
from support.group_calls import GroupExchange

from tests.unit.storage_svc.rpc.control_peer import Peer, new

E = ErrorCode


def join(group: str, member_id: str = "", **fields: object) -> groups.JoinGroupRequest:
    given: dict[str, object] = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000, "client_id": "c"}
    given |= {"protocol_type": "consumer", "protocols": [groups.GroupProtocol(name="range", metadata=b"r")]}
    return groups.JoinGroupRequest(group_id=group, member_id=member_id, **(given | fields))  # type: ignore[arg-type]


async def test_a_groups_life_over_the_wire(peer: Peer) -> None:
    await peer.create(new("orders", 2))
    given = await peer.groups.JoinGroup(join("g", require_known_member_id=True))
    assert (given.error_code, given.generation_id) == (E.MEMBER_ID_REQUIRED, -1)
    joined = await peer.groups.JoinGroup(join("g", given.member_id, client_host="/10.0.0.1"))
    assert joined == groups.JoinGroupResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader=given.member_id,
        member_id=given.member_id,
        members=[groups.JoinGroupResponse.Member(member_id=given.member_id, metadata=b"r")],
    )
    who = {"group_id": "g", "member_id": given.member_id, "generation_id": 1}
    share = groups.SyncGroupRequest.MemberAssignment(member_id=given.member_id, assignment=b"all")
    synced = await peer.groups.SyncGroup(groups.SyncGroupRequest(assignments=[share], **who))
    assert synced == groups.SyncGroupResponse(protocol_type="consumer", protocol_name="range", assignment=b"all")
    exchange = GroupExchange(peer.channel)
    assert (await exchange.ask(heartbeat=groups.HeartbeatRequest(**who))).error_code == 0
    offset = groups.CommitOffsetsRequest.Offset(topic="orders", partition=1, offset=42, leader_epoch=0, metadata="é")
    committed = await exchange.ask(
        commit_offsets=groups.CommitOffsetsRequest(offsets=[offset], retention_time_ms=-1, **who)
    )
    assert list(committed.error_codes) == [0]
    wanted = [groups.TopicPartition(topic="orders", partition=0), groups.TopicPartition(topic="orders", partition=1)]
    fetched = await peer.groups.FetchOffsets(
        groups.FetchOffsetsRequest(
            groups=[
                groups.FetchOffsetsRequest.Group(group_id="g", partitions=wanted),
                groups.FetchOffsetsRequest.Group(group_id="g", all=True),
                groups.FetchOffsetsRequest.Group(group_id="other", all=True),
            ]
        )
    )
    found = groups.FetchOffsetsResponse.Offset(
        topic="orders", partition=1, offset=42, leader_epoch=0, metadata="é", error_code=0
    )
    nothing = groups.FetchOffsetsResponse.Offset(topic="orders", partition=0, offset=-1, leader_epoch=-1)
    assert [list(group.offsets) for group in fetched.groups] == [[nothing, found], [found], []]
    listed = await peer.groups.ListGroups(groups.ListGroupsRequest(states=["stable"]))
    assert list(listed.groups) == [
        groups.ListGroupsResponse.Group(group_id="g", protocol_type="consumer", state="Stable", type="classic")
    ]
    assert list((await peer.groups.ListGroups(groups.ListGroupsRequest(states=["Empty"]))).groups) == []
    described = await peer.groups.DescribeGroups(groups.DescribeGroupsRequest(group_ids=["g", "other"]))
    assert described.groups[0] == groups.DescribeGroupsResponse.Group(
        group_id="g",
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        generation_id=1,
        members=[
            groups.DescribeGroupsResponse.Member(
                member_id=given.member_id, client_id="c", client_host="/10.0.0.1", metadata=b"r", assignment=b"all"
            )
        ],
    )
    assert (described.groups[1].state, described.groups[1].error_code) == ("Dead", E.GROUP_ID_NOT_FOUND)
    leaver = groups.LeaveGroupRequest.Leaver(member_id=given.member_id)
    left = await peer.groups.LeaveGroup(groups.LeaveGroupRequest(group_id="g", members=[leaver]))
    assert (left.error_code, list(left.member_error_codes)) == (0, [0])
    described = await peer.groups.DescribeGroups(groups.DescribeGroupsRequest(group_ids=["g"]))
    assert (described.groups[0].state, len(described.groups[0].members)) == ("Empty", 0)


async def test_parked_joins_are_answered_when_the_service_stops(peer: Peer) -> None:

    first = await peer.groups.JoinGroup(join("g"))
    who = {"group_id": "g", "member_id": first.member_id, "generation_id": 1}
    await peer.groups.SyncGroup(groups.SyncGroupRequest(**who))
    parked = asyncio.ensure_future(peer.groups.JoinGroup(join("g")))
    exchange = GroupExchange(peer.channel)
    while (await exchange.ask(heartbeat=groups.HeartbeatRequest(**who))).error_code != E.REBALANCE_IN_PROGRESS:
        pass
    peer.server.refuse()
    await peer.storage.answer_parked()
    async with asyncio.timeout(20):
        assert (await parked).error_code == E.NOT_COORDINATOR
