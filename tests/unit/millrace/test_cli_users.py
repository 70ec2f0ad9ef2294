"""`millrace user`, and how every command that speaks Kafka logs in: by a profile's file of properties, or by -X."""

from __future__ import annotations

import io
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from millrace.broker import Broker
from millrace.cli.client_properties import read_file
from millrace.cli.commands import run

USERS = {"admin": "correct horse", "bob": "x y"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users=USERS, topics="orders:1", admin=True) as running:
        yield running


@pytest.fixture(autouse=True)
def profile(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Path:
    """A profile whose file has the password of `admin`."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("MILLRACE_PROFILE", "MILLRACE_KAFKA", "MILLRACE_REST"):
        monkeypatch.delenv(name, raising=False)
    config = tmp_path / "client.properties"
    config.write_text(
        "# of Java's clients\nsecurity.protocol = SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
        f"sasl.username=admin\nsasl.password={USERS['admin']}\n"
    )
    given = ("--kafka", broker.bootstrap_servers, "--client-config", str(config))
    assert run(["profile", "create", "secured", *given]) == 0
    capfd.readouterr()
    return config


def users(capfd: pytest.CaptureFixture[str]) -> dict[str, list[int | None]]:
    capfd.readouterr()
    assert run(["user", "list", "-o", "json"]) == 0
    rows = json.loads(capfd.readouterr().out)
    return {row["user"]: [row["SCRAM-SHA-256"], row["SCRAM-SHA-512"]] for row in rows}


def test_users_are_created_changed_and_deleted(
    broker: Broker, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {"admin": [8192, 8192], "bob": [8192, 8192], "millrace-admin": [8192, 8192]}
    assert users(capfd) == before
    secret = tmp_path / "secret"
    secret.write_text("hunter2 hunter2\nsecond line")
    given = ("--password-file", str(secret))
    assert run(["user", "create", "carol", *given, "-m", "SCRAM-SHA-256", "--iterations", "4096"]) == 0
    out = capfd.readouterr()
    assert out.out == "password set: carol (SCRAM-SHA-256)\n"
    assert users(capfd) == {**before, "carol": [4096, None]}
    login = ("security.protocol=SASL_PLAINTEXT", "sasl.mechanism=SCRAM-SHA-256", "sasl.username=carol")
    options = [part for each in (*login, "sasl.password=hunter2 hunter2") for part in ("-X", each)]
    assert run(["consume", "orders", "-e", *options]) == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"another\n")))
    assert run(["user", "create", "carol", "--password-file", "-"]) == 0
    assert users(capfd) == {**before, "carol": [8192, 8192]}
    assert run(["consume", "orders", "-e", *options]) == 1
    assert "invalid credentials" in capfd.readouterr().err
    assert run(["user", "delete", "carol"]) == 0
    assert capfd.readouterr().out == "would delete: carol (SCRAM-SHA-256, SCRAM-SHA-512); add --yes to do it\n"
    assert run(["user", "delete", "carol", "--yes"]) == 0
    assert users(capfd) == before
    assert run(["user", "delete", "carol", "--yes"]) == 1
    assert capfd.readouterr().err == "millrace: there is no user carol\n"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_user_changes_its_own_password_whole(
    broker: Broker, profile: Path, mechanism: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of dora")
    assert run(["user", "create", "dora", "--password-file", str(secret)]) == 0
    login = "security.protocol=SASL_PLAINTEXT\nsasl.username=dora\nsasl.mechanism={}\nsasl.password={}\n"
    profile.write_text(login.format(mechanism, "of dora"))
    secret.write_text("another")
    assert run(["user", "create", "dora", "--password-file", str(secret)]) == 0
    for each in ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"):
        profile.write_text(login.format(each, "another"))
        assert run(["user", "list"]) == 0


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "a password is needed: --password-file PATH, or - for standard input"),
        (["--password-file", "/nowhere"], "--password-file /nowhere: No such file or directory"),
        (["--password-file", "empty"], "a password has 1 to 1024 characters"),
        (["--password-file", "binary"], "--password-file binary: it is not UTF-8"),
    ],
)
def test_passwords_that_are_refused(
    given: list[str], reason: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").touch()
    Path("binary").write_bytes(b"hunter2\xff\n")
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run(["user", "create", "carol", *given]) == 2
    assert capfd.readouterr().err == f"millrace: {reason}\n"


def test_a_file_of_properties_that_is_refused(profile: Path, capfd: pytest.CaptureFixture[str]) -> None:
    profile.write_text("sasl.username=admin\nhunter2\n")
    assert run(["user", "list"]) == 2
    assert capfd.readouterr().err == f"millrace: {profile}: line 2 is not NAME=VALUE\n"
    profile.unlink()
    assert run(["user", "list"]) == 2
    assert capfd.readouterr().err == f"millrace: {profile}: No such file or directory\n"


def test_properties_of_a_profile_go_to_its_address_alone(broker: Broker, capfd: pytest.CaptureFixture[str]) -> None:
    """Another address of the same broker counts as another one: no password is sent there."""
    other = broker.bootstrap_servers.replace("localhost", "127.0.0.1")
    assert run(["user", "list", "--kafka", other]) == 1
    assert "no broker answers" in capfd.readouterr().err


def test_the_rest_api_logs_in_to_a_broker_with_users(broker: Broker) -> None:
    assert broker.http_address is not None
    base = "http://{}:{}".format(*broker.http_address)
    body = json.dumps({"value": {"type": "STRING", "data": "x"}}).encode()
    wanted = urllib.request.Request(
        f"{base}/v3/clusters/-/topics/orders/records", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(wanted, timeout=60) as answer:
        assert json.loads(answer.read())["error_code"] == 200


@pytest.mark.parametrize("users", [{"": "x"}, {"a b": "x"}, {"#a": "x"}, {"a": ""}, {"a": " x"}, {"a": "x\ny"}])
def test_users_that_cannot_be_in_the_file(users: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="user '"):
        Broker(users=users)


def test_paths_in_a_file_of_properties_begin_at_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("ssl.ca.location=ca.pem\nssl.key.location=/run/key.pem\nsasl.username=a/b\n")
    expected = {
        "ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.key.location": "/run/key.pem", "sasl.username": "a/b",
    }  # fmt: skip
    assert read_file(str(file)).security == expected
