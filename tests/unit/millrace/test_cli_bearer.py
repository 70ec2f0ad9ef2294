"""`-X sasl.mechanism=OAUTHBEARER`: a token of a file, or of an issuer, lets a command in. No message has it."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from millrace.broker import Broker
from millrace.cli import bearer
from millrace.cli.commands import run
from millrace.cli.errors import CliError
from support.token_issuer import Issuer

SECRET = "s3cret/+"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture(scope="module")
def broker(issuer: Issuer) -> Iterator[Broker]:
    security = {"listener_security_protocol_map": "EXTERNAL:SASL_PLAINTEXT", "sasl_enabled_mechanisms": "OAUTHBEARER"}
    with Broker(topics="orders:1", **security, **issuer.settings) as running:
        yield running


class Endpoint:
    """An issuer's address for tokens. `answers` are status and body of each path; `requests` what came."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.requests: list[tuple[str, str, bytes]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                endpoint.requests.append((self.path, self.headers["Authorization"], body))
                status, answer = endpoint.answers[self.path]
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/token")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_arguments: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.server.shutdown()
    endpoint.server.server_close()


def consumed(broker: Broker, **properties: str) -> int:
    """Return the status of a command that logs in by a token."""
    given = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER", **properties}
    options = [part for name, value in given.items() for part in ("-X", f"{name}={value}")]
    return run(["consume", "orders", "-e", "--kafka", broker.bootstrap_servers, *options])


def test_a_token_of_a_file(broker: Broker, issuer: Issuer, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a token"
    path.write_text(issuer.token("alice") + "\n")
    assert consumed(broker, **{bearer.ENDPOINT: path.as_uri()}) == 0
    foreign = issuer.token("alice", aud="another")
    path.write_text(foreign)
    assert consumed(broker, **{bearer.ENDPOINT: path.as_uri()}) == 1
    shown = capfd.readouterr().err
    assert "invalid_token" in shown
    assert foreign not in shown
    path.write_text("two words")
    assert consumed(broker, **{bearer.ENDPOINT: path.as_uri()}) == 1
    assert capfd.readouterr().err == f"millrace: {path}: there is no token\n"
    path.unlink()
    assert consumed(broker, **{bearer.ENDPOINT: path.as_uri()}) == 1
    assert capfd.readouterr().err == f"millrace: {path}: No such file or directory\n"


def test_a_token_of_an_issuer(
    broker: Broker, issuer: Issuer, endpoint: Endpoint, capfd: pytest.CaptureFixture[str]
) -> None:
    answer = json.dumps({"access_token": issuer.token("etl"), "expires_in": 600, "token_type": "Bearer"})
    endpoint.answers["/token"] = (200, answer.encode())
    login = {bearer.CLIENT_ID: "etl", bearer.CLIENT_SECRET: SECRET, bearer.SCOPE: "kafka", bearer.METHOD: "oidc"}
    assert consumed(broker, **{bearer.ENDPOINT: f"{endpoint.address}/token", **login}) == 0
    basic = base64.b64encode(b"etl:s3cret%2F%2B").decode()
    wanted = ("/token", f"Basic {basic}", b"grant_type=client_credentials&scope=kafka")
    assert endpoint.requests == [wanted]  # for every connection of the command

    endpoint.answers |= {"/moved": (302, b""), "/refused": (401, b"{}"), "/text": (200, b"x"), "/none": (200, b"{}")}
    reasons = {"/moved": "status 302", "/refused": "status 401", "/text": "is not JSON", "/none": "there is no token"}
    for path, reason in reasons.items():
        assert consumed(broker, **{bearer.ENDPOINT: endpoint.address + path, **login}) == 1
        shown = capfd.readouterr().err
        assert reason in shown
        assert SECRET not in shown
    assert len(endpoint.requests) == 1 + len(reasons)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({bearer.ENDPOINT: "file://host/token"}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({bearer.ENDPOINT: "https://a:b@id.example"}, "needs sasl.oauthbearer.token.endpoint.url"),
        ({bearer.ENDPOINT: "http://id.example/token"}, "use https"),
        ({bearer.ENDPOINT: "https://id.example", bearer.CLIENT_ID: "x"}, "needs sasl.oauthbearer.client.id and"),
        ({bearer.METHOD: "default"}, "sasl.oauthbearer.method is not oidc"),
    ],
)
def test_properties_that_do_not_fit(given: dict[str, str], reason: str) -> None:
    with pytest.raises(CliError, match=reason) as refused:
        bearer.token_source(given)
    assert refused.value.status == 2
