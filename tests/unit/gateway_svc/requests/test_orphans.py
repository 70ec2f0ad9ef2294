"""Requests whose client has closed the connection: which are begun, which are given up. One decision for each API."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from broker_contract import groups_pb2
from gateway_svc.handlers import HANDLERS
from gateway_svc.requests.handler import WhenClientLeft
from protocol_lib.api import ApiKey
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol_lib.messages.offset_commit import OffsetCommitRequest

from tests.unit.gateway_svc.rig import Rig, framed

SERVE, SERVE_IF_FRESH, DROP = WhenClientLeft.SERVE, WhenClientLeft.SERVE_IF_FRESH, WhenClientLeft.DROP
#: Every API and the fate of its request without its client. A new API needs a line, and its reason.
DECISIONS: dict[ApiKey, WhenClientLeft] = {
    ApiKey.PRODUCE: SERVE,  # acks=0: producers close without an answer; storage keeps the order of appends
    ApiKey.FETCH: SERVE,  # given up by its handler
    ApiKey.LIST_OFFSETS: DROP,  # only its answer is of use
    ApiKey.METADATA: DROP,  # the same; it may create topics
    ApiKey.OFFSET_COMMIT: SERVE_IF_FRESH,  # clients close after an asynchronous commit; a late one would go backwards
    ApiKey.OFFSET_FETCH: DROP,
    ApiKey.FIND_COORDINATOR: DROP,
    ApiKey.JOIN_GROUP: DROP,  # it would take the place of the static member that joined since
    ApiKey.HEARTBEAT: SERVE_IF_FRESH,  # a late one would keep a dead member
    ApiKey.LEAVE_GROUP: DROP,  # unless it names the member
    ApiKey.SYNC_GROUP: DROP,
    ApiKey.DESCRIBE_GROUPS: DROP,
    ApiKey.LIST_GROUPS: DROP,
    ApiKey.API_VERSIONS: SERVE,  # it changes nothing and is answered at once
    ApiKey.CREATE_TOPICS: DROP,  # its client may have deleted the topic since, through another gateway
    ApiKey.DELETE_TOPICS: DROP,  # the same name may be another topic by now
    ApiKey.DELETE_RECORDS: DROP,  # to the high watermark: of another moment
    ApiKey.INIT_PRODUCER_ID: DROP,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: DROP,
    ApiKey.DESCRIBE_CONFIGS: DROP,
    ApiKey.ALTER_CONFIGS: DROP,  # it would undo a later change
    ApiKey.INCREMENTAL_ALTER_CONFIGS: DROP,  # the same
    ApiKey.DELETE_GROUPS: DROP,  # the group may have begun again
    ApiKey.TXN_OFFSET_COMMIT: DROP,  # its producer cannot commit without the answer
    ApiKey.OFFSET_DELETE: DROP,  # a member may have committed since
    ApiKey.CONSUMER_GROUP_HEARTBEAT: SERVE_IF_FRESH,  # a late one would add or keep a dead member; unless it leaves
    ApiKey.CONSUMER_GROUP_DESCRIBE: DROP,
    ApiKey.LIST_CONFIG_RESOURCES: DROP,
    ApiKey.CREATE_PARTITIONS: DROP,  # the same name may be another topic by now
    ApiKey.DESCRIBE_CLUSTER: DROP,
    ApiKey.DESCRIBE_LOG_DIRS: DROP,
    ApiKey.ALTER_REPLICA_LOG_DIRS: DROP,
    ApiKey.DESCRIBE_PRODUCERS: DROP,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: DROP,
    ApiKey.ELECT_LEADERS: DROP,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: DROP,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: DROP,
    ApiKey.DESCRIBE_QUORUM: DROP,
    ApiKey.UPDATE_FEATURES: DROP,
    ApiKey.ADD_PARTITIONS_TO_TXN: DROP,  # it would begin a transaction that nobody ends
    ApiKey.ADD_OFFSETS_TO_TXN: DROP,  # the same
    ApiKey.END_TXN: DROP,  # the producer may be in the next transaction, of the same epoch before version 5
    ApiKey.WRITE_TXN_MARKERS: DROP,  # the same
    ApiKey.DESCRIBE_TRANSACTIONS: DROP,
    ApiKey.LIST_TRANSACTIONS: DROP,
    ApiKey.UNREGISTER_BROKER: DROP,  # the broker may have come back
    ApiKey.DESCRIBE_ACLS: DROP,
    ApiKey.CREATE_ACLS: DROP,
    ApiKey.DELETE_ACLS: DROP,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: DROP,
    ApiKey.ALTER_CLIENT_QUOTAS: DROP,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: DROP,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: DROP,
    ApiKey.SASL_HANDSHAKE: DROP,
    ApiKey.SASL_AUTHENTICATE: DROP,
    ApiKey.CREATE_DELEGATION_TOKEN: DROP,
    ApiKey.RENEW_DELEGATION_TOKEN: DROP,
    ApiKey.EXPIRE_DELEGATION_TOKEN: DROP,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: DROP,
}

JOIN = framed(
    ApiKey.JOIN_GROUP,
    3,
    JoinGroupRequest(group_id="g", session_timeout_ms=1, member_id="", protocol_type="", protocols=()),
)
COMMIT = framed(ApiKey.OFFSET_COMMIT, 7, OffsetCommitRequest(group_id="g", topics=()))


def test_every_api_has_a_decision() -> None:
    assert {handler.api_key: handler.when_client_left for handler in HANDLERS} == DECISIONS


def leave(version: int, *members: tuple[str, str | None]) -> LeaveGroupRequest:
    if version < 3:
        return LeaveGroupRequest(group_id="g", member_id=members[0][0])
    return LeaveGroupRequest(
        group_id="g", members=tuple(MemberIdentity(member_id=each, group_instance_id=name) for each, name in members)
    )


@pytest.mark.parametrize(
    ("api_key", "request_", "is_farewell"),
    [
        (ApiKey.LEAVE_GROUP, leave(1, ("m", None)), True),
        (ApiKey.LEAVE_GROUP, leave(5, ("m", None), ("n", "s")), True),
        (ApiKey.LEAVE_GROUP, leave(5, ("m", None), ("", "s")), False),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-1),
            True,
        ),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=-2),
            True,
        ),
        (
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0),
            False,
        ),
    ],
)
def test_a_farewell_is_served_without_its_client(api_key: ApiKey, request_: Any, is_farewell: bool) -> None:
    (handler,) = (each for each in HANDLERS if each.api_key is api_key)
    assert handler.is_farewell(request_) == is_farewell


class Groups:
    """Joins park; commits are answered at once."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.given_up: list[str] = []

    async def join_group(self, _: Any) -> Any:
        self.begun.append("join")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up.append("join")
            raise

    async def leave_group(self, request: groups_pb2.LeaveGroupRequest) -> groups_pb2.LeaveGroupResponse:
        self.begun.append("leave")
        await asyncio.sleep(0)
        return groups_pb2.LeaveGroupResponse(member_error_codes=[0 for _ in request.members])

    def commit_offsets(self, _request: Any, done: Any, _is_wanted: Any) -> None:
        self.begun.append("commit")
        done(groups_pb2.CommitOffsetsResponse())


async def test_a_join_without_its_client_is_not_begun() -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    rig.client.has_left = True
    rig.receive(JOIN)
    await asyncio.sleep(0)
    assert groups.begun == []
    assert rig.finished("JoinGroup") == {(3, "NETWORK_EXCEPTION"): 1}


async def test_a_join_is_given_up_with_its_client_and_a_farewell_is_not() -> None:
    for frame, begun, given_up in (
        (JOIN, "join", ["join"]),
        (framed(ApiKey.LEAVE_GROUP, 5, leave(5, ("m", None))), "leave", []),
    ):
        groups = Groups()
        rig = Rig(groups=groups)
        rig.receive(frame)
        await asyncio.sleep(0)
        assert groups.begun == [begun]
        rig.pipeline.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert groups.given_up == given_up


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("repeated", [False, True])
async def test_a_commit_that_waited_is_not_begun_without_its_client(late: bool, repeated: bool) -> None:
    groups = Groups()
    rig = Rig(groups=groups)
    if repeated:
        rig.receive(COMMIT)
        groups.begun.clear()
    rig.client.has_left = True
    if late:
        rig.path.client_left()
    rig.receive(COMMIT, framed(ApiKey.LEAVE_GROUP, 5, leave(5, ("m", None))))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert groups.begun == (["leave"] if late else ["commit", "leave"])
