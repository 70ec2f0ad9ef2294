"""Access rules: stored before they are in force, in force once each follower has them or is late."""

from __future__ import annotations

import asyncio

import pytest
from broker_contract.acls import Binding, Operation, PatternType, Permission, ResourceType
from broker_contract.user_revisions import UserRevisions
from storage_svc.topics.access_rules import KEPT_ROWS_MAX, AccessRules, Change
from storage_svc.topics.catalog import Catalog
from storage_svc.topics.catalog_file import CatalogError

USER = (("user", "alice"),)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def row(name: str) -> Binding:
    return Binding(ResourceType.TOPIC, name, PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)


def rules_of(catalog: Catalog, clock: Clock) -> AccessRules:
    stored = catalog.read()
    users = UserRevisions(stored.user_revisions, stored.users_revision)
    return AccessRules(catalog, stored.acls, stored.quotas, clock, stored.rules_lease_ms, users)


async def add(rules: AccessRules, *names: str) -> None:
    await rules.change_acls(lambda: ([row(name) for name in names], []))


async def until_changed(rules: AccessRules) -> None:
    while rules.revision == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def test_rules_survive_a_restart(catalog: Catalog) -> None:
    rules = rules_of(catalog, Clock())
    await add(rules, "a", "b")
    await rules.change_acls(lambda: ([], [row("a")]))
    await rules.change_quotas(lambda: {USER: {"producer_byte_rate": 1000.5}, (("ip", None),): {"x": 2.0}})
    await rules.change_quotas(lambda: {(("ip", None),): {}})
    again = rules_of(catalog, Clock())
    assert list(again.acls) == [row("b")]
    assert dict(again.quotas) == {USER: {"producer_byte_rate": 1000.5}}
    assert again.run != rules.run


async def test_a_rule_that_is_not_stored_is_not_in_force(catalog: Catalog) -> None:
    rules = rules_of(catalog, Clock())
    await catalog.close()
    with pytest.raises(CatalogError):
        await add(rules, "a")
    assert (list(rules.acls), rules.revision) == ([], 0)


async def test_a_follower_gets_what_it_lacks(catalog: Catalog) -> None:
    rules = rules_of(catalog, Clock())
    await add(rules, "a")
    await add(rules, "b")
    await rules.change_acls(lambda: ([], [row("a")]))
    nothing = Change(False, (), (), False, {})
    assert rules.since(rules.run, 3) == nothing
    assert rules.since(rules.run, 2) == Change(False, [], [row("a")], False, {})
    assert rules.since(rules.run, 0) == Change(False, [row("b")], [row("a")], False, {})
    assert rules.since(rules.run + 1, 3) == Change(True, [row("b")], (), True, {})
    assert rules.since(rules.run, -1) == Change(True, [row("b")], (), True, {})
    await rules.change_quotas(lambda: {USER: {"producer_byte_rate": 5.0}})
    assert rules.since(rules.run, 3) == Change(False, [], [], True, {})
    await rules.change_acls(lambda: ([], []))
    assert rules.revision == 4
    assert rules.change_users({"x": 8, "y": 9}, 9) == 5
    assert rules.change_users({"x": 0, "z": 10}, 10) == 6
    assert rules.since(rules.run, 5) == Change(False, [], [], False, {"x": 0, "z": 10})
    assert rules.since(rules.run, 4) == Change(False, [], [], False, {"x": 0, "y": 9, "z": 10})
    assert rules.since(0, 6).users == {"y": 9, "z": 10}
    assert rules.since(rules.run, 6) == nothing


async def test_old_changes_are_forgotten(catalog: Catalog) -> None:
    rules = rules_of(catalog, Clock())
    await add(rules, *(str(each) for each in range(KEPT_ROWS_MAX // 2)))
    await add(rules, *(str(each) for each in range(KEPT_ROWS_MAX // 2, KEPT_ROWS_MAX)))
    assert rules.since(rules.run, 0).whole
    assert not rules.since(rules.run, 1).whole


async def test_a_change_waits_for_each_follower(catalog: Catalog) -> None:
    clock = Clock()
    rules = rules_of(catalog, clock)
    for process in (1, 2):
        rules.follow("gw", process, rules.run, 0, 1000)
    change = asyncio.ensure_future(add(rules, "a"))
    await until_changed(rules)
    assert (rules.revision, change.done()) == (1, False)
    rules.follow("gw", 1, rules.run, 1, 1000)
    await asyncio.sleep(0.02)
    assert not change.done()
    rules.follow("gw", 2, rules.run, 1, 1000)
    await change


async def test_a_change_does_not_wait_for_a_follower_that_is_late_or_has_left(catalog: Catalog) -> None:
    clock = Clock()
    rules = rules_of(catalog, clock)
    for process, lease_ms in ((1, 20), (2, 60_000), (3, 60_000)):
        rules.follow("gw", process, rules.run + 1, 5, lease_ms)
    change = asyncio.ensure_future(add(rules, "a"))
    await until_changed(rules)
    clock.now += 0.03
    await asyncio.sleep(0.05)
    assert not change.done()
    rules.follow("gw", 2, 0, 0, 0)
    await asyncio.sleep(0.02)
    assert not change.done()
    rules.follow("gw", 3, rules.run, 1, 60_000)
    await change


async def test_a_question_that_waits_lasts_beyond_the_lease_which_begins_when_it_is_lost(catalog: Catalog) -> None:
    clock = Clock()
    rules = rules_of(catalog, clock)
    rules.follow("gw", 1, rules.run, 0, 50)
    question = asyncio.ensure_future(rules.next_change("gw", 1, 0, 60))
    await asyncio.sleep(0)
    clock.now += 60
    rules.follow("gw", 2, 0, 0, 0)
    assert rules.other_processes("gw", 2) == 1
    change = asyncio.ensure_future(add(rules, "a"))
    await question
    await asyncio.sleep(0.02)
    assert not change.done(), "it may have the change by now, or never"
    clock.now += 0.049
    rules.follow("gw", 1, rules.run, 1, 50)
    await change

    lost = asyncio.ensure_future(rules.next_change("gw", 1, 1, 60))
    await asyncio.sleep(0)
    clock.now += 60
    lost.cancel()
    await asyncio.wait({lost})
    change = asyncio.ensure_future(add(rules, "b"))
    await rules.next_change("gw", 1, 1, 60)
    await asyncio.sleep(0.02)
    assert not change.done()
    clock.now += 0.06
    await change


async def test_questions_end_when_storage_stops(catalog: Catalog) -> None:
    rules = rules_of(catalog, Clock())
    rules.follow("gw", 1, rules.run, 0, 1000)
    question = asyncio.ensure_future(rules.next_change("gw", 1, 0, 600))
    await asyncio.sleep(0)
    rules.close()
    await question
    await rules.next_change("gw", 1, 0, 600)


async def test_a_change_after_a_restart_waits_for_gateways_that_obey_what_they_knew_before(catalog: Catalog) -> None:
    clock = Clock()
    rules = rules_of(catalog, clock)
    for lease_ms in (100, 300, 200):
        await rules.note_lease(lease_ms)
    again = rules_of(catalog, clock)
    again.follow("one", 1, again.run, 1, 60_000)
    change = asyncio.ensure_future(add(again, "a"))
    await until_changed(again)
    clock.now += 0.2
    await asyncio.sleep(0.05)
    assert (list(again.acls), change.done()) == ([row("a")], False)
    clock.now += 0.11
    await change


async def test_followers_of_one_gateway_get_the_rates_of_the_others(catalog: Catalog) -> None:
    clock = Clock()
    rules = rules_of(catalog, clock)
    a, b = ("producer_byte_rate", "u", None), ("request_percentage", None, "c")
    for gateway, process in (("one", 1), ("one", 2), ("one", 3), ("two", 4)):
        rules.follow(gateway, process, rules.run, 0, 1000)
    assert rules.exchange("one", 1, {a: 1.5}) == {}
    assert rules.exchange("one", 2, {a: 2.0, b: 4.0}) == {a: 1.5}
    assert rules.exchange("one", 3, {}) == {a: 3.5, b: 4.0}
    assert rules.exchange("two", 4, {a: 9.0}) == {}
    rules.follow("one", 2, 0, 0, 0)
    assert rules.exchange("one", 3, {}) == {a: 1.5}
    clock.now += 1
    rules.follow("one", 3, rules.run, 0, 1000)
    assert rules.exchange("one", 3, {}) == {}
    assert rules.exchange("one", 1, {a: 1.0}) == {}, "it is not known any more"
    assert rules.exchange("one", 3, {}) == {}
