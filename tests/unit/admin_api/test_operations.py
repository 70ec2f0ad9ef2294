"""Every operation of the description: it works as shown there, and each thing that may be wrong has its one answer."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx
import pytest
from admin_api.rules import reads_in_parts
from broker_contract import transactions_pb2
from broker_contract.version import CONTRACT_VERSION
from service_chassis import rpc
from service_chassis.grpc_server import unary

from tests.unit.admin_api.conftest import serving_admin

if TYPE_CHECKING:
    from support.loop_thread import LoopThread

    from tests.unit.admin_api.conftest import Stack

DESCRIPTION = json.loads((Path(__file__).parents[3] / "admin-api" / "openapi.json").read_text())
SCHEMAS = DESCRIPTION["components"]["schemas"]
JSON = {"content-type": "application/json"}


class Operation(NamedTuple):
    method: str
    path: str
    #: Schemas by name.
    in_path: dict[str, Any]
    in_query: dict[str, Any]
    body: dict[str, Any]
    example: dict[str, Any] | None
    #: Status of an answer that is no error.
    status: int


def _operation(method: str, path: str, described: dict[str, Any]) -> Operation:
    parameters: dict[str, dict[str, Any]] = {"path": {}, "query": {}, "header": {}}
    for each in described.get("parameters", ()):
        parameters[each["in"]][each["name"]] = _plain(each["schema"])
    content = described.get("requestBody", {}).get("content")
    body = _plain(content["application/json"]["schema"]) if content else {}
    (example,) = body.get("examples", [None])
    status = max(int(status) for status in described["responses"] if status.isdigit())
    return Operation(method.upper(), path, parameters["path"], parameters["query"], body, example, status)


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value that is not null."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return next((_plain(each) for each in schema.get("anyOf", ()) if each != {"type": "null"}), schema)


OPERATIONS = {
    described["operationId"]: _operation(method, path, described)
    for path, methods in DESCRIPTION["paths"].items()
    for method, described in methods.items()
}
#: Those with a body that is one JSON object. Streams of records are in test_produce.
WITH_BODY = {
    name: each
    for name, each in OPERATIONS.items()
    if each.example is not None and not reads_in_parts(each.method, each.path)
}
QUERIES = {
    "getMetricRange": {"metric": "lag"},
    "deleteQuota": {"user": "exemplary"},
    "deleteKafkaAcls": {"resource_type": "TOPIC", "pattern_type": "ANY", "operation": "ALL", "permission": "ALLOW"},
}
#: The answer about subjects and their versions, which test_subjects has with a registry.
NO_REGISTRY = (404, 404, "No schema registry is set (MILLRACE_SCHEMA_REGISTRY).")
OF_REGISTRY = [name for name, each in OPERATIONS.items() if "/schemas/" in each.path]
#: Parts of paths that name nothing, and the answer: status, code, and the message about the first of them.
UNKNOWN: dict[str, tuple[tuple[str, ...], int, int, str]] = {
    "cluster_id": (("none", "%00", "x" * 300, "..%2f"), 404, 404, "Cluster none cannot be found."),
    "topic_name": (
        ("none", "no%20name", "%FF%00"), 404, 40403, "This server does not host this topic-partition.",
    ),
    "partition_id": (("7", "2147483647"), 404, 40402, "Partition not found."),
    "offset": (("100",), 404, 404, "The partition has the offsets from 0 to the one before 100."),
    "broker_id": (("99",), 404, 404, "Broker 99 cannot be found."),
    "consumer_group_id": (("none",), 404, 40405, "Consumer group id not found."),
    "consumer_id": (("none",), 404, 404, "The consumer group has no consumer of this id."),
    "transactional_id": (("none",), 404, 404, "There is no such transactional id."),
    "user_name": (("none", "%00"), 404, 404, "There is no such user, or it has no such password."),
    "resource_type": (("none",), 400, 400, "path.resource_type: Input should be 'topic', 'group' or 'broker'"),
    "resource_name": (("none",), 404, 40403, "Topic 'none' does not exist."),
    "name": (("no.such",), 404, 404, "A topic has no configuration of this name."),
    **{each: (("none",) if each == "subject" else ("7",), *NO_REGISTRY) for each in ("subject", "version")},
}  # fmt: skip
_NOT_ASSIGNED = (404, 404, "This partition is not assigned to the consumer.")
_NOT_COMMITTED = (404, 404, "The consumer group has committed no offset in this partition.")
#: Operations with other answers than those.
UNKNOWN_TO: dict[tuple[str, str], tuple[int, int, str]] = {
    **{
        (each, "topic_name"): (404, 40403, "Topic 'none' does not exist.")
        for each in OPERATIONS
        if each.endswith(("TopicConfig", "TopicConfigs", "TopicConfigBatch"))
    },
    **{
        (each, "name"): (404, 404, "A broker has no configuration of this name.")
        for each in OPERATIONS
        if each.endswith(("BrokerConfig", "ClusterConfig"))
    },
    ("updateKafkaClusterConfig", "name"): (400, 40002, "Unknown config name: no.such"),
    ("deleteKafkaTopic", "topic_name"): (404, 40403, "This server does not host this topic."),
    ("getKafkaReplica", "broker_id"): (404, 404, "The partition has no replica on this broker."),
    ("getKafkaConsumerAssignment", "topic_name"): _NOT_ASSIGNED,
    ("getKafkaConsumerAssignment", "partition_id"): _NOT_ASSIGNED,
    ("getKafkaConsumerLag", "topic_name"): _NOT_COMMITTED,
    ("getKafkaConsumerLag", "partition_id"): _NOT_COMMITTED,
    ("deleteConsumerGroupOffsets", "topic_name"): (404, 404, "The consumer group has committed no offset there."),
}
#: Operations that need no such thing: they make it, and what has no value is removed already.
NOT_NEEDED = {
    ("setUserPassword", "user_name"),
    *((f"{verb}ConsumerGroupOffsets", "consumer_group_id") for verb in ("reset", "restore")),
    ("deleteKafkaClusterConfig", "name"),
}
#: Operations that are refused as they are shown, since nothing is open, and there is no registry.
NOTHING_OPEN = {
    "abortTransaction": (409, 40901, "The transaction is Empty: there is nothing to abort."),
    "abortOpenTransaction": (404, 404, "No transaction is open at this offset of the partition."),
    **dict.fromkeys(OF_REGISTRY, NO_REGISTRY),
}
#: Operations that answer without storage.
WITHOUT_STORAGE = ("getMetricRange", "getHealth", "getMe", "getVersion", "getSession", "logIn", "logOut")


def _fill(stack: Stack) -> None:
    stack.create_topic("orders", 2)
    stack.append("orders", 0, 100)
    stack.commit("exemplary", {("orders", 0): 1})
    stack.http.put(f"{stack.cluster}/broker-configs/message.max.bytes", json={"value": "1048588"})
    stack.http.put("/api/v1/users/exemplary", json={"password": "of a user", "iterations": 4096})
    entity = [{"type": "user", "name": "exemplary"}]
    stack.http.put("/api/v1/quotas", json={"entity": entity, "values": {"producer_byte_rate": 1e6}})


@pytest.fixture(scope="module")
def known(stack: Stack) -> Iterator[dict[str, str]]:
    """The parts of paths of things that exist."""
    _fill(stack)
    broker_id = stack.register_gateway("exemplary", ("EXTERNAL", "localhost", 39093))
    assigned = bytes.fromhex("0001 00000001 0006") + b"orders" + bytes.fromhex("00000001 00000000 ffffffff")
    member_id = stack.join("members", "panel", assigned)
    stack.commit("members", {("orders", 0): 1}, member_id)
    stack.loop.run(
        stack.core.transactions.init_producer(
            transactions_pb2.InitProducerRequest(
                transactional_id="exemplary", timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
        )
    )
    yield {
        "cluster_id": "-", "topic_name": "orders", "partition_id": "0", "offset": "0", "broker_id": str(broker_id),
        "consumer_group_id": "exemplary", "consumer_id": member_id, "name": "retention.ms",
        "transactional_id": "exemplary", "user_name": "exemplary", "resource_type": "topic", "resource_name": "orders",
        "subject": "orders-value", "version": "1",
    }  # fmt: skip
    for configs in (f"/brokers/{broker_id}/configs", "/broker-configs"):
        stack.http.delete(f"{stack.cluster}{configs}/message.max.bytes")
    stack.remove_gateway("exemplary")
    stack.http.delete(f"{stack.cluster}/topics/orders")


@pytest.fixture(scope="module")
def without_storage(loop: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The URLs of two admin-apis: storage of one is away, and that of the other accepts calls and never answers."""
    storage = f"unix:{tmp_path_factory.mktemp('s')}/s"
    opened = contextlib.AsyncExitStack()

    async def start() -> dict[str, str]:
        server = rpc.server(CONTRACT_VERSION)
        server.method = lambda _path: unary(_wait)  # type: ignore[method-assign]
        server.listen(storage)
        await server.start()
        opened.push_async_callback(server.stop, 0)
        away = serving_admin("unix:/nowhere/s", admin_storage_timeout_s=20)
        late = serving_admin(storage, admin_storage_timeout_s=0.05)
        return {"away": await opened.enter_async_context(away), "late": await opened.enter_async_context(late)}

    yield loop.run(start())
    loop.run(opened.aclose())


async def _wait(_request: bytes, _call: object) -> None:
    await asyncio.Event().wait()


def _ask(client: httpx.Client, operation_id: str, parts: dict[str, str], **given: Any) -> httpx.Response:
    """Make the request as the description shows it, but for what is given; of a tail read the head alone."""
    operation = OPERATIONS[operation_id]
    if "consumer_id" in operation.in_path:
        parts = parts | {"consumer_group_id": parts["consumer_group_id"].replace("exemplary", "members")}
    if "broker" in operation.path:
        parts = parts | {"name": parts["name"].replace("retention.ms", "message.max.bytes")}
    body = {"json": operation.example} if operation.example is not None and "content" not in given else {}
    given = {"params": QUERIES.get(operation_id), **body, **given}
    with client.stream(operation.method, operation.path.format_map(parts), **given) as answer:
        if operation_id != "tailRecords" or answer.status_code != 200:
            answer.read()
    return answer


def _refusal(answer: httpx.Response) -> tuple[int, int, str]:
    body = answer.json()
    assert body.keys() == {"error_code", "message"}
    return answer.status_code, body["error_code"], body["message"]


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_what_is_not_there(stack: Stack, known: dict[str, str], operation_id: str) -> None:
    for name in OPERATIONS[operation_id].in_path:
        values, *usual = UNKNOWN[name]
        if (operation_id, name) not in NOT_NEEDED:
            first, *others = [_refusal(_ask(stack.http, operation_id, known | {name: value})) for value in values]
            assert first == UNKNOWN_TO.get((operation_id, name), tuple(usual)), name
            assert [each[:2] for each in others] == [first[:2]] * len(others), name
    assert stack.http.get(f"{stack.cluster}/topics/none").status_code == 404


def _wrong_texts(schema: dict[str, Any]) -> list[str]:
    """Return parameters that the schema does not allow."""
    if schema["type"] == "integer":
        ends = [str(schema["minimum"] - 1), str(schema["maximum"] + 1)]
        return ["x", "1.5", "99999999999999999999", *ends]
    if schema["type"] == "boolean" or {"enum", "const"} & schema.keys():
        return ["other"]
    return ["x" * (schema["maxLength"] + 1)] if "maxLength" in schema else []


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_parameters_of_the_wrong_type(stack: Stack, known: dict[str, str], operation_id: str) -> None:
    operation, query = OPERATIONS[operation_id], QUERIES.get(operation_id, {})
    found = [
        (f"path.{name}: ", _ask(stack.http, operation_id, known | {name: text}))
        for name, schema in operation.in_path.items()
        for text in _wrong_texts(schema)
    ]
    for name, schema in operation.in_query.items():
        wrong: list[Any] = ["\0"] if name == "page_token" else [["value.a"] * 5] if name == "where" else []
        message = "page_token is not one" if name == "page_token" else f"query.{name}: "
        for each in [*wrong, *_wrong_texts(schema)]:
            found.append((message, _ask(stack.http, operation_id, known, params={**query, name: each})))
    for name in () if operation_id == "deleteQuota" else query:  # whose parameters are a choice
        left = {each: value for each, value in query.items() if each != name}
        found.append((f"query.{name}: Field required", _ask(stack.http, operation_id, known, params=left)))
    for message, answer in found:
        assert _refusal(answer)[:2] == (400, 400), answer.url
        assert answer.json()["message"].startswith(message), answer.url


def _wrong_values(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield values that the schema does not allow, each with the place of its fault."""
    schema = _plain(schema)
    match schema["type"]:
        case "integer":
            yield from (("", each) for each in ("3", 1.5, True, int(schema["maximum"]) + 1, int(schema["minimum"]) - 1))
        case "number":
            yield from (("", each) for each in ("3", True))
        case "boolean":
            yield "", "yes"
        case "string":
            yield from (("", each) for each in (5, {}, "other" if "enum" in schema else "\udfff"))
        case "array":
            yield from (("", each) for each in ({}, "a"))
            for place, value in _wrong_values(schema["items"]):
                yield f".0{place}", [value]
        case "object":
            yield from (("", each) for each in ([], "a"))
            if "properties" in schema:
                yield from _wrong_objects(schema)


def _wrong_objects(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    good = {name: _right_value(schema["properties"][name]) for name in schema.get("required", ())}
    yield ".unknown", {**good, "unknown": 1}
    for name in good:
        yield f".{name}", {each: value for each, value in good.items() if each != name}
    for name, each in schema["properties"].items():
        alternatives = each.get("anyOf", [each])
        if {"type": "null"} not in alternatives:
            yield f".{name}", {**good, name: None}
        if len(alternatives) <= 2:  # a value that may be a number or a text is in test_group_offsets
            for place, value in _wrong_values(each):
                yield f".{name}{place}", {**good, name: value}


def _right_value(schema: dict[str, Any]) -> Any:
    schema = _plain(schema)
    if "enum" in schema:
        return schema["enum"][0]
    if "patternProperties" in schema:
        return {"0": 1}
    return {"integer": 1, "string": "a", "array": [], "object": {}}[schema["type"]]


@pytest.mark.parametrize("operation_id", WITH_BODY)
def test_values_of_the_wrong_type(stack: Stack, known: dict[str, str], operation_id: str) -> None:
    for place, value in _wrong_values(WITH_BODY[operation_id].body):
        answer = _ask(stack.http, operation_id, known, content=json.dumps(value), headers=JSON)
        assert _refusal(answer)[:2] == (400, 400), value
        assert answer.json()["message"].startswith(f"body{place}: "), (value, answer.json())


LARGE = {"error_code": 413, "message": "The request body is larger than 65536 bytes."}


@pytest.mark.parametrize("operation_id", WITH_BODY)
def test_bodies_that_are_not_json(stack: Stack, known: dict[str, str], operation_id: str) -> None:
    for body, message in (
        (b'{"topic_name": "a"', "The body is not JSON: Expecting ',' delimiter (character 18)"),
        (b"topic_name=a", "The body is not JSON: Expecting value (character 0)"),
        (b'{"topic_name": "\xff"}', "The body cannot be read as JSON."),
        (b"[" * 4000, "The body cannot be read as JSON."),
        (b'{"partitions_count": ' + b"9" * 5000 + b"}", "The body cannot be read as JSON."),
        (b"", "body: Field required"),
        (b"null", "body: Input should be a valid dictionary or object to extract fields from"),
    ):
        answer = _ask(stack.http, operation_id, known, content=body, headers=JSON)
        assert _refusal(answer) == (400, 400, message), body[:20]
    large = b'{"topic_name": "' + b"a" * 65_536 + b'"}'
    for content in (large, (large[at : at + 4096] for at in range(0, len(large), 4096))):
        answer = _ask(stack.http, operation_id, known, content=content, headers=JSON)
        assert (answer.status_code, answer.json()) == (413, LARGE)


@pytest.mark.parametrize("operation_id", [name for name, each in OPERATIONS.items() if each.example is not None])
def test_what_a_web_page_can_send_and_compressed_bodies_are_refused(
    stack: Stack, known: dict[str, str], operation_id: str
) -> None:
    """With a body that is JSON, which another answer would show to be read."""
    body = json.dumps(OPERATIONS[operation_id].example)
    for content_type in (
        *(None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"),
        *("application/xml", "application/vnd.kafka.json.v2+json"),
    ):
        headers = {} if content_type is None else {"content-type": content_type}
        answer = _ask(stack.http, operation_id, known, content=body, headers=headers)
        assert _refusal(answer)[:2] == (415, 415), content_type
    answer = _ask(stack.http, operation_id, known, content=body, headers={**JSON, "content-encoding": "gzip"})
    message = "The body must not be compressed: no Content-Encoding is understood."
    assert _refusal(answer) == (415, 415, message)


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_without_storage(without_storage: dict[str, str], known: dict[str, str], operation_id: str) -> None:
    for name, error_code, message in (
        ("away", 50302, "Storage cannot be reached."),
        ("late", 50003, "Storage did not answer in time."),
    ):
        with httpx.Client(base_url=without_storage[name], timeout=60) as client:
            answer = _ask(client, operation_id, known)
        if operation_id in OF_REGISTRY:
            assert _refusal(answer) == NO_REGISTRY
        elif operation_id not in WITHOUT_STORAGE:
            assert _refusal(answer) == (503, error_code, message)
        else:
            assert answer.status_code == OPERATIONS[operation_id].status
            assert operation_id != "getHealth" or answer.json()["reasons"][0]["message"] == message


@pytest.mark.parametrize("operation_id", OPERATIONS)
def test_it_works_as_shown(stack: Stack, known: dict[str, str], operation_id: str) -> None:
    """Every example of the description succeeds, but for those of ACLs: there is no authorizer, see test_acls."""
    operation = OPERATIONS[operation_id]
    if operation.method != "GET":
        stack.http.delete(f"{stack.cluster}/topics/orders")
        if operation_id not in ("createKafkaTopic", "createTopics"):
            _fill(stack)
    answer = _ask(stack.http, operation_id, known)
    if operation_id in NOTHING_OPEN:
        assert _refusal(answer) == NOTHING_OPEN[operation_id]
        return
    if "/acls" in operation.path:
        cluster_id = stack.cluster.rpartition("/")[2]
        assert _refusal(answer) == (400, 40002, f"No Authorizer is configured on the brokers of cluster {cluster_id}.")
        return
    assert answer.status_code == operation.status
    assert operation_id == "tailRecords" or '"error_code":4' not in answer.text
    if operation.method == "DELETE" or operation_id == "deleteTopics":
        stack.http.delete(f"{stack.cluster}/topics/orders")
        _fill(stack)
