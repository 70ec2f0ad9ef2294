"""A gateway stands still while a right or a user is revoked through another one: it does not go on by what it knows.

A process that goes on reads what has come over its sockets before its timers run. So the end of its lease must be found
by the clock. That is before each request that is recognised by its bytes, and before each answer to a read that waited.
"""

import asyncio
import contextlib

import pytest
from protocol_lib.errors import ErrorCode
from protocol_lib.scram import ScramMechanism

from tests.faults.two_gateways import two_gateways
from tests.support.frozen import frozen
from tests.wire.conftest import Wire, batch, fetch_request, produce, produce_request
from tests.wire.sasl.conftest import PASSWORD, USER, log_in
from tests.wire.sasl.test_altered_users import alter, deletion
from tests.wire.test_acls import DENY, READ, WRITE, create, delete, row, wanted

DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
EVERYBODY = "User:ANONYMOUS"
#: Through the first gateway everybody may do what no ACL denies, through the second one everything.
OWN = (
    {"MILLRACE_AUTHORIZER": "acl", "MILLRACE_ALLOW_EVERYONE_IF_NO_ACL_FOUND": "true"},
    {"MILLRACE_AUTHORIZER": "acl", "MILLRACE_SUPER_USERS": EVERYBODY},
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with two_gateways(tmp_path_factory.mktemp("revoked") / "data", "produced:1,read:1", OWN) as (gateways, addresses):
        yield gateways[0].pid, addresses


@contextlib.asynccontextmanager
async def wires(addresses, *which, cleans=True):
    """Yield a connection to each of these gateways; `cleans`: delete all ACLs at the end."""
    made = []
    for number in which:
        host, _, port = addresses[number].rpartition(":")
        made.append(Wire(*await asyncio.open_connection(host, int(port))))
    try:
        yield made
        if cleans:
            await delete(made[-1], wanted(resource_name_filter=None))
    finally:
        for wire in made:
            wire.writer.close()


async def test_the_session_of_a_deleted_user_has_ended(tmp_path):
    users = tmp_path / "users"
    users.write_text(f"{USER} {PASSWORD}\nadmin {PASSWORD}\n")
    logins = {
        "MILLRACE_LISTENER_SECURITY_PROTOCOL_MAP": "EXTERNAL:SASL_PLAINTEXT",
        "MILLRACE_SASL_ENABLED_MECHANISMS": "PLAIN",
    }
    with two_gateways(tmp_path / "data", "produced:1", (logins, logins), MILLRACE_USERS_FILE=str(users)) as (
        gateways,
        addresses,
    ):
        async with wires(addresses, 0, 1, cleans=False) as (client, admin):
            for wire, user in ((client, USER), (admin, "admin")):
                assert (await log_in(wire, "PLAIN", user)).error_code == 0
            for offset in range(3):
                assert await produce(client, "produced", batch(b"x")) == (0, offset)
            with frozen(gateways[0].pid):
                for each in ScramMechanism:
                    assert await alter(admin, deletion(each)) == [0]
                client.send(0, 7, produce_request("produced", batch(b"late")))
                await asyncio.sleep(0.1)
            assert await client.closed() == b""
            assert await produce(admin, "produced", batch(b"y")) == (0, 3)


async def test_a_recognised_produce_is_denied(cluster):
    pid, addresses = cluster
    async with wires(addresses, 0, 1) as (client, admin):
        for offset in range(3):
            assert await produce(client, "produced", batch(b"x")) == (0, offset)
        with frozen(pid):
            assert await create(admin, row("produced", WRITE, DENY, principal=EVERYBODY)) == [(0, None)]
            client.send(0, 7, produce_request("produced", batch(b"late")))
            await asyncio.sleep(0.1)
        _, answer = await client.receive()
        assert answer.responses[0].partition_responses[0].error_code == DENIED
        assert await produce(admin, "produced", batch(b"y")) == (0, 3)


async def test_a_read_that_waits_is_not_answered_with_records(cluster):
    pid, addresses = cluster
    async with wires(addresses, 0, 1) as (client, admin):
        client.send(1, 11, fetch_request("read", 0, wait_ms=30_000))
        await asyncio.sleep(0.5)
        with frozen(pid):
            assert await create(admin, row("read", READ, DENY, principal=EVERYBODY)) == [(0, None)]
            assert await produce(admin, "read", batch(b"secret"), acks=-1) == (0, 0)
            await asyncio.sleep(0.1)
        _, answer = await client.receive()
        (partition,) = answer.responses[0].partitions
        assert (partition.error_code, partition.records or b"") == (DENIED, b"")
