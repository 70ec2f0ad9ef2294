"""A heartbeat calls again without its words: allowed as long as the whole one would be answered the same, no longer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import Commit, GroupState, Heartbeat, Leave, Leaver
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.hosting.repeatable_heartbeats import RepeatableHeartbeat
from storage_svc.coordinator.limits import CommitRequest, NewOffset
from storage_svc.log.errors import StorageFailure
from support.group_calls import answered

from tests.unit.storage_svc.conftest import PlayedTime
from tests.unit.storage_svc.coordinator.conftest import SETTINGS, DiskThatBreaks, Node

E = ErrorCode
CONSUMER = ConsumerGroupSettings(assignment_interval_ms=0)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = await Node(tmp_path, replace(SETTINGS, consumer=CONSUMER)).open()
    yield made
    await made.close()


def classic(
    node: Node, member_id: str, generation_id: int, group: str = "g", **fields: Any
) -> tuple[E, RepeatableHeartbeat | None]:
    answers: list[E] = []
    heartbeat = Heartbeat(request=0, member_id=member_id, generation_id=generation_id, **fields)
    repeat = node.coordinator.heartbeat(group, heartbeat, answers.append)
    return answers[0], repeat


def consumer(
    node: Node, member_id: str, epoch: int, **fields: Any
) -> tuple[list[HeartbeatAnswer], RepeatableHeartbeat | None]:
    """Send a heartbeat, and return its answers; one that waits for records comes later."""
    answers: list[HeartbeatAnswer] = []
    heartbeat = ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields)
    repeat = node.coordinator.consumer_heartbeat("g", heartbeat, answers.append, needs_member_id=True)
    return answers, repeat


def beats(repeat: RepeatableHeartbeat) -> bool:
    """Repeat a heartbeat; return whether that was allowed, and answered at once."""
    answers: list[None] = []
    is_allowed = repeat(answers.append)
    assert answers == [None] * is_allowed
    return is_allowed


async def enter(node: Node, member_id: str = "m1", **fields: Any) -> int:
    """Bring a member in until it has its whole target, and return its epoch."""
    given = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"orders"}), "owned": {}} | fields
    heartbeat = ConsumerHeartbeat(member_id=member_id, member_epoch=0, **given)
    answer = await answered(node.coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)
    assert answer.error == E.NONE
    await node.settled("g")
    return int(answer.member_epoch)


# --- classic ----------------------------------------------------------------------------------------------------------


async def a_rebalance(node: Node, _: str) -> None:
    joining = asyncio.create_task(node.join("g"))
    await asyncio.sleep(0)
    assert node.state("g") is GroupState.PREPARING_REBALANCE
    joining.cancel()


async def its_leave(node: Node, member_id: str) -> None:
    await node.coordinator.leave("g", Leave(request=0, members=[Leaver(member_id)]))


async def another_generation(node: Node, member_id: str) -> None:
    joined = await node.join("g", member_id)
    assert joined.generation_id == 2
    await node.sync("g", member_id, 2, {member_id: b""})
    assert node.state("g") is GroupState.STABLE


async def the_stop(node: Node, _: str) -> None:
    await node.coordinator.stop()


@pytest.mark.parametrize("event", [a_rebalance, its_leave, another_generation, the_stop])
async def test_a_classic_member_repeats_until_something_happens(
    node: Node, event: Callable[[Node, str], Awaitable[None]]
) -> None:
    member_id, generation_id = await node.member("g")
    answer, repeat = classic(node, member_id, generation_id)
    assert answer == E.NONE
    assert repeat is not None
    assert [beats(repeat), beats(repeat)] == [True, True]
    await event(node, member_id)
    assert not beats(repeat)
    assert classic(node, member_id, generation_id)[0] != E.NONE


async def test_nobody_repeats_while_their_partition_is_offline(node: Node) -> None:
    node.files = DiskThatBreaks()
    await node.restart()
    member_id, generation_id = await node.member("g")
    _, repeat = classic(node, member_id, generation_id)
    assert repeat is not None
    assert beats(repeat)
    assert isinstance(node.files, DiskThatBreaks)
    node.files.sync_fault = StorageFailure("broken")
    seen: list[tuple[bool, E]] = []
    answered_late = asyncio.Event()

    def done(_: list[E]) -> None:  # the partition is lost; its groups are forgotten in the next turn
        seen.append((beats(repeat), classic(node, member_id, generation_id)[0]))
        answered_late.set()

    commit = Commit(request=0, member_id=member_id, generation_id=generation_id)
    node.coordinator.offsets.commit(CommitRequest("g", commit, [NewOffset("orders", 0, 1, 0, "")]), done)
    await answered_late.wait()
    await asyncio.sleep(0)
    seen.append((beats(repeat), classic(node, member_id, generation_id)[0]))
    assert seen == [(False, E.NOT_COORDINATOR), (False, E.NOT_COORDINATOR)]
    node.files.sync_fault = None


async def test_a_fenced_static_member_does_not_repeat(node: Node) -> None:
    joined = await node.join("g", instance_id="i")
    await node.sync("g", joined.member_id, 1, {joined.member_id: b""})
    answer, repeat = classic(node, joined.member_id, 1, instance_id="i")
    assert answer == E.NONE
    assert repeat is not None
    assert beats(repeat)
    again = await node.join("g", instance_id="i")
    assert again.member_id != joined.member_id
    assert not beats(repeat)
    assert classic(node, joined.member_id, 1, instance_id="i")[0] == E.FENCED_INSTANCE_ID


async def test_repeating_keeps_a_session_and_silence_ends_it(node: Node, played: PlayedTime) -> None:
    joined = await node.join("g")
    await node.sync("g", joined.member_id, 1, {joined.member_id: b""})
    _, repeat = classic(node, joined.member_id, 1)
    assert repeat is not None
    for _ in range(10):
        await played.go_on(2.5)
        assert beats(repeat)
    assert node.state("g") is GroupState.STABLE
    await played.go_on(15)
    assert node.state("g") is GroupState.EMPTY
    assert not beats(repeat)


async def test_errors_and_unsettled_groups_are_not_repeated(node: Node) -> None:
    assert classic(node, "nobody", 1, "none") == (E.UNKNOWN_MEMBER_ID, None)
    joined = await node.join("g")
    assert classic(node, joined.member_id, 1) == (E.NONE, None)  # nobody has synced yet
    assert classic(node, joined.member_id, 7) == (E.ILLEGAL_GENERATION, None)


# --- consumer ---------------------------------------------------------------------------------------------------------


async def repeating(node: Node, **fields: Any) -> tuple[int, RepeatableHeartbeat]:
    epoch = await enter(node, **fields)
    consumer(node, "m1", epoch, **fields)  # the group has to look at the topics again: its own offsets' is a new one
    answers, repeat = consumer(node, "m1", epoch, **fields)
    assert answers == [HeartbeatAnswer(member_id="m1", member_epoch=epoch, heartbeat_interval_ms=5000)]
    assert repeat is not None
    assert [beats(repeat), beats(repeat)] == [True, True]
    return epoch, repeat


async def test_a_member_repeats_until_another_one_joins(node: Node) -> None:
    epoch, repeat = await repeating(node)
    await enter(node, "m2")
    assert not beats(repeat)
    answers, again = consumer(node, "m1", epoch)
    await node.settled("g")
    assert (answers[0].assignment is not None, again) == (True, None)


async def test_a_member_repeats_until_a_topic_comes(node: Node) -> None:
    epoch, repeat = await repeating(node)
    await node.registry.create("payments", 1, {})
    assert not beats(repeat)
    answers, again = consumer(node, "m1", epoch)  # it is not one of the group's
    assert (answers[0].error, again) == (E.NONE, None)
    _, again = consumer(node, "m1", epoch)
    assert again is not None
    assert beats(again)


async def test_a_member_repeats_until_its_group_is_configured(node: Node, played: PlayedTime) -> None:
    epoch, repeat = await repeating(node)
    node.coordinator.configure("g", {"consumer.heartbeat.interval.ms": 200, "consumer.session.timeout.ms": 10_000})
    assert not beats(repeat)
    answers, again = consumer(node, "m1", epoch)
    assert (answers[0].heartbeat_interval_ms, beats(repeat)) == (200, False)
    assert again is not None
    for _ in range(3):
        await played.go_on(5)
        assert beats(again)
    await played.go_on(20)
    await node.settled("g")
    assert consumer(node, "m1", epoch)[0][0].error == E.UNKNOWN_MEMBER_ID


async def test_what_was_informed_over_another_connection_ends_it(node: Node) -> None:
    epoch, repeat = await repeating(node, connection_id=1)
    answers, other = consumer(node, "m1", epoch, connection_id=2)
    assert answers[0].assignment is not None
    assert other is None
    assert not beats(repeat)


async def test_a_member_that_left_does_not_repeat(node: Node) -> None:
    epoch, repeat = await repeating(node)
    consumer(node, "m1", -1)
    assert not beats(repeat)
    await node.settled("g")
    assert consumer(node, "m1", epoch)[0][0].error == E.UNKNOWN_MEMBER_ID


async def test_an_answer_with_news_is_not_the_one_to_repeat(node: Node) -> None:
    epoch, _ = await repeating(node, connection_id=1)
    answers, repeat = consumer(node, "m1", epoch, connection_id=2)
    assert answers[0].assignment is not None
    assert repeat is None


async def test_a_stopped_coordinator_repeats_nothing(node: Node) -> None:
    _, repeat = await repeating(node)
    await node.coordinator.stop()
    assert not beats(repeat)


async def test_nobody_repeats_after_a_change_that_the_log_refuses(node: Node) -> None:
    """The partition goes offline with it."""
    node.files = DiskThatBreaks()
    await node.restart()
    _, repeat = await repeating(node)
    assert isinstance(node.files, DiskThatBreaks)
    node.files.sync_fault = StorageFailure("broken")
    heartbeat = ConsumerHeartbeat(
        member_id="m2", member_epoch=0, rebalance_timeout_ms=60_000, topics=frozenset({"orders"}), owned={}
    )
    answer = await answered(node.coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)
    assert answer.error != E.NONE
    assert not beats(repeat)
    node.files.sync_fault = None
