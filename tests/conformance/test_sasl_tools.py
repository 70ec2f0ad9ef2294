"""Java's clients log in by each mechanism, again while they produce, and Kafka's own tool administers users."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from millrace.broker import Broker
from support.kafka_broker import java
from support.kafka_tools import run_tool, tool
from support.maven import need_java

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

CONFIGS, TOPICS = "kafka.admin.ConfigCommand", "org.apache.kafka.tools.TopicCommand"
TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
LOGIN = "org.apache.kafka.common.security.{}.{}LoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    need_java()
    with Broker(users={"admin": "admin-secret"}, topics="orders:1", connections_max_reauth_ms=3_000) as running:
        yield running


@pytest.fixture
def login(tmp_path: Path) -> Callable[..., str]:
    """A function that returns a file of properties."""

    def written(mechanism: str, user: str = "admin", password: str = "admin-secret") -> str:
        module = LOGIN.format("plain", "Plain") if mechanism == "PLAIN" else LOGIN.format("scram", "Scram")
        path = tmp_path / f"{mechanism}-{user}-{len(password)}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
            f'sasl.jaas.config={module} username="{user}" password="{password}";\n'
        )
        return str(path)

    return written


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in(broker: Broker, login, mechanism: str) -> None:  # type: ignore[no-untyped-def]
    given = ("--bootstrap-server", broker.bootstrap_servers, "--list", "--command-config")
    assert "orders" in tool(TOPICS, *given, login(mechanism)).split()
    for user, password in (("admin", "wrong"), ("nobody", "admin-secret")):
        output, status = run_tool(TOPICS, *given, login(mechanism, user, password))
        assert status == 1
        assert ("Invalid username or password" if mechanism == "PLAIN" else "invalid credentials") in output


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_java_logs_in_again_while_it_produces(broker: Broker, login, mechanism: str) -> None:  # type: ignore[no-untyped-def]
    output = java(
        "org.apache.kafka.tools.ProducerPerformance",
        *("--topic", "orders", "--num-records", "1000", "--record-size", "100", "--throughput", "100"),
        *("--command-config", login(mechanism), "--bootstrap-server", broker.bootstrap_servers),
    )
    assert "1000 records sent" in output
    assert "Exception" not in output


def test_users_by_kafka_s_tool(broker: Broker, login) -> None:  # type: ignore[no-untyped-def]
    given = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", login("SCRAM-SHA-512"))
    user = (*given, "--entity-type", "users", "--entity-name", "dora")
    assert "SCRAM" not in tool(CONFIGS, *user, "--describe")
    tool(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-512=[iterations=8192,password=dora-secret]")
    assert "SCRAM credential configs for user-principal 'dora' are SCRAM-SHA-512=iterations=8192" in tool(
        CONFIGS, *user, "--describe"
    )
    listing = ("--bootstrap-server", broker.bootstrap_servers, "--list", "--command-config")
    assert "orders" in tool(TOPICS, *listing, login("SCRAM-SHA-512", "dora", "dora-secret"))
    output, status = run_tool(CONFIGS, *user, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=17000,password=x]")
    assert status == 1
    assert "Too many iterations" in output
    tool(CONFIGS, *user, "--alter", "--delete-config", "SCRAM-SHA-512")
    output, status = run_tool(TOPICS, *listing, login("SCRAM-SHA-512", "dora", "dora-secret"))
    assert status == 1
    assert "Authentication failed during authentication due to invalid credentials" in output


@pytest.mark.parametrize(
    "action",
    [
        ("--create", "--max-life-time-period", "-1"),
        ("--renew", "--renew-time-period", "-1", "--hmac", "c29tZSB0b2tlbg=="),
        ("--expire", "--expiry-time-period", "-1", "--hmac", "c29tZSB0b2tlbg=="),
        ("--describe",),
    ],
    ids=lambda action: action[0],
)
def test_delegation_tokens_are_not_enabled(broker: Broker, login, action: tuple[str, ...]) -> None:  # type: ignore[no-untyped-def]
    given = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", login("SCRAM-SHA-512"))
    output, status = run_tool(TOKENS, *given, *action)
    assert status == 1
    assert "DelegationTokenDisabledException" in output
