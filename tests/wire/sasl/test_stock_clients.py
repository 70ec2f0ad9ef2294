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

from tests.support.waiting import until
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


def has_errors(options: dict[str, Any], *parts: str) -> None:
    """Wait until a client of confluent-kafka has reported errors with all of these parts."""
    found: list[str] = []
    admin = confluent.admin.AdminClient({**options, "error_cb": lambda error: found.append(str(error))})

    def are_there() -> bool:
        with pytest.raises(confluent.KafkaException):
            admin.list_topics(timeout=0.2)
        admin.poll(0)
        return all(part in " ".join(found) for part in parts)

    until(are_there, lambda: found)


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
async def test_librdkafka(secured: Secured, mechanism: str) -> None:
    broker = await secured()
    assert await asyncio.to_thread(written, librdkafka(broker, mechanism)) == 3
    assert broker.gateway.metrics.logins.keys() == {mechanism}


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
@BAD
async def test_librdkafka_is_refused(secured: Secured, mechanism: str, user: str, password: str) -> None:
    broker = await secured()
    reason = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials"
    await asyncio.to_thread(has_errors, librdkafka(broker, mechanism, user, password), "_AUTHENTICATION", reason)
    assert not broker.gateway.metrics.logins


async def test_librdkafka_shows_the_mechanisms_that_are_served(secured: Secured) -> None:
    broker = await secured("SCRAM-SHA-512")
    await asyncio.to_thread(has_errors, librdkafka(broker, "PLAIN"), "SCRAM-SHA-512")


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
    await asyncio.to_thread(has_errors, foreign, "invalid_token")
    expired = with_token(broker, lambda: (issuer.token(lifetime_s=-100), expiry()))
    await asyncio.to_thread(has_errors, expired, "invalid_token")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-512", "OAUTHBEARER"])
async def test_librdkafka_logs_in_again_while_it_produces(secured: Secured, issuer: Issuer, mechanism: str) -> None:
    """No record is lost, none is there twice, and the connection stays (KIP-368)."""
    broker = await secured(connections_max_reauth_ms=2_000)
    options = librdkafka(broker, mechanism)
    if mechanism == "OAUTHBEARER":
        options = with_token(broker, lambda: (issuer.token(), expiry()))

    metrics = broker.gateway.metrics

    def logins() -> int:
        """Return how many logins there were over connections that had one."""
        return metrics.logins[mechanism] - sum(metrics.connections_opened.values())

    def produce_meanwhile() -> tuple[int, int]:
        delivered: list[bool] = []
        producer = confluent.Producer({**options, "enable.idempotence": True, "linger.ms": 1})
        number, end = 0, time.monotonic() + 60
        while logins() < 2:
            assert time.monotonic() < end
            producer.produce("single", b"%d" % number, on_delivery=lambda error, _: delivered.append(error is None))
            producer.poll(0.005)
            number += 1
        assert producer.flush(60) == 0
        return number, sum(delivered)

    sent, delivered = await asyncio.to_thread(produce_meanwhile)
    assert delivered == sent
    log = broker.core.logs.logs["single", 0]
    assert log.high_watermark == sent
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
    options = aiokafka_options(broker, mechanism)

    def write(**changed: Any) -> int:
        # The client tries again until then, as for any failure.
        producer = kafka_python.KafkaProducer(
            **{**options, **changed}, acks="all", bootstrap_timeout_ms=1_000 if changed else 30_000
        )
        offset: int = producer.send("single", b"x").get(30).offset
        producer.close()
        return offset

    assert await asyncio.to_thread(write) == 0
    for changed in ({"sasl_plain_password": "wrong"}, {"sasl_plain_username": "nobody"}):
        with pytest.raises(kafka_python.errors.KafkaError):
            await asyncio.to_thread(write, **changed)
    assert broker.gateway.metrics.failed_logins[mechanism] >= 2


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
