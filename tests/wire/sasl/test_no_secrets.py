"""No secret of a login is in a log line, a metric, an error or an answer, whatever the level of the log."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from protocol_lib.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from protocol_lib.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from protocol_lib.scram import ScramMechanism
from service_chassis import logs

from tests.wire.sasl.conftest import ALL, PASSWORD, USER, Issuer, Secured, authenticate, bearer, handshake, log_in

WRONG, TYPED = "hunter2-hunter2", "a password in the place of a name"


async def test_no_secret_in_any_output(
    secured: Secured, issuer: Issuer, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    salted = ScramMechanism.SHA_256.salted_password(WRONG, b"the salt of bob!", 4096)
    tokens = [issuer.token(), issuer.token(aud="others"), issuer.token() + "x"]
    answers = []
    broker = await secured()
    with logs.configured("test", "debug", "json"):
        for mechanism in ALL.split(","):
            wire = await broker.connect()
            answers.append(await log_in(wire, mechanism, token=tokens[0]))
        for mechanism in ALL.split(",")[:3]:
            wire = await broker.connect()
            answers.append(await log_in(wire, mechanism, password=WRONG))
        for token in tokens[1:]:
            wire = await broker.connect()
            await handshake(wire, "OAUTHBEARER")
            answers.append(await authenticate(wire, bearer(token)))
            answers.append(await authenticate(wire, b"\x01"))
        for token in (
            b"\xff" + PASSWORD.encode(),
            f"n,,n={USER},p={WRONG}".encode(),
            b"n,,\x01auth=Basic hunter2\x01\x01",
        ):
            wire = await broker.connect()
            await handshake(wire, "PLAIN")
            answers.append(await authenticate(wire, token))
        wire = await broker.connect()
        await log_in(wire, "PLAIN")
        upsertion = ScramCredentialUpsertion(
            name="bob", mechanism=1, iterations=4096, salt=b"the salt of bob!", salted_password=salted
        )
        altered = await wire.call(51, 0, AlterUserScramCredentialsRequest(deletions=(), upsertions=(upsertion,)))
        assert altered.results[0].error_code == 0
        answers.append(altered)
        answers.append(await wire.call(50, 0, DescribeUserScramCredentialsRequest(users=None)))
    metrics = "".join(str(family.samples) for family in broker.gateway.metrics.collect())
    output = capfd.readouterr()
    credential = broker.core._user_credentials.find("bob", [ScramMechanism.SHA_256])[1]
    shown = [output.out, output.err, metrics, *map(repr, answers), repr(broker.core.settings.shown())]
    shown += [repr(credential), repr(upsertion), repr(broker.core._catalog.read())]
    assert "login refused" in output.err
    assert USER in output.err
    raw = [salted, credential.stored_key, credential.server_key, broker.core._catalog.read().users_secret]
    secrets = [PASSWORD, WRONG, "hunter2", *tokens]
    for each in raw:
        secrets += [each.hex(), base64.b64encode(each).decode(), repr(each)[2:-1]]
    for secret in secrets:
        assert [text[:200] for text in shown if secret in text] == [], secret
