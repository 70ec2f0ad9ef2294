"""The requests of test_every_path.py: one of every API, with the resources that Kafka's access rules name for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gateway_svc.requests.resources import CLUSTER_NAME
from protocol_lib.api import ApiKey
from protocol_lib.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol_lib.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.heartbeat import HeartbeatRequest
from protocol_lib.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol_lib.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol_lib.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from protocol_lib.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

from tests.wire import (
    versions_of_cluster,
    versions_of_groups,
    versions_of_records,
    versions_of_security,
    versions_of_topics,
    versions_of_transactions,
)
from tests.wire.conftest import Wire, batch

#: (resource type, name, operation), each by its name in Kafka.
Used = tuple[str, str, str]
CLUSTER = ("CLUSTER", CLUSTER_NAME)


@dataclass
class Context:
    """Facts about a broker that the requests of one case contain."""

    topic_ids: dict[str, bytes]
    member_id: str = ""
    epoch: int = 0
    session_id: int = 0


@dataclass(frozen=True)
class PathCase:
    """Requests of one API and version: the one of a number, from 0 on."""

    name: str
    api_key: ApiKey
    version: int
    ask: Callable[[Context, int], Any]
    uses: Sequence[Used]
    #: Whether a pattern recognises all but the first request.
    is_recognised: bool = False
    #: Whether its answers are compared with those of decoded requests.
    is_compared: bool = False
    has_answers: bool = True
    prepare: Callable[[Wire, Context], Any] | None = field(default=None)


def topics(operation: str, *names: str) -> list[Used]:
    return [("TOPIC", name, operation) for name in names]


def groups(operation: str, *names: str) -> list[Used]:
    return [("GROUP", name, operation) for name in names]


# -- requests that clients repeat --------------------------------------------------------------------------------------


def produce(version: int, *, acks: int = 1, names: Sequence[str] = ("orders",)) -> Callable[[Context, int], Any]:
    def ask(context: Context, number: int) -> Any:
        name = names[number % len(names)]
        named = {"topic_id": context.topic_ids[name]} if version >= 13 else {"name": name}
        data = PartitionProduceData(index=0, records=batch(b"%d" % number))
        topic = TopicProduceData(**named, partition_data=(data,))
        return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=(topic,))

    return ask


def fetch(version: int, *, in_session: bool = False) -> Callable[[Context, int], Any]:
    def ask(context: Context, number: int) -> Any:
        named = {"topic_id": context.topic_ids["single"]} if version >= 13 else {"topic": "single"}
        partition = FetchPartition(partition=0, fetch_offset=number % 2, partition_max_bytes=1000)
        session = {"session_id": context.session_id, "session_epoch": number} if in_session else {}
        return FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=(FetchTopic(**named, partitions=(partition,)),), **session
        )

    return ask


def commit(version: int) -> Callable[[Context, int], Any]:
    def ask(context: Context, number: int) -> Any:
        partitions = tuple(
            OffsetCommitRequestPartition(partition_index=index, committed_offset=number + index, committed_metadata="")
            for index in (0, 1)
        )
        named = {"topic_id": context.topic_ids["orders"]} if version >= 10 else {"name": "orders"}
        topic = OffsetCommitRequestTopic(**named, partitions=partitions)
        return OffsetCommitRequest(group_id=f"commits-{version}", topics=(topic,))

    return ask


def heartbeat(version: int) -> Callable[[Context, int], Any]:
    def ask(context: Context, number: int) -> Any:
        return HeartbeatRequest(group_id=f"classic-{version}", generation_id=1, member_id=context.member_id or "m")

    return ask


def join_classic(version: int) -> Any:
    async def prepare(wire: Wire, context: Context) -> None:
        group_id = f"classic-{version}"
        protocols = (JoinGroupRequestProtocol(name="range", metadata=b""),)
        joining = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=60_000,
            member_id="",
            protocol_type="consumer",
            protocols=protocols,
        )
        context.member_id = (await wire.call(11, 3, joining)).member_id
        assignments = (SyncGroupRequestAssignment(member_id=context.member_id, assignment=b""),)
        syncing = SyncGroupRequest(
            group_id=group_id, generation_id=1, member_id=context.member_id, assignments=assignments
        )
        assert (await wire.call(14, 1, syncing)).error_code == 0

    return prepare


def consumer_heartbeat(context: Context, number: int) -> Any:
    return ConsumerGroupHeartbeatRequest(group_id="consumers", member_id="m", member_epoch=context.epoch)


async def join_consumer(wire: Wire, context: Context) -> None:
    joining = ConsumerGroupHeartbeatRequest(
        group_id="consumers",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    context.epoch = (await wire.call(68, 1, joining)).member_epoch


def delete_topics(context: Context, number: int) -> Any:
    return DeleteTopicsRequest(
        topics=(DeleteTopicState(name="nowhere"), DeleteTopicState(topic_id=b"u" * 16)), timeout_ms=1000
    )


REPEATED = [
    *(
        PathCase(f"Produce {version}", ApiKey.PRODUCE, version, produce(version), topics("WRITE", "orders"), True, True)
        for version in (5, 8, 9, 13)
    ),
    PathCase("Produce 4", ApiKey.PRODUCE, 4, produce(4), topics("WRITE", "orders"), is_compared=True),
    PathCase("Produce 0", ApiKey.PRODUCE, 0, produce(0), topics("WRITE", "orders"), is_compared=True),
    PathCase(
        "Produce without answers",
        ApiKey.PRODUCE,
        9,
        produce(9, acks=0),
        topics("WRITE", "orders"),
        is_recognised=True,
        has_answers=False,
    ),
    *(
        PathCase(f"Fetch {version}", ApiKey.FETCH, version, fetch(version), topics("READ", "single"), is_compared=True)
        for version in (2, 4, 11, 12, 18)
    ),
    *(
        PathCase(
            f"Fetch {version} in a session",
            ApiKey.FETCH,
            version,
            fetch(version, in_session=True),
            topics("READ", "single"),
            is_compared=True,
        )
        for version in (11, 18)
    ),
    *(
        PathCase(
            f"OffsetCommit {version}",
            ApiKey.OFFSET_COMMIT,
            version,
            commit(version),
            [*groups("READ", f"commits-{version}"), *topics("READ", "orders")],
            True,
            True,
        )
        for version in (2, 7, 8, 10)
    ),
    *(
        PathCase(
            f"Heartbeat {version}",
            ApiKey.HEARTBEAT,
            version,
            heartbeat(version),
            groups("READ", f"classic-{version}"),
            True,
            True,
            prepare=join_classic(version),
        )
        for version in (0, 3, 4)
    ),
    PathCase(
        "ConsumerGroupHeartbeat 1",
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        consumer_heartbeat,
        groups("READ", "consumers"),
        True,
        True,
        prepare=join_consumer,
    ),
]


# -- all others --------------------------------------------------------------------------------------------------------

_ASK = {
    **versions_of_records.CASES,
    **versions_of_topics.CASES,
    **versions_of_groups.CASES,
    **versions_of_cluster.CASES,
    **versions_of_security.CASES,
    **versions_of_transactions.CASES,
}
_CONFIGS = [*topics("ALTER_CONFIGS", "single", "nowhere"), (*CLUSTER, "ALTER_CONFIGS")]


def _once(api_key: ApiKey, version: int, *uses: Used) -> PathCase:
    ask, _ = _ASK[api_key]
    return PathCase(
        api_key.name, api_key, version, lambda context, number: ask(version, context.topic_ids["single"]), uses
    )


OTHERS = [
    _once(ApiKey.LIST_OFFSETS, 11, *topics("DESCRIBE", "single")),
    _once(ApiKey.METADATA, 13, *topics("DESCRIBE", "single")),
    _once(
        ApiKey.OFFSET_FETCH, 10, *groups("DESCRIBE", "committed", "committed", "nobody"), *topics("DESCRIBE", "single")
    ),
    _once(ApiKey.FIND_COORDINATOR, 6, *groups("DESCRIBE", "a", "")),
    _once(ApiKey.JOIN_GROUP, 9, *groups("READ", "fresh")),
    _once(ApiKey.LEAVE_GROUP, 5, *groups("READ", "committed")),
    _once(ApiKey.SYNC_GROUP, 5, *groups("READ", "simple")),
    _once(ApiKey.DESCRIBE_GROUPS, 6, *groups("DESCRIBE", "committed", "nobody")),
    _once(ApiKey.LIST_GROUPS, 5),
    _once(ApiKey.API_VERSIONS, 5),
    _once(ApiKey.CREATE_TOPICS, 7, *topics("CREATE", "new", "twice")),
    PathCase("DELETE_TOPICS", ApiKey.DELETE_TOPICS, 6, delete_topics, topics("DELETE", "nowhere")),
    _once(ApiKey.DELETE_RECORDS, 2, *topics("DELETE", "single")),
    _once(ApiKey.INIT_PRODUCER_ID, 5, (*CLUSTER, "IDEMPOTENT_WRITE")),
    _once(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, *topics("DESCRIBE", "single")),
    _once(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        ("TOPIC", "single", "DESCRIBE_CONFIGS"),
        (*CLUSTER, "DESCRIBE_CONFIGS"),
        ("TOPIC", "nowhere", "DESCRIBE_CONFIGS"),
        ("GROUP", "anybody", "DESCRIBE_CONFIGS"),
    ),
    _once(ApiKey.ALTER_CONFIGS, 2, *_CONFIGS),
    _once(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, *_CONFIGS),
    _once(ApiKey.DELETE_GROUPS, 3, *groups("DELETE", "committed", "nobody")),
    _once(ApiKey.OFFSET_DELETE, 0, *groups("DELETE", "committed"), *topics("READ", "single")),
    _once(
        ApiKey.TXN_OFFSET_COMMIT,
        5,
        ("TRANSACTIONAL_ID", "x", "WRITE"),
        *groups("READ", "committed"),
        *topics("READ", "single"),
    ),
    _once(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, *groups("DESCRIBE", "committed", "")),
    _once(ApiKey.LIST_CONFIG_RESOURCES, 1, (*CLUSTER, "DESCRIBE_CONFIGS")),
    _once(ApiKey.CREATE_PARTITIONS, 3, *topics("ALTER", "single", "orders", "nowhere", "twice")),
    _once(ApiKey.DESCRIBE_CLUSTER, 2),
    _once(ApiKey.DESCRIBE_LOG_DIRS, 5, (*CLUSTER, "DESCRIBE")),
    _once(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, (*CLUSTER, "ALTER")),
    _once(ApiKey.DESCRIBE_PRODUCERS, 0, *topics("READ", "single", "nowhere")),
    _once(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, *topics("DESCRIBE", "single", "nowhere", "bad/name")),
    _once(ApiKey.ELECT_LEADERS, 2, (*CLUSTER, "ALTER")),
    _once(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, (*CLUSTER, "ALTER")),
    _once(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, (*CLUSTER, "DESCRIBE")),
    _once(ApiKey.DESCRIBE_QUORUM, 2, (*CLUSTER, "DESCRIBE")),
    _once(ApiKey.UPDATE_FEATURES, 2, (*CLUSTER, "ALTER")),
    _once(ApiKey.UNREGISTER_BROKER, 0, (*CLUSTER, "ALTER")),
    _once(ApiKey.ADD_PARTITIONS_TO_TXN, 3, ("TRANSACTIONAL_ID", "t", "WRITE"), *topics("WRITE", "single")),
    _once(ApiKey.ADD_OFFSETS_TO_TXN, 4, ("TRANSACTIONAL_ID", "t", "WRITE"), *groups("READ", "committed")),
    _once(ApiKey.END_TXN, 5, ("TRANSACTIONAL_ID", "t", "WRITE")),
    _once(ApiKey.WRITE_TXN_MARKERS, 2, (*CLUSTER, "ALTER")),
    _once(ApiKey.DESCRIBE_TRANSACTIONS, 0, ("TRANSACTIONAL_ID", "t", "DESCRIBE"), ("TRANSACTIONAL_ID", "", "DESCRIBE")),
    _once(ApiKey.LIST_TRANSACTIONS, 2),
    _once(ApiKey.DESCRIBE_ACLS, 3, (*CLUSTER, "DESCRIBE")),
    _once(ApiKey.CREATE_ACLS, 3, (*CLUSTER, "ALTER")),
    _once(ApiKey.DELETE_ACLS, 3, (*CLUSTER, "ALTER")),
    _once(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, (*CLUSTER, "DESCRIBE_CONFIGS")),
    _once(ApiKey.ALTER_CLIENT_QUOTAS, 1, (*CLUSTER, "ALTER_CONFIGS")),
    _once(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, (*CLUSTER, "DESCRIBE")),
    _once(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, (*CLUSTER, "ALTER")),
    _once(ApiKey.SASL_HANDSHAKE, 1),
    _once(ApiKey.SASL_AUTHENTICATE, 2),
    _once(ApiKey.CREATE_DELEGATION_TOKEN, 3),
    _once(ApiKey.RENEW_DELEGATION_TOKEN, 2),
    _once(ApiKey.EXPIRE_DELEGATION_TOKEN, 2),
    _once(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3),
]

CASES = [*REPEATED, *OTHERS]
