"""A client in Python that asks for ends: the options that it has, and those that only the client in Java has."""

import ssl
from pathlib import Path

import certifi
import pytest
from millrace.ports import Reservation
from protocol_lib.client import SaslPlain, SaslScram, ScramMechanism
from spark_etl.errors import ClusterError
from spark_etl.kafka.admin import UnreachableError
from spark_etl.kafka.ends import OnlyJavaError, client_of, end_offsets

pytestmark = pytest.mark.etl

MODULE = "org.apache.kafka.common.security"
PLAIN = f'{MODULE}.plain.PlainLoginModule required username="ann" password="s e c";'
SCRAM = f'{MODULE}.scram.ScramLoginModule required\n  password="p"\n  username="ann" ;'


def test_logins():
    plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}
    assert client_of("h:1", plain).sasl == SaslPlain("ann", "s e c")
    scram = {**plain, "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM}
    assert client_of("h:1", scram).sasl == SaslScram("ann", "p", ScramMechanism.SHA_256)


def test_certificates(tmp_path: Path):
    first = Path(certifi.where()).read_text().split("-----END CERTIFICATE-----")[0] + "-----END CERTIFICATE-----\n"
    (tmp_path / "ca.pem").write_text(first)
    trusted = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "ca.pem"),
    }
    tls = client_of("h:1", trusted).tls
    assert tls is not None
    assert (len(tls.get_ca_certs()), tls.check_hostname, tls.verify_mode) == (1, True, ssl.CERT_REQUIRED)
    tls = client_of("h:1", {**trusted, "ssl.endpoint.identification.algorithm": ""}).tls
    assert tls is not None
    assert (tls.check_hostname, tls.verify_mode) == (False, ssl.CERT_REQUIRED)


def test_options_of_a_part_that_the_protocol_does_not_use_are_left_alone():
    client = client_of("h:1", {"ssl.truststore.location": "/none.jks", "sasl.mechanism": "GSSAPI"})
    assert (client.tls, client.sasl) == (None, None)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("security.protocol", {"security.protocol": "OTHER"}),
        ("security.providers", {"security.providers": "x.Y"}),
        ("ssl.truststore.type", {"security.protocol": "SSL", "ssl.truststore.location": "/a.jks"}),
        ("ssl.truststore.type", {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}),
        ("ssl.keystore.type", {"security.protocol": "SSL", "ssl.keystore.location": "/a.jks"}),
        ("ssl.truststore.certificates", {"security.protocol": "SSL", "ssl.truststore.certificates": "-----"}),
        ("ssl.cipher.suites", {"security.protocol": "SSL", "ssl.cipher.suites": "X"}),
        ("sasl.mechanism", {"security.protocol": "SASL_PLAINTEXT"}),
        ("sasl.mechanism", {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}),
        ("sasl.jaas.config", {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}),
        *(
            (
                "sasl.jaas.config",
                {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login},
            )
            for login in (
                SCRAM,
                PLAIN.replace("s e c", r"s\"c"),
                PLAIN.replace("password", "username"),
                PLAIN.replace(";", ' tokenauth="true";'),
                PLAIN.replace(MODULE, "own"),
            )
        ),
        (
            "sasl.login.class",
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.jaas.config": PLAIN,
                "sasl.login.class": "x.Y",
            },
        ),
    ],
)
def test_options_that_only_java_has(name, given):
    with pytest.raises(OnlyJavaError, match=f"^{name}$"):
        client_of("h:1", given)


def test_addresses_that_only_java_reads():
    with pytest.raises(OnlyJavaError, match=r"^bootstrap\.servers$"):
        client_of("PLAINTEXT://h:1", {})


def test_files_that_are_not_there(tmp_path: Path):
    options = {"security.protocol": "SSL", "ssl.truststore.type": "PEM"}
    with pytest.raises(ClusterError, match=f"^{tmp_path}/ca.pem: No such file or directory$"):
        client_of("h:1", {**options, "ssl.truststore.location": f"{tmp_path}/ca.pem"})


def test_a_cluster_that_is_away(monkeypatch):
    monkeypatch.setattr("spark_etl.kafka.ends.ANSWER_SECONDS", 0.2)
    free = Reservation("127.0.0.1", 0)
    with pytest.raises(UnreachableError, match=f"^no Kafka broker answered at {free.address} within 12 s; one that"):
        end_offsets(client_of(str(free.address), {}), ["a"])
    with pytest.raises(UnreachableError, match=r"^no address is known of none\.invalid:9092$"):
        end_offsets(client_of("none.invalid:9092", {}), ["a"])
    assert end_offsets(client_of("none.invalid:9092", {}), []) == {}
