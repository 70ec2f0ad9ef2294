"""The one rule for leaders and coordinators: fixed answers, exact balance, and how little moves."""

from collections import Counter

import pytest
from broker_contract.leadership import NO_NODE, group_coordinator, partition_leaders

TOPICS = [f"topic-{number}" for number in range(100)]


def test_answers_that_must_not_change() -> None:
    """Services of different versions must name the same leader."""
    assert partition_leaders([1, 2, 3], "orders", 8) == (2, 2, 3, 1, 2, 3, 1, 3)
    assert [group_coordinator([1, 2, 3], f"group-{number}") for number in range(6)] == [2, 3, 3, 3, 2, 3]


def test_nobody_and_one() -> None:
    assert partition_leaders([], "orders", 2) == (NO_NODE, NO_NODE) == (-1, -1)
    assert group_coordinator([], "g") == -1
    assert partition_leaders([7], "orders", 3) == (7, 7, 7)
    assert partition_leaders([7, 8], "orders", 0) == ()


def test_the_order_of_nodes_does_not_matter() -> None:
    for topic in TOPICS:
        assert partition_leaders([1, 2, 3, 4], topic, 50) == partition_leaders([4, 2, 3, 1, 2], topic, 50)


@pytest.mark.parametrize("nodes", range(1, 9))
@pytest.mark.parametrize("count", [1, 2, 7, 8, 50])
def test_every_node_leads_as_many_or_one_more(nodes: int, count: int) -> None:
    for topic in TOPICS:
        led = Counter(partition_leaders(range(nodes), topic, count))
        assert sorted(led[node] for node in range(nodes)) == sorted(
            len(range(first, count, nodes)) for first in range(nodes)
        )


def test_topics_of_one_partition_are_spread_too() -> None:
    led = Counter(partition_leaders(range(4), topic, 1)[0] for topic in TOPICS)
    assert sorted(led.values()) == [22, 22, 24, 32]


def moved(before: list[int], after: list[int], topics: list[str], count: int, more: int = 0) -> int:
    """Return how many partitions have another leader when the nodes, or the number of partitions, change."""
    return sum(
        old != new
        for topic in topics
        for old, new in zip(
            partition_leaders(before, topic, count), partition_leaders(after, topic, count + more), strict=more == 0
        )
    )


def test_a_node_that_comes_or_goes_moves_little_more_than_its_share() -> None:
    """A fifth node needs 1,000 of 5,000 partitions; a round by number would move 4,000 of them."""
    for gone in (1, 3, 5):
        left = [node for node in range(1, 6) if node != gone]
        assert 1_000 <= moved(list(range(1, 6)), left, TOPICS, 50) <= 1_300
        assert moved(left, list(range(1, 6)), TOPICS, 50) == moved(list(range(1, 6)), left, TOPICS, 50)


def test_a_partition_more_moves_hardly_any_other() -> None:
    assert moved([1, 2, 3, 4], [1, 2, 3, 4], TOPICS, 50, more=1) <= 2 * len(TOPICS)


def test_leaders_of_a_topic_are_found_once() -> None:
    assert partition_leaders([2, 1], "topic", 1000) is partition_leaders([1, 2, 2], "topic", 1000)
