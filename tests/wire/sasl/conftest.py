"""A broker whose clients log in by SASL, with users, and an issuer of tokens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from protocol_lib.oauthbearer import BearerMessage, encode_bearer
from protocol_lib.scram import ScramClient, ScramMechanism
from support.token_issuer import Issuer

from tests.wire.conftest import Running, StartBroker, Wire

USER, PASSWORD = "alice", "correct horse"
ALL = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"
SCRAM = {each.mechanism_name: each for each in ScramMechanism}

Secured = Callable[..., Awaitable[Running]]


@pytest.fixture(scope="session")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


@pytest.fixture
def secured(start_broker: StartBroker, issuer: Issuer, tmp_path: Path) -> Secured:
    """A function that starts a broker with SASL, and with the user `USER`."""
    users = tmp_path / "users"
    users.write_text(f"{USER} {PASSWORD}\n")

    async def start(mechanisms: str = ALL, **settings: Any) -> Running:
        return await start_broker(
            listener_security_protocol_map="EXTERNAL:SASL_PLAINTEXT",
            sasl_enabled_mechanisms=mechanisms,
            users_file=str(users),
            **issuer.settings,
            **settings,
        )

    return start


async def handshake(wire: Wire, mechanism: str, version: int = 1) -> Any:
    return await wire.call(17, version, SaslHandshakeRequest(mechanism=mechanism))


async def authenticate(wire: Wire, token: bytes, version: int = 2) -> SaslAuthenticateResponse:
    answer: SaslAuthenticateResponse = await wire.call(36, version, SaslAuthenticateRequest(auth_bytes=token))
    return answer


def plain(user: str = USER, password: str = PASSWORD, authorization_id: str = "") -> bytes:
    return "\0".join((authorization_id, user, password)).encode()


def bearer(token: str, authorization_id: str = "", **extensions: str) -> bytes:
    return encode_bearer(BearerMessage(token, authorization_id, extensions))


async def log_in(
    wire: Wire, mechanism: str, user: str = USER, password: str = PASSWORD, *, token: str = "", version: int = 2
) -> SaslAuthenticateResponse:
    """Log in; return the last answer. `token`: for OAUTHBEARER."""
    answer = await handshake(wire, mechanism)
    assert answer.error_code == 0
    if mechanism == "PLAIN":
        return await authenticate(wire, plain(user, password), version)
    if mechanism == "OAUTHBEARER":
        return await authenticate(wire, bearer(token), version)
    client = ScramClient(SCRAM[mechanism], user, password)
    challenge = await authenticate(wire, client.first(), version)
    if challenge.error_code:
        return challenge
    last = await authenticate(wire, client.final(challenge.auth_bytes), version)
    if not last.error_code:
        client.verify(last.auth_bytes)
    return last
