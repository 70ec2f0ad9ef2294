"""Strangers that replay or swap what others proved, or that begin many logins and end none."""

from __future__ import annotations

import asyncio
import base64

import pytest
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.scram import ScramClient, ScramMechanism

from tests.wire.conftest import Wire, until
from tests.wire.sasl.conftest import PASSWORD, USER, Secured, authenticate, handshake, log_in, plain

NAME = "SCRAM-SHA-256"
#: Strangers who come together.
MANY = 1000
#: The room of a frame of 64 KB of which 1 KB has arrived.
ROOM_BYTES = 8192
#: Most bytes of one request of a login by SCRAM: a header, and the proof of 32 bytes in base64 with the nonces.
LOGIN_BYTES = 256


async def begun(wire: Wire, client: ScramClient) -> bytes:
    """Begin a login; return the broker's challenge."""
    await handshake(wire, NAME)
    answer = await authenticate(wire, client.first())
    assert answer.error_code == 0
    return bytes(answer.auth_bytes)


async def refused(wire: Wire, token: bytes) -> None:
    answer = await authenticate(wire, token)
    assert (answer.error_code, answer.auth_bytes) == (58, b"")
    assert await wire.closed() == b""


async def test_a_proof_that_was_overheard_lets_nobody_in(secured: Secured) -> None:
    """The listener repeats all that a client sent, its nonce, too."""
    broker = await secured()
    client = ScramClient(ScramMechanism.SHA_256, USER, PASSWORD, nonce="of the client")
    wire = await broker.connect()
    proof = client.final(await begun(wire, client))
    assert (await authenticate(wire, proof)).error_code == 0
    for _ in range(3):
        again = ScramClient(ScramMechanism.SHA_256, USER, PASSWORD, nonce="of the client")
        other = await broker.connect()
        await begun(other, again)
        await refused(other, proof)


async def test_a_proof_for_one_connection_counts_on_no_other(secured: Secured) -> None:
    broker = await secured()
    clients = [ScramClient(ScramMechanism.SHA_256, USER, PASSWORD, nonce="the same one") for _ in range(2)]
    wires = [await broker.connect() for _ in clients]
    proofs = [client.final(await begun(wire, client)) for wire, client in zip(wires, clients, strict=True)]
    for wire, proof in zip(wires, reversed(proofs), strict=True):
        await refused(wire, proof)


@pytest.mark.parametrize(
    ("step", "held_bytes"),
    [("connected", 0), ("a mechanism chosen", 0), ("a challenge taken", 0), ("half of a frame", ROOM_BYTES)],
)
async def test_logins_that_never_end_hold_little_and_leave(secured: Secured, step: str, held_bytes: int) -> None:
    broker = await secured(max_connections_per_ip=MANY + 2)
    known = await broker.connect()
    await log_in(known, "PLAIN")
    strangers = [await broker.connect() for _ in range(MANY)]
    for wire in strangers:
        if step == "a mechanism chosen":
            await handshake(wire, NAME)
        elif step == "a challenge taken":
            await begun(wire, ScramClient(ScramMechanism.SHA_256, USER, "x"))
        elif step == "half of a frame":
            wire.writer.write(b"\x00\x00\xff\xff" + bytes(1000))
    await until(lambda: broker.gateway.memory_held == MANY * held_bytes)
    assert (await known.call(3, 4, MetadataRequest(topics=()))).topics == ()
    last = await broker.connect()
    assert (await log_in(last, NAME)).error_code == 0
    for connection in broker.gateway._connections._open:  # their time is over
        if connection._requests.is_login:  # type: ignore[attr-defined]
            connection._enter_until = 0.0  # type: ignore[attr-defined]
    await until(lambda: broker.gateway.metrics.connections == 2)
    assert broker.gateway.memory_held == 0
    assert (await known.call(3, 4, MetadataRequest(topics=()))).topics == ()


@pytest.mark.parametrize("mechanism", ["PLAIN", NAME])
async def test_a_flood_of_wrong_passwords_holds_little_and_leaves(secured: Secured, mechanism: str) -> None:
    """Each is answered, or disconnected because too many passwords wait for their check."""
    broker = await secured(max_connections_per_ip=MANY + 2)
    known = await broker.connect()
    await log_in(known, "PLAIN")
    strangers = [await broker.connect() for _ in range(MANY)]
    most = 0

    async def guess(wire: Wire) -> bool:
        nonlocal most
        try:
            token = plain(password="wrong")
            if mechanism == "PLAIN":
                await handshake(wire, mechanism)
            else:  # without the salted password, which would keep this event loop busy
                challenge = await begun(wire, ScramClient(ScramMechanism.SHA_256, USER, "wrong"))
                token = b"c=biws," + challenge.partition(b",")[0] + b",p=" + base64.b64encode(bytes(32))
            most = max(most, broker.gateway.memory_held)
            answer = await authenticate(wire, token)
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        most = max(most, broker.gateway.memory_held)
        assert answer.error_code == 58
        assert await wire.closed() == b""
        return True

    guesses = [asyncio.create_task(guess(wire)) for wire in strangers]
    assert (await known.call(3, 4, MetadataRequest(topics=()))).topics == ()
    refused = sum(await asyncio.gather(*guesses))
    closed = broker.refused  # `login_timeout` on a slow machine
    assert closed.keys() <= {"login_busy", "login_timeout"}
    assert refused + sum(closed.values()) == MANY
    assert refused > 0
    assert 0 < most <= MANY * LOGIN_BYTES
    await until(lambda: broker.gateway.metrics.connections == 1)
    assert broker.gateway.memory_held == 0
    last = await broker.connect()
    assert (await log_in(last, mechanism)).error_code == 0
