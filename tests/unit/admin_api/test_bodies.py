"""Bodies: the memory of the worst ones of every route."""

from __future__ import annotations

import asyncio
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from admin_api import errors
from admin_api.app import create_app
from admin_api.kafka_clients import KafkaClients
from admin_api.rights import EVERYTHING
from admin_api.rules import reads_in_parts
from admin_api.settings import AdminSettings
from broker_contract import access_pb2, cluster_pb2, data_pb2, topics_pb2, users_pb2
from service_chassis.http.bodies import BODY_BYTES_MAX, VALUES_MAX
from starlette.types import Message

DESCRIPTION = json.loads((Path(__file__).parents[3] / "admin-api" / "openapi.json").read_text())
#: Memory of one request, as a multiple of the largest body.
MEMORY_FACTOR = 20
#: Bytes of an answer, where it is not 2,048: 100 topics have a row each.
ANSWER_BYTES_MAX = {"createTopics": 10_000}
#: A group that does not exist: a body is parsed before its group is looked for.
GROUP = {"consumer_group_id": "G", "user_name": "U"}
#: The operations on several configurations, without the beginning of their names.
BATCHES = ("TopicConfigBatch", "BrokerConfigBatch", "ClusterConfigs")
#: Every kind of short value, and longer ones of which each is another object.
FILLERS: dict[str, Callable[[int], str]] = {
    "number": lambda _: "1",
    "negative": lambda _: "-1",
    "float": lambda _: "0.5",
    "null": lambda _: "null",
    "text": lambda _: '""',
    "astral text": lambda _: '"\U0001f980"',
    "object": lambda _: "{}",
    "array": lambda _: "[]",
    "object of one": lambda _: '{"a":1}',
    "other object": lambda n: f'{{"{n}":1}}',
    "array of one": lambda _: "[1]",
    "other number": lambda n: str(1000 + n),
    "large number": lambda n: str(2**70 + n),
    "other text": lambda n: f'"{n:x}"',
}


class Operation(NamedTuple):
    method: str
    path: str
    schema: dict[str, Any]


def _alternatives(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the schemas that a value may have, without null."""
    if "anyOf" in schema:
        return [found for option in schema["anyOf"] if option != {"type": "null"} for found in _alternatives(option)]
    if "$ref" in schema:
        return _alternatives(DESCRIPTION["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    return [schema]


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the first schema that a value may have."""
    return _alternatives(schema)[0]


OPERATIONS = {
    operation["operationId"]: Operation(
        method.upper(), path, _resolved(operation["requestBody"]["content"]["application/json"]["schema"])
    )
    for path, methods in DESCRIPTION["paths"].items()
    for method, operation in methods.items()
    # Streams of records are in test_produce.
    if "requestBody" in operation and not reads_in_parts(method.upper(), path)
}


def _example(schema: dict[str, Any], number: int) -> Any:
    """Return a small value of this schema, for each number another one where the schema has more than one."""
    schema = _resolved(schema)
    match schema["type"]:
        case "object" if "properties" not in schema:  # of any names
            (values,) = (schema.get("patternProperties") or {"": schema.get("additionalProperties")}).values()
            return {str(number): _example(values, number)}
        case "object":
            return {name: _example(schema["properties"][name], number) for name in schema.get("required", ())}
        case "array":
            return [_example(schema["items"], number)]
        case "string" if "enum" in schema:
            return schema["enum"][number % len(schema["enum"])]
        case "string":
            return f"a{number}"
        case "integer" | "number":
            return number
        case kind:
            raise AssertionError(f"no example of {kind}")


def _repeated(before: str, filler: Callable[[int], str], after: str) -> Iterator[str]:
    """Yield the text with as many values as the bytes allow, and as the limit of values allows."""
    room = BODY_BYTES_MAX - len((before + after).encode()) - 64
    for count in (BODY_BYTES_MAX, VALUES_MAX - 64, (VALUES_MAX - 64) // 2, 100):
        values: list[str] = []
        size = 0
        for number in range(count):
            value = filler(number)
            size += len(value.encode()) + 1
            if size > room:
                break
            values.append(value)
        yield before + ",".join(values) + after


def _arrays(schema: dict[str, Any], before: str, after: str) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the text around each array's values, and its items' schema, for the arrays of an object."""
    for name, each in schema["properties"].items():
        inner = _resolved(each)
        if inner["type"] == "array":
            items = _resolved(inner["items"])
            opened, closed = f'{before}"{name}":[', f"]{after}"
            yield opened, items, closed
            if items["type"] == "object":
                yield from _arrays(items, opened + "{", "}" + closed)


def _worst(schema: dict[str, Any]) -> Iterator[bytes]:
    required = json.dumps(_example(schema, 1))[1:-1]
    before, after = "{" + (required + "," if required else ""), "}"
    known = "validate_only" if "validate_only" in schema["properties"] else next(reversed(schema["properties"]))
    texts: list[str] = []
    for opened, items, closed in [*_arrays(schema, before, after), ("[", {"type": "string"}, "]")]:
        for filler in (*FILLERS.values(), lambda n, items=items: json.dumps(_example(items, n))):
            texts += _repeated(opened, filler, closed)
    for name, each in schema["properties"].items():
        if "patternProperties" in each:  # an object of any names
            for filler in FILLERS.values():
                texts += _repeated(f'{{"{name}":{{', lambda n, filler=filler: f'"{n}":{filler(n)}', "}}")
    for filler in FILLERS.values():  # members that the schema does not know, and known ones many times
        texts += _repeated(before, lambda n, filler=filler: f'"{n:x}":{filler(n)}', after)
        texts += _repeated(before, lambda n, filler=filler: f'"{known}":{filler(n)}', after)
    for depth in (900, min(VALUES_MAX, 5000) - 8):
        texts += ["[" * depth + "]" * depth, '{"a":' * depth + "1" + "}" * depth, before + '"configs":' + "[" * depth]
    for name, each in schema["properties"].items():
        kinds = {alternative["type"] for alternative in _alternatives(each)}
        room = BODY_BYTES_MAX - len(before) - len(name) - 64
        if "string" in kinds:
            for unit in ("a", "\U0001f980", "\\u0000", "\\ud800"):
                texts.append("{" + f'"{name}":"' + unit * (room // len(unit.encode())) + '"}')
            texts.append("{" + f'"{name}":"\U0001f980' + "a" * (room - 8) + '"}')
        if kinds & {"integer", "boolean"}:
            texts += ["{" + f'"{name}":{digits}' + "}" for digits in ("9" * 4000, "9" * room, "1e9" + "0" * room)]
    texts += [" " * BODY_BYTES_MAX, before + '"' + "k" * (BODY_BYTES_MAX - len(before) - 8) + '":1}']
    assert len(texts) > 150
    for text in dict.fromkeys(texts):
        body = text.encode()
        assert len(body) <= BODY_BYTES_MAX, text[:200]
        yield body


class FakeStorage:
    """Storage that creates every topic with a legal name, and makes every change that it is asked for."""

    #: The rights of everyone without an authorizer.
    rights = EVERYTHING
    correlation_id = 1

    def calls(self, *_: object, **__: object) -> FakeStorage:
        return self

    async def change(self, _method: object, request: Any) -> Any:
        """Accept users and quotas."""
        if isinstance(request, users_pb2.AlterCredentialsRequest):
            return users_pb2.AlterCredentialsResponse()
        return access_pb2.AlterQuotasResponse()

    async def cluster(self) -> cluster_pb2.DescribeClusterResponse:
        listener = cluster_pb2.Listener(name="K", host="localhost", port=9092)
        gateway = cluster_pb2.Gateway(node_id=1, name="gateway", listeners=[listener])
        return cluster_pb2.DescribeClusterResponse(cluster_id="C", gateways=[gateway])

    async def offsets(self, targets: list[Any], **_: object) -> list[data_pb2.ListOffsetsResponse.Found]:
        return [data_pb2.ListOffsetsResponse.Found(offset=9) for _ in targets]

    async def delete_records(self, _topic: str, before: dict[int, int]) -> dict[int, int]:
        return before

    async def create_topic(self, topic: topics_pb2.NewTopic, *, validate_only: bool) -> topics_pb2.CreatedTopic:
        assert validate_only in (False, True)
        errors.check(0 if len(topic.name) < 250 else 17)
        return topics_pb2.CreatedTopic(name=topic.name, partition_count=1, replication_factor=1)

    async def create_topics(self, topics: list[topics_pb2.NewTopic], *, validate_only: bool) -> list[Any]:
        return [await self.create_topic(topic, validate_only=validate_only) for topic in topics]

    async def delete_topics(self, names: list[str]) -> dict[str, errors.ApiError]:
        return {}

    async def create_partitions(self, name: str, partition_count: int) -> None: ...

    async def topic(self, name: str) -> topics_pb2.Topic:
        return topics_pb2.Topic(name=name, partition_count=2)

    async def describe_groups(self, *_: object) -> None:
        errors.check(errors.GROUP_ID_NOT_FOUND)

    committed_offsets = groups = producers = describe_groups

    async def configs(self, *_: object, key: str) -> list[topics_pb2.ResourceConfigs]:
        return [topics_pb2.ResourceConfigs(configs=[topics_pb2.Config(name=key)])]

    async def alter_configs(self, _type: int, name: str, changes: object, *, validate_only: bool = False) -> None:
        assert name in ("T", "1", "")
        assert isinstance(changes, list)
        assert validate_only in (False, True)


async def _status_and_answer(app: Any, operation: Operation, parts: list[bytes]) -> tuple[int, bytes]:
    """Make one request whose body arrives in these parts."""
    left = list(reversed(parts))
    sent: list[Message] = []

    async def receive() -> Message:
        if not left:
            return {"type": "http.disconnect"}
        part = left.pop()
        return {"type": "http.request", "body": part, "more_body": bool(left)}

    async def send(message: Message) -> None:
        sent.append(message)

    path = operation.path
    for name, value in {"cluster_id": "C", "topic_name": "T", "broker_id": "1", "name": "k", **GROUP}.items():
        path = path.replace(f"{{{name}}}", value)
    assert "{" not in path, "the memory of this route is not measured: give its parameters"
    headers = [
        (b"host", b"localhost"),
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % sum(map(len, parts))),
    ]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": operation.method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "root_path": "", "query_string": b"", "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8082), "state": {},
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])


def _shape(schema: dict[str, Any]) -> str:
    """Return the fields and types of a schema: they decide how much its parser builds."""
    kinds = {
        name: [(found["type"], found.get("items")) for found in _alternatives(each)]
        for name, each in schema["properties"].items()
    }
    return str(kinds)


#: One operation for each shape of a body.
SHAPES = {_shape(operation.schema): name for name, operation in reversed(OPERATIONS.items())}
#: Every body of the operation with the most kinds of values, and every few of the others.
STEPS = {"createKafkaTopic": 1}


def test_shapes() -> None:
    assert sorted(SHAPES.values()) == [
        *(
            "abortOpenTransaction",
            "batchCreateKafkaAcls",
            "copyConsumerGroupOffsets",
            "createKafkaAcls",
            "createKafkaTopic",
            "createTopics",
        ),
        *(
            "deleteRecords",
            "deleteTopics",
            "logIn",
            "resetConsumerGroupOffsets",
            "restoreConsumerGroupOffsets",
        ),
        *("setQuota", "setUserPassword", "truncateRecords"),
        *("updateKafkaClusterConfig", "updateKafkaClusterConfigs", "updatePartitionCountKafkaTopic"),
    ]


@pytest.mark.blocks_event_loop("tracemalloc, which measures the memory here, makes each allocation many times slower")
@pytest.mark.parametrize("operation_id", SHAPES.values())
def test_the_worst_bodies_take_little_memory_and_get_a_short_answer(operation_id: str) -> None:
    operation = OPERATIONS[operation_id]
    app = create_app(AdminSettings(), FakeStorage(), KafkaClients([], timeout_s=1))  # type: ignore[arg-type]
    good = json.dumps(_example(operation.schema, 1)).encode()

    def peak(runner: asyncio.Runner, body: bytes) -> int:
        parts = [body[at : at + 8192] for at in range(0, len(body), 8192)]
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        status, answer = runner.run(_status_and_answer(app, operation, parts))
        grown = tracemalloc.get_traced_memory()[1] - before
        assert status in (200, 201, 204, 400, 404, 413, 422), answer
        assert len(answer) <= ANSWER_BYTES_MAX.get(operation_id, 2048), answer[:500]
        return grown

    with asyncio.Runner() as runner:
        status, answer = runner.run(_status_and_answer(app, operation, [good]))
        refused = (b"No Authorizer is configured", b"Consumer group id not found.")
        assert status in (200, 201, 204) or any(words in answer for words in refused), answer
        # Made before: to make them takes ten times as long while memory is traced.
        worst_bodies = list(itertools.islice(_worst(operation.schema), 0, None, STEPS.get(operation_id, 5)))
        tracemalloc.start()
        try:
            peaks = {body: peak(runner, body) for body in worst_bodies}
        finally:
            tracemalloc.stop()
    worst = max(peaks, key=lambda body: peaks[body])
    assert peaks[worst] <= MEMORY_FACTOR * BODY_BYTES_MAX, (peaks[worst] / BODY_BYTES_MAX, worst[:300])


def test_every_list_of_a_body_has_a_largest_length() -> None:
    def lists(name: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        schema = _resolved(schema)
        if schema["type"] == "array":
            yield name, schema
            yield from lists(f"{name}[]", schema["items"])
        for each, inner in schema.get("properties", {}).items():
            yield from lists(f"{name}.{each}", inner)

    found = {
        name: schema.get("maxItems")
        for operation_id, operation in OPERATIONS.items()
        for name, schema in lists(operation_id, operation.schema)
    }
    assert found == {
        "alterConfigs.data": 100,
        "batchCreateKafkaAcls.data": 100,
        **dict.fromkeys((f"updateKafka{each}.data" for each in BATCHES), 100),
        "createKafkaTopic.configs": 100,
        "createKafkaTopic.replicas_assignments": 1000,
        "createKafkaTopic.replicas_assignments[].broker_ids": 16,
        "createTopics.topics": 256,
        "createTopics.topics[].configs": 100,
        "createTopics.topics[].replicas_assignments": 1000,
        "createTopics.topics[].replicas_assignments[].broker_ids": 16,
        "deleteTopics.topic_names": 256,
        "resetConsumerGroupOffsets.partitions": 1000,
        "restoreConsumerGroupOffsets.offsets": 500,
        "setQuota.entity": 3,
    }
