"""A broker with TLS in a program, and `millrace` and the REST API as its clients."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from millrace import Broker
from support.certificates import Authority, Pair
from support.late import confluent


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def client(authority: Authority) -> Pair:
    return authority.issue("client")


@pytest.fixture(scope="module")
def broker(authority: Authority, client: Pair) -> Iterator[Broker]:
    server = authority.issue("server")
    required = {"ssl_client_auth": "required", "ssl_ca_file": str(authority.certificate)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILLRACE_ADMIN_GATEWAY_KEY_FILE", str(client.key))
        patch.setenv("MILLRACE_ADMIN_GATEWAY_CERTIFICATE_FILE", str(client.certificate))
        with Broker(tls=(server.key, server.certificate), topics="orders:1", admin=True, **required) as running:
            yield running


def millrace(folder: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "millrace", *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        env={"XDG_CONFIG_HOME": str(folder), "PATH": "/usr/bin:/bin"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_and_rest_reach_a_broker_that_requires_certificates(
    broker: Broker, authority: Authority, client: Pair, tmp_path: Path
) -> None:
    assert broker.http_address is not None
    rest = f"{broker.http_address[0]}:{broker.http_address[1]}"
    security = [
        "security.protocol=SSL",
        f"ssl.ca.location={authority.certificate}",
        f"ssl.certificate.location={client.certificate}",
        f"ssl.key.location={client.key}",
    ]
    config = tmp_path / "client.properties"
    config.write_text("\n".join(security))
    options = ["--rest", rest, "--kafka", broker.bootstrap_servers]
    millrace(tmp_path, "profile", "create", "secure", *options, "--client-config", str(config))
    millrace(tmp_path, "topic", "produce", "orders", given="by-profile\n")
    explicit = ["--kafka", broker.bootstrap_servers, *(f"-X{each}" for each in security)]
    shown = millrace(tmp_path, "topic", "consume", "orders", "--offset", "beginning", "--count", "1", *explicit)
    assert "by-profile" in shown
    with urllib.request.urlopen(f"http://{rest}/api/v1/topics/orders/records", timeout=20) as answer:
        assert "by-profile" in answer.read().decode()


def test_a_client_without_a_certificate_is_refused(broker: Broker, authority: Authority) -> None:
    faults: list[str] = []
    producer = confluent.Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "ssl",
            "ssl.ca.location": str(authority.certificate),
            "error_cb": lambda error: faults.append(str(error)),
            "message.timeout.ms": 1500,
        }
    )
    outcomes: list[object] = []
    producer.produce("orders", b"x", on_delivery=lambda error, _message: outcomes.append(error))
    producer.flush(20)
    assert len(outcomes) == 1
    assert outcomes[0] is not None
    assert any("certificate required" in fault for fault in faults), faults
