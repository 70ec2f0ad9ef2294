"""The control services over a real gRPC server on a Unix socket, as a gateway and admin-api call them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from broker_contract import cluster_pb2 as cluster
from broker_contract import cluster_pb2_grpc, groups_pb2_grpc, producers_pb2_grpc, topics_pb2_grpc
from broker_contract import groups_pb2 as groups
from broker_contract import producers_pb2 as producers
from broker_contract import topics_pb2 as topics
from grpc_health.v1 import health_pb2, health_pb2_grpc
from protocol_lib.errors import ErrorCode
from service_chassis import rpc
from storage_svc.app import Storage, serve
from storage_svc.rpc.server import StorageServer
from storage_svc.settings import StorageSettings

from tests.group_calls import GroupExchange

E = ErrorCode


@dataclass
class Peer:
    """The stubs of one channel, and the server they talk to."""

    storage: Storage
    server: StorageServer
    channel: grpc.aio.Channel

    def __post_init__(self) -> None:
        self.topics = topics_pb2_grpc.TopicsStub(self.channel)
        self.groups = groups_pb2_grpc.GroupsStub(self.channel)
        self.producers = producers_pb2_grpc.ProducersStub(self.channel)
        self.cluster = cluster_pb2_grpc.ClusterStub(self.channel)

    async def create(self, *new: topics.NewTopic, validate_only: bool = False) -> list[topics.CreatedTopic]:
        request = topics.CreateTopicsRequest(validate_only=validate_only, topics=new)
        return list((await self.topics.CreateTopics(request)).topics)

    async def describe(self, *names: str, auto_create: bool = False) -> list[topics.Topic]:
        refs = [topics.TopicRef(name=name) for name in names]
        request = topics.DescribeTopicsRequest(topics=refs, all=not names, auto_create=auto_create)
        return list((await self.topics.DescribeTopics(request)).topics)

    async def names(self) -> list[str]:
        return [topic.name for topic in await self.describe()]

    async def configs(self, kind: int, name: str, *keys: str) -> topics.ResourceConfigs:
        resource = topics.ConfigResource(type=kind, name=name, keys=keys, all_keys=not keys)
        (answer,) = (await self.topics.DescribeConfigs(topics.DescribeConfigsRequest(resources=[resource]))).resources
        return answer


@pytest.fixture
async def peer(tmp_path: Path) -> AsyncIterator[Peer]:
    settings = StorageSettings(
        data_dir=tmp_path / "data",
        num_partitions=2,
        partitions_max=60,
        log_retention_ms=1234,
        group_initial_rebalance_delay_ms=0,
        group_consumer_session_timeout_ms=46_000,
        groups_max=2,
    )
    storage = await Storage.start(settings)
    server = await serve(storage, f"unix:{tmp_path}/storage.sock")
    channel = rpc.channel(f"unix:{tmp_path}/storage.sock")
    yield Peer(storage, server, channel)
    await channel.close()
    await storage.answer_parked()
    await server.stop(1)
    await storage.stop()


def new(name: str, partitions: int = -1, replication: int = -1, **configs: str) -> topics.NewTopic:
    entries = [topics.ConfigEntry(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return topics.NewTopic(name=name, partition_count=partitions, replication_factor=replication, configs=entries)


# --- topics ---------------------------------------------------------------------------------------------------------


async def test_create_describe_delete(peer: Peer) -> None:
    (made,) = await peer.create(new("orders", 3, 1, retention_ms="-1"))
    assert (made.error_code, made.partition_count, made.replication_factor, len(made.id)) == (0, 3, 1, 16)
    (seen,) = await peer.describe()
    assert seen == topics.Topic(name="orders", id=made.id, partition_count=3, leader_epochs=[0, 0, 0])
    by_id = await peer.topics.DescribeTopics(topics.DescribeTopicsRequest(topics=[topics.TopicRef(id=made.id)]))
    assert list(by_id.topics) == [seen]
    deleted = await peer.topics.DeleteTopics(
        topics.DeleteTopicsRequest(topics=[topics.TopicRef(name="orders"), topics.TopicRef(name="nothing")])
    )
    assert [(each.name, each.error_code) for each in deleted.topics] == [
        ("orders", 0),
        ("nothing", E.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert deleted.topics[0].id == made.id
    assert await peer.describe() == []
    by_id = await peer.topics.DescribeTopics(topics.DescribeTopicsRequest(topics=[topics.TopicRef(id=made.id)]))
    assert [(each.error_code, each.id) for each in by_id.topics] == [(E.UNKNOWN_TOPIC_ID, made.id)]


async def test_delete_by_id(peer: Peer) -> None:
    (made,) = await peer.create(new("orders"))
    refs = [topics.TopicRef(id=made.id), topics.TopicRef(id=b"x" * 16)]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [(each.name, each.error_code) for each in deleted.topics] == [("orders", 0), ("", E.UNKNOWN_TOPIC_ID)]


async def test_the_same_topic_twice_in_a_deletion_is_refused(peer: Peer) -> None:
    (made,) = await peer.create(new("orders"))
    refs = [topics.TopicRef(id=made.id), topics.TopicRef(name="orders")]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [each.error_code for each in deleted.topics] == [E.INVALID_REQUEST] * 2
    assert await peer.names() == ["orders"]


@pytest.mark.parametrize(
    ("given", "expected", "message"),
    [
        (new(""), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new(".."), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new("a/b"), E.INVALID_TOPIC_EXCEPTION, "Illegal topic name"),
        (new("x" * 250), E.INVALID_TOPIC_EXCEPTION, "250 characters"),
        (new("taken.name"), E.TOPIC_ALREADY_EXISTS, "Topic 'taken.name' already exists."),
        (new("taken_name"), E.INVALID_TOPIC_EXCEPTION, "collides with existing topic: taken.name"),
        (new("__consumer_offsets"), E.INVALID_TOPIC_EXCEPTION, "made by the broker"),
        (new("a", 0), E.INVALID_PARTITIONS, "non-positive value: 0"),
        (new("a", -2), E.INVALID_PARTITIONS, "non-positive value: -2"),
        (new("a", 1, 0), E.INVALID_REPLICATION_FACTOR, "not 0"),
        (new("a", 1, 2), E.INVALID_REPLICATION_FACTOR, "not 2"),
        (new("a", 1, -2), E.INVALID_REPLICATION_FACTOR, "not -2"),
        (new("a", 60), E.POLICY_VIOLATION, "60 more partitions are too many: 2 of at most 60 exist"),
        (new("a", 2**31 - 1), E.POLICY_VIOLATION, "too many"),
        (new("a", no_such="1"), E.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (new("a", retention_ms="soon"), E.INVALID_CONFIG, "Invalid value 'soon' for configuration retention.ms"),
        (new("a", preallocate="true"), E.INVALID_CONFIG, "no effect in this broker"),
    ],
)
async def test_creations_that_are_refused(
    peer: Peer, given: topics.NewTopic, expected: ErrorCode, message: str
) -> None:
    await peer.create(new("taken.name"))
    for validate_only in (True, False):
        (refused,) = await peer.create(given, validate_only=validate_only)
        assert refused.error_code == expected
        assert message in refused.error_message
        assert (refused.partition_count, refused.replication_factor, refused.id) == (-1, -1, bytes(16))
    assert await peer.names() == ["taken.name"]


async def test_the_topics_of_one_request_stand_alone(peer: Peer) -> None:
    made = await peer.create(new("twice"), new("good"), new("twice"), new("bad", 0))
    assert [(each.name, each.error_code) for each in made] == [
        ("twice", E.INVALID_REQUEST),
        ("good", 0),
        ("twice", E.INVALID_REQUEST),
        ("bad", E.INVALID_PARTITIONS),
    ]
    assert await peer.names() == ["good"]


async def test_validate_only_creates_nothing(peer: Peer) -> None:
    (made,) = await peer.create(new("orders", -1, -1), validate_only=True)
    assert (made.error_code, made.partition_count, made.id) == (0, 2, bytes(16))
    assert await peer.names() == []


@pytest.mark.parametrize(
    ("assignments", "partitions", "replication", "expected"),
    [
        ({0: [1], 1: [1]}, -1, -1, E.NONE),
        ({0: [1], 1: [1]}, 2, -1, E.INVALID_REQUEST),
        ({0: [1]}, -1, 1, E.INVALID_REQUEST),
        ({0: [1], 2: [1]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: [1, 2]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: []}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
        ({0: [9]}, -1, -1, E.INVALID_REPLICA_ASSIGNMENT),
    ],
)
async def test_manual_assignments(
    peer: Peer, assignments: dict[int, list[int]], partitions: int, replication: int, expected: ErrorCode
) -> None:
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=3000))
    given = new("orders", partitions, replication)
    for partition, brokers in assignments.items():
        given.assignments.add(partition=partition, broker_ids=brokers)
    (made,) = await peer.create(given)
    assert made.error_code == expected
    assert await peer.names() == (["orders"] if expected == E.NONE else [])


async def test_unknown_topics_are_created_when_that_is_asked_for(peer: Peer) -> None:
    assert [each.error_code for each in await peer.describe("a")] == [E.UNKNOWN_TOPIC_OR_PARTITION]
    answer = await peer.describe("a", "b!", "a", "__consumer_offsets", auto_create=True)
    assert [(each.name, each.error_code, each.partition_count, each.is_internal) for each in answer] == [
        ("a", 0, 2, False),
        ("b!", E.INVALID_TOPIC_EXCEPTION, 0, False),
        ("a", 0, 2, False),
        ("__consumer_offsets", 0, 50, True),
    ]
    await peer.create(new("x.y"))
    (refused,) = await peer.describe("x_y", auto_create=True)
    assert refused.error_code == E.INVALID_TOPIC_EXCEPTION


async def test_internal_topics_cannot_be_deleted(peer: Peer) -> None:
    await peer.describe("__consumer_offsets", auto_create=True)
    refs = [topics.TopicRef(name="__consumer_offsets")]
    deleted = await peer.topics.DeleteTopics(topics.DeleteTopicsRequest(topics=refs))
    assert [each.error_code for each in deleted.topics] == [E.INVALID_TOPIC_EXCEPTION]


# --- configs --------------------------------------------------------------------------------------------------------


async def test_topic_configs_with_source_and_synonyms(peer: Peer) -> None:
    await peer.create(new("orders", segment_ms="77", retention_ms="5"))
    answer = await peer.configs(2, "orders")
    assert (answer.error_code, len(answer.configs)) == (0, 34)
    by_name = {config.name: config for config in answer.configs}
    retention = by_name["retention.ms"]
    assert (retention.value, retention.source, retention.is_default, retention.is_read_only) == ("5", 1, False, False)
    assert [(each.name, each.value, each.source) for each in retention.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.ms", "1234", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    policy = by_name["cleanup.policy"]
    assert (policy.value, policy.source, policy.is_default, policy.type) == ("delete", 5, True, 7)
    assert by_name["remote.storage.enable"].is_read_only
    assert all(config.documentation for config in answer.configs)


async def test_chosen_keys_only(peer: Peer) -> None:
    await peer.create(new("orders"))
    answer = await peer.configs(2, "orders", "retention.ms", "no.such.key")
    assert [(config.name, config.value, config.source) for config in answer.configs] == [("retention.ms", "1234", 4)]


async def test_broker_configs(peer: Peer) -> None:
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=3000))
    answer = await peer.configs(4, "1")
    by_name = {config.name: config for config in answer.configs}
    assert (by_name["num.partitions"].value, by_name["num.partitions"].source) == ("2", 4)
    assert (by_name["log.roll.ms"].value, by_name["log.roll.ms"].source) == ("604800000", 5)
    assert by_name["auto.create.topics.enable"].value == "true"
    assert by_name["flush.policy"].value == "group"
    assert all(config.is_read_only and config.documentation for config in answer.configs)
    assert (await peer.configs(4, "")).configs == []


async def alter(peer: Peer, kind: int, name: str, validate_only: bool = False, **configs: str) -> tuple[int, str]:
    """Sets a resource's configs; the error code and message."""
    changes = [topics.ConfigChange(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = topics.ConfigChanges(type=kind, name=name, changes=changes)
    request = topics.AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (outcome,) = (await peer.topics.AlterConfigs(request)).resources
    return outcome.error_code, outcome.error_message


async def test_group_configs_with_source_and_synonyms(peer: Peer) -> None:
    assert await alter(peer, 32, "g", validate_only=True, consumer_session_timeout_ms="60000") == (0, "")
    assert await alter(peer, 32, "g", consumer_session_timeout_ms="50000") == (0, "")
    answer = await peer.configs(32, "g")
    assert (answer.error_code, [config.name for config in answer.configs]) == (
        0,
        ["consumer.heartbeat.interval.ms", "consumer.session.timeout.ms", "consumer.assignment.interval.ms"],
    )
    heartbeat, session, _ = answer.configs
    assert (session.value, session.source, session.is_default, session.is_read_only) == ("50000", 8, False, False)
    assert [(each.name, each.value, each.source) for each in session.synonyms] == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "46000", 4),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (heartbeat.value, heartbeat.source, heartbeat.is_default, heartbeat.type) == ("5000", 5, True, 3)
    assert [(each.name, each.value, each.source) for each in heartbeat.synonyms] == [
        ("group.consumer.heartbeat.interval.ms", "5000", 5)
    ]
    assert all(config.documentation for config in answer.configs)


@pytest.mark.parametrize(
    ("kind", "name", "configs", "expected"),
    [
        (32, "", {}, (E.INVALID_REQUEST, "Default group resources are not allowed.")),
        (32, "g" * 32_768, {}, (E.INVALID_REQUEST, "No group has a name as long as that.")),
        (32, "g", {"nonsense": "1"}, (E.INVALID_CONFIG, "Unknown group config name: nonsense")),
        (4, "1", {}, (E.INVALID_REQUEST, "Configs of brokers are set before the start.")),
        (16, "all", {}, (E.INVALID_REQUEST, "Unsupported resource type 16.")),
    ],
)
async def test_configs_that_cannot_be_altered(
    peer: Peer, kind: int, name: str, configs: dict[str, str], expected: tuple[int, str]
) -> None:
    assert await alter(peer, kind, name, **configs) == expected


async def test_a_message_about_a_huge_name_is_cut(peer: Peer) -> None:
    huge = topics.ConfigChange(name="x" * 32_767, operation=2, value="1")
    request = topics.AlterConfigsRequest(resources=[topics.ConfigChanges(type=32, name="g", changes=[huge])])
    (outcome,) = (await peer.topics.AlterConfigs(request)).resources
    assert (outcome.error_code, len(outcome.error_message)) == (E.INVALID_CONFIG, 1000)
    (refused,) = await peer.create(new("a", **{"x" * 32_767: "1"}))
    assert (refused.error_code, len(refused.error_message)) == (E.INVALID_CONFIG, 1000)


async def test_the_number_of_groups_with_configs_is_bounded(peer: Peer) -> None:
    for name in ("a", "b"):
        assert await alter(peer, 32, name, consumer_session_timeout_ms="50000") == (0, "")
    refused = await alter(peer, 32, "c", consumer_session_timeout_ms="50000")
    assert refused == (E.POLICY_VIOLATION, "2 groups have configs: that is the limit.")
    assert await alter(peer, 32, "a", consumer_session_timeout_ms="55000") == (0, "")


async def test_what_has_configs_is_listed(peer: Peer) -> None:
    await peer.create(new("orders"))
    await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="gw", lease_ms=3000))
    await alter(peer, 32, "g", consumer_session_timeout_ms="50000")
    answer = await peer.topics.ListConfigResources(topics.ListConfigResourcesRequest())
    assert [(each.type, each.name) for each in answer.resources] == [(2, "orders"), (4, "1"), (32, "g")]


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (32, "", E.INVALID_REQUEST),
        (2, "nothing", E.UNKNOWN_TOPIC_OR_PARTITION),
        (4, "9", E.INVALID_REQUEST),
        (4, "one", E.INVALID_REQUEST),
        (4, "²", E.INVALID_REQUEST),
        (8, "1", E.INVALID_REQUEST),
    ],
)
async def test_configs_of_what_does_not_exist(peer: Peer, kind: int, name: str, expected: ErrorCode) -> None:
    answer = await peer.configs(kind, name)
    assert (answer.error_code, answer.type, answer.name, len(answer.configs)) == (expected, kind, name, 0)
    assert answer.error_message


# --- producers, cluster ---------------------------------------------------------------------------------------------


async def test_producer_ids_are_fresh_or_resumed_with_a_raised_epoch(peer: Peer) -> None:
    async def init(producer_id: int = -1, epoch: int = -1) -> tuple[int, int, int]:
        request = producers.InitProducerIdRequest(producer_id=producer_id, producer_epoch=epoch)
        answer = await peer.producers.InitProducerId(request)
        return answer.error_code, answer.producer_id, answer.producer_epoch

    assert [await init() for _ in range(3)] == [(0, 0, 0), (0, 1, 0), (0, 2, 0)]
    assert await init(1, 0) == (0, 1, 1)
    assert await init(1, 32_765) == (0, 1, 32_766)
    assert await init(1, 32_766) == (0, 3, 0)
    assert await init(123_456, 0) == (0, 4, 0)
    assert await init(1, -1) == (E.INVALID_REQUEST, -1, -1)
    assert await init(-1, 0) == (E.INVALID_REQUEST, -1, -1)
    assert await init(-2, -2) == (E.INVALID_REQUEST, -1, -1)


async def test_more_producer_ids_than_a_block(peer: Peer) -> None:
    service = peer.storage.producers
    request = producers.InitProducerIdRequest(producer_id=-1, producer_epoch=-1)
    given = [(await service.init_producer_id(request)).producer_id for _ in range(2500)]
    assert given == list(range(2500))


async def test_gateways_register_renew_and_leave(peer: Peer) -> None:
    listener = cluster.Listener(name="EXTERNAL", host="localhost", port=9092)
    request = cluster.RegisterGatewayRequest(name="gw", listeners=[listener], lease_ms=60_000)
    first = await peer.cluster.RegisterGateway(request)
    again = await peer.cluster.RegisterGateway(request)
    assert (first.node_id, again.node_id) == (1, 1)
    assert len(first.cluster_id) == 22
    seen = await peer.cluster.DescribeCluster(cluster.DescribeClusterRequest())
    assert seen.cluster_id == first.cluster_id
    assert list(seen.gateways) == [cluster.Gateway(node_id=1, name="gw", listeners=[listener])]
    await peer.cluster.RemoveGateway(cluster.RemoveGatewayRequest(name="gw"))
    assert list((await peer.cluster.DescribeCluster(cluster.DescribeClusterRequest())).gateways) == []


async def test_a_registration_that_makes_no_sense_fails_the_call(peer: Peer) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await peer.cluster.RegisterGateway(cluster.RegisterGatewayRequest(name="", lease_ms=3000))
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert "LeaseRefusedError: a gateway name has 1 to 255 characters" in (caught.value.details() or "")


# --- groups ---------------------------------------------------------------------------------------------------------


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


async def test_assignments_are_shown_while_a_group_rebalances(peer: Peer) -> None:
    joined = await peer.groups.JoinGroup(join("g"))
    share = groups.SyncGroupRequest.MemberAssignment(member_id=joined.member_id, assignment=b"all")
    who = {"group_id": "g", "member_id": joined.member_id, "generation_id": 1}
    await peer.groups.SyncGroup(groups.SyncGroupRequest(assignments=[share], **who))
    second = peer.groups.JoinGroup(join("g"))
    async with asyncio.timeout(10):
        exchange = GroupExchange(peer.channel)
        while (await exchange.ask(heartbeat=groups.HeartbeatRequest(**who))).error_code == 0:
            pass
    (group,) = (await peer.groups.DescribeGroups(groups.DescribeGroupsRequest(group_ids=["g"]))).groups
    shown = [(each.metadata, each.assignment) for each in group.members]
    assert (group.state, shown) == ("PreparingRebalance", [(b"", b"all"), (b"", b"")])
    second.cancel()


async def test_parked_joins_are_answered_when_the_service_stops(peer: Peer) -> None:

    first = await peer.groups.JoinGroup(join("g"))
    who = {"group_id": "g", "member_id": first.member_id, "generation_id": 1}
    await peer.groups.SyncGroup(groups.SyncGroupRequest(**who))
    parked = asyncio.ensure_future(peer.groups.JoinGroup(join("g")))
    exchange = GroupExchange(peer.channel)
    while (await exchange.ask(heartbeat=groups.HeartbeatRequest(**who))).error_code != E.REBALANCE_IN_PROGRESS:
        pass
    await peer.server.refuse()
    await peer.storage.answer_parked()
    async with asyncio.timeout(2):
        assert (await parked).error_code == E.NOT_COORDINATOR


async def test_health(peer: Peer) -> None:
    stub = health_pb2_grpc.HealthStub(peer.channel)
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    await peer.server.refuse()
    answer = await stub.Check(health_pb2.HealthCheckRequest())
    assert answer.status == health_pb2.HealthCheckResponse.NOT_SERVING


async def test_every_method_of_the_contract_is_served(peer: Peer) -> None:
    """A method added to a proto and not to its service object fails here, not at a customer's."""
    for module, service in (
        (topics, peer.storage.topics),
        (groups, peer.storage.groups),
        (producers, peer.storage.producers),
        (cluster, peer.storage.cluster),
    ):
        ((_, descriptor),) = module.DESCRIPTOR.services_by_name.items()
        served = {name.replace("_", "") for name in dir(service) if not name.startswith("_")}
        methods = {method.name.lower() for method in descriptor.methods}
        if "exchange" in methods:
            methods.remove("exchange")
            methods |= {name.replace("_", "") for name in groups.GroupCall.DESCRIPTOR.fields_by_name} - {"callid"}
        assert methods == served
