"""TLS and SASL, against Apache Kafka's listeners that ask for them."""

from __future__ import annotations

import ssl

import pytest
from protocol_lib.client import (
    ClientSettings,
    Cluster,
    Consumer,
    Producer,
    SaslPlain,
    SaslScram,
    ScramMechanism,
    TopicPartition,
)
from protocol_lib.client.errors import AuthenticationError, ConnectionFailedError
from protocol_lib.client.sasl import SaslMechanism
from support.kafka_broker import PASSWORD, USER, ApacheKafka

LOGINS: list[SaslMechanism] = [
    SaslPlain(USER, PASSWORD),
    SaslScram(USER, PASSWORD, ScramMechanism.SHA_256),
    SaslScram(USER, PASSWORD, ScramMechanism.SHA_512),
]


def tls(node: ApacheKafka) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(node.certificate))


def settings(node: ApacheKafka, listener: str, **options: object) -> ClientSettings:
    if listener.endswith("SSL"):
        options.setdefault("tls", tls(node))
    return ClientSettings(bootstrap_servers=node.addresses[listener], **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.name)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL"])
async def test_a_user_who_logs_in_writes_and_reads(apache_kafka, kafka, listener, login):
    topic = await kafka.topic()
    chosen = settings(apache_kafka, listener, sasl=login)
    async with Producer(chosen) as producer:
        await producer.send_and_wait(topic, b"large" * 100_000)
    async with Consumer(chosen, auto_offset_reset="earliest") as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        assert [record.value for record in await consumer.poll(30_000)] == [b"large" * 100_000]


async def test_tls_alone(apache_kafka, kafka):
    topic = await kafka.topic()
    async with Producer(settings(apache_kafka, "SSL")) as producer:
        assert (await producer.send_and_wait(topic, b"x")).offset == 0


async def refused(chosen: ClientSettings) -> BaseException:
    cluster = Cluster(chosen)
    with pytest.raises(AuthenticationError) as caught:
        await cluster.start()
    await cluster.close()
    return caught.value


@pytest.mark.parametrize("mechanism", ScramMechanism)
async def test_a_wrong_password(apache_kafka, mechanism):
    for login in (SaslPlain(USER, "wrong"), SaslScram(USER, "wrong", mechanism), SaslScram("bob", PASSWORD, mechanism)):
        assert "invalid" in str(await refused(settings(apache_kafka, "SASL_PLAINTEXT", sasl=login))).lower()


async def test_a_certificate_nobody_vouches_for(apache_kafka):
    fault = await refused(settings(apache_kafka, "SSL", tls=ssl.create_default_context()))
    assert "CERTIFICATE_VERIFY_FAILED" in str(fault)


async def test_a_broker_that_speaks_no_tls(apache_kafka):
    cluster = Cluster(settings(apache_kafka, "PLAINTEXT", tls=tls(apache_kafka), api_timeout_ms=300))
    with pytest.raises(ConnectionFailedError, match="before TLS was agreed on"):
        await cluster.start()
    await cluster.close()


async def test_a_listener_without_sasl(apache_kafka):
    fault = await refused(settings(apache_kafka, "PLAINTEXT", sasl=SaslPlain(USER, PASSWORD)))
    assert "PLAIN" in str(fault)
