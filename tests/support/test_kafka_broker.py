"""The node that other tests lean on is reached in each of its four ways."""

import pytest
from support.kafka_broker import LISTENERS, PASSWORD, USER, ApacheKafka
from support.late import confluent


def topics(node: ApacheKafka, listener: str, mechanism: str = "PLAIN") -> object:
    settings = {"bootstrap.servers": node.addresses[listener], "security.protocol": listener}
    if listener.startswith("SASL"):
        settings |= {"sasl.mechanism": mechanism, "sasl.username": USER, "sasl.password": PASSWORD}
    if listener.endswith("SSL"):
        settings["ssl.ca.location"] = str(node.certificate)
    return confluent.admin.AdminClient(settings).list_topics(timeout=20)


@pytest.mark.parametrize("listener", LISTENERS)
def test_each_listener_serves(apache_kafka: ApacheKafka, listener: str) -> None:
    metadata = topics(apache_kafka, listener)

    (broker,) = metadata.brokers.values()
    assert f"{broker.host}:{broker.port}" == apache_kafka.addresses[listener]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_users_log_in(apache_kafka: ApacheKafka, mechanism: str) -> None:
    assert len(topics(apache_kafka, "SASL_PLAINTEXT", mechanism).brokers) == 1
