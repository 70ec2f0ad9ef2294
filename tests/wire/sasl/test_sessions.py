"""A session ends when the settings or the token say so, and is renewed over the same connection (KIP-368)."""

from __future__ import annotations

import asyncio

import pytest
from gateway_svc.sasl import session as session_module
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest

from tests.wire.conftest import batch, fetch_request, produce, produce_request
from tests.wire.sasl.conftest import USER, Issuer, Secured, authenticate, bearer, handshake, log_in, plain


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client log in as often as it likes."""
    monkeypatch.setattr(session_module, "RENEWAL_S", 0.0)


async def test_a_session_without_renewal_ends_at_the_next_request(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=300)
    wire = await broker.connect()
    assert (await log_in(wire, "PLAIN")).session_lifetime_ms == 300
    assert await produce(wire, "single", batch(b"x")) == (0, 0)
    await asyncio.sleep(0.35)
    wire.send(3, 4, MetadataRequest(topics=()))
    assert await wire.closed() == b""
    assert broker.refused == {"session_ended": 1}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_a_session_is_renewed_before_or_after_its_end(secured: Secured, issuer: Issuer, mechanism: str) -> None:
    broker = await secured(connections_max_reauth_ms=400)
    wire = await broker.connect()
    for number, pause_s in enumerate((0.0, 0.0, 0.45, 0.0)):
        await asyncio.sleep(pause_s)
        answer = await log_in(wire, mechanism, token=issuer.token())
        assert (answer.error_code, answer.session_lifetime_ms) == (0, 400)
        assert await produce(wire, "single", batch(b"x")) == (0, number)
    assert broker.gateway.metrics.logins == {mechanism: 4}


async def test_a_fetch_session_goes_on_after_a_renewal(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "PLAIN")
    await produce(wire, "single", batch(b"x"))
    first = await wire.call(1, 11, _with_session(fetch_request("single", 0), 0, 0))
    assert first.session_id
    await log_in(wire, "PLAIN")
    second = await wire.call(1, 11, _with_session(fetch_request("single", 1), first.session_id, 1))
    assert second.error_code == 0


def _with_session(request: object, session_id: int, epoch: int) -> object:
    from dataclasses import replace

    return replace(request, session_id=session_id, session_epoch=epoch)  # type: ignore[type-var]


async def test_a_token_s_end_and_the_setting_whichever_is_first(secured: Secured, issuer: Issuer) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    assert (await log_in(wire, "OAUTHBEARER", token=issuer.token())).session_lifetime_ms == 60_000
    lifetime_ms = (await log_in(wire, "OAUTHBEARER", token=issuer.token(lifetime_s=20))).session_lifetime_ms
    assert 15_000 < lifetime_ms <= 20_000
    old = await log_in(wire, "OAUTHBEARER", token=issuer.token(lifetime_s=-20))
    assert (old.error_code, old.session_lifetime_ms) == (0, 0), "its end differs by less than the clocks may"
    assert (await handshake(wire, "OAUTHBEARER")).error_code == 0


async def test_another_user_is_refused(secured: Secured, issuer: Issuer) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "OAUTHBEARER", token=issuer.token())
    await handshake(wire, "OAUTHBEARER")
    answer = await authenticate(wire, bearer(issuer.token("bob")))
    text = f"Cannot change principals during re-authentication from User.{USER}: User.bob"
    assert (answer.error_code, answer.error_message) == (58, text)
    assert await wire.closed() == b""


async def test_another_mechanism_is_refused_at_its_token(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "PLAIN")
    assert (await handshake(wire, "SCRAM-SHA-256")).error_code == 0
    wire.send(36, 1, SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=abc"))
    assert await wire.closed() == b""


async def test_a_wrong_password_ends_the_connection(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "SCRAM-SHA-256")
    answer = await log_in(wire, "SCRAM-SHA-256", password="wrong")
    text = "Authentication failed during re-authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"
    assert (answer.error_code, answer.error_message) == (58, text)
    assert await wire.closed() == b""


async def test_one_renewal_a_second(secured: Secured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "RENEWAL_S", 3600.0)
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "PLAIN")
    assert (await log_in(wire, "PLAIN")).error_code == 0
    assert (await handshake(wire, "PLAIN")).error_code == 34
    assert await produce(wire, "single", batch(b"x")) == (0, 0)


async def test_requests_before_and_after_a_renewal_keep_their_order(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "PLAIN")
    ids = [wire.send(1, 4, fetch_request("single", 0, wait_ms=100))]
    ids.append(wire.send(17, 1, SaslHandshakeRequest(mechanism="PLAIN")))
    ids.append(wire.send(36, 1, SaslAuthenticateRequest(auth_bytes=plain())))
    ids.append(wire.send(3, 4, MetadataRequest(topics=())))
    assert [(await wire.receive())[0] for _ in ids] == ids


async def test_nothing_after_a_wrong_login_in_a_pipeline_is_served(secured: Secured) -> None:
    broker = await secured(connections_max_reauth_ms=60_000)
    wire = await broker.connect()
    await log_in(wire, "PLAIN")
    wire.send(0, 7, produce_request("single", batch(b"before")))
    wire.send(17, 1, SaslHandshakeRequest(mechanism="PLAIN"))
    wire.send(36, 2, SaslAuthenticateRequest(auth_bytes=plain(password="wrong")))
    wire.send(0, 7, produce_request("single", batch(b"after")))
    answers = [(await wire.receive())[1] for _ in range(3)]
    assert answers[0].responses[0].partition_responses[0].error_code == 0
    assert [each.error_code for each in answers[1:]] == [0, 58]
    assert await wire.closed() == b""
    other = await broker.connect()
    await log_in(other, "PLAIN")
    assert await produce(other, "single", batch(b"x")) == (0, 1)
