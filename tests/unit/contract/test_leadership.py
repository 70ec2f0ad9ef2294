"""The one rule for leaders and coordinators: fixed answers, balance, and that only a leaver's share moves."""

from broker_contract.leadership import NO_NODE, group_coordinator, partition_leader

NODES = [1, 2, 3, 4]
PARTITIONS = [(topic, partition) for topic in ("orders", "users", "flights") for partition in range(200)]


def test_answers_that_must_not_change() -> None:
    """Services of different versions must name the same leader."""
    assert [partition_leader([1, 2, 3], "orders", partition) for partition in range(6)] == [1, 2, 2, 2, 1, 1]
    assert [group_coordinator([1, 2, 3], f"group-{number}") for number in range(6)] == [2, 3, 3, 3, 2, 3]


def test_nobody_and_one() -> None:
    assert partition_leader([], "orders", 0) == NO_NODE == -1
    assert group_coordinator([], "g") == -1
    assert {partition_leader([7], *pair) for pair in PARTITIONS} == {7}


def test_the_order_of_nodes_does_not_matter() -> None:
    for pair in PARTITIONS:
        assert partition_leader(NODES, *pair) == partition_leader(reversed(NODES), *pair)


def test_the_load_is_spread() -> None:
    leaders = [partition_leader(NODES, *pair) for pair in PARTITIONS]
    for node_id in NODES:
        assert 120 <= leaders.count(node_id) <= 180


def test_only_the_share_of_a_leaver_moves() -> None:
    for pair in PARTITIONS:
        before = partition_leader(NODES, *pair)
        after = partition_leader([1, 2, 4], *pair)
        assert after == before or before == 3
