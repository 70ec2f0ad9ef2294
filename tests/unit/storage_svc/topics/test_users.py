"""Users are stored, changed as Kafka's controller changes them, and cannot be told from names that are no user's."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path

import pytest
from broker_contract.user_revisions import UserRevisions
from protocol_lib.errors import ErrorCode
from protocol_lib.scram import ScramCredential, ScramMechanism
from storage_svc.topics import users as users_module
from storage_svc.topics.access_rules import AccessRules
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import FILE_NAME
from storage_svc.topics.users import Deletion, Upsertion, Users

SHA_256, SHA_512 = ScramMechanism
BOTH = (SHA_256, SHA_512)


def rules_of(catalog: Catalog) -> AccessRules:
    contents = catalog.read()
    revisions = UserRevisions(contents.user_revisions, contents.users_revision)
    return AccessRules(catalog, (), {}, time.monotonic, 0, revisions)


def users_of(catalog: Catalog, rules: AccessRules | None = None) -> Users:
    contents = catalog.read()
    return Users(catalog, contents.credentials, contents.users_secret, rules or rules_of(catalog))


def upsertion(
    user: str,
    password: str = "secret",
    mechanism: ScramMechanism = SHA_256,
    iterations: int = 4096,
    salt: bytes = b"salt",
) -> Upsertion:
    salted = mechanism.salted_password(password, salt, iterations)
    return Upsertion(user, mechanism.value, iterations, salt, salted)


async def codes(users: Users, deletions: list[Deletion], upsertions: list[Upsertion]) -> dict[str, int]:
    made = await users.alter(deletions, upsertions)
    return {user: 0 if refusal is None else refusal.error for user, refusal in made.items()}


async def test_credentials_survive_a_start_without_the_password(catalog: Catalog, tmp_path: Path) -> None:
    users = users_of(catalog)
    assert await codes(users, [], [upsertion("alice"), upsertion("bob", mechanism=SHA_512, iterations=16384)]) == {
        "alice": 0,
        "bob": 0,
    }
    for each in (users, users_of(catalog)):
        assert each.describe(None) == {"alice": {SHA_256: 4096}, "bob": {SHA_512: 16384}}
        mechanism, found = each.find("bob", BOTH)
        assert mechanism is SHA_512
        assert found.fits(mechanism, "secret")
        assert not found.fits(mechanism, "Secret")
    with sqlite3.connect(tmp_path / FILE_NAME) as file:
        dumped = "\n".join(file.iterdump()).lower()
    salted = SHA_256.salted_password("secret", b"salt", 4096)
    assert salted.hex() not in dumped
    assert "secret'" not in dumped
    assert await codes(users, [Deletion("alice", 1)], []) == {"alice": 0}
    assert users_of(catalog).describe(["alice", "bob"]) == {"bob": {SHA_512: 16384}}
    assert not users.find("alice", BOTH)[1].fits(SHA_256, "secret")


@pytest.mark.parametrize(
    ("deletions", "upsertions", "expected"),
    [
        ([Deletion("", 1)], [], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([Deletion("alice", 3)], [], {"alice": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([], [Upsertion("x", 0, 4096, b"s", bytes(32))], {"x": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([Deletion("alice", 2)], [], {"alice": ErrorCode.RESOURCE_NOT_FOUND}),
        ([Deletion("x", 1), Deletion("alice", 1)], [], {"x": ErrorCode.RESOURCE_NOT_FOUND, "alice": 0}),
        ([], [upsertion("x", iterations=4095), upsertion("y")], {"x": ErrorCode.UNACCEPTABLE_CREDENTIAL, "y": 0}),
        ([], [upsertion("x", iterations=16385)], {"x": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion("x"), upsertion("x", mechanism=SHA_512)], {"x": ErrorCode.DUPLICATE_RESOURCE}),
        ([Deletion("alice", 1)], [upsertion("alice")], {"alice": ErrorCode.DUPLICATE_RESOURCE}),
        ([Deletion("alice", 1)] * 3, [], {"alice": ErrorCode.DUPLICATE_RESOURCE}),
        ([], [Upsertion("x", 1, 4096, b"", bytes(32))], {"x": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [Upsertion("x", 1, 4096, bytes(1025), bytes(32))], {"x": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [Upsertion("x", 1, 4096, b"s", bytes(31))], {"x": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion("x" * 1025)], {"x" * 1025: ErrorCode.UNACCEPTABLE_CREDENTIAL}),
    ],
)
async def test_what_is_refused(
    catalog: Catalog, deletions: list[Deletion], upsertions: list[Upsertion], expected: dict[str, int]
) -> None:
    users = users_of(catalog)
    await users.alter([], [upsertion("alice")])
    assert await codes(users, deletions, upsertions) == expected
    kept = {user for user, code in expected.items() if code == 0 and user != "alice"}
    gone = {"alice"} if expected.get("alice") == 0 else set()
    assert set(users_of(catalog).describe(None)) == ({"alice"} - gone) | kept


async def test_users_are_bounded(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users_module, "USERS_MAX", 1)
    users = users_of(catalog)
    assert await codes(users, [], [upsertion("alice")]) == {"alice": 0}
    assert await codes(users, [], [upsertion("bob")]) == {"bob": ErrorCode.UNACCEPTABLE_CREDENTIAL}
    assert await codes(users, [], [upsertion("alice", mechanism=SHA_512)]) == {"alice": 0}


async def test_a_catalog_that_cannot_be_written_changes_nothing(catalog: Catalog) -> None:
    users = users_of(catalog)
    await catalog.close()
    expected = {"alice": ErrorCode.KAFKA_STORAGE_ERROR, "": ErrorCode.KAFKA_STORAGE_ERROR}
    assert await codes(users, [Deletion("", 1)], [upsertion("alice")]) == expected
    assert users.describe(None) == {}


async def test_users_of_the_settings_are_created_once(catalog: Catalog) -> None:
    users = users_of(catalog)
    assert await users.add({"alice": "first", "bob": "größe"}) == ["alice", "bob"]
    assert users.describe(["alice"]) == {"alice": {SHA_256: 8192, SHA_512: 8192}}
    assert users.find("bob", [SHA_512])[1].fits(SHA_512, "größe")
    again = users_of(catalog)
    assert await again.add({"alice": "other"}) == []
    assert again.find("alice", [SHA_256])[1].fits(SHA_256, "first")


async def test_each_change_gives_a_user_a_number_that_no_user_had(catalog: Catalog) -> None:
    users = users_of(catalog)
    before = catalog.read().users_revision
    assert before > 1_700_000_000_000, "the numbers of an earlier catalog are lower"
    await users.alter([], [upsertion("alice"), upsertion("bob")])
    await users.alter([], [upsertion("alice", mechanism=SHA_512)])
    await users.alter([], [upsertion("alice"), upsertion("", "x")])  # the same credential, and nothing
    for each in (users, users_of(catalog)):
        assert [each.revision_of(name) - before for name in ("alice", "bob")] == [2, 1]
        assert each.revision_of("nobody") == 0
    await users.alter([Deletion("alice", 1), Deletion("bob", 1)], [])
    again = users_of(catalog)
    assert (again.revision_of("alice") - before, again.revision_of("bob")) == (3, 0)
    await again.alter([], [upsertion("bob")])
    assert again.revision_of("bob") - before == 4


async def test_an_alteration_waits_for_gateways_and_a_creation_does_not(catalog: Catalog) -> None:
    rules = rules_of(catalog)
    users = users_of(catalog, rules)
    rules.follow("gw", 1, rules.run, 0, 60_000)
    await users.alter([], [upsertion("alice")])
    assert rules.revision == 1
    altering = asyncio.ensure_future(users.alter([Deletion("alice", 1)], []))
    while rules.revision == 1:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert (users.revision_of("alice"), altering.done()) == (0, False)
    rules.follow("gw", 1, rules.run, 2, 60_000)
    assert await altering == {"alice": None}


def shown(found: tuple[ScramMechanism, ScramCredential]) -> tuple[ScramMechanism, int, int, bool]:
    mechanism, credential = found
    return mechanism, credential.iterations, len(credential.salt), credential.salt.isalnum()


async def test_a_name_that_is_no_user_s_has_the_usual_form(catalog: Catalog) -> None:
    users = users_of(catalog)
    assert shown(users.find("nobody", [SHA_512])) == (SHA_512, 8192, 16, False)
    java = b"1q8nr6b0xk2m9vwlz7t3ucyhg"  # as Kafka's own tool makes them
    await users.alter([], [upsertion(name, iterations=4096, salt=java) for name in ("a", "b", "c")])
    await users.alter([], [upsertion("d", iterations=8192, mechanism=SHA_512, salt=bytes(range(64)))])
    assert shown(users.find("nobody", [SHA_256])) == (SHA_256, 4096, 25, True) == shown(users.find("a", [SHA_256]))
    assert shown(users.find("nobody", [SHA_512])) == (SHA_512, 8192, 64, False) == shown(users.find("d", [SHA_512]))
    assert shown(users.find("nobody", BOTH))[:3] == (SHA_256, 4096, 25)
    await users.alter([Deletion(name, 1) for name in ("a", "b", "c")], [])
    assert shown(users.find("nobody", BOTH)) == (SHA_512, 8192, 64, False)


async def test_a_made_up_credential_is_the_same_each_time_and_fits_nothing(catalog: Catalog) -> None:
    users = users_of(catalog)
    first, again, after_start = (each.find("nobody", BOTH)[1] for each in (users, users, users_of(catalog)))
    assert first.salt == again.salt == after_start.salt
    assert first.salt != users.find("nobod", BOTH)[1].salt
    assert first.stored_key != again.stored_key, "no password fits"
    other = Users(catalog, {}, b"another secret", rules_of(catalog)).find("nobody", BOTH)[1]
    assert other.salt != first.salt


def test_no_secret_is_shown() -> None:
    assert "secret" not in repr(Upsertion("alice", 1, 4096, b"salt", b"secret"))
