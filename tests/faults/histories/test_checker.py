"""The checker of histories: small ones with one anomaly each, clean ones, and many of a simulated broker."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.histories.checker import Kind, check
from tests.faults.histories.cycles import cycles
from tests.faults.histories.history import Operation, Recorder, operations_of, read_history
from tests.faults.histories.simulated_broker import SimulatedBroker


def history(lines: str) -> list[Operation]:
    """Make a history of `p ok txn send a1@5 poll a0@4,a3@3; …`. The first letter of a value is its key.

    Each part is an operation of process p, at successive times. `~` before it lets it overlap the one before.
    """
    events: list[dict[str, Any]] = []
    at = 0
    for number, line in enumerate(lines.split("; ") if lines else ()):
        process, outcome, kind, *rest = line.removeprefix("~").split()
        at += 0 if line.startswith("~") else 100
        sends: list[list[Any]] = []
        polls: list[list[Any]] = []
        for word, argument in zip(rest[::2], rest[1::2], strict=True):
            pairs = [pair.split("@") for pair in argument.split(",")]
            if word == "send":
                sends += [[value[0], value, int(offset) if offset else None] for value, offset in pairs]
            else:
                records: dict[str, list[list[Any]]] = {}
                for value, offset in pairs:
                    records.setdefault(value[0], []).append([int(offset), value])
                polls.append([at + 20 + len(polls), records])
        head = {"process": process, "id": number}
        planned = [send[:2] for send in sends]
        final = process == "final"
        events.append({**head, "at": at, "event": "invoke", "kind": kind, "sends": planned, "final": final})
        if outcome != "fail" and kind == "txn":
            events.append({**head, "at": at + 10, "event": "commit"})
        events.append({**head, "at": at + 50, "event": outcome, "sends": sends, "polls": polls})
    return operations_of(events)


ONE_EACH = {
    "lost": (Kind.LOST_WRITE, "p ok send send a1@0; p ok send send a2@1; r ok poll poll a2@1"),
    "unseen": (Kind.UNSEEN, "p ok send send a1@0; p ok send send a2@1; r ok poll poll a1@0"),
    "unseen without an offset": (Kind.UNSEEN, "p ok send send a1@; q ok send send a2@1; r ok poll poll a2@1"),
    "seen no longer": (
        Kind.UNSEEN,
        "p ok send send a1@0; p info send send a2@; r ok poll poll a1@0,a2@1; final ok poll poll a1@0",
    ),
    "of a key that the final read misses": (
        Kind.UNSEEN,
        "p ok send send a1@0; r ok poll poll a1@0; p ok send send b1@0; final ok poll poll b1@0",
    ),
    "duplicate": (Kind.DUPLICATE, "p ok send send a1@0; r ok poll poll a1@0,a1@1"),
    "acknowledged at another offset": (Kind.DUPLICATE, "p ok send send a1@0; r ok poll poll a1@1"),
    "unwritten": (Kind.UNWRITTEN, "p ok send send a1@0; r ok poll poll a1@0,a9@1"),
    "two values at an offset": (
        Kind.INCONSISTENT_OFFSETS,
        "p ok send send a1@0; q info send send a2@; r ok poll poll a1@0; s ok poll poll a2@0",
    ),
    "two acknowledged at an offset": (
        Kind.INCONSISTENT_OFFSETS,
        "p ok send send a1@0; q fail txn send a2@0; r ok poll poll a1@0",
    ),
    "G1a": (Kind.ABORTED_READ, "p fail txn send a1@0; r ok poll poll a1@0"),
    "G1a of a transaction that never asked to commit": (
        Kind.ABORTED_READ,
        "p fail txn send a1@0; p ok send send a2@2; r ok poll poll a1@0,a2@2; s ok poll poll a2@2",
    ),
    "precommitted": (Kind.PRECOMMITTED_READ, "p ok txn send a1@0 poll a1@0"),
    "early": (Kind.EARLY_READ, "r ok poll poll a1@0; p ok txn send a1@0"),
    "internal order of polls": (Kind.INTERNAL_NONMONOTONIC_POLL, "p ok txn send a1@0,a2@1; r ok poll poll a2@1,a1@0"),
    "twice in a transaction": (Kind.INTERNAL_NONMONOTONIC_POLL, "p ok send send a1@0; r ok txn poll a1@0 poll a1@0"),
    "internal skip": (
        Kind.INTERNAL_POLL_SKIP,
        "p ok txn send a1@0,a2@1,a3@2; r ok txn poll a1@0 poll a3@2; s ok poll poll a1@0,a2@1,a3@2",
    ),
    "order of polls": (
        Kind.NONMONOTONIC_POLL,
        "p ok txn send a1@0,a2@1; r ok poll poll a1@0,a2@1; r ok poll poll a2@1",
    ),
    "skip": (
        Kind.POLL_SKIP,
        "p ok txn send a1@0,a2@1,a3@2; r ok poll poll a1@0; r ok poll poll a3@2; s ok poll poll a1@0,a2@1,a3@2",
    ),
    "skip of a value with an unknown outcome": (
        Kind.POLL_SKIP,
        "p ok txn send a1@0,a3@2; q info send send a2@; r ok poll poll a1@0; r ok poll poll a3@2; "
        "s ok poll poll a1@0,a2@1,a3@2",
    ),
    "internal order of sends": (Kind.INTERNAL_NONMONOTONIC_SEND, "p ok txn send a2@1,a1@0; r ok poll poll a1@0,a2@1"),
    "order of sends": (Kind.NONMONOTONIC_SEND, "p ok send send a2@1; ~p ok send send a1@0; r ok poll poll a1@0,a2@1"),
    "order of sends, one of an aborted transaction": (
        Kind.NONMONOTONIC_SEND,
        "p fail txn send a2@1; p ok txn send a1@0; r ok poll poll a1@0",
    ),
    "two transactions read each other": (Kind.CYCLE, "p ok txn send a1@0 poll b1@0; ~q ok txn send b1@0 poll a1@0"),
    "three transactions in a circle": (
        Kind.CYCLE,
        "p ok txn send a1@0 poll c1@0; ~q ok txn send b1@0 poll a1@0; ~r ok txn send c1@0 poll b1@0",
    ),
    "a circle through a process": (
        Kind.CYCLE,
        "p ok poll poll b1@0; ~q ok txn send b1@0 poll a1@0; p ok txn send a1@0",
    ),
}


@pytest.mark.parametrize("name", ONE_EACH)
def test_one_anomaly_is_found_and_no_other(name: str) -> None:
    kind, lines = ONE_EACH[name]
    assert [anomaly.kind for anomaly in check(history(lines))] == [kind]


CLEAN = {
    "nothing": "",
    "offsets of markers and of aborted records are no values": (
        "p ok txn send a1@0; q fail txn send a2@2; p ok txn send a3@4; r ok poll poll a1@0; r ok poll poll a3@4"
    ),
    "an unknown outcome may be visible": "p info txn send a1@0; r ok poll poll a1@0",
    "an unknown outcome may be invisible": (
        "p info send send a1@; q info txn send a2@1; p ok send send a3@2; r ok poll poll a3@2"
    ),
    "a new assignment begins anywhere": (
        "p ok txn send a1@0,a2@1,a3@2; r ok poll poll a1@0,a2@1,a3@2; r ok assign; r ok poll poll a1@0; "
        "r ok assign; r ok poll poll a3@2"
    ),
    "transactions interleave their writes": (
        "p ok txn send a1@0,a3@2,b2@1; ~q ok txn send a2@1,b1@0; r ok poll poll a1@0,a2@1,a3@2,b1@0,b2@1"
    ),
    "transactions that poll a key before the other writes it": (
        "x ok txn send a1@0,b1@0; p ok txn poll a1@0 send b2@1; ~q ok txn poll b1@0 send a2@1; "
        "r ok poll poll a1@0,a2@1,b1@0,b2@1"
    ),
    "a reader of a transaction's one key before its other": (
        "p ok txn send a1@0,b1@0; r ok poll poll a1@0; r ok poll poll b1@0"
    ),
    "a transaction polls the one before": "p ok txn send a1@0; q ok txn send a2@2 poll a1@0; r ok poll poll a1@0,a2@2",
}


@pytest.mark.parametrize("name", CLEAN)
def test_what_kafka_permits_is_no_anomaly(name: str) -> None:
    assert check(history(CLEAN[name])) == []


def test_every_kind_has_an_example() -> None:
    assert {kind for kind, _ in ONE_EACH.values()} == set(Kind)


@given(st.integers(0, 1 << 32), st.integers(0, 150))
def test_a_correct_broker_has_no_anomaly(seed: int, steps: int) -> None:
    broker = SimulatedBroker(random.Random(seed))
    broker.run(steps)
    broker.finish()
    assert check(broker.history) == []


@pytest.mark.parametrize("kind", Kind)
@given(st.integers(0, 1 << 32), st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=25)
def test_one_anomaly_in_a_long_history_is_found_and_no_other(kind: Kind, seed: int, before: int, after: int) -> None:
    broker = SimulatedBroker(random.Random(seed))
    broker.run(before)
    broker.inject(kind)
    broker.run(after)
    broker.finish()
    assert {anomaly.kind for anomaly in check(broker.history)} == {kind}


def test_a_checked_operation_takes_less_than_a_quarter_of_a_millisecond() -> None:
    broker = SimulatedBroker(random.Random(7))
    broker.run(50_000)
    broker.finish()
    began = time.process_time()
    assert check(broker.history) == []
    assert time.process_time() - began < 50_000 * 0.000_25  # 200,000 in less than a minute, and a reserve


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=20))
def test_cycles_are_the_nodes_that_reach_each_other(edges: list[tuple[int, int]]) -> None:
    successors = [[after for before, after in edges if before == node] for node in range(8)]
    reached = [{node} for node in range(8)]
    for _ in range(8):
        for before, after in edges:
            reached[before] |= reached[after]
    components = {
        tuple(other for other in range(8) if other in reached[node] and node in reached[other]) for node in range(8)
    }
    assert sorted(cycles(successors)) == [list(each) for each in sorted(components) if len(each) > 1]


def test_a_history_on_disk_is_read_though_a_kill_cut_it(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "one.jsonl")
    number = recorder.invoke("p", "txn", [("a", "a1"), ("a", "a2")])
    recorder.event("p", number, "commit")
    recorder.event("p", number, "ok", sends=[["a", "a1", 0], ["a", "a2", 1]], polls=[[1, {"b": [[3, "b1"]]}]])
    first, second = recorder.invoke_sends("q", [("a", "a3"), ("a", "a4")])
    recorder.event("q", second, "ok", sends=[["a", "a4", 4]])
    recorder.invoke("r", "poll", final=True)
    with (tmp_path / "one.jsonl").open("a") as file:
        file.write('{"at":')
    transaction, third, fourth, poll = read_history(tmp_path)
    assert transaction.sends == [("a", "a1", 0), ("a", "a2", 1)]
    assert transaction.polls == [(1, {"b": [(3, "b1")]})]
    assert transaction.invoked < transaction.commit_asked < transaction.ended
    assert (third.sends, third.outcome) == ([("a", "a3", None)], "info")
    assert (fourth.sends, fourth.outcome) == ([("a", "a4", 4)], "ok")
    assert (poll.final, transaction.final) == (True, False)
    assert first + 1 == second
    assert Counter(operation.process for operation in (transaction, third, fourth, poll)) == {"p": 1, "q": 2, "r": 1}
