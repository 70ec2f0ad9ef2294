"""Tokens are accepted from one issuer for one audience, by keys that it lists, and by no trick."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from service_chassis import bearer_tokens
from service_chassis.bearer_tokens import (
    BearerSettings,
    BearerTokens,
    InvalidToken,
    KeysUnavailable,
    VerifiedToken,
    _fetched,
)
from service_chassis.settings import SettingsError

NOW = 1_800_000_000
ISSUER, AUDIENCE = "https://id.example", "kafka"
RSA = rsa.generate_private_key(65537, 2048)
OTHER = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
P384 = ec.generate_private_key(ec.SECP384R1())
ED = ed25519.Ed25519PrivateKey.generate()
PUBLIC_PEM = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def jwk(key: Any, key_id: str | None, **more: Any) -> dict[str, Any]:
    """Return the public key as the issuer lists it."""
    kind = {rsa.RSAPrivateKey: "RS256", ed25519.Ed25519PrivateKey: "EdDSA"}
    name = next((name for each, name in kind.items() if isinstance(key, each)), "ES256")
    made = jwt.get_algorithm_by_name(name).to_jwk(key.public_key(), as_dict=True)
    made.pop("alg", None)
    return {**made, **({} if key_id is None else {"kid": key_id}), **more}


def token(key: Any = RSA, algorithm: str = "RS256", key_id: str | None = "rsa", **claims: Any) -> str:
    """Return a good token, with some claims changed; a claim that is None is left out."""
    body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": NOW - 10, "exp": NOW + 600, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    return jwt.encode(body, key, algorithm, headers={} if key_id is None else {"kid": key_id})


class Issuer:
    """The file of an issuer's keys, and the clock."""

    def __init__(self, path: Path) -> None:
        self.path = path / "keys.json"
        self.uptime = 1000.0
        self.list(jwk(RSA, "rsa"), jwk(P256, "p256"), jwk(P384, "p384"), jwk(ED, "ed"))

    def list(self, *keys: dict[str, Any]) -> None:
        self.path.write_text(json.dumps({"keys": keys}))

    def tokens(self, **settings: Any) -> BearerTokens:
        chosen = {
            "sasl_oauthbearer_jwks_endpoint_url": self.path.as_uri(),
            "sasl_oauthbearer_expected_issuer": ISSUER,
            "sasl_oauthbearer_expected_audience": f"other, {AUDIENCE}",
            **settings,
        }
        return BearerTokens(BearerSettings(**chosen), clock=lambda: NOW, monotonic=lambda: self.uptime)


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [(RSA, "RS256", "rsa"), (RSA, "RS512", "rsa"), (RSA, "PS384", "rsa"), (P256, "ES256", "p256"),
     (P384, "ES384", "p384"), (ED, "EdDSA", "ed")],
)  # fmt: skip
async def test_each_algorithm(issuer: Issuer, key: Any, algorithm: str, key_id: str) -> None:
    assert await issuer.tokens().verify(token(key, algorithm, key_id)) == VerifiedToken("alice", NOW + 600)


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": None}, {"iss": "https://id.example.evil"}, {"aud": None}, {"aud": "kafk"},
        {"aud": ["a", "b"]}, {"aud": {"kafka": 1}}, {"sub": None}, {"sub": " "}, {"sub": 7}, {"exp": None},
        {"exp": NOW - 31, "iat": NOW - 90}, {"exp": "9999999999"}, {"exp": True}, {"exp": 1e300}, {"iat": None},
        {"iat": NOW + 31}, {"iat": "x"}, {"iat": NOW + 20, "exp": NOW + 10}, {"nbf": 99_999_999_999},
    ],
    ids=str,
)  # fmt: skip
async def test_claims_that_are_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(token(**claims))


async def test_claims_that_are_accepted(issuer: Issuer) -> None:
    tokens = issuer.tokens()
    for claims in ({"aud": ["x", AUDIENCE]}, {"exp": NOW - 29, "iat": NOW - 40}, {"iat": NOW + 29}, {"exp": NOW + 0.5}):
        assert (await tokens.verify(token(**claims))).subject == "alice"
    named = issuer.tokens(sasl_oauthbearer_sub_claim_name="preferred_username")
    assert (await named.verify(token(preferred_username=" bob "))).subject == "bob"
    with pytest.raises(InvalidToken):
        await named.verify(token())


def forged(header: dict[str, Any], signature: bytes = b"", payload: dict[str, Any] | None = None) -> str:
    body = payload or {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "iat": NOW, "exp": NOW + 600}
    parts = [json.dumps(header).encode(), json.dumps(body).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "", None, "HS256", "RS256", 7, ["RS256"], "ES256K"])
async def test_no_signature(issuer: Issuer, algorithm: Any) -> None:
    for key_id in ("rsa", None):
        header = {"alg": algorithm, "typ": "JWT", **({"kid": key_id} if key_id else {})}
        with pytest.raises(InvalidToken):
            await issuer.tokens().verify(forged(header))
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(forged({"typ": "JWT", "kid": "rsa"}))


async def test_a_public_key_is_no_secret(issuer: Issuer) -> None:
    """The oldest trick: an HMAC whose secret is the public key, which everyone has."""
    import hashlib
    import hmac

    for secret in (PUBLIC_PEM, json.dumps(jwk(RSA, "rsa")).encode()):
        unsigned = forged({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
        mac = base64.urlsafe_b64encode(hmac.digest(secret, unsigned.encode(), hashlib.sha256)).rstrip(b"=")
        with pytest.raises(InvalidToken):
            await issuer.tokens().verify(f"{unsigned}.{mac.decode()}")


async def test_a_secret_among_the_keys_is_none(issuer: Issuer) -> None:
    secret = base64.urlsafe_b64encode(b"s" * 64).decode()
    private = {**jwk(RSA, "private"), "d": "AQAB"}
    issuer.list({"kty": "oct", "k": secret, "kid": "hmac"}, jwk(RSA, "enc", use="enc"), private, jwk(RSA, "rsa"))
    tokens = issuer.tokens()
    for bad in (token(b"s" * 64, "HS256", "hmac"), token(key_id="enc"), token(key_id="private")):
        with pytest.raises(InvalidToken):
            await tokens.verify(bad)
    assert (await tokens.verify(token())).subject == "alice"


async def test_keys_in_the_token_do_not_count(issuer: Issuer) -> None:
    for header in ({"jwk": jwk(OTHER, "rsa")}, {"jku": "https://evil.example/keys"}, {"x5u": "https://evil.example"}):
        body = {"iss": ISSUER, "aud": AUDIENCE, "sub": "root", "iat": NOW, "exp": NOW + 600}
        bad = jwt.encode(body, OTHER, "RS256", headers={"kid": "rsa", **header})
        with pytest.raises(InvalidToken):
            await issuer.tokens().verify(bad)
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(token(headers=None) + "x")
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(forged({"alg": "RS256", "kid": "rsa", "crit": ["exp"], "exp": 1}))


async def test_an_algorithm_that_the_key_does_not_have(issuer: Issuer) -> None:
    issuer.list(jwk(RSA, "rsa", alg="RS256"), jwk(P384, "p384"))
    tokens = issuer.tokens()
    assert (await tokens.verify(token())).subject == "alice"
    with pytest.raises(InvalidToken):
        await tokens.verify(token(algorithm="RS512"))
    with pytest.raises(InvalidToken):
        await tokens.verify(token(P384, "ES384", "rsa"))


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "é.é.é", "x" * 50_000, "[" * 40_000, forged({"alg": []})])
async def test_odd_text(issuer: Issuer, text: str) -> None:
    with pytest.raises(InvalidToken) as refused:
        await issuer.tokens().verify(text)
    assert refused.value.__cause__ is None


async def test_deep_json_is_refused(issuer: Issuer) -> None:
    deep = base64.urlsafe_b64encode(b'{"alg":' + b"[" * 20_000).rstrip(b"=").decode()
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(f"{deep}.e30.")


def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    reads = []

    def fetched(address: str) -> bytes:
        reads.append(address)
        return _fetched(address)

    monkeypatch.setattr(bearer_tokens, "_fetched", fetched)
    return lambda: len(reads)


async def test_a_new_key_is_found_within_a_minute_and_old_ones_end(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = counted(monkeypatch)
    tokens = issuer.tokens()
    assert (await tokens.verify(token())).subject == "alice"
    issuer.list(jwk(OTHER, "new"))
    assert (await tokens.verify(token(OTHER, key_id="new"))).subject == "alice", "an unknown id has the list read again"
    assert reads() == 2
    with pytest.raises(InvalidToken):
        await tokens.verify(token())
    for number in range(100):  # ids that are made up cost no more readings
        with pytest.raises(InvalidToken):
            await tokens.verify(token(OTHER, key_id=f"made-up-{number}"))
    assert reads() == 2
    issuer.list(jwk(RSA, "rsa"))
    issuer.uptime += 59
    with pytest.raises(InvalidToken):
        await tokens.verify(token())
    issuer.uptime += 2
    assert (await tokens.verify(token())).subject == "alice"
    assert reads() == 3
    issuer.uptime += 3599
    await tokens.verify(token())
    assert reads() == 3
    issuer.uptime += 2
    await tokens.verify(token())
    assert reads() == 4, "the list is an hour old"


async def test_a_list_that_cannot_be_read(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reads = counted(monkeypatch)
    tokens = issuer.tokens()
    good = issuer.path.read_text()
    for bad in ("", "[]", '{"keys": 7}', '{"keys": []}', '{"keys": [{"kty": "RSA"}]}', "x" * (1 << 20) + "y"):
        issuer.path.write_text(bad)
        before = reads()
        for _ in range(3):
            with pytest.raises(KeysUnavailable):
                await tokens.verify(token())
        assert reads() - before <= 2
        issuer.uptime += 61
    issuer.path.write_text(good)
    assert (await tokens.verify(token())).subject == "alice"
    issuer.path.unlink()
    issuer.uptime += 4000
    with caplog.at_level(logging.WARNING):
        assert (await tokens.verify(token())).subject == "alice", "the old keys count until there are new ones"


@pytest.mark.parametrize(
    "bad",
    ["{}", "[" * 50_000, "null", '{"keys": [null]}', '{"keys": [{"crv": []}]}', '{"keys": {"a": 1}}',
     '{"keys": [1e999]}', '{"keys": [{"kty": "RSA", "n": "AA", "e": "AQAB", "kid": "rsa"}]}', '{"error": "slow down"}'],
    ids=lambda text: text[:30],
)  # fmt: skip
async def test_an_answer_that_is_no_list_leaves_the_old_keys_and_is_not_asked_for_again(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    reads = counted(monkeypatch)
    tokens = issuer.tokens()
    assert (await tokens.verify(token())).subject == "alice"
    issuer.path.write_text(bad)
    issuer.uptime += 4000
    for _ in range(10):
        assert (await tokens.verify(token())).subject == "alice"
        with pytest.raises(InvalidToken):
            await tokens.verify(token(OTHER, key_id="made-up"))
    assert reads() == 3, "the list, one more as it was old, and one more for the unknown id"
    fresh = issuer.tokens()
    for _ in range(10):
        with pytest.raises(KeysUnavailable):
            await fresh.verify(token())
    assert reads() == 4


async def test_an_issuer_that_hangs_holds_up_no_token_whose_key_is_known(
    issuer: Issuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, good, hangs, go = issuer.tokens(), token(), threading.Semaphore(0), threading.Event()
    assert (await tokens.verify(good)).subject == "alice"

    def hanging(address: str) -> bytes:
        hangs.release()
        assert go.wait(60)
        return _fetched(address)

    monkeypatch.setattr(bearer_tokens, "_fetched", hanging)
    unknown = [asyncio.create_task(tokens.verify(token(OTHER, key_id=f"new-{number}"))) for number in range(20)]
    async with asyncio.timeout(30):  # it fails by this alone
        assert await asyncio.to_thread(hangs.acquire, timeout=30)
        for _ in range(50):
            assert (await tokens.verify(good)).subject == "alice"
    assert not any(each.done() for each in unknown)
    issuer.list(jwk(RSA, "rsa"), jwk(OTHER, "new-7"))
    go.set()
    found = await asyncio.gather(*unknown, return_exceptions=True)
    assert [isinstance(each, VerifiedToken) for each in found] == [number == 7 for number in range(20)]
    # Keys that are old are waited for once. While the issuer is away, nobody waits.
    issuer.path.unlink()
    issuer.uptime += 4000
    assert (await tokens.verify(good)).subject == "alice"
    go.clear()
    issuer.uptime += 11
    async with asyncio.timeout(30):
        assert (await tokens.verify(good)).subject == "alice"
    assert await asyncio.to_thread(hangs.acquire, timeout=30)
    go.set()


async def test_an_issuer_with_one_key_need_not_name_it(issuer: Issuer) -> None:
    with pytest.raises(InvalidToken):
        await issuer.tokens().verify(token(key_id=None))
    issuer.list(jwk(RSA, None))
    assert (await issuer.tokens().verify(token(key_id=None))).subject == "alice"


def test_settings_that_would_accept_tokens_for_others() -> None:
    address = {"sasl_oauthbearer_jwks_endpoint_url": "https://id.example/keys"}
    issuer, audience = {"sasl_oauthbearer_expected_issuer": ISSUER}, {"sasl_oauthbearer_expected_audience": AUDIENCE}
    for lacking in ({}, issuer, audience, {**issuer, "sasl_oauthbearer_expected_audience": " , "}):
        with pytest.raises(SettingsError, match="tokens for other services"):
            BearerSettings(**address, **lacking)
    for wrong in ("http://id.example/keys", "https:///keys", "ftp://x/y", "keys.json"):
        with pytest.raises(SettingsError, match="neither https"):
            BearerSettings(sasl_oauthbearer_jwks_endpoint_url=wrong, **issuer, **audience)
    BearerSettings(**address, **issuer, **audience)
