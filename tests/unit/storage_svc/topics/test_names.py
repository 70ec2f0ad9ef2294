"""Kafka's rules for topic names."""

from __future__ import annotations

import pytest
from broker_contract.topic_names import name_fault
from storage_svc.topics.names import TakenNames


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "x" * 249, "...", "__consumer_offsets", "-", "0"])
def test_legal(name: str) -> None:
    assert name_fault(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "__cluster_metadata", "x" * 250, " ", "a/b", "é", "a\n", "a\0", "a:b"])
def test_illegal(name: str) -> None:
    assert name_fault(name) is not None


@pytest.mark.parametrize(
    ("name", "existing", "expected"),
    [
        ("a.b", ["a_b"], "a_b"),
        ("a_b", ["x", "a.b"], "a.b"),
        ("a.b_c", ["a_b.c"], "a_b.c"),
        ("a.b", ["a.b"], None),
        ("ab", ["a.b"], None),
        ("a-b", ["a.b", "a_b"], None),
    ],
)
def test_names_that_differ_only_in_dot_and_underscore_collide(
    name: str, existing: list[str], expected: str | None
) -> None:
    taken = TakenNames()
    for each in (*existing, "other", *existing):
        taken.add(each)
    assert taken.collision(name) == expected
    for each in existing:
        taken.discard(each)
    assert taken.collision(name) is None
