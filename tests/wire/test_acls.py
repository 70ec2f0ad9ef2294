"""ACLs of a broker with an authorizer: administered over the wire, in force when a change is answered."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from broker_contract.acls import Operation, PatternType, Permission, ResourceType
from gateway_svc.requests import topic_names
from gateway_svc.storage import followed_rules
from millrace.direct import DirectSettings
from protocol_lib.errors import ErrorCode
from protocol_lib.messages.create_acls import AclCreation, CreateAclsRequest
from protocol_lib.messages.create_topics import CreatableTopic, CreateTopicsRequest
from protocol_lib.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from protocol_lib.messages.describe_acls import DescribeAclsRequest
from protocol_lib.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from protocol_lib.messages.metadata import MetadataRequest
from service_chassis import logs
from support.named_login import NamedLogin

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY, ANY = Permission.ALLOW, Permission.DENY, 1
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
RECORD = batch(b"x")
SECURED = {"authorizer": "acl", "super_users": "User:admin"}
KINDS = ("describe", "create", "delete")


class Scene:
    """A broker with an authorizer, and two clients: an administrator, who is a super user, and alice."""

    def __init__(self, broker: Running, login: NamedLogin) -> None:
        self.broker = broker
        self.login = login

    async def connect(self, user: str) -> Wire:
        self.login.principal = user
        return await self.broker.connect()


@pytest.fixture
async def scene(start_broker: StartBroker) -> Scene:
    login = NamedLogin()
    return Scene(await start_broker(security=login.security, **SECURED), login)


def row(
    name: str, operation: Operation, permission: Permission = ALLOW, *, pattern: PatternType = LITERAL, **more: Any
) -> AclCreation:
    fields = {"principal": "User:alice", "host": "*", "resource_type": TOPIC, **more}
    return AclCreation(
        resource_name=name,
        resource_pattern_type=pattern,
        operation=operation,
        permission_type=permission,
        **fields,
    )


def wanted(kind: type = DeleteAclsFilter, **fields: Any) -> Any:
    values: dict[str, Any] = {
        "resource_type_filter": TOPIC,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **fields,
    }
    return kind(**values)


async def create(wire: Wire, *rows: AclCreation, version: int = 3) -> list[tuple[int, str | None]]:
    answer = await wire.call(30, version, CreateAclsRequest(creations=rows))
    return [(each.error_code, each.error_message) for each in answer.results]


async def delete(wire: Wire, *filters: DeleteAclsFilter, version: int = 3) -> list[list[tuple[str, int]]]:
    answer = await wire.call(31, version, DeleteAclsRequest(filters=filters))
    assert {each.error_code for each in answer.filter_results} <= {0}
    return [[(row.resource_name, row.operation) for row in each.matching_acls] for each in answer.filter_results]


async def described(wire: Wire, version: int = 3, **fields: Any) -> list[tuple[str, int, list[tuple[str, int, int]]]]:
    answer = await wire.call(29, version, wanted(DescribeAclsRequest, **fields))
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (
            each.resource_name,
            each.pattern_type,
            [(acl.principal, acl.operation, acl.permission_type) for acl in each.acls],
        )
        for each in answer.resources
    ]


@pytest.mark.parametrize("version", range(4))
async def test_rows_are_created_described_and_deleted(scene: Scene, version: int) -> None:
    admin = await scene.connect("User:admin")
    rows = [row("b", WRITE), row("a", READ), row("a", READ, DENY, principal="User:bob"), row("a", READ)]
    if version:
        rows.append(row("a", ALL, pattern=PREFIXED))
    assert await create(admin, *rows, version=version) == [(0, None)] * len(rows)
    prefixed = [("a", PREFIXED, [("User:alice", ALL, ALLOW)])] if version else []
    a = ("a", LITERAL, [("User:alice", READ, ALLOW), ("User:bob", READ, DENY)])
    b = ("b", LITERAL, [("User:alice", WRITE, ALLOW)])
    pattern = ANY if version else LITERAL
    assert await described(admin, version, pattern_type_filter=pattern) == [a, *prefixed, b]
    assert await described(admin, version, pattern_type_filter=pattern, resource_name_filter="b") == [b]
    assert await described(admin, version, pattern_type_filter=pattern, host_filter="h") == []
    gone = await delete(
        admin,
        wanted(principal_filter="User:alice", resource_name_filter="a", pattern_type_filter=pattern),
        wanted(operation=READ, pattern_type_filter=pattern),
        wanted(resource_name_filter="none", pattern_type_filter=pattern),
        version=version,
    )
    assert gone == [[("a", READ), *([("a", ALL)] if version else [])], [("a", READ), ("a", READ)], []]
    assert await described(admin, version, pattern_type_filter=pattern) == [b]


async def test_a_name_matches_every_pattern_that_covers_it(scene: Scene) -> None:
    admin = await scene.connect("User:admin")
    await create(admin, row("orders", READ), row("or", READ, pattern=PREFIXED), row("*", READ), row("x", READ))
    found = await described(admin, resource_name_filter="orders", pattern_type_filter=PatternType.MATCH)
    assert [name for name, _, _ in found] == ["*", "or", "orders"]


async def test_rows_that_make_no_sense_are_refused_and_the_others_are_made(scene: Scene) -> None:
    admin = await scene.connect("User:admin")
    wrong = [
        row("", READ),
        row("x", READ, resource_type=ResourceType.CLUSTER),
        row("x", READ, principal="alice"),
        row("x", 99),  # type: ignore[arg-type]
    ]
    results = await create(admin, *wrong, row("x", READ))
    assert [code for code, _ in results] == [42, 42, 42, 42, 0]
    assert [message for _, message in results] == [
        "Resource name should not be empty",
        "The only valid name for the CLUSTER resource is kafka-cluster",
        "Could not parse principal from `alice` (no colon is present separating the principal type from the principal"
        " name)",
        "Invalid operation UNKNOWN",
        None,
    ]
    assert len(await described(admin)) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_an_element_that_says_unknown_closes_the_connection(scene: Scene, kind: str) -> None:
    admin = await scene.connect("User:admin")
    if kind == "create":
        admin.send(30, 3, CreateAclsRequest(creations=(row("x", 0),)))  # type: ignore[arg-type]
    elif kind == "delete":
        admin.send(31, 3, DeleteAclsRequest(filters=(wanted(operation=0),)))
    else:
        admin.send(29, 3, wanted(DescribeAclsRequest, permission_type=0))
    assert await admin.closed() == b""
    assert scene.broker.refused == {"unknown_element": 1}


async def test_without_the_right_to_do_so_no_acl_is_seen_or_changed(scene: Scene) -> None:
    alice, admin = await scene.connect("User:alice"), await scene.connect("User:admin")
    assert [code for code, _ in await create(alice, row("x", READ), row("y", READ))] == [31, 31]
    answer = await alice.call(31, 3, DeleteAclsRequest(filters=(wanted(),)))
    assert [each.error_code for each in answer.filter_results] == [31]
    assert (await alice.call(29, 3, wanted(DescribeAclsRequest))).error_code == 31
    await create(
        admin, row("kafka-cluster", Operation.ALTER, resource_type=ResourceType.CLUSTER)
    )  # DESCRIBE is implied
    assert [code for code, _ in await create(alice, row("x", READ))] == [0]
    assert len(await described(alice)) == 1


async def test_a_change_is_in_force_when_it_is_answered(scene: Scene) -> None:
    """Also for a client whose requests are recognised by their bytes, and that has one in its fetch session."""
    alice, admin = await scene.connect("User:alice"), await scene.connect("User:admin")
    assert await produce(alice, "single", RECORD) == (DENIED, -1)
    for round_ in range(5):
        await create(admin, row("single", WRITE))
        assert [await produce(alice, "single", RECORD) for _ in range(3)] == [(0, round_ * 3 + n) for n in range(3)]
        await delete(admin, wanted(resource_name_filter="single"))
        assert await produce(alice, "single", RECORD) == (DENIED, -1)
    assert (await alice.call(1, 11, fetch_request("single", 0))).responses[0].partitions[0].error_code == DENIED
    await create(admin, row("*", READ))
    assert (await alice.call(1, 11, fetch_request("single", 0))).responses[0].partitions[0].error_code == 0
    await create(admin, row("sin", READ, DENY, pattern=PREFIXED))
    assert (await alice.call(1, 11, fetch_request("single", 0))).responses[0].partitions[0].error_code == DENIED


async def test_everybody_may_use_what_no_acl_covers_if_a_setting_says_so(start_broker: StartBroker) -> None:
    """The host of an ACL counts, too."""
    login = NamedLogin()
    broker = await start_broker(security=login.security, allow_everyone_if_no_acl_found=True, **SECURED)
    scene = Scene(broker, login)
    alice, admin = await scene.connect("User:alice"), await scene.connect("User:admin")
    assert await produce(alice, "single", RECORD) == (0, 0)
    await create(admin, row("single", WRITE, host="10.0.0.1"))
    assert await produce(alice, "single", RECORD) == (DENIED, -1)
    await create(admin, row("single", WRITE, host="127.0.0.1"))
    assert await produce(alice, "single", RECORD) == (0, 1)


async def test_every_gateway_has_a_change_when_it_is_answered(tmp_path: Path) -> None:
    """One that asks no more is waited for during its lease, and decides nothing until it has asked again."""
    storage, login = RemoteStorage(tmp_path), NamedLogin("User:alice")
    await storage.start()
    options = {"security": login.security, **SECURED}
    async with gateway_of(storage, "one", **options) as one, gateway_of(storage, "two", **options) as two:
        alice = await two.connect()
        login.principal = "User:admin"
        admin = await one.connect()
        for n in range(3):
            await create(admin, row("single", WRITE))
            assert await produce(alice, "single", RECORD) == (0, n)
            await delete(admin, wanted())
            assert await produce(alice, "single", RECORD) == (DENIED, -1)
        following = two.gateway._rules
        await create(admin, row("single", WRITE))
        assert following._following is not None
        following._following.cancel()
        started = asyncio.get_running_loop().time()
        await delete(admin, wanted())
        assert asyncio.get_running_loop().time() - started > 0.3
        assert not following.are_current
        alice.send(0, 7, produce_request("single", RECORD))
        await asyncio.sleep(0.1)
        assert following._waiting
        following._following = asyncio.create_task(following._follow())
        _, answer = await alice.receive()
        assert answer.responses[0].partition_responses[0].error_code == DENIED
    await storage.stop()


async def test_without_storage_requests_wait_for_the_rules_and_their_connections_close(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_rules, "RULES_WAIT_S", 0.05)
    scene.broker.gateway._rules._is_confirmed = False
    scene.broker.gateway._rules._call_changed()
    alice = await scene.connect("User:alice")
    alice.send(0, 7, produce_request("single", RECORD))
    assert await alice.closed() == b""
    assert scene.broker.refused == {"storage_unavailable": 1}


def fetch_by_id(*topic_ids: bytes, offset: int = 0, wait_ms: int = 0) -> FetchRequest:
    row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topics = tuple(FetchTopic(topic_id=each, partitions=(row,)) for each in topic_ids)
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1000, topics=topics)


def read(response: Any) -> list[tuple[int, bool]]:
    return [(part.error_code, bool(part.records)) for each in response.responses for part in each.partitions]


async def test_a_topic_whose_name_gives_way_to_others_is_judged_all_the_same(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that may make topics can have names displaced, and so choose the one that is unknown when it asks."""
    monkeypatch.setattr(topic_names, "NAMES_MAX", 2)
    alice, admin = await scene.connect("User:alice"), await scene.connect("User:admin")
    assert (await produce(admin, "orders", RECORD, acks=-1))[0] == 0
    assert (await produce(admin, "single", RECORD, acks=-1))[0] == 0
    made = tuple(
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()) for name in "abc"
    )
    await admin.call(19, 5, CreateTopicsRequest(topics=made, timeout_ms=5000))
    ids = {each.name: each.topic_id for each in (await admin.call(3, 12, MetadataRequest(topics=None))).topics}
    await create(admin, row("single", READ), row("a", READ), row("b", READ), row("c", READ))
    for first, second in (("orders", "a"), ("a", "orders")):
        names = scene.broker.gateway._parts.names
        names._names.clear()
        names.learn(ids["orders"], "orders")
        names.learn(ids["single"], "single")
        answer = await alice.call(1, 13, fetch_by_id(ids[first], ids[second]))
        assert sorted(read(answer)) == [(0, False), (DENIED, False)]
    other = await scene.connect("User:alice")
    other.send(1, 13, fetch_by_id(ids["single"], offset=1, wait_ms=30_000))
    await until(lambda: names.name_of(ids["single"]) is not None)
    for name in "abc":
        assert read(await alice.call(1, 13, fetch_by_id(ids[name]))) == [(0, False)]
    assert names.name_of(ids["single"]) is None
    await delete(admin, wanted(resource_name_filter="single"))
    assert await produce(admin, "single", RECORD, acks=-1) == (0, 1)
    assert read((await other.receive())[1]) == [(DENIED, False)]


async def test_rules_whose_lease_has_ended_are_not_used_before_its_timer_has_run(tmp_path: Path) -> None:
    """An event loop that stood still, in a frozen process or a stall, reads its sockets first."""
    storage, login = RemoteStorage(tmp_path), NamedLogin("User:alice")
    await storage.start()
    options = {"security": login.security, **SECURED}
    async with gateway_of(storage, "one", **options) as one, gateway_of(storage, "two", **options) as two:
        alice = await two.connect()
        login.principal = "User:admin"
        admin = await one.connect()
        await create(admin, row("single", WRITE))
        assert [await produce(alice, "single", RECORD) for _ in range(3)] == [(0, 0), (0, 1), (0, 2)]
        rules = two.gateway._rules
        assert rules._following is not None
        assert rules._lapse is not None
        rules._following.cancel()
        rules._lapse.cancel()
        await delete(admin, wanted())
        alice.send(0, 7, produce_request("single", RECORD))
        await until(lambda: bool(rules._waiting))
        rules._following = asyncio.create_task(rules._follow())
        _, answer = await alice.receive()
        assert answer.responses[0].partition_responses[0].error_code == DENIED
        assert two.gateway.metrics.api("Produce").recognised == 2
    await storage.stop()


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="a super user is a type and a name"):
        DirectSettings(super_users="admin")
    with pytest.raises(ValueError, match="acl"):
        DirectSettings(authorizer="kafka.security.authorizer.AclAuthorizer")


async def test_denials_are_logged_with_their_principal_and_resource(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    alice = await scene.connect("User:alice")
    with logs.configured("test", "info", "json"):
        assert await produce(alice, "single", RECORD) == (DENIED, -1)
        assert (await alice.call(29, 3, wanted(DescribeAclsRequest))).error_code == 31
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    denied = [each for each in lines if each["event"] == "denied"]
    assert [(each["operation"], each["resource"], each["api"]) for each in denied] == [
        ("WRITE", "TOPIC:single", "Produce"),
        ("DESCRIBE", "CLUSTER:kafka-cluster", "DescribeAcls"),
    ]
    assert {(each["principal"], each["host"], each["level"]) for each in denied} == {
        ("User:alice", "127.0.0.1", "info")
    }
