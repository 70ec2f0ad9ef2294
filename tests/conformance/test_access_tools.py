"""kafka-acls, kafka-configs and the administrators of confluent-kafka and franz-go with ACLs, quotas and users."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import pytest
from conformance.building import TOOLS, built
from millrace.broker import Broker
from support.kafka_tools import tool
from support.late import Late

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

admin = Late("confluent_kafka.admin")
ACLS, CONFIGS = "org.apache.kafka.tools.AclCommand", "kafka.admin.ConfigCommand"


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    with Broker(authorizer="acl", super_users="User:ANONYMOUS") as broker:
        yield broker.bootstrap_servers


@pytest.fixture(scope="module")
def with_users() -> Iterator[str]:
    with Broker(users={"admin": "admin-secret"}, authorizer="acl", super_users="User:admin") as broker:
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


def test_confluent_admin_of_users(with_users: str) -> None:
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "admin"}
    client = admin.AdminClient({"bootstrap.servers": with_users, "sasl.password": "admin-secret", **login})
    mechanism, credential = admin.ScramMechanism.SCRAM_SHA_512, admin.ScramCredentialInfo
    made = admin.UserScramCredentialUpsertion("carol", credential(mechanism, 8192), b"carol-secret")
    for change in (made, admin.UserScramCredentialDeletion("carol", mechanism)):
        assert client.alter_user_scram_credentials([change])["carol"].result() is None
        described = client.describe_user_scram_credentials(["carol"])["carol"]
        if change is made:
            (found,) = described.result().scram_credential_infos
            assert (found.mechanism, found.iterations) == (mechanism, 8192)
        else:
            assert described.exception().args[0].name() == "RESOURCE_NOT_FOUND"


def test_franz_go_admin(with_users: str, need: Callable[..., None]) -> None:
    need(*TOOLS["franz-go"])
    command = ["bin/access", with_users, "admin", "admin-secret"]
    done = subprocess.run(command, cwd=built("franz-go"), capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "acls": ["ALLOW User:bob * READ TOPIC PREFIXED orders-"],
        "acls left": None,
        "quotas": "[{{user=bob} [producer_byte_rate=1048576.000000]}]",
        "quotas left": "[]",
        "user": "[SCRAM-SHA-512=iterations=8192]",
        "user left": "RESOURCE_NOT_FOUND: A request illegally referred to a resource that does not exist.",
        "token": "DELEGATION_TOKEN_AUTH_DISABLED: Delegation Token feature is not enabled.",
    }
