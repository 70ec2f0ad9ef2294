"""A login serves a connection until its client is known: on plain wires, and on those that encrypt.

The gateway has no SASL yet: the login is a double (tests/support/plain_login.py). It stands for the file that SASL
takes.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.login import SecurityProtocol
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from support.certificates import Authority, tls_wire
from support.late import aiokafka
from support.plain_login import PASSWORD, USER, PlainLogin, plain_login

from tests.wire.conftest import Running, StartBroker, Wire, batch, produce_request, until
from tests.wire.rights.test_table import Prefixed
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

SASL = SecurityProtocol(login=plain_login)
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")


def token(password: str = PASSWORD) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=b"\0".join([b"", USER.encode(), password.encode()]))


@pytest.fixture(params=["combined", "separate"])
async def encrypted(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path
) -> AsyncIterator[tuple[Running, ssl.SSLContext]]:
    """A broker whose listener is SASL_SSL, and the trust in its certificate."""
    authority = Authority(tmp_path / "ca")
    security = SecurityProtocol(tls_wire(authority.files(authority.issue("server"))), plain_login)
    trust = authority.trust()
    if request.param == "combined":
        yield await start_broker(security=security), trust
        return
    storage = RemoteStorage(tmp_path)
    await storage.start()
    async with gateway_of(storage, "one", security=security) as running:
        yield running, trust
    await storage.stop()


async def test_a_stock_client_logs_in_and_works_in_a_group(encrypted: tuple[Running, ssl.SSLContext]) -> None:
    broker, trust = encrypted
    options: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{broker.address[1]}",
        "security_protocol": "SASL_SSL",
        "ssl_context": trust,
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": USER,
    }
    wrong = aiokafka.AIOKafkaProducer(**options, sasl_plain_password="wrong")
    with pytest.raises(aiokafka.errors.KafkaError):
        await wrong.start()
    options["sasl_plain_password"] = PASSWORD
    async with aiokafka.AIOKafkaProducer(**options, acks="all") as producer:
        await producer.send_and_wait("single", b"x" * 500_000)
    async with aiokafka.AIOKafkaConsumer("single", **options, group_id="g", auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            assert (await consumer.getone()).value == b"x" * 500_000
        await consumer.commit()


async def test_requests_sent_with_the_token_are_served_as_those_of_the_user(start_broker: StartBroker) -> None:
    """They wait for the answer to the token; `charge` and the rights are those of the user from then on."""
    asked: set[str] = set()

    class Asked(Prefixed):
        def may(self, principal: str, *more: Any) -> bool:
            asked.add(principal)
            return super().may(principal, *more)

    broker = await start_broker(security=SASL, admission=partial(Admission, policy=Asked()), topics="a:1")
    wire = await broker.connect()
    wire.send(18, 3, VERSIONS)
    wire.send(17, 1, HANDSHAKE)
    wire.send(36, 1, token())
    for _ in range(3):
        wire.send(0, 7, produce_request("a", batch(b"x")))
    assert [(await wire.receive())[1].error_code for _ in range(3)] == [0, 0, 0]
    answers = [(await wire.receive())[1].responses[0].partition_responses[0] for _ in range(3)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2)]
    assert asked == {f"User:{USER}"}
    assert (await wire.call(36, 1, token())).error_code == 34, "the broker's own answer after the login"


async def greeted(broker: Running) -> Wire:
    """Return a connection that has chosen its mechanism."""
    wire = await broker.connect()
    wire.send(17, 1, HANDSHAKE)
    assert (await wire.receive())[1].error_code == 0
    return wire


async def test_what_a_login_does_not_expect_closes_the_connection(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await start_broker(security=SASL)
    early = await broker.connect()
    early.send(3, 4, MetadataRequest(topics=()))
    assert await early.closed() == b""
    long = await broker.connect()
    long.writer.write((65_537).to_bytes(4, "big") + bytes(100))
    assert await long.closed() == b""
    assert broker.refused == {"login_expected": 1, "frame_length": 1}
    wrong = await greeted(broker)
    wrong.send(36, 1, token("wrong"))
    wrong.send(3, 4, MetadataRequest(topics=()))
    assert (await wrong.receive())[1].error_code == 58
    assert await wrong.closed() == b"", "the next request is not served"
    unknown = await broker.connect()
    unknown.send(17, 1, SaslHandshakeRequest(mechanism="GSSAPI"))
    assert ((await unknown.receive())[1].error_code, await unknown.closed()) == (33, b"")
    monkeypatch.setattr(PlainLogin, "deadline_s", 0.1)
    slow = await greeted(broker)
    assert await slow.closed() == b""
    assert broker.refused == {"login_expected": 1, "frame_length": 1, "login_timeout": 1}


async def test_a_client_that_leaves_during_its_login_costs_nothing(
    start_broker: StartBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The password is checked all the same, after the client has left."""
    held: list[tuple[Any, ...]] = []
    check = PlainLogin._check
    monkeypatch.setattr(PlainLogin, "_check", lambda *given: held.append(given))
    broker = await start_broker(security=SASL)
    for password in (PASSWORD, "wrong"):
        wire = await greeted(broker)
        wire.send(36, 1, token(password))
        await until(lambda: bool(held))
        wire.writer.transport.abort()
        await until(lambda: broker.gateway.metrics.connections == 0)
        check(*held.pop())
    assert broker.gateway.memory_held == 0


async def test_a_client_without_a_login_counts_as_new(start_broker: StartBroker) -> None:
    """All such clients together hold a small part of the memory for requests, and their reads are short."""
    broker = await start_broker(security=SASL)
    wire = await greeted(broker)
    (connection,) = broker.gateway._connections._open
    assert connection._frames.is_new  # type: ignore[attr-defined]
    assert (await wire.call(36, 1, token())).error_code == 0
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    assert not connection._frames.is_new  # type: ignore[attr-defined]
