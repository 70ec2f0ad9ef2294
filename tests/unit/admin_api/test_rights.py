"""The Kafka rights of every operation: none, some, all, denied, of a super user; and what lists hide."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.needs import check_declared
from admin_api.settings import AdminSettings
from admin_api.storage import Storage as StorageClient
from broker_contract import access_pb2, transactions_pb2
from broker_contract.acls import Operation, PatternType, Permission, ResourceType
from service_chassis import logs
from support.schema_server import SchemaServer

from tests.unit.admin_api.conftest import running_stack

if TYPE_CHECKING:
    from support.loop_thread import LoopThread

    from tests.unit.admin_api.conftest import Stack

DESCRIPTION = json.loads((Path(__file__).parents[3] / "admin-api" / "openapi.json").read_text())
#: Method, path and description of each operation.
OPERATIONS = {
    described["operationId"]: (method.upper(), path, described)
    for path, methods in DESCRIPTION["paths"].items()
    for method, described in methods.items()
}
ALICE, ROOT, READER = "alice-0123456789abcdef", "root-0123456789abcdef", "reader-0123456789abcdef"
CLUSTER, TOPIC, GROUP, TXN = (
    ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID,
)  # fmt: skip
NAMES = {CLUSTER: "kafka-cluster", TOPIC: "right", GROUP: "right", TXN: "right"}
#: The parts of paths. Nothing of these names exists: what is not refused is not found.
PARTS = {
    "cluster_id": "-", "topic_name": "right", "consumer_group_id": "right", "transactional_id": "right",
    "consumer_id": "right", "user_name": "right", "name": "retention.ms", "partition_id": "0", "offset": "0",
    "broker_id": "0", "resource_type": "topic", "resource_name": "right", "subject": "right", "version": "1",
}  # fmt: skip
QUERIES = {
    "getMetricRange": {"metric": "records", "topic": "right"},
    "deleteKafkaAcls": {"resource_type": "TOPIC", "pattern_type": "ANY", "operation": "ALL", "permission": "ALLOW"},
    "deleteQuota": {"user": "right"},
}
#: Needs that the description has in words.
IN_WORDS = {
    "alterConfigs": "ALTER_CONFIGS topic",
    "listDocumentedConfigs": "DESCRIBE_CONFIGS topic",
    "getMetricRange": "DESCRIBE topic",
}
#: Operations whose endpoint asks itself, some for names in the body; each has its own test below.
ASK_THEMSELVES = {
    *("createKafkaTopic", "createTopics", "deleteTopics"),
    *("copyConsumerGroupOffsets", "resetConsumerGroupOffsets", "restoreConsumerGroupOffsets"),
}
HIDES = "others than DESCRIBE are left out"
Action = tuple[Operation, ResourceType]


def needs(operation_id: str) -> list[list[Action]]:
    """Return the needs of an operation, each with its alternatives."""
    text = IN_WORDS.get(operation_id, OPERATIONS[operation_id][2].get("x-required-rights", ""))
    if not text or text == HIDES:
        return []
    found = []
    for each in text.split(", "):
        operations, kind = re.fullmatch(r"([A-Z_ or]+) (topic|group|cluster|transactional id)", each).groups()
        type_ = ResourceType[kind.upper().replace(" ", "_")]
        found.append([(Operation[name], type_) for name in operations.split(" or ")])
    return found


class Scene:
    """An admin-api with an authorizer, alice, and the ACLs of the cluster."""

    def __init__(self, stack: Stack, client: httpx.Client) -> None:
        self.stack = stack
        self.client = client

    def allow(self, *actions: tuple[Operation, ResourceType], **more: Any) -> None:
        self.add(*[(operation, kind, more.pop("name", NAMES[kind])) for operation, kind in actions], **more)

    def add(
        self,
        *actions: tuple[Operation, ResourceType, str],
        permission: Permission = Permission.ALLOW,
        principal: str = "User:alice",
        pattern: PatternType = PatternType.LITERAL,
        host: str = "*",
    ) -> None:
        rows = [
            access_pb2.Acl(
                type=kind, name=name, pattern=pattern, principal=principal, host=host, operation=operation,
                permission=permission,
            )
            for operation, kind, name in actions
        ]  # fmt: skip
        answer = self.stack.loop.run(self.stack.core.access.create_acls(access_pb2.CreateAclsRequest(acls=rows)))
        assert [each.error_code for each in answer.results] == [0] * len(rows)

    def clear(self) -> None:
        every = access_pb2.AclFilter(type=1, pattern=1, operation=1, permission=1)
        self.stack.loop.run(self.stack.core.access.delete_acls(access_pb2.DeleteAclsRequest(filters=[every])))

    def send(
        self, method: str, path: str, token: str = ALICE, *, headers: dict[str, str] | None = None, **given: Any
    ) -> httpx.Response:
        login = {"authorization": f"Bearer {token}", **(headers or {})}
        return self.client.request(method, path, headers=login, **given)

    def get(self, path: str, token: str = ALICE, **query: Any) -> Any:
        answer = self.send("GET", path, token, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ask(self, operation_id: str, token: str = ALICE) -> httpx.Response:
        """Make the request as the description shows it, about names that nothing has."""
        method, path, described = OPERATIONS[operation_id]
        content = described.get("requestBody", {}).get("content")
        body = {} if not content else {"json": _example(content["application/json"]["schema"])}
        return self.send(method, path.format_map(PARTS), token, params=QUERIES.get(operation_id), **body)

    def is_refused(self, operation_id: str, token: str = ALICE) -> bool:
        answer = self.ask(operation_id, token)
        assert answer.status_code != 401, operation_id
        if answer.status_code == 403:
            assert answer.json()["error_code"] == 40301
            assert re.fullmatch(
                "(Topic|Group|Cluster|Transactional Id) authorization failed.", answer.json()["message"]
            )
        return answer.status_code == 403


def _example(schema: dict[str, Any]) -> Any:
    if "$ref" in schema:
        schema = DESCRIPTION["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema["examples"][0]


@pytest.fixture(scope="module")
def stack(loop: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A stack of these tests, which change settings of the cluster."""
    with running_stack(loop, tmp_path_factory.mktemp("rights")) as found:
        yield found


@pytest.fixture
def scene(
    stack: Stack, admin: Callable[..., httpx.Client], schema_server: SchemaServer, tmp_path: Path
) -> Iterator[Scene]:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"alice admin {ALICE}\nroot admin {ROOT}\nreader read {READER}\n")
    client = admin(
        stack.storage_address, admin_auth="token", admin_tokens_file=str(tokens), admin_gateways=stack.kafka,
        authorizer="acl", super_users="User:root", schema_registry=schema_server.url, schema_registry_timeout_s=30.0,
    )  # fmt: skip
    found = Scene(stack, client)
    yield found
    found.clear()


@pytest.mark.parametrize("operation_id", sorted(OPERATIONS.keys() - ASK_THEMSELVES - {"logIn"}))
def test_the_rights_of_each_operation(scene: Scene, operation_id: str) -> None:
    wanted = needs(operation_id)
    if not wanted:
        assert not scene.is_refused(operation_id)
        return
    assert not scene.is_refused(operation_id, ROOT)
    assert scene.is_refused(operation_id)
    first = [alternatives[0] for alternatives in wanted]
    for missing in range(len(first)):
        scene.allow(*first[:missing], *first[missing + 1 :])
        assert scene.is_refused(operation_id), first[missing]
        scene.clear()
    for number, alternatives in enumerate(wanted):
        for alternative in alternatives:
            chosen = [*first[:number], alternative, *first[number + 1 :]]
            scene.allow(*chosen)
            assert not scene.is_refused(operation_id), chosen
            scene.add(
                *[(operation, kind, NAMES[kind]) for operation, kind in chosen],
                permission=Permission.DENY,
                principal="User:*",
            )
            assert scene.is_refused(operation_id), chosen
            scene.clear()


#: Rights of other operations, of other things, for others and from elsewhere.
@pytest.mark.parametrize(
    "row",
    [
        {"actions": [(Operation.WRITE, TOPIC, "right")], "principal": "User:bob"},
        {"actions": [(Operation.WRITE, TOPIC, "other")]},
        {"actions": [(Operation.WRITE, GROUP, "right")]},
        {"actions": [(Operation.READ, TOPIC, "right")]},
        {"actions": [(Operation.WRITE, TOPIC, "right")], "host": "10.9.8.7"},
    ],
)
def test_rights_that_do_not_count(scene: Scene, row: dict[str, Any]) -> None:
    scene.add(*row.pop("actions"), **row)
    assert scene.is_refused("produceRecord")


def test_patterns_everybody_and_the_address(scene: Scene) -> None:
    for name, pattern, principal, host in (
        ("ri", PatternType.PREFIXED, "User:alice", "*"),
        ("*", PatternType.LITERAL, "User:*", "127.0.0.1"),
    ):
        scene.add((Operation.ALL, TOPIC, name), pattern=pattern, principal=principal, host=host)
        assert not scene.is_refused("getKafkaTopic")
        scene.clear()
        assert scene.is_refused("getKafkaTopic")


def test_a_resource_without_acls(stack: Stack, admin: Callable[..., httpx.Client]) -> None:
    client = admin(stack.storage_address, authorizer="acl", allow_everyone_if_no_acl_found=True)
    scene = Scene(stack, client)
    path = "/v3/clusters/-/topics/right"
    assert client.get(path).status_code == 404
    scene.add((Operation.READ, TOPIC, "right"))
    assert client.get(path).status_code == 403
    scene.clear()


def test_the_role_of_a_token_bounds_its_principal(scene: Scene) -> None:
    scene.add((Operation.ALL, TOPIC, "*"), principal="User:reader")
    assert scene.send("GET", "/v3/clusters/-/topics/right", READER).status_code == 404
    answer = scene.send("DELETE", "/v3/clusters/-/topics/right", READER)
    assert (answer.status_code, answer.json()["message"]) == (403, "This needs the role admin, not read.")


def test_a_schema_is_registered_for_the_topic_alone_without_a_right_on_the_cluster(scene: Scene) -> None:
    scene.stack.create_topic("registers")
    scene.add((Operation.WRITE, TOPIC, "registers"))
    value = {"type": "AVRO", "schema": '"int"', "data": 1}
    path = "/v3/clusters/-/topics/registers/records"
    for given, status in ((value, 200), ({**value, "subject": "others-value"}, 40301)):
        answer = scene.send("POST", path, json={"value": given})
        assert answer.json()["error_code"] == status, answer.text
    assert answer.json() == {"error_code": 40301, "message": "Cluster authorization failed."}
    assert scene.get("/api/v1/schemas/subjects", ROOT)["data"] == [{"subject": "registers-value"}]
    scene.add((Operation.ALTER, CLUSTER, NAMES[CLUSTER]))
    assert scene.send("POST", path, json={"value": {**value, "subject": "others-value"}}).json()["error_code"] == 200


def test_a_denied_name_is_refused_whether_it_exists_or_not(scene: Scene) -> None:
    scene.stack.create_topic("hidden-topic")
    answers = [scene.send("GET", f"/v3/clusters/-/topics/{name}") for name in ("hidden-topic", "no-such-topic")]
    denied = {"error_code": 40301, "message": "Topic authorization failed."}
    assert [(each.status_code, each.json()) for each in answers] == [(403, denied)] * 2


def test_lists_hide_what_may_not_be_described(scene: Scene) -> None:
    stack = scene.stack
    for name in ("list-shown", "list-hidden"):
        stack.create_topic(name)
    for name in ("list-shown", "list-hidden"):
        stack.commit(f"group-of-{name}", {("list-shown", 0): 0, ("list-hidden", 0): 0})
        stack.loop.run(
            stack.core.transactions.init_producer(
                transactions_pb2.InitProducerRequest(
                    transactional_id=name, timeout_ms=60_000, producer_id=-1, producer_epoch=-1
                )
            )
        )
    scene.add(
        (Operation.READ, TOPIC, "list-shown"),
        (Operation.DESCRIBE_CONFIGS, TOPIC, "list-hidden"),
        (Operation.DESCRIBE, GROUP, "group-of-list-shown"),
        (Operation.WRITE, TXN, "list-shown"),
    )
    cluster = "/v3/clusters/-"

    def names(path: str, field: str, **query: Any) -> set[str]:
        return {each[field] for each in scene.get(path, **query)["data"]}

    assert names(f"{cluster}/topics", "topic_name") == {"list-shown"}
    assert names("/api/v1/topics", "topic_name", include_internal=True) == {"list-shown"}
    assert names(f"{cluster}/consumer-groups", "consumer_group_id") == {"group-of-list-shown"}
    assert names("/api/v1/consumer-groups", "consumer_group_id") == {"group-of-list-shown"}
    assert names("/api/v1/transactions", "transactional_id", open=False) == {"list-shown"}
    # What is described may have configurations that are not.
    assert names(f"{cluster}/topics/-/configs", "topic_name") == set()
    scene.add((Operation.DESCRIBE_CONFIGS, TOPIC, "list-shown"))
    assert names(f"{cluster}/topics/-/configs", "topic_name") == {"list-shown"}
    # A group's offsets in other topics.
    offsets = scene.get("/api/v1/consumer-groups/group-of-list-shown/offsets")["data"]
    assert [each["topic_name"] for each in offsets] == ["list-shown"]
    lags = scene.get(f"{cluster}/consumer-groups/group-of-list-shown/lags")["data"]
    assert [each["topic_name"] for each in lags] == ["list-shown"]
    # Who may describe the cluster sees all groups, as in Kafka.
    scene.add((Operation.DESCRIBE, CLUSTER, "kafka-cluster"))
    assert {"group-of-list-hidden", "group-of-list-shown"} <= names(f"{cluster}/consumer-groups", "consumer_group_id")
    assert {"list-shown", "list-hidden"} <= {
        each["topic_name"] for each in scene.get(f"{cluster}/topics", ROOT)["data"]
    }


def test_operations_that_are_authorized(scene: Scene) -> None:
    scene.stack.create_topic("authorized")
    scene.add((Operation.READ, TOPIC, "authorized"), (Operation.ALTER_CONFIGS, TOPIC, "authorized"))
    topic = scene.get("/v3/clusters/-/topics/authorized", include_authorized_operations=True)
    assert topic["authorized_operations"] == ["ALTER_CONFIGS", "DESCRIBE", "DESCRIBE_CONFIGS", "READ"]
    assert scene.get("/api/v1/me")["cluster_operations"] == []
    scene.add((Operation.DESCRIBE, GROUP, "authorized"), (Operation.ALTER, CLUSTER, "kafka-cluster"))
    scene.stack.commit("authorized", {("authorized", 0): 0})
    group = scene.get("/v3/clusters/-/consumer-groups/authorized", include_authorized_operations=True)
    assert group["authorized_operations"] == ["DESCRIBE"]
    assert scene.get("/v3/clusters/-/consumer-groups/authorized")["authorized_operations"] == []
    assert scene.get("/api/v1/me")["cluster_operations"] == ["ALTER", "DESCRIBE"]


def test_topics_are_created_by_a_right_to_the_cluster_or_to_the_name(scene: Scene) -> None:
    path, body = "/v3/clusters/-/topics", {"topic_name": "created-a"}
    assert scene.send("POST", path, json=body).json()["message"] == "Topic authorization failed."
    scene.add((Operation.CREATE, TOPIC, "created-a"))
    assert scene.send("POST", path, json=body).status_code == 201
    both = {"topics": [{"topic_name": name} for name in ("created-b", "created-c")]}
    scene.add((Operation.CREATE, TOPIC, "created-b"))
    answer = scene.send("POST", "/api/v1/topics:create", json=both).json()
    refused = {"topic_name": "created-c", "error_code": 40301, "message": "Topic authorization failed."}
    assert ([each["topic_name"] for each in answer["created"]], answer["failures"]) == (["created-b"], [refused])
    scene.add((Operation.CREATE, CLUSTER, "kafka-cluster"))
    assert scene.send("POST", path, json={"topic_name": "created-c"}).status_code == 201
    scene.add((Operation.DELETE, TOPIC, "created-a"))
    answer = scene.send("POST", "/api/v1/topics:delete", json={"topic_names": ["created-a", "created-b"]}).json()
    assert answer == {"deleted": ["created-a"], "failures": [{**refused, "topic_name": "created-b"}]}


def test_offsets_are_moved_by_rights_to_the_group_and_to_each_topic(scene: Scene) -> None:
    stack = scene.stack
    for name in ("moved-a", "moved-b"):
        stack.create_topic(name)
    stack.commit("moved", {("moved-a", 0): 0, ("moved-b", 0): 0})
    path = "/api/v1/consumer-groups/moved/offsets"
    named = {"topic": "moved-a", "to": "earliest"}
    offsets = [{"topic_name": "moved-a", "partition_id": 0, "offset": 0}]

    def statuses() -> list[int]:
        requests = (
            ("reset", named),
            ("reset", {"to": "earliest"}),
            ("restore", {"offsets": offsets}),
            ("copy", {"to": "c"}),
        )
        return [scene.send("POST", f"{path}:{verb}", json=body).status_code for verb, body in requests]

    assert statuses() == [403] * 4
    scene.add((Operation.READ, GROUP, "moved"))
    # Without a topic it can describe, alice finds no offset.
    assert statuses() == [403, 404, 403, 403]
    scene.add((Operation.DESCRIBE, TOPIC, "moved-a"), (Operation.READ, GROUP, "c"))
    assert statuses() == [403] * 4
    scene.add((Operation.READ, TOPIC, "moved-a"))
    assert statuses() == [200] * 4
    assert [each["topic_name"] for each in scene.get("/api/v1/consumer-groups/moved/offsets")["data"]] == ["moved-a"]


def test_streams_end_with_the_right(scene: Scene) -> None:
    scene.stack.create_topic("streamed-by-right")
    scene.add((Operation.READ, TOPIC, "streamed-by-right"), (Operation.WRITE, TOPIC, "streamed-by-right"))
    tail = "/api/v1/topics/streamed-by-right/tail"
    bearer = {"authorization": f"Bearer {ALICE}"}
    with scene.client.stream("GET", tail, headers=bearer) as answer:
        lines = answer.iter_lines()
        scene.stack.append("streamed-by-right", 0, 1)
        assert [line for line in itertools.islice(lines, 3) if line.startswith("data:")] != []
        scene.add((Operation.READ, TOPIC, "streamed-by-right"), permission=Permission.DENY)
        scene.stack.append("streamed-by-right", 0, 1)
        rest = [line for line in lines if line]
    error = '{"error_code":40301,"message":"Topic authorization failed."}'
    assert [line for line in rest if "id:" not in line] == ["event: error", f"data: {error}"]


def test_a_stream_of_produced_records_ends_with_the_right(scene: Scene) -> None:
    scene.stack.create_topic("written")
    scene.add((Operation.WRITE, TOPIC, "written"))
    record = b'{"value": {"type": "STRING", "data": "v"}}'

    def records() -> Iterator[bytes]:
        yield record
        while scene.stack.get("/topics/written/partitions/0/offset")["latest_offset"] == 0:
            time.sleep(0.01)
        scene.add((Operation.WRITE, TOPIC, "written"), permission=Permission.DENY)
        yield record

    answer = scene.send(
        "POST", "/v3/clusters/-/topics/written/records", content=records(), headers={"content-type": "application/json"}
    )
    reports = [json.loads(line) for line in answer.text.splitlines()]
    assert [each["error_code"] for each in reports] == [200, 40301]


def test_a_refusal_is_a_line_of_the_log(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []

    def info(log: logs.Logger, event: str, **fields: Any) -> None:
        if log.name == "admin_api.rights":
            lines.append({"event": event, **fields})

    monkeypatch.setattr(logs.Logger, "info", info)
    scene.ask("deleteConsumerGroupOffsets")
    scene.get("/v3/clusters/-/topics")
    denied = {
        "event": "denied", "principal": "User:alice", "host": "127.0.0.1", "operation": "DELETE",
        "resource": "GROUP:right", "api": "deleteConsumerGroupOffsets", "more": 0,
    }  # fmt: skip
    assert lines == [denied]


def test_an_application_makes_no_route_before_it_is_needed() -> None:
    """All of them take a third of a second of the processor: of each start of admin-api."""
    app = create_app(AdminSettings(), StorageClient.__new__(StorageClient), KafkaClients.__new__(KafkaClients))
    assert len(app.routes) > 90
    assert [route.path for route in app.routes if "dependant" in vars(route)] == []  # type: ignore[attr-defined]


def test_a_route_without_needs_cannot_be_registered() -> None:
    app = create_app(AdminSettings(), StorageClient.__new__(StorageClient), KafkaClients.__new__(KafkaClients))

    async def forgotten() -> None: ...

    app.add_api_route("/api/v1/forgotten", forgotten, methods=["GET"])
    with pytest.raises(TypeError, match="/api/v1/forgotten does not declare the rights that it needs"):
        check_declared(app.routes)


def test_the_table_of_rights() -> None:
    """Those of the requests of Kafka's protocol that do the same."""
    for operation_ids, expected in (
        (("getKafkaAcls", "listUsers", "getUser", "getHealth", "listSegments", "getScrub"), "DESCRIBE cluster"),
        (
            ("createKafkaAcls", "batchCreateKafkaAcls", "deleteKafkaAcls", "setUserPassword", "deleteUser"),
            "ALTER cluster",
        ),
        (("listQuotas", "listKafkaBrokerConfigs", "getKafkaClusterConfig"), "DESCRIBE_CONFIGS cluster"),
        (("setQuota", "deleteQuota", "updateKafkaBrokerConfig", "deleteKafkaClusterConfig"), "ALTER_CONFIGS cluster"),
        (("produceRecord", "produceRecordsBatch"), "WRITE topic"),
        (("browseRecords", "getRecord", "downloadRecords", "tailRecords", "listOpenTransactions"), "READ topic"),
        (("deleteKafkaTopic", "deleteRecords", "truncateRecords"), "DELETE topic"),
        (("updatePartitionCountKafkaTopic",), "ALTER topic"),
        (("getKafkaTopic", "listKafkaPartitions", "listPartitionSummaries", "listKafkaReplicas"), "DESCRIBE topic"),
        (("listKafkaTopicConfigs", "getKafkaTopicConfig"), "DESCRIBE_CONFIGS topic"),
        (("updateKafkaTopicConfig", "updateKafkaTopicConfigBatch", "deleteKafkaTopicConfig"), "ALTER_CONFIGS topic"),
        (
            ("getKafkaConsumerGroup", "listKafkaConsumers", "listConsumerGroupOffsets", "listKafkaConsumerLags"),
            "DESCRIBE group",
        ),
        (("deleteConsumerGroup",), "DELETE group"),
        (("deleteConsumerGroupOffsets",), "DELETE group, READ topic"),
        (("getTransaction",), "DESCRIBE transactional id"),
        (("abortTransaction",), "WRITE transactional id"),
        (("abortOpenTransaction",), "ALTER or CLUSTER_ACTION cluster, READ topic"),
        (("listKafkaTopics", "listKafkaConsumerGroups", "listTransactions", "listTopicSummaries"), HIDES),
    ):
        found = {each: OPERATIONS[each][2].get("x-required-rights") for each in operation_ids}
        assert found == dict.fromkeys(operation_ids, expected)
    free = {name for name, (_, _, described) in OPERATIONS.items() if "x-required-rights" not in described}
    assert free == {
        *("listKafkaClusters", "getKafkaCluster", "listKafkaBrokers", "getKafkaBroker", "getVersion"),
        *("getSession", "logIn", "logOut", "getMe"),
    }
