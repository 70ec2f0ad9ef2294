"""A client logs in by each mechanism, as in Kafka's SaslServerAuthenticator, and learns nothing if it may not."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from gateway_svc.errors import StorageUnavailable
from gateway_svc.sasl.login import SaslLogin
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.create_delegation_token import CreateDelegationTokenRequest
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from protocol_lib.scram import ScramClient, ScramMechanism

from tests.wire.conftest import Running, Wire, batch, produce, until
from tests.wire.sasl.conftest import (
    ALL,
    PASSWORD,
    USER,
    Issuer,
    Secured,
    authenticate,
    bearer,
    handshake,
    log_in,
    plain,
)

MECHANISMS = tuple(ALL.split(","))
VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")


def principal(broker: Running) -> list[str]:
    return sorted(each.principal for each in broker.gateway._connections._open)  # type: ignore[attr-defined]


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_user_logs_in_and_is_served(secured: Secured, issuer: Issuer, mechanism: str) -> None:
    broker = await secured()
    wire = await broker.connect()
    versions = await wire.call(18, 3, VERSIONS)
    assert len(versions.api_keys) > 50, "everything is listed before a login, too"
    answer = await log_in(wire, mechanism, token=issuer.token())
    assert (answer.error_code, answer.error_message) == (0, None)
    assert (answer.session_lifetime_ms > 590_000) == (mechanism == "OAUTHBEARER")
    assert await produce(wire, "single", batch(b"x")) == (0, 0)
    assert principal(broker) == [f"User:{USER}"]
    assert broker.gateway.metrics.logins == {mechanism: 1}


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize(("user", "password"), [(USER, "wrong"), ("nobody", PASSWORD), ("Alice", PASSWORD)])
async def test_wrong_passwords_and_unknown_users_get_the_same_answers(
    secured: Secured, mechanism: str, user: str, password: str, log_lines: Callable[[], list[dict[str, Any]]]
) -> None:
    broker = await secured()
    wire = await broker.connect()
    before = asyncio.get_running_loop().time()
    answer = await log_in(wire, mechanism, user, password)
    text = "Authentication failed: Invalid username or password"
    if mechanism != "PLAIN":
        text = f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    assert (answer.error_code, answer.error_message, answer.auth_bytes) == (58, text, b"")
    assert asyncio.get_running_loop().time() - before >= 0.1, "a failure costs the client 100 ms"
    assert await wire.closed() == b""
    assert broker.gateway.metrics.failed_logins == {mechanism: 1}
    assert password not in str(log_lines())


@pytest.mark.parametrize("mechanism", MECHANISMS[1:3])
async def test_a_challenge_does_not_show_whether_a_user_exists(secured: Secured, mechanism: str) -> None:
    broker = await secured()

    async def challenge(user: str) -> dict[str, str]:
        wire = await broker.connect()
        await handshake(wire, mechanism)
        scram = ScramMechanism.SHA_256 if mechanism.endswith("256") else ScramMechanism.SHA_512
        answer = await authenticate(wire, ScramClient(scram, user, "x").first())
        await wire.close()
        return dict(part.split("=", 1) for part in answer.auth_bytes.decode().split(","))

    known, unknown, again = await challenge(USER), await challenge("nobody"), await challenge("nobody")
    assert known["i"] == unknown["i"] == "8192"
    assert len(known["s"]) == len(unknown["s"])
    assert unknown["s"] == again["s"] != known["s"]


@pytest.mark.parametrize(
    ("token", "text"),
    [
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0a\0b\0c", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (plain("", "x"), "Authentication failed: username not specified"),
        (plain("a", ""), "Authentication failed: password not specified"),
        (b"\0\xff\0x", "Invalid SASL/PLAIN response: not UTF-8"),
        (
            plain(authorization_id="bob"),
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        (plain(password="x", authorization_id="bob"), "Authentication failed: Invalid username or password"),
    ],
)
async def test_plain_tokens_that_are_refused(secured: Secured, token: bytes, text: str) -> None:
    wire = await (await secured()).connect()
    await handshake(wire, "PLAIN")
    answer = await authenticate(wire, token)
    assert (answer.error_code, answer.error_message) == (58, text)
    assert await wire.closed() == b""


@pytest.mark.parametrize(
    "token",
    [b"", b"n,,", b"p=tls-unique,,n=alice,r=abc", b"n,,n=alice,r=", b"n,,m=x,n=alice,r=abc", b"n,,n=,r=abc",
     b"n,,n=alice,r=abc,tokenauth=true", b"n,a=bob,n=alice,r=abc", b"\xff" * 1000],
)  # fmt: skip
async def test_scram_tokens_that_are_refused(secured: Secured, token: bytes) -> None:
    wire = await (await secured()).connect()
    await handshake(wire, "SCRAM-SHA-256")
    answer = await authenticate(wire, token)
    assert answer.error_code == 58
    assert ("authorization id" in answer.error_message) == (b"a=bob" in token)
    assert await wire.closed() == b""


async def test_a_proof_counts_for_one_exchange_alone(secured: Secured) -> None:
    """A recorded proof, or one for another nonce, is of no use (CVE-2024-56128)."""
    broker = await secured()
    wire = await broker.connect()
    await handshake(wire, "SCRAM-SHA-256")
    client = ScramClient(ScramMechanism.SHA_256, USER, PASSWORD)
    challenge = await authenticate(wire, client.first())
    proof = client.final(challenge.auth_bytes)
    assert (await authenticate(wire, proof)).error_code == 0
    other = await broker.connect()
    await handshake(other, "SCRAM-SHA-256")
    assert (await authenticate(other, client.first())).error_code == 0
    assert (await authenticate(other, proof)).error_code == 58
    assert await other.closed() == b""


@pytest.mark.parametrize("claims", [{"aud": "others"}, {"iss": "https://evil.example"}, {"exp": 1}, {"sub": ""}])
async def test_a_token_that_is_not_accepted(secured: Secured, issuer: Issuer, claims: dict[str, Any]) -> None:
    broker = await secured()
    wire = await broker.connect()
    await handshake(wire, "OAUTHBEARER")
    answer = await authenticate(wire, bearer(issuer.token(**claims)))
    assert (answer.error_code, answer.auth_bytes) == (0, b'{"status":"invalid_token"}')
    answer = await authenticate(wire, b"\x01")
    assert (answer.error_code, answer.error_message) == (58, '{"status":"invalid_token"}')
    assert await wire.closed() == b""


async def test_a_token_of_another_user_or_with_extensions(secured: Secured, issuer: Issuer) -> None:
    broker = await secured()
    for token in (bearer(issuer.token(), "bob"), bearer(issuer.token(), "", traceId="1"), b"n,,\x01\x01"):
        wire = await broker.connect()
        await handshake(wire, "OAUTHBEARER")
        assert (await authenticate(wire, token)).error_code == 58
        assert await wire.closed() == b""
    wire = await broker.connect()
    await handshake(wire, "OAUTHBEARER")
    assert (await authenticate(wire, bearer(issuer.token("bob"), "bob"))).error_code == 0
    assert principal(broker) == ["User:bob"], "a token's user need not be in the catalog"


async def test_requests_that_a_login_does_not_expect(secured: Secured) -> None:
    broker = await secured()
    for requests in (
        [(3, 4, MetadataRequest(topics=()))],
        [(18, 3, VERSIONS)] * 2,
        [(36, 1, SaslAuthenticateRequest(auth_bytes=b""))],
    ):
        wire = await broker.connect()
        for each in requests:
            wire.send(*each)
        for _ in requests[1:]:
            assert (await wire.receive())[1].error_code == 0
        assert await wire.closed() == b""
    assert broker.refused == {"login_expected": 3}
    for garbage in (b"\0\0\0\x00", b"\0\0\0\x04abcd", b"\0\0\0\x60" + b"`" * 96, b"GET / HTTP/1.1\r\n\r\n"):
        wire = await broker.connect()
        wire.writer.write(garbage)
        assert await wire.closed() == b""


async def test_requests_among_tokens(secured: Secured) -> None:
    broker = await secured()
    for api_key, version, request in ((18, 3, VERSIONS), (17, 1, SaslHandshakeRequest(mechanism="PLAIN"))):
        wire = await broker.connect()
        await handshake(wire, "PLAIN")
        assert (await wire.call(api_key, version, request)).error_code == 34
        assert await wire.closed() == b""
    wire = await broker.connect()
    await handshake(wire, "PLAIN")
    wire.send(3, 4, MetadataRequest(topics=()))
    assert await wire.closed() == b"", "others are not decoded"


async def test_api_versions_before_a_login(secured: Secured) -> None:
    """An unknown version and a malformed name are answered, and the client may ask again."""
    broker = await secured()
    wire = await broker.connect()
    wire.send_frame(18, 99, 7, b"\0")
    frame = await wire.receive_frame()
    assert frame[:6] == struct.pack(">ih", 7, 35)
    odd = ApiVersionsRequest(client_software_name="a b", client_software_version="1")
    assert (await wire.call(18, 3, odd)).error_code == 42
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    assert (await log_in(wire, "PLAIN")).error_code == 0


async def test_an_unknown_mechanism(secured: Secured) -> None:
    broker = await secured("SCRAM-SHA-512,PLAIN,OTHER:OAUTHBEARER")
    for name in ("GSSAPI", "OAUTHBEARER", "plain", ""):
        wire = await broker.connect()
        answer = await handshake(wire, name)
        assert (answer.error_code, answer.mechanisms) == (33, ("SCRAM-SHA-512", "PLAIN"))
        assert await wire.closed() == b""


async def test_tokens_of_handshake_version_0_travel_alone(secured: Secured, issuer: Issuer) -> None:
    broker = await secured()

    async def exchange(wire: Wire, *tokens: bytes) -> bytes:
        for token in tokens[:-1]:
            wire.writer.write(struct.pack(">i", len(token)) + token)
            await wire.receive_frame()
        wire.writer.write(struct.pack(">i", len(tokens[-1])) + tokens[-1])
        return await wire.receive_frame()

    wire = await broker.connect()
    assert (await handshake(wire, "PLAIN", 0)).error_code == 0
    assert await exchange(wire, plain()) == b""
    assert await produce(wire, "single", batch(b"x")) == (0, 0)
    wire, client = await broker.connect(), ScramClient(ScramMechanism.SHA_512, USER, PASSWORD)
    assert (await handshake(wire, "SCRAM-SHA-512", 0)).error_code == 0
    client.verify(await exchange(wire, client.final(await exchange(wire, client.first()))))
    assert await produce(wire, "single", batch(b"x")) == (0, 1)
    for tokens in ([b"\0a\0b"], [b""], [plain(password="wrong")]):
        wire = await broker.connect()
        await handshake(wire, "PLAIN", 0)
        wire.writer.write(struct.pack(">i", len(tokens[0])) + tokens[0])
        assert await wire.closed() == b"", "there is no answer that says why"
    wire = await broker.connect()
    await handshake(wire, "OAUTHBEARER", 0)
    wire.writer.write(struct.pack(">i", 65_537))
    assert await wire.closed() == b""


async def test_what_comes_after_a_login(secured: Secured) -> None:
    broker = await secured()
    wire = await broker.connect()
    assert (await log_in(wire, "PLAIN")).error_code == 0
    again = await handshake(wire, "PLAIN")
    assert (again.error_code, again.mechanisms) == (34, ()), "this session has no end"
    assert (await authenticate(wire, plain())).error_code == 34
    token = CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=-1)
    assert (await wire.call(38, 3, token)).error_code == 61
    assert await produce(wire, "single", batch(b"x")) == (0, 0)


async def test_nobody_can_hold_a_login_open(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = await secured()
    monkeypatch.setattr(SaslLogin, "deadline_s", 0.1)
    silent, started = await broker.connect(), await broker.connect()
    await handshake(started, "SCRAM-SHA-256")
    assert (await silent.closed(), await started.closed()) == (b"", b"")
    assert broker.refused == {"login_timeout": 2}


async def test_a_login_without_storage_ends_without_an_answer(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can tell whether the password is right: the client comes again."""
    broker = await secured()

    async def lost(_request: object) -> None:
        raise StorageUnavailable("gone")

    monkeypatch.setattr(broker.core.users, "find_credential", lost)
    for mechanism, token in (
        ("PLAIN", plain()),
        ("SCRAM-SHA-256", ScramClient(ScramMechanism.SHA_256, USER, "x").first()),
    ):
        wire = await broker.connect()
        await handshake(wire, mechanism)
        wire.send(36, 2, SaslAuthenticateRequest(auth_bytes=token))
        assert await wire.closed() == b""
    assert broker.refused == {"storage_unavailable": 2}
    assert not broker.gateway.metrics.failed_logins


async def test_a_client_that_leaves_during_its_login_costs_nothing(
    secured: Secured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SaslLogin, "deadline_s", 2.0)
    broker = await secured()
    asked, go = asyncio.Event(), asyncio.Event()
    find = broker.core.users.find_credential

    async def slow(request: Any) -> Any:
        asked.set()
        await go.wait()
        return await find(request)

    monkeypatch.setattr(broker.core.users, "find_credential", slow)
    for version in (0, 1):
        wire = await broker.connect()
        await handshake(wire, "PLAIN", version)
        if version:
            wire.send(36, 2, SaslAuthenticateRequest(auth_bytes=plain()))
        else:
            wire.writer.write(struct.pack(">i", len(plain())) + plain())
        await asked.wait()
        asked.clear()
        wire.writer.transport.abort()
        await until(lambda: broker.gateway.metrics.connections == 0)
    go.set()
    await asyncio.sleep(0)
    assert broker.gateway.memory_held == 0
    assert broker.gateway.metrics.logins == {}
