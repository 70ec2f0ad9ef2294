"""The cooperative-sticky assignor: everything is read by one member, evenly, and little moves."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.client.assignors import Assignments, GroupMember, RangeAssignor, RoundRobinAssignor
from protocol_lib.client.cooperative_sticky import CooperativeStickyAssignor
from protocol_lib.client.metadata import TopicPartition

ASSIGNOR = CooperativeStickyAssignor()
T = frozenset({"t"})


def of_topic(*partitions: int, topic: str = "t") -> list[TopicPartition]:
    return [TopicPartition(topic, partition) for partition in partitions]


def member(member_id: str, *owned: int, generation_id: int = 5, topics: frozenset[str] = T) -> GroupMember:
    return GroupMember(member_id, topics, owned=tuple(of_topic(*owned)), generation_id=generation_id)


def rejoined(members: list[GroupMember], assigned: Assignments, generation_id: int) -> list[GroupMember]:
    return [
        GroupMember(each.member_id, each.topics, owned=tuple(assigned[each.member_id]), generation_id=generation_id)
        for each in members
    ]


def settle(partitions: Mapping[str, int], members: list[GroupMember]) -> tuple[Assignments, int]:
    """Rebalance until nothing changes. Returns the assignment and the number of rebalances."""
    for rebalances in range(1, 10):
        assigned = ASSIGNOR.assign(partitions, members)
        given_up = any(set(each.owned) - set(assigned[each.member_id]) for each in members)
        members = rejoined(members, assigned, 100 + rebalances)
        if not given_up:
            return assigned, rebalances
    raise AssertionError("it never settles")


def test_the_first_assignment_is_even():
    assert ASSIGNOR.assign({"t": 4}, [member("a"), member("b")]) == {"a": of_topic(0, 2), "b": of_topic(1, 3)}


def test_a_partition_that_moves_is_nobodys_until_its_owner_gave_it_up():
    members = [member("a", 0, 1, 2, 3), member("b")]
    first = ASSIGNOR.assign({"t": 4}, members)
    assert first == {"a": of_topic(2, 3), "b": []}
    second = ASSIGNOR.assign({"t": 4}, rejoined(members, first, 6))
    assert second == {"a": of_topic(2, 3), "b": of_topic(0, 1)}


def test_what_a_member_that_left_had_goes_to_who_has_least():
    members = [member("a", 0, 1), member("b", 4), member("c", 3)]
    assert ASSIGNOR.assign({"t": 6}, members) == {"a": of_topic(0, 1), "b": of_topic(2, 4), "c": of_topic(3, 5)}


def test_of_two_claims_the_newer_generation_is_right():
    members = [member("a", 0, 1, generation_id=4), member("b", 0, generation_id=5)]
    assert ASSIGNOR.assign({"t": 2}, members) == {"a": of_topic(1), "b": of_topic(0)}


def test_a_partition_that_two_of_one_generation_claim_is_shared_out_again():
    assert ASSIGNOR.assign({"t": 1}, [member("a", 0), member("b", 0)]) == {"a": of_topic(0), "b": []}


def test_partitions_and_topics_that_are_gone_are_nobodys():
    members = [GroupMember("a", T, owned=(TopicPartition("t", 7), TopicPartition("gone", 0)), generation_id=1)]
    assert ASSIGNOR.assign({"t": 1}, members) == {"a": of_topic(0)}


def test_members_get_only_topics_they_want():
    members = [member("a", topics=frozenset({"t", "u"})), member("b", topics=frozenset({"u"}))]
    assert ASSIGNOR.assign({"t": 2, "u": 2}, members) == {"a": of_topic(0, 1), "b": of_topic(0, 1, topic="u")}


TOPICS = st.dictionaries(st.sampled_from("tuvw"), st.integers(1, 9), min_size=1)
WANTS = st.lists(st.frozensets(st.sampled_from("tuvw"), min_size=1), min_size=1, max_size=6)


@settings(max_examples=200)
@given(TOPICS, WANTS, st.randoms(use_true_random=False))
def test_everything_is_read_and_shares_are_even_after_two_rebalances(partitions, wants, draw):
    """Members own any partitions to begin with; when they want different topics it may take a third."""
    every = [TopicPartition(topic, number) for topic, count in partitions.items() for number in range(count)]
    owned: dict[int, list[TopicPartition]] = {}
    for partition in every:
        owned.setdefault(draw.randrange(len(wants) + 1), []).append(partition)
    members = [
        GroupMember(f"m{index}", topics, owned=tuple(owned.get(index, ())), generation_id=3)
        for index, topics in enumerate(wants)
    ]
    assigned, rebalances = settle(partitions, members)

    assert rebalances <= (2 if len(set(wants)) == 1 else 3)
    readable = [partition for partition in every if any(partition.topic in topics for topics in wants)]
    assert sorted(partition for each in assigned.values() for partition in each) == sorted(readable)
    by_id = {each.member_id: each for each in members}
    assert all(partition.topic in by_id[member_id].topics for member_id, each in assigned.items() for partition in each)
    for holder, held in assigned.items():  # no single move would make it more even
        for partition in held:
            takers = [other for other, each in by_id.items() if partition.topic in each.topics and other != holder]
            assert all(len(assigned[taker]) >= len(held) - 1 for taker in takers)


@given(st.integers(1, 30), st.integers(2, 8))
def test_a_member_that_joins_takes_only_its_share(count, joined):
    before, _ = settle({"t": count}, [member(f"m{index}") for index in range(joined - 1)])
    members = [GroupMember(each, T, owned=tuple(held), generation_id=9) for each, held in before.items()]
    after, _ = settle({"t": count}, [*members, member(f"m{joined - 1}")])
    moved = sum(len(set(before.get(each, ())) - set(held)) for each, held in after.items())
    assert moved == count // joined


MANY = 4_000
TOPICS_OF_MANY = [f"t{number:03}" for number in range(1_000)]


def random_topics(draw: random.Random) -> frozenset[str]:
    return frozenset(draw.sample(TOPICS_OF_MANY, 10))


@pytest.mark.parametrize(
    "assignor", [CooperativeStickyAssignor(), RangeAssignor(), RoundRobinAssignor()], ids=lambda each: each.name
)
@pytest.mark.parametrize("wants", ["one topic", "every topic", "ten topics each", "two neighbours each"])
@pytest.mark.parametrize("owner", [False, True], ids=["nobody owns", "one owns all"])
def test_the_work_grows_with_members_and_partitions_only(assignor, wants, owner):
    """The leader assigns on its event loop: 10,000 partitions to 4,000 members may not take seconds."""
    draw = random.Random(7)
    partitions = {"t000": 10_000} if wants == "one topic" else dict.fromkeys(TOPICS_OF_MANY, 10)
    count = 400 if wants == "every topic" else MANY
    topics = {
        "one topic": lambda _: frozenset({"t000"}),
        "every topic": lambda _: frozenset(TOPICS_OF_MANY),
        "ten topics each": lambda _: random_topics(draw),
        "two neighbours each": lambda number: frozenset(TOPICS_OF_MANY[number % 1_000 :][:2]),
    }[wants]
    members = [GroupMember(f"m{number:04}", topics(number)) for number in range(1, count)]
    every = tuple(TopicPartition(topic, number) for topic, total in partitions.items() for number in range(total))
    members.append(GroupMember("m0000", frozenset(partitions), owned=every if owner else (), generation_id=3))
    begun = time.process_time()
    assigned = assignor.assign(partitions, members)
    assert time.process_time() - begun < 3
    held = [each for share in assigned.values() for each in share]
    assert len(held) == len(set(held))
    if not (owner and assignor.name == "cooperative-sticky"):
        assert sorted(held) == sorted(every)
