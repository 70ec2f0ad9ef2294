"""Records by schemas of Apicurio Registry: what confluent-kafka writes, REST and the command line read, and back."""

from __future__ import annotations

import asyncio
import base64
import datetime
import importlib.util
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from conformance.building import TOOLS, built, java_program
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from millrace.ports import Reservation
from support.late import Late, confluent
from support.maven import need_java
from support.registry import Registry
from up_process import RunningUp

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

clients = Late("confluent_kafka.schema_registry")
serialization = Late("confluent_kafka.serialization")
ROOT = Path(__file__).parents[2]
UTC = datetime.UTC

ORDER = {
    "type": "record", "name": "Order", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "count", "type": ["int", "long", "string"]},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}  # fmt: skip
AVRO = {
    "id": 2**63 - 1, "total": Decimal("-1234567890123456789012345678.90"),
    "at": datetime.datetime(2026, 1, 31, 12, 0, 0, 123000, UTC), "day": datetime.date(2026, 1, 31),
    "note": "ü", "count": 2**40, "state": "DONE", "tags": {"a": [0.1, -2.5e300]},
}  # fmt: skip
AVRO_SHOWN = {
    "id": 2**63 - 1, "total": Decimal("-1234567890123456789012345678.90"), "at": 1769860800123, "day": 20484,
    "note": "ü", "count": 2**40, "state": "DONE", "tags": {"a": [Decimal("0.1"), Decimal("-2.5e+300")]},
}  # fmt: skip
JSON = {
    "$schema": "http://json-schema.org/draft-07/schema#", "title": "Order", "type": "object",
    "properties": {"id": {"type": "integer"}, "n": {"type": "number"}}, "required": ["id"],
}  # fmt: skip
JSON_VALUE = {"id": 2**63 - 1, "n": 1.5, "more": ["ü", None]}
PROTO = """syntax = "proto3";
package shop;
message Ignored {
}
message Order {
  message Line {
    sint64 count = 1;
  }
  uint64 id = 1;
  repeated Line lines = 2;
  map<string, double> tags = 3;
  oneof note {
    string text = 4;
    bytes raw = 5;
  }
}
"""
FIRST_MESSAGE = PROTO.replace("message Ignored {\n}\n", "")
PROTO_SHOWN = {
    "id": "18446744073709551615",
    "lines": [{"count": "-9223372036854775808"}],
    "tags": {"a": 0.1},
    "text": "ü",
}


def descriptors(text: str = PROTO) -> descriptor_pb2.FileDescriptorSet:
    package = importlib.util.find_spec("grpc_tools")
    assert package is not None
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "order.proto").write_text(text)
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}", "--descriptor_set_out=out"]
        subprocess.run([*command, "order.proto"], cwd=folder, check=True)
        return descriptor_pb2.FileDescriptorSet.FromString(Path(folder, "out").read_bytes())


@pytest.fixture(scope="module")
def message() -> Any:
    """The class of shop.Order."""
    pool = DescriptorPool()
    for file in descriptors().file:
        pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


@dataclass
class Scene:
    """A registry with its data in a broker, and REST and the command line with the registry."""

    registry: Registry
    up: RunningUp

    def client(self) -> Any:
        return clients.SchemaRegistryClient({"url": self.registry.url})

    def millrace(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ, "MILLRACE_KAFKA": self.up.kafka, "MILLRACE_SCHEMA_REGISTRY": self.registry.url,
            "MILLRACE_REST": self.up.http, "XDG_CONFIG_HOME": "/nonexistent",
        }  # fmt: skip
        command = [sys.executable, "-m", "millrace", *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, env=environment)

    def create(self, topic: str) -> None:
        done = self.millrace("topic", "create", topic)
        assert done.returncode == 0, done.stderr

    def rest(self, path: str, body: str | None = None) -> Any:
        request = urllib.request.Request(
            f"http://{self.up.http}{path}",
            data=None if body is None else body.encode(),
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return exact(answer.read().decode())

    def produce(self, topic: str, value: bytes) -> None:
        producer = confluent.Producer({"bootstrap.servers": self.up.kafka})
        producer.produce(topic, value)
        assert producer.flush(60) == 0

    def shown(self, topic: str) -> list[dict[str, Any]]:
        path = f"/api/v1/topics/{topic}/records?mode=oldest&value_format=schema"
        return list(self.rest(path)["data"])

    def printed(self, topic: str) -> list[Any]:
        done = self.millrace("consume", topic, "-o", "beginning", "-e", "-q", "--decode")
        assert (done.returncode, done.stderr) == (0, "")
        return [exact(line) for line in done.stdout.splitlines()]

    def values(self, topic: str, count: int) -> list[bytes]:
        settings = {"bootstrap.servers": self.up.kafka, "group.id": topic, "auto.offset.reset": "earliest"}
        consumer = confluent.Consumer(settings)
        consumer.subscribe([topic])
        found: list[bytes] = []
        for _ in range(120):
            found += [each.value() for each in consumer.consume(count, 1) if each.error() is None]
            if len(found) >= count:
                break
        consumer.close()
        return found


def exact(text: str) -> Any:
    return json.loads(text, parse_float=Decimal)


@pytest.fixture(scope="module", autouse=True)
def java(need: Callable[..., None]) -> None:
    need_java()
    need("mvn")


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory, java: None) -> Iterator[Scene]:
    folder = tmp_path_factory.mktemp("registry")
    port = Reservation("localhost", 0).address.port
    registry = Registry(folder, f"localhost:{port}")
    environment = {"MILLRACE_SCHEMA_REGISTRY": registry.url, "MILLRACE_SCHEMA_REGISTRY_TIMEOUT_S": "20"}
    options = ("--data-dir", str(folder / "data"), "--kafka-port", str(port), "--http-port", "0")
    with RunningUp(*options, environment=environment, log_path=folder / "up.log") as up, registry:
        yield Scene(registry, up)


def context(topic: str) -> Any:
    return serialization.SerializationContext(topic, serialization.MessageField.VALUE)


def serialized(scene: Scene, kind: str, topic: str, message: Any) -> bytes:
    """Return the bytes of the value of a type by the serializer of confluent-kafka."""
    client, module = scene.client(), Late(f"confluent_kafka.schema_registry.{kind}")
    value: Any
    if kind == "avro":
        made, value = module.AvroSerializer(client, json.dumps(ORDER)), AVRO
    elif kind == "json_schema":
        made, value = module.JSONSerializer(json.dumps(JSON), client), JSON_VALUE
    else:
        made = module.ProtobufSerializer(message, client, {"use.deprecated.format": False})
        value = json_format.ParseDict(PROTO_SHOWN, message())
    return bytes(made(value, context(topic)))


async def serialized_by_async(scene: Scene, kind: str, topic: str, message: Any) -> bytes:
    module = Late(f"confluent_kafka.schema_registry.{kind}")
    client = clients.AsyncSchemaRegistryClient({"url": scene.registry.url})
    value: Any
    if kind == "avro":
        made, value = await module.AsyncAvroSerializer(client, json.dumps(ORDER)), AVRO
    elif kind == "json_schema":
        made, value = await module.AsyncJSONSerializer(json.dumps(JSON), client), JSON_VALUE
    else:
        made = await module.AsyncProtobufSerializer(message, client, {"use.deprecated.format": False})
        value = json_format.ParseDict(PROTO_SHOWN, message())
    return bytes(await made(value, context(topic)))


def deserialized(scene: Scene, kind: str, topic: str, data: bytes, message: Any) -> Any:
    client, module = scene.client(), Late(f"confluent_kafka.schema_registry.{kind}")
    if kind == "avro":
        return module.AvroDeserializer(client)(data, context(topic))
    if kind == "json_schema":
        return module.JSONDeserializer(json.dumps(JSON), schema_registry_client=client)(data, context(topic))
    # Without a registry: it wants descriptors (format=serialized), and Apicurio answers with the text.
    made = module.ProtobufDeserializer(message, {"use.deprecated.format": False})
    return json_format.MessageToDict(made(data, context(topic)))


SHOWN = {"avro": AVRO_SHOWN, "json_schema": exact(json.dumps(JSON_VALUE)), "protobuf": exact(json.dumps(PROTO_SHOWN))}
VALUES = {"avro": AVRO, "json_schema": JSON_VALUE, "protobuf": PROTO_SHOWN}
KINDS = list(SHOWN)


@pytest.mark.parametrize("kind", KINDS)
def test_what_confluent_serializers_write_is_read(scene: Scene, kind: str, message: Any) -> None:
    topic = f"read-{kind}"
    scene.produce(topic, serialized(scene, kind, topic, message))
    scene.produce(topic, asyncio.run(serialized_by_async(scene, kind, topic, message)))
    rows = scene.shown(topic)
    assert [row["value"] for row in rows] == [SHOWN[kind]] * 2, rows
    assert {row["value_schema"]["subject"] for row in rows} == {f"{topic}-value"}
    assert scene.printed(topic) == [SHOWN[kind]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_what_rest_and_the_command_line_write_is_read_by_confluent(scene: Scene, kind: str, message: Any) -> None:
    topic = f"written-{kind}"
    text = {"avro": json.dumps(ORDER), "json_schema": json.dumps(JSON), "protobuf": FIRST_MESSAGE}[kind]
    data = json.dumps(SHOWN[kind], default=lambda number: f"<{number}>").replace('"<', "").replace('>"', "")
    name = {"avro": "AVRO", "json_schema": "JSONSCHEMA", "protobuf": "PROTOBUF"}[kind]
    body = f'{{"value":{{"type":"{name}","schema":{json.dumps(text)},"data":{data}}}}}'
    scene.create(topic)
    report = scene.rest(f"/v3/clusters/-/topics/{topic}/records", body)
    assert (report["error_code"], report["value"]["subject"]) == (200, f"{topic}-value"), report
    done = scene.millrace("produce", topic, "--schema", f"{topic}-value:1", stdin=data + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert scene.rest(f"/v3/clusters/-/topics/{topic}/records", f'{{"value":{{"data":{data}}}}}')["error_code"] == 200
    found = scene.values(topic, 3)
    assert len(found) == 3
    assert [deserialized(scene, kind, topic, each, message) for each in found] == [VALUES[kind]] * 3
    assert [row["value"] for row in scene.shown(topic)] == [SHOWN[kind]] * 3


#: A value whose numbers JavaScript knows exactly.
SMALL = {
    "type": "record", "name": "Small", "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "DONE"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
    ],
}  # fmt: skip
SMALL_VALUE = {"id": 2**52, "note": "ü", "state": "DONE", "tags": {"a": [0.5, -1.25]}}
SMALL_JSON = {"id": 2**52, "n": 1.5, "more": ["ü", None]}


class Program:
    """A program of another language, which answers a line of JSON with one."""

    def __init__(self, command: Sequence[str], folder: Path, url: str) -> None:
        self._command, self._folder, self._url = command, folder, url

    def __call__(self, **asked: str | object) -> dict[str, Any]:
        line = json.dumps({"url": self._url, **asked})
        done = subprocess.run(
            self._command, input=line + "\n", cwd=self._folder, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return dict(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_javascript_both_ways(scene: Scene, kind: str, need: Callable[..., None]) -> None:
    need(*TOOLS["schemaregistry-js"])
    schema, value = {"AVRO": (SMALL, SMALL_VALUE), "JSON": (JSON, SMALL_JSON)}[kind]
    both_ways(
        scene, Program(["node", "serdes.js"], built("schemaregistry-js"), scene.registry.url), kind, schema, value
    )


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_go_both_ways(scene: Scene, kind: str, need: Callable[..., None]) -> None:
    need(*TOOLS["franz-go"])
    schema = {"AVRO": SMALL, "JSON": JSON}[kind]
    value = {**SMALL_VALUE, "id": 2**63 - 1}
    both_ways(scene, Program(["bin/schemas"], built("franz-go"), scene.registry.url), kind, schema, value)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_java_both_ways(scene: Scene, kind: str, need: Callable[..., None]) -> None:
    """The serializers of Apicurio look schemas up by Apicurio's API, not by Confluent's."""
    need(*TOOLS["apicurio-serdes"])
    first = descriptors(FIRST_MESSAGE).SerializeToString()
    schema, value = {
        "AVRO": (SMALL, {**SMALL_VALUE, "id": 2**63 - 1}),
        "JSON": (JSON, JSON_VALUE),
        "PROTOBUF": (base64.b64encode(first).decode(), PROTO_SHOWN),
    }[kind]
    program = Program(java_program("Schemas"), built("apicurio-serdes"), scene.registry.url)
    both_ways(scene, program, kind, schema, value)


def both_ways(scene: Scene, program: Program, kind: str, schema: object, value: object) -> None:
    """Have a program read what REST and the command line write, and these read what it writes."""
    topic = f"{'-'.join(program._command[:1])}-{kind}".replace("/", "-").lower()
    scene.create(topic)
    text = schema if isinstance(schema, str) else json.dumps(schema)
    made = program(kind=kind, topic=topic, schema=text, value=value)
    scene.produce(topic, base64.b64decode(made["data"]))
    body = json.dumps({"value": {"data": value}})
    report = scene.rest(f"/v3/clusters/-/topics/{topic}/records", body)
    assert report["error_code"] == 200, report
    done = scene.millrace("produce", topic, "--schema", f"{topic}-value", stdin=json.dumps(value) + "\n")
    assert (done.returncode, done.stderr) == (0, "")
    exactly = exact(json.dumps(value))
    assert [row["value"] for row in scene.shown(topic)] == [exactly] * 3
    assert scene.printed(topic) == [exactly] * 3
    for data in scene.values(topic, 3):
        read = program(kind=kind, topic=topic, schema=text, data=base64.b64encode(data).decode())
        assert read["value"] == value


def test_evolution_and_references(scene: Scene) -> None:
    """Each record is read by the schema that it was written by; a reader of confluent-kafka sees the default."""
    client, avro = scene.client(), Late("confluent_kafka.schema_registry.avro")
    money = '{"type":"record","name":"Money","namespace":"shop","fields":[{"name":"cents","type":"long"}]}'
    client.register_schema("money", clients.Schema(money, "AVRO"))
    reference = clients.SchemaReference("shop.Money", "money", 1)
    first = {"type": "record", "name": "Bill", "namespace": "shop", "fields": [{"name": "sum", "type": "shop.Money"}]}
    second = {**first, "fields": [*first["fields"], {"name": "paid", "type": "boolean", "default": True}]}
    for each in (first, second):
        client.register_schema("bills-value", clients.Schema(json.dumps(each), "AVRO", [reference]))
    scene.create("bills")
    for version, data in (
        (1, '{"sum":{"cents":1}}'),
        (2, '{"sum":{"cents":2},"paid":false}'),
        (2, '{"sum":{"cents":3}}'),
    ):
        body = f'{{"value":{{"schema_version":{version},"data":{data}}}}}'
        assert scene.rest("/v3/clusters/-/topics/bills/records", body)["error_code"] == 200
    assert [(row["value"], row["value_schema"]["version"]) for row in scene.shown("bills")] == [
        ({"sum": {"cents": 1}}, 1),
        ({"sum": {"cents": 2}, "paid": False}, 2),
        ({"sum": {"cents": 3}, "paid": True}, 2),
    ]
    reader = avro.AvroDeserializer(client, clients.Schema(json.dumps(second), "AVRO", [reference]))
    assert [reader(each, context("bills")) for each in scene.values("bills", 3)] == [
        {"sum": {"cents": 1}, "paid": True},
        {"sum": {"cents": 2}, "paid": False},
        {"sum": {"cents": 3}, "paid": True},
    ]


def test_the_readme(scene: Scene, tmp_path: Path) -> None:
    code = re.search(r"<!-- run with a registry -->\n```bash\n(.*?)```", (ROOT / "README.md").read_text(), re.S).group(
        1
    )
    assert len(code.splitlines()) == 10
    code = code.replace("http://localhost:8081/apis/ccompat/v7", scene.registry.url)
    code = code.replace("localhost:8082", scene.up.http).replace("orders", "readme-orders")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "MILLRACE_KAFKA": scene.up.kafka, "XDG_CONFIG_HOME": str(tmp_path)}
    command = ["bash", "-euo", "pipefail", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line.startswith(("registered", '{"id":', "refused"))] == [
        f"registered: readme-orders-value version 1, id {number(lines[0])}",
        f"registered: readme-orders-value version 2, id {number(lines[1])}",
        '{"id":1}',
        '{"id":2,"note":"new"}',
        "refused",
    ]
    assert "millrace: The schema registry answers 409" in done.stderr


def number(line: str) -> int:
    return int(line.rpartition(" ")[2])


def test_a_registry_that_is_killed_in_between(scene: Scene) -> None:
    topic = "killed"
    scene.create(topic)
    path = f"/v3/clusters/-/topics/{topic}/records"
    known = '{"value":{"type":"AVRO","schema":"\\"long\\"","data":1}}'
    assert scene.rest(path, known)["error_code"] == 200
    scene.registry.kill()
    assert scene.rest(path, known)["error_code"] == 200  # it is known
    unknown = '{"value":{"type":"AVRO","schema":"\\"string\\"","subject":"killed","data":"a"}}'
    said = "Error serializing message. The schema registry cannot be reached."
    assert scene.rest(path, unknown) == {"error_code": 42207, "message": said}
    assert [row["value"] for row in scene.shown(topic)] == [1, 1]
    done = scene.millrace("consume", topic, "-o", "beginning", "-e", "-q", "--decode")
    assert (done.returncode, "The schema registry cannot be reached" in done.stderr) == (0, True)
    with pytest.raises(urllib.error.HTTPError) as refused:
        scene.rest("/api/v1/schemas/subjects")
    assert refused.value.code == 503
    scene.registry.start()
    for _ in range(60):
        if scene.rest(path, unknown)["error_code"] == 200:
            break
    assert [row["value"] for row in scene.shown(topic)] == [1, 1, "a"]
    assert "killed" in [each["subject"] for each in scene.rest("/api/v1/schemas/subjects")["data"]]
