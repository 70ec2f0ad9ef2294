"""Cases of test_every_version.py: the APIs of groups and their offsets."""

from __future__ import annotations

from typing import Any

from protocol_lib.api import ApiKey
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.delete_groups import DeleteGroupsRequest
from protocol_lib.messages.describe_groups import DescribeGroupsRequest
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol_lib.messages.list_groups import ListGroupsRequest
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from protocol_lib.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from protocol_lib.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from tests.wire.version_case import Case


def ask_offset_commit(version: int, topic_id: bytes) -> Any:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata="here")
    named = {"topic_id": topic_id} if version >= 10 else {"name": "single"}
    topics = [OffsetCommitRequestTopic(**named, partitions=(partition,))]
    if version >= 10:
        topics.append(OffsetCommitRequestTopic(topic_id=b"u" * 16, partitions=(partition,)))
    return OffsetCommitRequest(group_id="simple", topics=tuple(topics))


def check_offset_commit(version: int, response: Any, topic_id: bytes) -> None:
    shown = [(topic.topic_id or topic.name, p.error_code) for topic in response.topics for p in topic.partitions]
    if version >= 10:
        assert shown == [(topic_id, 0), (b"u" * 16, 100)]
    else:
        assert [code for _, code in shown] == [0]
        assert response.topics[0].name == "single"


def ask_offset_fetch(version: int, topic_id: bytes) -> Any:
    if version < 8:
        return OffsetFetchRequest(
            group_id="committed",
            topics=(OffsetFetchRequestTopic(name="single", partition_indexes=(0, 5)),),
        )
    named = {"topic_id": topic_id} if version >= 10 else {"name": "single"}
    return OffsetFetchRequest(
        groups=(
            OffsetFetchRequestGroup(
                group_id="committed", topics=(OffsetFetchRequestTopics(**named, partition_indexes=(0, 5)),)
            ),
            OffsetFetchRequestGroup(group_id="committed", topics=None),
            OffsetFetchRequestGroup(group_id="nobody", topics=None),
        )
    )


def check_offset_fetch(version: int, response: Any, topic_id: bytes) -> None:
    def shown(topics: Any) -> list[Any]:
        return [
            (topic.topic_id if version >= 10 else topic.name, p.partition_index, p.committed_offset, p.metadata)
            for topic in topics
            for p in topic.partitions
        ]

    name: Any = topic_id if version >= 10 else "single"
    if version < 8:
        assert response.error_code == 0
        assert shown(response.topics) == [(name, 0, 41, "note"), (name, 5, -1, "")]
        return
    assert [(group.group_id, group.error_code, shown(group.topics)) for group in response.groups] == [
        ("committed", 0, [(name, 0, 41, "note"), (name, 5, -1, "")]),
        ("committed", 0, [(name, 0, 41, "note")]),
        ("nobody", 0, []),
    ]


def ask_find_coordinator(version: int, _topic_id: bytes) -> Any:
    if version >= 4:
        return FindCoordinatorRequest(coordinator_keys=("a", ""))
    return FindCoordinatorRequest(key="a")


def check_find_coordinator(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 4:
        assert [(each.key, each.error_code, each.host) for each in response.coordinators] == [
            ("a", 0, "localhost"),
            ("", 0, "localhost"),
        ]
    else:
        assert (response.error_code, response.host) == (0, "localhost")


def ask_join_group(_version: int, _topic_id: bytes) -> Any:
    return JoinGroupRequest(
        group_id="fresh",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b"subscription"),),
    )


def check_join_group(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 4:
        assert response.error_code == 79
        assert response.protocol_name == (None if version >= 7 else "")
        assert response.member_id
    else:
        assert (response.error_code, response.generation_id, response.protocol_name) == (0, 1, "range")
        assert response.leader == response.member_id
        assert [(each.member_id, each.metadata) for each in response.members] == [(response.member_id, b"subscription")]


def check_unknown_member(_version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 25


def ask_heartbeat(_version: int, _topic_id: bytes) -> Any:
    return HeartbeatRequest(group_id="simple", generation_id=1, member_id="m")


def ask_sync_group(version: int, _topic_id: bytes) -> Any:
    assignment = SyncGroupRequestAssignment(member_id="m", assignment=b"x")
    named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    return SyncGroupRequest(group_id="simple", generation_id=1, member_id="m", assignments=(assignment,), **named)


def ask_leave_group(version: int, _topic_id: bytes) -> Any:
    if version >= 3:
        return LeaveGroupRequest(group_id="committed", members=(MemberIdentity(member_id="m"),))
    return LeaveGroupRequest(group_id="committed", member_id="m")


def check_leave_group(version: int, response: Any, _topic_id: bytes) -> None:
    if version >= 3:
        assert response.error_code == 0
        assert [(each.member_id, each.error_code) for each in response.members] == [("m", 25)]
    else:
        assert response.error_code == 25


def ask_list_groups(version: int, _topic_id: bytes) -> Any:
    return ListGroupsRequest(
        states_filter=("Empty",) if version >= 4 else (), types_filter=("Classic",) if version >= 5 else ()
    )


def check_list_groups(version: int, response: Any, _topic_id: bytes) -> None:
    assert response.error_code == 0
    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == ("committed", "")
    assert group.group_state == ("Empty" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")


def ask_describe_groups(version: int, _topic_id: bytes) -> Any:
    return DescribeGroupsRequest(groups=("committed", "nobody"), include_authorized_operations=version >= 3)


def check_describe_groups(version: int, response: Any, _topic_id: bytes) -> None:
    found = [(each.error_code, each.error_message, each.group_state, each.members) for each in response.groups]
    nobody = (69, "Group nobody not found.") if version >= 6 else (0, None)
    assert found == [(0, None, "Empty", ()), (*nobody, "Dead", ())]
    if version >= 3:
        assert response.groups[0].authorized_operations == 3400


def ask_delete_groups(_version: int, _topic_id: bytes) -> Any:
    return DeleteGroupsRequest(groups_names=("committed", "nobody"))


def check_delete_groups(version: int, response: Any, _topic_id: bytes) -> None:
    message = "Group nobody not found." if version >= 3 else None
    assert [(each.group_id, each.error_code, each.error_message) for each in response.results] == [
        ("committed", 0, None),
        ("nobody", 69, message),
    ]


def ask_offset_delete(_version: int, _topic_id: bytes) -> Any:
    partitions = tuple(OffsetDeleteRequestPartition(partition_index=each) for each in (0, 1))
    return OffsetDeleteRequest(
        group_id="committed", topics=(OffsetDeleteRequestTopic(name="single", partitions=partitions),)
    )


def check_offset_delete(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    assert (response.error_code, topic.name) == (0, "single")
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (1, 3)]


def ask_txn_offset_commit(_version: int, _topic_id: bytes) -> Any:
    partitions = tuple(
        TxnOffsetCommitRequestPartition(partition_index=each, committed_offset=7, committed_metadata="here")
        for each in (5, 6)
    )
    return TxnOffsetCommitRequest(
        transactional_id="x",
        group_id="committed",
        producer_id=1 << 40,
        producer_epoch=0,
        topics=(TxnOffsetCommitRequestTopic(name="single", partitions=partitions),),
    )


def check_txn_offset_commit(_version: int, response: Any, _topic_id: bytes) -> None:
    (topic,) = response.topics
    assert topic.name == "single"
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(5, 3), (6, 3)]


def ask_consumer_group_heartbeat(version: int, _topic_id: bytes) -> Any:
    return ConsumerGroupHeartbeatRequest(
        group_id=f"consumers-{version}",
        member_id="" if version == 0 else "mine",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("single",),
        topic_partitions=(),
    )


def check_consumer_group_heartbeat(version: int, response: Any, topic_id: bytes) -> None:
    assert (response.error_code, response.error_message) == (0, None)
    assert response.member_id if version == 0 else response.member_id == "mine"
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 5_000)
    (row,) = response.assignment.topic_partitions
    assert (row.topic_id, row.partitions) == (topic_id, (0,))


def ask_consumer_group_describe(_version: int, _topic_id: bytes) -> Any:
    return ConsumerGroupDescribeRequest(group_ids=("committed", ""), include_authorized_operations=True)


def check_consumer_group_describe(_version: int, response: Any, _topic_id: bytes) -> None:
    assert [(each.group_id, each.error_code, each.members) for each in response.groups] == [
        ("committed", 69, ()),
        ("", 24, ()),
    ]


CASES: dict[ApiKey, Case] = {
    ApiKey.OFFSET_COMMIT: (ask_offset_commit, check_offset_commit),
    ApiKey.OFFSET_FETCH: (ask_offset_fetch, check_offset_fetch),
    ApiKey.FIND_COORDINATOR: (ask_find_coordinator, check_find_coordinator),
    ApiKey.JOIN_GROUP: (ask_join_group, check_join_group),
    ApiKey.HEARTBEAT: (ask_heartbeat, check_unknown_member),
    ApiKey.LEAVE_GROUP: (ask_leave_group, check_leave_group),
    ApiKey.SYNC_GROUP: (ask_sync_group, check_unknown_member),
    ApiKey.LIST_GROUPS: (ask_list_groups, check_list_groups),
    ApiKey.DESCRIBE_GROUPS: (ask_describe_groups, check_describe_groups),
    ApiKey.DELETE_GROUPS: (ask_delete_groups, check_delete_groups),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (ask_consumer_group_heartbeat, check_consumer_group_heartbeat),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (ask_consumer_group_describe, check_consumer_group_describe),
    ApiKey.OFFSET_DELETE: (ask_offset_delete, check_offset_delete),
    ApiKey.TXN_OFFSET_COMMIT: (ask_txn_offset_commit, check_txn_offset_commit),
}
