"""`Broker(users=…, authorizer="acl")`: ACLs decide over Kafka and REST alike, and somebody may administer them."""

from __future__ import annotations

import asyncio
import base64
import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from millrace.broker import Broker
from millrace.first_users import AdminLogin, super_users_of
from protocol_lib.client import Admin, BrokerError, ClientSettings, SaslScram
from protocol_lib.client.acl_admin import Acl, AclOperation, AclResource
from protocol_lib.errors import ErrorCode

USERS = {"carol": "of carol", "bob": "of bob"}
TOPIC = "/v3/clusters/-/topics/orders"
RECORD = {"value": {"type": "STRING", "data": "x"}}
READ = Acl(resource=AclResource.TOPIC, name="orders", principal="User:bob", operation=AclOperation.READ)


def asked(broker: Broker, path: str, user: str | None = None, body: Any = None, password: str = "") -> tuple[int, Any]:
    """Return status and answer of a request to the REST API."""
    assert broker.http_address is not None
    host, port = broker.http_address
    data = None if body is None else json.dumps(body).encode()
    wanted = urllib.request.Request(f"http://{host}:{port}{path}", data, {"content-type": "application/json"})
    if user is not None:
        login = base64.b64encode(f"{user}:{password or USERS[user]}".encode()).decode()
        wanted.add_header("authorization", f"Basic {login}")
    try:
        with urllib.request.urlopen(wanted, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def allow(broker: Broker, user: str) -> None:
    """Create an ACL over Kafka as this user."""

    async def create() -> None:
        login = SaslScram(user, USERS[user])
        async with Admin(ClientSettings(bootstrap_servers=broker.bootstrap_servers, sasl=login)) as admin:
            await admin.acls.create([READ])

    asyncio.run(create())


def test_the_first_user_administers_and_the_rest_api_obeys_acls() -> None:
    broker = Broker(users=USERS, authorizer="acl", admin=True, topics="orders:1")
    for _ in range(2):  # a broker may be started again
        with broker:
            status, me = asked(broker, "/api/v1/me", "carol")
            assert (status, me["principal"], me["is_super_user"]) == (200, "User:carol", True)
            assert asked(broker, "/api/v1/me")[1]["is_super_user"] is False
            assert [asked(broker, TOPIC, user)[0] for user in ("carol", "bob", None)] == [200, 403, 403]
            assert asked(broker, TOPIC, "carol", password="wrong")[0] == 401
            assert asked(broker, f"{TOPIC}/records", "carol", RECORD)[1]["offset"] == 0
            assert asked(broker, f"{TOPIC}/records", "bob", RECORD)[0] == 403
            with pytest.raises(BrokerError) as refused:
                allow(broker, "bob")
            assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            allow(broker, "carol")
            assert asked(broker, TOPIC, "bob")[0] == 200


def test_super_users_that_are_given_are_the_only_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_SUPER_USERS", "User:carol")
    with Broker(users=USERS, authorizer="acl", super_users="User:bob", topics="orders:1") as broker:
        with pytest.raises(BrokerError):
            allow(broker, "carol")
        allow(broker, "bob")


def test_who_may_do_everything() -> None:
    admin = AdminLogin(password_file=None, password="x")  # type: ignore[arg-type]
    assert super_users_of(USERS, None, "") == "User:carol"
    assert super_users_of(USERS, admin, "") == "User:carol;User:millrace-admin"
    assert super_users_of(USERS, admin, "User:a; User:b; ") == "User:a; User:b;User:millrace-admin"
    assert super_users_of({}, None, "") == ""
