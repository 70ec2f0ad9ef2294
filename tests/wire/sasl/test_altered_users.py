"""Sessions of users that are altered or deleted end at the next request, at every gateway, however the login raced."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from gateway_svc.app import Gateway
from protocol_lib.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.scram import ScramClient, ScramMechanism
from storage_svc.topics.catalog import Catalog

from tests.wire.conftest import Running, StartBroker, Wire, batch, fetch_request, produce, produce_request, until
from tests.wire.sasl.conftest import (
    ALL,
    PASSWORD,
    SCRAM,
    USER,
    Issuer,
    authenticate,
    bearer,
    handshake,
    log_in,
    plain,
)
from tests.wire.test_storage_grpc import RemoteStorage, gateway_of

ADMIN, OTHER = "admin", "bob"
PASSWORDS = {USER: PASSWORD, ADMIN: "of admin", OTHER: "of bob"}
LISTENERS = {"listener_security_protocol_map": "EXTERNAL:SASL_PLAINTEXT", "sasl_enabled_mechanisms": ALL}


@dataclass
class Scene:
    """A cluster whose users are altered at `one`, while their clients are at `two`, which may be the same gateway."""

    one: Running
    two: Running
    storage: RemoteStorage | None = None

    async def client(self, mechanism: str, user: str = USER, token: str = "") -> Wire:
        wire = await self.two.connect()
        answer = await log_in(wire, mechanism, user, PASSWORDS[user], token=token)
        assert answer.error_code == 0
        return wire

    async def admin(self) -> Wire:
        wire = await self.one.connect()
        assert (await log_in(wire, "SCRAM-SHA-512", ADMIN, PASSWORDS[ADMIN])).error_code == 0
        return wire


@pytest.fixture(params=["combined", "separate"])
async def scene(
    request: pytest.FixtureRequest, start_broker: StartBroker, issuer: Issuer, tmp_path: Path
) -> AsyncIterator[Scene]:
    async with contextlib.AsyncExitStack() as stop:
        if request.param == "combined":
            broker = await start_broker(**LISTENERS, **issuer.settings)
            made = Scene(broker, broker)
        else:
            made = await separate(stop, issuer, tmp_path)
        await made.one.core._user_credentials.add(PASSWORDS)
        yield made


async def separate(stop: contextlib.AsyncExitStack, issuer: Issuer, folder: Path, **settings: Any) -> Scene:
    storage = RemoteStorage(folder)
    await storage.start()
    stop.push_async_callback(storage.stop)
    options = {**LISTENERS, **issuer.settings, **settings}
    one, two = [await stop.enter_async_context(gateway_of(storage, name, **options)) for name in ("one", "two")]
    return Scene(one, two, storage)


async def alter(wire: Wire, *changes: ScramCredentialDeletion | ScramCredentialUpsertion) -> list[int]:
    """Make changes; return the error codes by user."""
    request = AlterUserScramCredentialsRequest(
        deletions=tuple(each for each in changes if isinstance(each, ScramCredentialDeletion)),
        upsertions=tuple(each for each in changes if isinstance(each, ScramCredentialUpsertion)),
    )
    return [each.error_code for each in (await wire.call(51, 0, request)).results]


def deletion(mechanism: ScramMechanism, user: str = USER) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism.value)


def upsertion(password: str, mechanism: ScramMechanism, user: str = USER) -> ScramCredentialUpsertion:
    salt = password.encode() + b" salt"
    salted = mechanism.salted_password(password, salt, 4096)
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism.value, iterations=4096, salt=salt, salted_password=salted
    )


async def is_over(wire: Wire) -> bool:
    """Return whether the next request closes the connection without an answer."""
    wire.send(3, 4, MetadataRequest(topics=()))
    try:
        await wire.receive()
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False


CHANGES = {
    "another password": upsertion("another", ScramMechanism.SHA_256),
    "one password of two deleted": deletion(ScramMechanism.SHA_512),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_sessions_of_a_user_end_and_no_others(scene: Scene, issuer: Issuer, change: str) -> None:
    admin = await scene.admin()
    own = [await scene.client(each) for each in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")]
    others = [await scene.client("PLAIN", OTHER), await scene.client("OAUTHBEARER", token=issuer.token())]
    sent = 0
    for wire in (*own, *others):
        for _ in range(3):  # the later ones are recognised by their bytes
            assert await produce(wire, "single", batch(b"x")) == (0, sent)
            sent += 1
    assert await alter(admin, CHANGES[change]) == [0]
    for wire in own:
        wire.send(0, 7, produce_request("single", batch(b"late")))
        assert await wire.closed() == b""
    for number, wire in enumerate(others):
        assert await produce(wire, "single", batch(b"x")) == (0, sent + number)
    assert not await is_over(admin)
    assert scene.two.refused == {"session_ended": 3}
    await scene.client("SCRAM-SHA-512" if "another" in change else "SCRAM-SHA-256")


async def test_a_deleted_user_has_no_session_and_a_new_one_of_the_name_does_not_get_it_back(scene: Scene) -> None:
    admin, alice = await scene.admin(), await scene.client("PLAIN")
    for each in ScramMechanism:
        assert await alter(admin, deletion(each)) == [0]
    assert await alter(admin, upsertion(PASSWORD, ScramMechanism.SHA_256)) == [0]
    assert await is_over(alice)
    assert not await is_over(await scene.client("SCRAM-SHA-256"))


async def test_a_fetch_that_waits_ends_with_the_session(scene: Scene) -> None:
    """An answer would have records that were written after the change."""
    admin, alice, bob = await scene.admin(), await scene.client("PLAIN"), await scene.client("PLAIN", OTHER)
    for wire in (alice, bob):
        wire.send(1, 4, fetch_request("single", 0, wait_ms=60_000))
    await until(lambda: scene.two.gateway._connections.requests_in_service == 2)
    assert await alter(admin, upsertion("another", ScramMechanism.SHA_256)) == [0]
    assert await alice.closed() == b""
    assert scene.two.refused == {"session_ended": 1}
    assert await produce(admin, "single", batch(b"later")) == (0, 0)
    _, fetched = await bob.receive()
    assert fetched.responses[0].partitions[0].high_watermark == 1
    assert not await is_over(bob)


async def test_a_user_that_alters_itself_is_answered_first(scene: Scene) -> None:
    wire = await scene.client("PLAIN")
    assert await alter(wire, upsertion("mine", ScramMechanism.SHA_256)) == [0]
    assert await is_over(wire)


async def test_the_same_credential_again_ends_nothing(scene: Scene) -> None:
    admin = await scene.admin()
    assert await alter(admin, upsertion(PASSWORD, ScramMechanism.SHA_256)) == [0]
    alice = await scene.client("SCRAM-SHA-256")
    assert await alter(admin, upsertion(PASSWORD, ScramMechanism.SHA_256)) == [0]
    assert not await is_over(alice)


async def test_a_session_with_an_end_goes_on_by_another_login(start_broker: StartBroker, issuer: Issuer) -> None:
    broker = await start_broker(**LISTENERS, **issuer.settings, connections_max_reauth_ms=60_000)
    await broker.core._user_credentials.add(PASSWORDS)
    scene = Scene(broker, broker)
    admin, first, second = await scene.admin(), await scene.client("PLAIN"), await scene.client("PLAIN")
    assert await alter(admin, upsertion("another", ScramMechanism.SHA_256)) == [0]
    assert (await log_in(first, "PLAIN", password="another")).error_code == 0
    assert not await is_over(first)
    assert (await log_in(second, "PLAIN")).error_code == 58
    assert await second.closed() == b""
    assert broker.gateway._listener_security.sessions._by_user.keys() == {USER, ADMIN}


async def test_a_login_that_was_under_way_does_not_survive(scene: Scene) -> None:
    admin = await scene.admin()
    started: list[tuple[Wire, ScramClient, bytes]] = []
    for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        wire, client = await scene.two.connect(), ScramClient(SCRAM[name], USER, PASSWORD)
        await handshake(wire, name)
        started.append((wire, client, (await authenticate(wire, client.first())).auth_bytes))
    assert await alter(admin, upsertion("another", ScramMechanism.SHA_256)) == [0]
    for wire, client, challenge in started:
        answer = await authenticate(wire, client.final(challenge))
        assert (answer.error_code, answer.auth_bytes) == (58, b"")
        assert await wire.closed() == b""


async def test_a_password_that_was_checked_against_the_credential_before(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, wire = await scene.admin(), await scene.two.connect()
    await handshake(wire, "PLAIN")
    users = scene.two.gateway._listener_security._mechanisms._users
    find, found, go = users.find_credential, asyncio.Event(), asyncio.Event()

    async def slow(request: Any) -> Any:
        credential = await find(request)
        found.set()
        await go.wait()
        return credential

    monkeypatch.setattr(users, "find_credential", slow)
    wire.send(36, 2, SaslAuthenticateRequest(auth_bytes=plain()))
    await found.wait()
    assert await alter(admin, upsertion("another", ScramMechanism.SHA_256)) == [0]
    go.set()
    _, answer = await wire.receive()
    assert answer.error_code == 58
    assert await wire.closed() == b""
    assert len(scene.two.gateway._listener_security.sessions) == (scene.one is scene.two)


async def test_no_login_outlives_its_password_in_a_race(scene: Scene) -> None:
    chance = random.Random(7)
    admin = await scene.admin()
    password = "0"
    await alter(admin, upsertion(password, ScramMechanism.SHA_256))

    async def enter(mechanism: str, delay_s: float) -> Wire:
        await asyncio.sleep(delay_s)
        wire = await scene.two.connect()
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await log_in(wire, mechanism, USER, password)
        return wire

    async def change(to: str, delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        assert await alter(admin, upsertion(to, ScramMechanism.SHA_256)) == [0]

    for number in range(1, 21):
        entering = [enter(chance.choice(("PLAIN", "SCRAM-SHA-256")), chance.random() * 0.03) for _ in range(6)]
        *wires, _ = await asyncio.gather(*entering, change(str(number), chance.random() * 0.03))
        assert all([await is_over(wire) for wire in wires if wire is not None])
        password = str(number)
        last = await scene.two.connect()
        assert (await log_in(last, "PLAIN", USER, password)).error_code == 0
        assert not await is_over(last)
        last.writer.close()


def stop_following(gateway: Gateway) -> None:
    """Let a gateway learn nothing, and not notice the end of its lease before a request does."""
    rules = gateway._rules
    assert rules._following is not None
    assert rules._lapse is not None
    rules._following.cancel()
    rules._lapse.cancel()


def go_on_following(gateway: Gateway) -> None:
    gateway._rules._following = asyncio.create_task(gateway._rules._follow())


@pytest.mark.parametrize("request_", ["recognised", "decoded"])
async def test_a_gateway_that_lost_its_lease_serves_no_request_of_a_deleted_user(
    issuer: Issuer, tmp_path: Path, request_: str
) -> None:
    async with contextlib.AsyncExitStack() as stop:
        scene = await separate(stop, issuer, tmp_path)
        await scene.one.core._user_credentials.add(PASSWORDS)
        admin, alice, bob = await scene.admin(), await scene.client("PLAIN"), await scene.client("PLAIN", OTHER)
        for offset in range(3):
            assert await produce(alice, "single", batch(b"x")) == (0, offset)
        stop_following(scene.two.gateway)
        assert await alter(admin, deletion(ScramMechanism.SHA_256)) == [0]
        if request_ == "recognised":
            alice.send(0, 7, produce_request("single", batch(b"late")))
        else:
            alice.send(3, 4, MetadataRequest(topics=()))
        bob.send(1, 4, fetch_request("single", 0))
        await until(lambda: len(scene.two.gateway._rules._waiting) == 2)
        go_on_following(scene.two.gateway)
        assert await alice.closed() == b""
        _, fetched = await bob.receive()
        assert fetched.responses[0].partitions[0].high_watermark == 3
        assert scene.two.refused == {"session_ended": 1}


async def test_a_login_at_a_gateway_that_lost_its_lease_ends_with_the_news(issuer: Issuer, tmp_path: Path) -> None:
    async with contextlib.AsyncExitStack() as stop:
        scene = await separate(stop, issuer, tmp_path)
        await scene.one.core._user_credentials.add(PASSWORDS)
        admin, wire = await scene.admin(), await scene.two.connect()
        client = ScramClient(ScramMechanism.SHA_256, USER, PASSWORD)
        await handshake(wire, "SCRAM-SHA-256")
        challenge = await authenticate(wire, client.first())
        stop_following(scene.two.gateway)
        assert await alter(admin, upsertion("another", ScramMechanism.SHA_256)) == [0]
        assert (await authenticate(wire, client.final(challenge.auth_bytes))).error_code == 0, "it cannot know"
        wire.send(3, 4, MetadataRequest(topics=()))
        await until(lambda: len(scene.two.gateway._rules._waiting) == 1)
        go_on_following(scene.two.gateway)
        assert await wire.closed() == b""


async def test_sessions_go_on_over_a_restart_of_storage_but_for_users_that_it_does_not_have(
    issuer: Issuer, tmp_path: Path
) -> None:
    async with contextlib.AsyncExitStack() as stop:
        scene = await separate(stop, issuer, tmp_path)
        assert scene.storage is not None
        await scene.one.core._user_credentials.add(PASSWORDS)
        alice, bob, token = await scene.client("PLAIN"), await scene.client("PLAIN", OTHER), issuer.token()
        bearer_ = await scene.two.connect()
        await handshake(bearer_, "OAUTHBEARER")
        assert (await authenticate(bearer_, bearer(token))).error_code == 0
        run = scene.two.gateway._rules._run
        await scene.storage.stop()
        catalog = Catalog.open(scene.storage.settings.data_dir)
        await catalog.set_credentials({(USER, each.value): None for each in ScramMechanism})
        await catalog.close()
        await scene.storage.start()
        await until(lambda: scene.two.gateway._rules._run != run)
        assert await is_over(alice)
        assert not await is_over(bob)
        assert not await is_over(bearer_)
