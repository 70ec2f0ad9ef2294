"""Apicurio Registry with its data in topics of Millrace, used by confluent-kafka."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from millrace.broker import Broker
from millrace.ports import Reservation
from support.certificates import Authority
from support.late import Late
from support.maven import need_java
from support.registry import Registry

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(900)]

registry_client = Late("confluent_kafka.schema_registry")
ROOT = Path(__file__).parents[2]
FIRST: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
NOTE = {"name": "note", "type": "string", "default": ""}
#: The topics of the registry. Each has one record of every change: nothing of the journal may expire.
JOURNAL, SNAPSHOTS, EVENTS = "kafkasql-journal", "kafkasql-snapshots", "registry-events"


def order(*more: dict[str, object]) -> str:
    return json.dumps({**FIRST, "fields": [*FIRST["fields"], *more]})


@pytest.fixture(scope="module", autouse=True)
def java(need: Callable[..., None]) -> None:
    need_java()
    need("mvn")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("registry")


@pytest.fixture(scope="module")
def broker(data: Path) -> Iterator[Broker]:
    port = Reservation("localhost", 0).address.port  # the same after a restart
    with Broker(data_dir=data / "data", kafka_port=port) as broker:
        yield broker


def test_schemas_outlive_restarts_of_both(broker: Broker, data: Path) -> None:
    registry = Registry(data, broker.bootstrap_servers)
    with registry:
        client = registry_client.SchemaRegistryClient({"url": registry.url})
        first = client.register_schema("orders-value", registry_client.Schema(order(), "AVRO"))
        client.set_compatibility("orders-value", "BACKWARD")
        second = client.register_schema("orders-value", registry_client.Schema(order(NOTE), "AVRO"))
        assert first != second
        changed = registry_client.Schema(order({"name": "total", "type": "double"}), "AVRO")
        with pytest.raises(registry_client.SchemaRegistryError) as refused:
            client.register_schema("orders-value", changed)
        assert refused.value.http_status_code == 409
        for number in range(100):
            client.register_schema(f"topic-{number}-value", registry_client.Schema('"string"', "AVRO"))
        registry.kill()
        broker.close()
        broker.start()
        registry.start()
        client = registry_client.SchemaRegistryClient({"url": registry.url})
        assert len(client.get_subjects()) == 101
        assert client.get_versions("orders-value") == [1, 2]
        assert json.loads(client.get_schema(first).schema_str) == FIRST
        assert client.register_schema("orders-value", registry_client.Schema(order(NOTE), "AVRO")) == second


def test_the_topics_of_the_registry(broker: Broker) -> None:
    admin = Late("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resources = [admin.ConfigResource("topic", name) for name in (JOURNAL, SNAPSHOTS, EVENTS)]
    found = {
        resource.name: {name: future.result()[name].value for name in ("cleanup.policy", "retention.ms")}
        for resource, future in client.describe_configs(resources).items()
    }
    forever = {"cleanup.policy": "delete", "retention.ms": "-1"}
    assert found[JOURNAL] == found[SNAPSHOTS] == forever


def test_a_secured_broker(tmp_path: Path) -> None:
    """SCRAM over TLS, and the ACLs of docs/schemas.md, with the variables of docker-compose.secured.yml."""
    authority = Authority(tmp_path / "ca")
    pair = authority.issue("gateway")
    login = tmp_path / "registry.jaas"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login.write_text(f'KafkaClient {{ {module} required username="registry" password="registry-secret"; }};\n')
    users = {"admin": "admin-secret", "registry": "registry-secret"}
    compose = yaml.safe_load((ROOT / "docker-compose.secured.yml").read_text())["services"]["registry"]
    environment = {
        name: value.replace("/run/secrets/ca.pem", str(authority.certificate))
        for name, value in compose["environment"].items()
        if name != "JAVA_OPTS_APPEND"
    }
    option = compose["environment"]["JAVA_OPTS_APPEND"].replace("/run/secrets/registry.jaas", str(login))
    tls = (pair.key, pair.certificate)
    with Broker(data_dir=tmp_path / "data", users=users, tls=tls, authorizer="acl", super_users="User:admin") as broker:
        properties = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority.certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": users["admin"],
        }
        options = [word for name, value in properties.items() for word in ("-X", f"{name}={value}")]
        page = (ROOT / "docs" / "schemas.md").read_text()
        commands = re.findall(r"^millrace acl create .+$", page, re.MULTILINE)
        assert len(commands) == 3
        for command in commands:
            words = shlex.split(command.partition("#")[0])[1:]
            millrace = [sys.executable, "-m", "millrace", *words, "--kafka", broker.bootstrap_servers, *options]
            done = subprocess.run(millrace, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
        registry = Registry(tmp_path, broker.bootstrap_servers, options=(option,), environment=environment)
        with registry:
            schemas = registry_client.SchemaRegistryClient({"url": registry.url})
            number = schemas.register_schema("orders-value", registry_client.Schema(order(), "AVRO"))
            assert schemas.get_latest_version("orders-value").schema_id == number
