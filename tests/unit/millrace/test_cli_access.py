"""`millrace acl` and `millrace quota` against a broker with an authorizer, whose clients are super users."""

from __future__ import annotations

import pytest
from millrace.broker import Broker


@pytest.fixture(scope="module")
def secured():
    with Broker(authorizer="acl", super_users="User:ANONYMOUS") as broker:
        yield broker


@pytest.fixture
def ask(run, secured):
    return lambda *arguments: run(*arguments, "--kafka", secured.bootstrap_servers)


@pytest.fixture
def ask_json(run, secured):
    return lambda *arguments: run.json(*arguments, "--kafka", secured.bootstrap_servers)


READ = {
    "principal": "User:alice",
    "host": "*",
    "permission": "allow",
    "operation": "read",
    "resource": "topic",
    "pattern": "prefixed",
    "name": "or",
}


def test_acls_are_created_listed_and_deleted(ask, ask_json):
    options = ("-p", "User:alice", "--operation", "read", "--topic", "or", "--prefixed")
    assert ask("acl", "create", *options) == (0, ["created: allow read on topic or… to User:alice from *"], "")
    denied = ("--operation", "all", "--cluster", "--deny", "--host", "10.0.0.1")
    (row,) = ask_json("acl", "create", "-p", "User:bob", *denied)
    assert (row["name"], row["permission"], row["host"]) == ("kafka-cluster", "deny", "10.0.0.1")
    assert ask_json("acl", "list", "--topic", "orders") == [READ]
    assert ask_json("acl", "list", "--topic", "x") == []
    assert [each["principal"] for each in ask_json("acl", "list")] == ["User:alice", "User:bob"]
    delete = ("acl", "delete", "-p", "User:alice")
    would = ["would delete: allow read on topic or… to User:alice from *", "add --yes to do it"]
    assert ask(*delete) == (0, would, "")
    assert ask_json("acl", "list", "-p", "User:alice") == [READ]
    assert ask_json(*delete, "--yes") == [{**READ, "deleted": True}]
    assert ask(*delete, "--yes") == (0, ["there are no such ACLs"], "")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("create", "--topic", "t"), "name --principal, --operation and a resource, such as --topic"),
        (("delete",), "name --principal or a resource, such as --topic"),
        (("list", "--topic", "a", "--cluster"), "name one resource"),
        (("list", "--topic", ""), "a name is empty; is a shell variable not set?"),
    ],
)
def test_acls_that_are_not_named_whole(ask, arguments, error):
    assert ask("acl", *arguments) == (2, [], f"millrace: {error}\n")


def test_a_broker_without_authorizer_says_so(run):
    status, _, error = run("acl", "list")
    assert (status, "No Authorizer is configured on the broker" in error) == (1, True)


def test_quotas_are_set_listed_and_deleted(ask, ask_json):
    create = ("quota", "create", "--user", "alice", "--client-id", "*")
    sentence = "set for user alice and client-id (default): producer_byte_rate=1000, request_percentage=5.5"
    assert ask(*create, "producer_byte_rate=1000", "request_percentage=5.5") == (0, [sentence], "")
    row = {"user": "alice", "client-id": "*", "ip": None}
    rows = [
        {**row, "quota": "producer_byte_rate", "value": 1000.0},
        {**row, "quota": "request_percentage", "value": 5.5},
    ]
    assert ask_json("quota", "list") == rows
    delete = ("quota", "delete", "--user", "alice", "--client-id", "*")
    would = "would delete: producer_byte_rate of user alice and client-id (default); add --yes to do it"
    assert ask(*delete, "producer_byte_rate") == (0, [would], "")
    assert ask_json("quota", "list") == rows
    assert ask(*delete, "--yes")[0] == 0
    assert ask_json("quota", "list") == []
    status, _, error = ask(*delete, "--yes")
    assert (status, error) == (1, "millrace: user alice and client-id (default) has no such quota\n")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("create", "producer_byte_rate=1"), "name --user, --client-id or --ip"),
        (("create", "--user", "a", "rate=1"), "'rate=1' is not KEY=VALUE with one of the keys producer_byte_rate"),
        (("create", "--user", "a", "request_percentage=x"), "'request_percentage=x': 'x' is not a number"),
        (("create", "--user", "", "request_percentage=1"), "a name is empty; is a shell variable not set?"),
    ],
)
def test_quotas_that_make_no_sense(ask, arguments, error):
    status, _, told = ask("quota", *arguments)
    assert (status, told.startswith(f"millrace: {error}")) == (2, True), told


def test_the_broker_refuses_a_value(ask):
    status, _, error = ask("quota", "create", "--ip", "*", "connection_creation_rate=0.5")
    assert status == 1
    assert "cannot be fractional" in error
