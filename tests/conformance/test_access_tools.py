"""kafka-acls, kafka-configs and confluent-kafka's administrator with ACLs and quotas of Millrace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from millrace.broker import Broker
from support.kafka_tools import tool
from support.late import Late

pytestmark = pytest.mark.conformance

admin = Late("confluent_kafka.admin")
ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with Broker(authorizer="acl", super_users="User:ANONYMOUS") as broker:
        yield broker.bootstrap_servers


def test_kafka_acls(secured: str) -> None:
    of_orders = ("--bootstrap-server", secured, "--topic", "orders")
    tool(ACLS, *of_orders, "--add", "--allow-principal", "User:alice", "--operation", "Read")
    assert tool(ACLS, *of_orders, "--list").strip() == (
        "Current ACLs for resource `ResourcePattern(resourceType=TOPIC, name=orders, patternType=LITERAL)`:\n"
        "\t(principal=User:alice, host=*, operation=READ, permissionType=ALLOW)"
    )
    tool(ACLS, *of_orders, "--remove", "--force")
    assert tool(ACLS, *of_orders, "--list").strip() == ""


def test_kafka_configs(secured: str) -> None:
    server = ("--bootstrap-server", secured)
    user = (*server, "--entity-type", "users", "--entity-name", "alice")
    tool(CONFIGS, *user, "--alter", "--add-config", "producer_byte_rate=1048576")
    assert tool(CONFIGS, *user, "--describe").strip() == (
        "Quota configs for user-principal 'alice' are producer_byte_rate=1048576.0"
    )
    addresses = (*server, "--entity-type", "ips")
    tool(CONFIGS, *addresses, "--entity-default", "--alter", "--add-config", "connection_creation_rate=100")
    assert tool(CONFIGS, *addresses, "--describe").strip() == (
        "Quota configs for the default ip are connection_creation_rate=100.0"
    )


def test_confluent_admin(secured: str) -> None:
    client = admin.AdminClient({"bootstrap.servers": secured})
    kinds = admin.ResourceType, admin.ResourcePatternType, admin.AclOperation, admin.AclPermissionType
    resource, pattern, operation, permission = kinds
    row = admin.AclBinding(resource.TOPIC, "t", pattern.PREFIXED, "User:bob", "*", operation.WRITE, permission.DENY)
    every = admin.AclBindingFilter(resource.ANY, None, pattern.ANY, "User:bob", None, operation.ANY, permission.ANY)
    for future in client.create_acls([row]).values():
        assert future.result() is None
    assert client.describe_acls(every).result() == [row]
    (deleted,) = client.delete_acls([every]).values()
    assert deleted.result() == [row]
    assert client.describe_acls(every).result() == []
