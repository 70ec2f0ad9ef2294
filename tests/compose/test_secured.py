"""docker-compose.secured.yml as docs/security.md says: clients, the REST API, the demo and Spark use it."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.compose.conftest import ROOT, Stack, running

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

FLIGHTS = 3_000
DOCUMENT = (ROOT / "docs" / "security.md").read_text()
BLOCKS = dict(re.findall(r"<!-- run: ([\w-]+) -->\n```bash\n(.*?)```", DOCUMENT, flags=re.S))


class Secured(Stack):
    """The secured project, and the folder with its secrets."""

    def __init__(self, command: list[str], folder: Path) -> None:
        super().__init__(command, "docker-compose.secured.yml", SECRETS=str(folder))
        self.folder = folder

    def secret(self, name: str) -> str:
        return (self.folder / name).read_text().strip()

    def passwords(self) -> dict[str, str]:
        return dict(line.split() for line in self.secret("users").splitlines())

    def client(self, user: str, password: str | None = None, mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or self.passwords()[user],
        }

    def shell(self, block: str, home: Path) -> str:
        """Run a block of the page, with this project's port and folder for those of the page."""
        text = BLOCKS[block].replace("localhost:9092", self.bootstrap).replace("secrets/", f"{self.folder}/")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = {**os.environ, "PATH": path, "HOME": str(home), "XDG_CONFIG_HOME": str(home)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def call(self, path: str, login: str = "", body: Any = None) -> tuple[int, Any]:
        headers = {"Content-Type": "application/json"} | ({"Authorization": login} if login else {})
        request = urllib.request.Request(
            self.rest + path, data=None if body is None else json.dumps(body).encode(), headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def secured(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured") / "secrets"
    made = subprocess.run(["sh", "assembly/make_secrets.sh", str(folder)], cwd=ROOT, capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    stack = Secured(command, folder)
    with running(stack):
        stack.shell("compose-rights", folder.parent)
        yield stack


def reason(configuration: dict[str, Any]) -> int:
    """Return why a client is not let in: the code of its first error."""
    found: list[int] = []
    client = Producer({**configuration, "error_cb": lambda error: found.append(error.code()), "log_level": 0})
    deadline = time.monotonic() + 20
    while not found and time.monotonic() < deadline:
        client.poll(0.2)
    return found[0]


def test_nobody_is_let_in_without_tls_or_with_another_password(secured: Secured) -> None:
    admin = AdminClient(secured.client("admin"))
    assert "flights" not in admin.list_topics(timeout=30).topics
    assert reason(secured.client("admin", "another")) == KafkaError._AUTHENTICATION
    assert reason({"bootstrap.servers": secured.bootstrap}) in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
    stranger = secured.client("admin") | {"ssl.ca.location": "/etc/ssl/certs/ca-certificates.crt"}
    assert reason(stranger) == KafkaError._SSL


def test_demo_and_spark_do_their_work_by_their_rights(secured: Secured) -> None:
    load = ["load", "--bootstrap-servers=gateway-svc:29092", "--rest=admin-api:8082", f"--flights={FLIGHTS}"]
    login = ["--client-config=/run/secrets/demo.properties"]
    secured.job("demo", *load, *login, "--token-file=/run/secrets/demo.token")
    totals = json.loads(secured.job("spark").splitlines()[-1])
    assert totals["rows_out"] == totals["rows_total"] == FLIGHTS
    assert totals["rows_in"] == FLIGHTS + totals["rows_dlq"]
    secured.job("demo", "check", "--bootstrap-servers=gateway-svc:29092", f"--flights={FLIGHTS}", *login)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_a_client_may_do_what_its_acls_say(secured: Secured, mechanism: str) -> None:
    consumer = Consumer({**secured.client("spark", mechanism=mechanism), "group.id": "other"})
    partitions = consumer.list_topics(timeout=30).topics["flights"].partitions
    assert sum(consumer.get_watermark_offsets(TopicPartition("flights", each), 30)[1] for each in partitions) > FLIGHTS
    consumer.subscribe(["flights"])
    message = consumer.poll(30)
    assert message is not None
    assert message.error().code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    consumer.close()

    errors: list[int] = []
    producer = Producer(secured.client("spark", mechanism=mechanism))
    producer.produce("private", b"x", on_delivery=lambda error, _: errors.append(error and error.code()))
    producer.flush(30)
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]  # whether it exists or not


def test_rest_wants_a_login_and_obeys_the_same_acls(secured: Secured) -> None:
    topics = "/v3/clusters/-/topics"
    assert secured.call(topics)[0] == 401
    token = f"Bearer {secured.secret('admin.token')}"
    record = {"value": {"type": "STRING", "data": "by REST"}}
    assert secured.call(topics, token, {"topic_name": "private"})[0] == 201
    status, produced = secured.call(f"{topics}/private/records", token, record)
    assert (status, produced["error_code"]) == (200, 200)
    password = f"spark:{secured.passwords()['spark']}".encode()
    spark = f"Basic {base64.b64encode(password).decode()}"
    status, listed = secured.call(topics, spark)
    assert (status, [each["topic_name"] for each in listed["data"]]) == (
        200,
        ["flights", "flights.delays", "flights.dlq"],
    )
    assert secured.call(f"{topics}/private/records", spark, record)[0] == 403


def test_no_secret_is_in_a_log_line_or_in_the_environment_of_a_container(secured: Secured) -> None:
    shown = secured.run("logs", "--no-color").stdout + "".join(
        json.dumps(secured.inspect(name)) for name in ("storage-svc", "gateway-svc", "admin-api")
    )
    assert "denied" in shown
    assert "login refused" in shown
    assert "services do not encrypt" not in shown
    secrets = [*secured.passwords().values(), secured.secret("admin.token"), secured.secret("demo.token")]
    assert [secret for secret in secrets if secret in shown] == []
