"""Stock clients log in by each mechanism that they have, and get a clear error if they may not."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from gateway_svc.errors import StorageUnavailable
from support.late import aiokafka, confluent, kafka_python

from tests.wire.conftest import Running
from tests.wire.sasl.conftest import PASSWORD, USER, Issuer, Secured

WITH_PASSWORD = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
BAD = pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD)])
pytestmark = [pytest.mark.timeout(180), pytest.mark.blocks_event_loop("clients share the interpreter")]


def expiry() -> float:
    return time.time() + 600  # wall clock: of a token


def bootstrap(broker: Running) -> str:
    return f"localhost:{broker.address[1]}"


def librdkafka(broker: Running, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def written(options: dict[str, Any], count: int = 3) -> int:
    """Return how many records a producer of confluent-kafka has delivered."""
    delivered: list[int] = []
    producer = confluent.Producer({**options, "acks": "all"})
    for number in range(count):
        producer.produce("single", b"%d" % number, on_delivery=lambda error, _: delivered.append(error is None))
    assert producer.flush(60) == 0
    return sum(delivered)


def errors_of(options: dict[str, Any]) -> str:
    """Return the errors that a client of confluent-kafka reports until it has a reason for its failure."""
    found: list[str] = []
    admin = confluent.admin.AdminClient({**options, "error_cb": lambda error: found.append(str(error))})
    with pytest.raises(confluent.KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(1)
    return " ".join(found)


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_librdkafka(secured: Secured, mechanism: str) -> None:
    broker = await secured()
    assert await asyncio.to_thread(written, librdkafka(broker, mechanism)) == 3
    assert broker.gateway.metrics.logins.keys() == {mechanism}


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
@BAD
async def test_librdkafka_is_refused(secured: Secured, mechanism: str, user: str, password: str) -> None:
    broker = await secured()
    told = await asyncio.to_thread(errors_of, librdkafka(broker, mechanism, user, password))
    assert "_AUTHENTICATION" in told
    assert ("Invalid username or password" if mechanism == "PLAIN" else "invalid credentials") in told
    assert not broker.gateway.metrics.logins


async def test_librdkafka_with_a_mechanism_that_is_not_served(secured: Secured) -> None:
    broker = await secured("SCRAM-SHA-512")
    told = await asyncio.to_thread(errors_of, librdkafka(broker, "PLAIN"))
    assert "SCRAM-SHA-512" in told, "the client says what there is"


def with_token(broker: Running, token: Callable[[], tuple[str, float]]) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _config: token(),
    }


async def test_librdkafka_with_a_token(secured: Secured, issuer: Issuer) -> None:
    broker = await secured()
    options = with_token(broker, lambda: (issuer.token(), expiry()))
    assert await asyncio.to_thread(written, options) == 3
    foreign = with_token(broker, lambda: (issuer.token(aud="others"), expiry()))
    assert "invalid_token" in await asyncio.to_thread(errors_of, foreign)
    expired = with_token(broker, lambda: (issuer.token(lifetime_s=-100), expiry()))
    assert "invalid_token" in await asyncio.to_thread(errors_of, expired)


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER"])
async def test_librdkafka_logs_in_again_while_it_produces(secured: Secured, issuer: Issuer, mechanism: str) -> None:
    """No record is lost, none is there twice, and the connection stays (KIP-368)."""
    broker = await secured(connections_max_reauth_ms=2_000)
    options = librdkafka(broker, mechanism)
    if mechanism == "OAUTHBEARER":
        options = with_token(broker, lambda: (issuer.token(), expiry()))

    def produce_for_a_while() -> tuple[int, int]:
        delivered: list[bool] = []
        producer = confluent.Producer({**options, "enable.idempotence": True, "linger.ms": 1})
        number, until = 0, time.monotonic() + 6
        while time.monotonic() < until:
            producer.produce("single", b"%d" % number, on_delivery=lambda error, _: delivered.append(error is None))
            producer.poll(0.005)
            number += 1
        assert producer.flush(60) == 0
        return number, sum(delivered)

    sent, delivered = await asyncio.to_thread(produce_for_a_while)
    assert delivered == sent
    log = broker.core.logs.logs["single", 0]
    assert log.high_watermark == sent
    logins = broker.gateway.metrics.logins[mechanism]
    opened = sum(broker.gateway.metrics.connections_opened.values())
    assert logins >= opened + 2, f"{logins} logins over {opened} connections"
    assert "session_ended" not in broker.refused


async def test_a_login_while_storage_is_gone_succeeds_when_it_is_back(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await secured()
    find, tries = broker.core.users.find_credential, list[int]()

    async def sometimes(request: Any) -> Any:
        tries.append(1)
        if len(tries) <= 2:
            raise StorageUnavailable("gone")
        return await find(request)

    monkeypatch.setattr(broker.core.users, "find_credential", sometimes)
    assert await asyncio.to_thread(written, librdkafka(broker, "SCRAM-SHA-256")) == 3
    assert len(tries) > 2


def aiokafka_options(broker: Running, mechanism: str, user: str = USER, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap_servers": bootstrap(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_aiokafka(secured: Secured, mechanism: str) -> None:
    broker = await secured()
    async with aiokafka.AIOKafkaProducer(**aiokafka_options(broker, mechanism), acks="all") as producer:
        assert (await producer.send_and_wait("single", b"x")).offset == 0
    for user, password in ((USER, "wrong"), ("nobody", PASSWORD)):
        refused = aiokafka.AIOKafkaProducer(**aiokafka_options(broker, mechanism, user, password))
        with pytest.raises(aiokafka.errors.KafkaError):
            await refused.start()
        await refused.stop()


async def test_aiokafka_with_a_token(secured: Secured, issuer: Issuer) -> None:
    broker = await secured()
    provider = type(
        "Provider", (aiokafka.abc.AbstractTokenProvider,), {"token": lambda _self: asyncio.sleep(0, issuer.token())}
    )
    options = {
        "bootstrap_servers": bootstrap(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": provider(),
    }
    async with aiokafka.AIOKafkaProducer(**options, acks="all") as producer:
        assert (await producer.send_and_wait("single", b"x")).offset == 0


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_kafka_python(secured: Secured, mechanism: str) -> None:
    broker = await secured()
    options = {**aiokafka_options(broker, mechanism), "bootstrap_timeout_ms": 5_000}

    def write(**changed: Any) -> int:
        producer = kafka_python.KafkaProducer(**{**options, **changed}, acks="all")
        offset: int = producer.send("single", b"x").get(30).offset
        producer.close()
        return offset

    assert await asyncio.to_thread(write) == 0
    for changed in ({"sasl_plain_password": "wrong"}, {"sasl_plain_username": "nobody"}):
        with pytest.raises(kafka_python.errors.KafkaError):
            await asyncio.to_thread(write, **changed)


@pytest.mark.skipif(shutil.which("kcat") is None, reason="not installed: kcat")
async def test_kcat(secured: Secured) -> None:
    """By PLAIN: librdkafka before 2.6.1 repeats the nonce of SCRAM, which Kafka refuses as well (CVE-2024-56128)."""
    broker = await secured()

    def kcat(password: str, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        options = librdkafka(broker, "PLAIN", password=password)
        del options["bootstrap.servers"]
        given = [part for name, value in options.items() for part in ("-X", f"{name}={value}")]
        command = ["kcat", "-b", bootstrap(broker), "-t", "single", *given, *arguments]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60)

    text = uuid4().hex
    assert (await asyncio.to_thread(kcat, PASSWORD, "-P", stdin=text)).returncode == 0
    read = await asyncio.to_thread(kcat, PASSWORD, "-C", "-e", "-o", "beginning")
    assert read.stdout.strip() == text
    refused = await asyncio.to_thread(kcat, "wrong", "-L", "-m", "3")
    assert refused.returncode != 0
    assert "Authentication fail" in refused.stderr
