"""A login serves a connection until its client is known: on plain wires, and on those that encrypt.

tests/wire/sasl has the mechanisms.
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
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from support.certificates import Authority
from support.late import aiokafka

from tests.wire.conftest import Running, StartBroker, batch, produce_request
from tests.wire.rights.prefixed import Prefixed
from tests.wire.sasl.conftest import PASSWORD, USER, plain
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
HANDSHAKE = SaslHandshakeRequest(mechanism="PLAIN")
TOKEN = SaslAuthenticateRequest(auth_bytes=plain())
SASL = {"listener_security_protocol_map": "EXTERNAL:SASL_PLAINTEXT", "sasl_enabled_mechanisms": "PLAIN"}


@pytest.fixture
def users_file(tmp_path: Path) -> str:
    path = tmp_path / "users"
    path.write_text(f"{USER} {PASSWORD}\n")
    return str(path)


@pytest.fixture(params=["combined", "separate"])
async def encrypted(
    request: pytest.FixtureRequest, start_broker: StartBroker, tmp_path: Path, users_file: str
) -> AsyncIterator[tuple[Running, ssl.SSLContext]]:
    """A broker whose listener is SASL_SSL, and the trust in its certificate."""
    authority = Authority(tmp_path / "ca")
    server, trust = authority.issue("server"), authority.trust()
    chosen = {
        "listener_security_protocol_map": "EXTERNAL:SASL_SSL",
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512",
        "ssl_key_file": str(server.key),
        "ssl_certificate_file": str(server.certificate),
    }
    if request.param == "combined":
        yield await start_broker(users_file=users_file, **chosen), trust
        return
    storage = RemoteStorage(tmp_path)
    storage.settings = storage.settings.replaced(users_file=users_file)
    await storage.start()
    async with gateway_of(storage, "one", **chosen) as running:
        yield running, trust
    await storage.stop()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_stock_client_logs_in_and_works_in_a_group(
    encrypted: tuple[Running, ssl.SSLContext], mechanism: str
) -> None:
    broker, trust = encrypted
    options: dict[str, Any] = {
        "bootstrap_servers": f"localhost:{broker.address[1]}",
        "security_protocol": "SASL_SSL",
        "ssl_context": trust,
        "sasl_mechanism": mechanism,
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


async def test_requests_sent_with_the_token_are_served_as_those_of_the_user(
    start_broker: StartBroker, users_file: str
) -> None:
    """They wait for the answer to the token; the quotas and the rights are those of the user from then on."""
    asked: set[str] = set()

    class Asked(Prefixed):
        def may(self, principal: str, *more: Any) -> bool:
            asked.add(principal)
            return super().may(principal, *more)

    broker = await start_broker(
        **SASL, users_file=users_file, admission=partial(Admission, policy=Asked()), topics="a:1"
    )
    wire = await broker.connect()
    wire.send(18, 3, VERSIONS)
    wire.send(17, 1, HANDSHAKE)
    wire.send(36, 1, TOKEN)
    for _ in range(3):
        wire.send(0, 7, produce_request("a", batch(b"x")))
    assert [(await wire.receive())[1].error_code for _ in range(3)] == [0, 0, 0]
    answers = [(await wire.receive())[1].responses[0].partition_responses[0] for _ in range(3)]
    assert [(each.error_code, each.base_offset) for each in answers] == [(0, 0), (0, 1), (0, 2)]
    assert asked == {f"User:{USER}"}
    assert (await wire.call(36, 1, TOKEN)).error_code == 34, "the broker's own answer after the login"


async def test_a_client_without_a_login_counts_as_new(start_broker: StartBroker, users_file: str) -> None:
    """All such clients together hold a small part of the memory for requests, and their reads are short."""
    broker = await start_broker(**SASL, users_file=users_file)
    wire = await broker.connect()
    assert (await wire.call(17, 1, HANDSHAKE)).error_code == 0
    (connection,) = broker.gateway._connections._open
    assert connection._frames.is_new  # type: ignore[attr-defined]
    assert (await wire.call(36, 1, TOKEN)).error_code == 0
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    assert not connection._frames.is_new  # type: ignore[attr-defined]
