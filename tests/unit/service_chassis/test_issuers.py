"""The keys of an issuer come by https from a server that may be slow, broken, or no such server at all."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from service_chassis import bearer_tokens
from service_chassis.bearer_tokens import BearerSettings, BearerTokens, KeysUnavailable
from support.certificates import Authority

from tests.unit.service_chassis.test_bearer_tokens import AUDIENCE, ISSUER, NOW, P256, jwk, token

HEAD = b"HTTP/1.1 200 OK\r\n"
KEYS = json.dumps({"keys": [jwk(P256, "p256")]}).encode()

#: A function that starts a server which answers each request by these pieces, with a pause after each. It returns the
#: check of tokens by its keys, and a list with an entry for each request.
Serve = Callable[..., tuple[BearerTokens, list[None]]]


@pytest.fixture
def serve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    ca = Authority(tmp_path)
    pair = ca.issue("issuer")
    monkeypatch.setenv("SSL_CERT_FILE", str(ca.certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    listening = socket.create_server(("127.0.0.1", 0))

    def start(*pieces: bytes, pause_s: float = 0.0) -> tuple[BearerTokens, list[None]]:
        asked: list[None] = []

        def answer() -> None:
            while True:
                try:
                    accepted, _ = listening.accept()
                except OSError:
                    return
                with contextlib.suppress(OSError), context.wrap_socket(accepted, server_side=True) as client:
                    client.recv(4096)
                    asked.append(None)
                    for piece in pieces:
                        client.sendall(piece)
                        time.sleep(pause_s)

        threading.Thread(target=answer, daemon=True).start()
        settings = BearerSettings(
            sasl_oauthbearer_jwks_endpoint_url=f"https://127.0.0.1:{listening.getsockname()[1]}/keys",
            sasl_oauthbearer_expected_issuer=ISSUER,
            sasl_oauthbearer_expected_audience=AUDIENCE,
        )
        return BearerTokens(settings, clock=lambda: NOW), asked

    yield start
    listening.close()


async def test_keys_are_read_once(serve: Serve) -> None:
    tokens, asked = serve(HEAD + b"\r\n", KEYS)
    for _ in range(3):
        assert (await tokens.verify(token(P256, "ES256", "p256"))).subject == "alice"
    assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no HTTP\n",
        HEAD + b"Content-Length: x\r\n\r\n{}",
        HEAD + b"a: b\r\n" * 200 + b"\r\n",
        HEAD + b"a" * 70_000,
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n{",
        HEAD + b"Content-Length: 99999\r\n\r\n" + KEYS[:-1],
        b"HTTP/1.1 302 Found\r\nLocation: https://localhost/keys\r\n\r\n",
        b"HTTP/1.1 503 Busy\r\n\r\n" + KEYS,
        HEAD + b"\r\n" + b" " * (1 << 20) + KEYS,
    ],
    ids=lambda answer: repr(answer[:60]),
)
async def test_a_server_that_is_no_issuer_is_not_asked_at_each_login(serve: Serve, answer: bytes) -> None:
    tokens, asked = serve(answer)
    for _ in range(5):
        with pytest.raises(KeysUnavailable):
            await tokens.verify(token(P256, "ES256", "p256"))
    assert len(asked) == 1


async def test_an_answer_without_end_is_left(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bearer_tokens, "_READ_S", 0.5)
    tokens, _ = serve(HEAD + b"\r\n", *[b" "] * 60, KEYS, pause_s=0.05)
    with pytest.raises(KeysUnavailable):
        await tokens.verify(token(P256, "ES256", "p256"))
