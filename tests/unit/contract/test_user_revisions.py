"""A login is current by the number of its credential, whether a gateway has heard of the change before or after."""

from __future__ import annotations

from broker_contract.user_revisions import UserRevisions


def current(revisions: UserRevisions, *logins: tuple[str, int]) -> list[bool]:
    return [revisions.is_current(*each) for each in logins]


def test_logins_before_and_after_the_changes_that_are_known() -> None:
    revisions = UserRevisions({"a": 3, "b": 5}, 7)
    logins = (("a", 3), ("a", 2), ("a", 0), ("b", 5), ("b", 3), ("gone", 7), ("new", 8), ("a", 9))
    assert current(revisions, *logins) == [True, False, False, True, False, False, True, True]
    revisions.change({"b": 0, "new": 8}, 8)
    assert current(revisions, ("b", 5), ("new", 8), ("a", 3)) == [False, True, True]
    assert (revisions.of("b"), revisions.of("new"), revisions.latest) == (0, 8, 8)
    revisions.change({}, 7)
    assert revisions.latest == 8
    revisions.replace({"b": 9}, 9)
    assert current(revisions, ("a", 3), ("b", 9)) == [False, True]
    assert dict(revisions.all()) == {"b": 9}
