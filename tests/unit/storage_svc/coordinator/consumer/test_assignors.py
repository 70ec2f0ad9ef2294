"""Assignors: everything is assigned once, evenly, to those that subscribe, and stays where it was as far as it can."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from storage_svc.coordinator.consumer.assignors import ASSIGNORS, Assignment
from storage_svc.coordinator.consumer.assignors.group_view import GroupView, MemberView
from storage_svc.coordinator.consumer.member import Partitions

A, B, C = (bytes([each]) * 16 for each in (1, 2, 3))


def view(counts: dict[bytes, int], members: dict[str, set[bytes]], previous: Assignment | None = None) -> GroupView:
    before = previous or {}
    views = {
        name: MemberView(None, frozenset(topic_ids & counts.keys()), before.get(name, {}))
        for name, topic_ids in members.items()
    }
    return GroupView(views, counts, len({each.topic_ids for each in views.values()}) <= 1)


def spread(partitions: Partitions) -> set[tuple[bytes, int]]:
    return {(topic_id, each) for topic_id, some in partitions.items() for each in some}


def sizes(assignment: Assignment) -> list[int]:
    return [len(spread(each)) for each in assignment.values()]


def test_range_gives_runs_static_members_first() -> None:
    members = {
        "z": MemberView("one", frozenset({A, B}), {}),
        "a": MemberView(None, frozenset({A}), {}),
        "b": MemberView(None, frozenset({A, B}), {}),
    }
    assigned = ASSIGNORS["range"](GroupView(members, {A: 5, B: 2}, False))
    assert assigned == {
        "z": {A: {0, 1}, B: {0}},
        "a": {A: {2, 3}},
        "b": {A: {4}, B: {1}},
    }


def test_uniform_moves_only_what_it_must() -> None:
    before = {"a": {A: {0, 1, 2}}, "b": {A: {3, 4, 5}}}
    after = ASSIGNORS["uniform"](view({A: 6}, {"a": {A}, "b": {A}, "c": {A}}, before))
    assert after == {"a": {A: {0, 1}}, "b": {A: {3, 4}}, "c": {A: {2, 5}}}
    assert ASSIGNORS["uniform"](view({A: 6}, {"a": {A}, "b": {A}, "c": {A}}, after)) == after


def test_uniform_with_different_subscriptions() -> None:
    after = ASSIGNORS["uniform"](view({A: 4, B: 2}, {"a": {A}, "b": {A, B}, "c": {B}}))
    assert sorted(sizes(after)) == [2, 2, 2]


GROUPS = st.tuples(
    st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 7), max_size=3),
    st.dictionaries(st.sampled_from("mnopqr"), st.sets(st.sampled_from([A, B, C])), min_size=1),
)


@given(st.sampled_from(sorted(ASSIGNORS)), st.lists(GROUPS, min_size=1, max_size=4))
def test_whatever_came_before(name: str, groups: list[tuple[dict[bytes, int], dict[str, set[bytes]]]]) -> None:
    assignment: Assignment = {}
    for counts, members in groups:
        group = view(counts, members, assignment)
        previous, assignment = assignment, ASSIGNORS[name](group)
        assigned = [each for partitions in assignment.values() for each in spread(partitions)]
        wanted = {
            (topic_id, each)
            for topic_id, count in counts.items()
            if any(topic_id in topic_ids for topic_ids in members.values())
            for each in range(count)
        }
        assert len(assigned) == len(set(assigned))
        assert set(assigned) == wanted
        for member_id, partitions in assignment.items():
            assert set(partitions) <= members[member_id]
        if name == "uniform" and group.is_homogeneous and wanted:
            assert max(sizes(assignment)) - min(sizes(assignment)) <= 1
            _keeps_what_it_can(previous, assignment, wanted, len(members))
        assert {key: spread(each) for key, each in ASSIGNORS[name](view(counts, members, assignment)).items()} == {
            key: spread(each) for key, each in assignment.items()
        }


def _keeps_what_it_can(before: Assignment, after: Assignment, wanted: set[tuple[bytes, int]], count: int) -> None:
    for member_id, partitions in after.items():
        had = spread(before.get(member_id, {})) & wanted
        assert len(had & spread(partitions)) >= min(len(had), len(wanted) // count)


def test_a_large_group_of_different_subscriptions_is_leveled() -> None:
    members = {f"m{number:03}": {A, B} if number % 2 else {A} for number in range(200)}
    assignment = ASSIGNORS["uniform"](view({A: 2_000, B: 400}, members))
    assert set(sizes(assignment)) == {12}
