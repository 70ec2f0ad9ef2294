"""No timer is lost: every dead member goes, and every due rebalance happens, once the cause of a failure is gone."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol_lib.errors import ErrorCode
from storage_svc.coordinator.classic.events import GroupState, Heartbeat, Join, Sync
from storage_svc.coordinator.classic.step import Step as ClassicStep
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat, HeartbeatAnswer
from storage_svc.coordinator.consumer.group import ConsumerGroup, ConsumerGroupState
from storage_svc.coordinator.consumer.settings import ConsumerGroupSettings
from storage_svc.coordinator.consumer.step import Step as ConsumerStep
from storage_svc.coordinator.group_coordinator import GroupCoordinator
from storage_svc.coordinator.limits import CoordinatorSettings
from support.group_calls import answered
from support.scripted_transactions import NoTransactions

from tests.groups.played_group import PlayedTopics
from tests.unit.storage_svc.conftest import PlayedTime
from tests.unit.storage_svc.coordinator.conftest import SETTINGS, SUBSCRIPTION, Node

E = ErrorCode
CONSUMER = ConsumerGroupSettings(assignment_interval_ms=0, session_timeout_ms=10_000)


# --- on real logs -----------------------------------------------------------------------------------------------------


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = await Node(tmp_path, replace(SETTINGS, consumer=CONSUMER)).open()
    yield made
    await made.close()


async def limit_records(node: Node, bytes_max: str) -> None:
    """Let the log refuse larger batches, as a full disk refuses all."""
    altered = {"max.message.bytes": bytes_max}
    assert await node.registry.configure("__consumer_offsets", lambda own: {**own, **altered}) is not None


async def beat(coordinator: GroupCoordinator, member_id: str, epoch: int, **fields: Any) -> HeartbeatAnswer:
    heartbeat = ConsumerHeartbeat(member_id=member_id, member_epoch=epoch, **fields)
    return await answered(coordinator.consumer_heartbeat, "g", heartbeat, needs_member_id=True)


async def enter(coordinator: GroupCoordinator, member_id: str) -> HeartbeatAnswer:
    topics = frozenset({"orders"})
    return await beat(coordinator, member_id, 0, rebalance_timeout_ms=10_000, topics=topics, owned={})


def consumer_group(coordinator: GroupCoordinator) -> ConsumerGroup:
    found = coordinator.find("g")[1]
    assert isinstance(found, ConsumerGroup)
    return found


async def test_a_dead_member_goes_once_the_log_takes_records_again(
    node: Node, played: PlayedTime, capsys: pytest.CaptureFixture[str]
) -> None:
    await enter(node.coordinator, "m1")
    await enter(node.coordinator, "m2")
    await limit_records(node, "10")
    await played.go_on(12)
    assert list(consumer_group(node.coordinator).members) == ["m1", "m2"]
    assert "member is out" not in capsys.readouterr().err
    await limit_records(node, "1048588")
    await played.go_on(0.5)
    assert consumer_group(node.coordinator).members == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_whose_time_is_over_goes_after_an_exception(
    node: Node, played: PlayedTime, protocol: str
) -> None:
    if protocol == "classic":
        await node.member("g")
    else:
        await enter(node.coordinator, "m1")
    with fails_while(lambda: True):
        await played.go_on(12)
    await played.go_on(0.5)
    found = node.coordinator.find("g")[1]
    assert found is not None
    assert len(found.members) == 0


async def test_a_member_that_names_a_protocol_twice_supports_it_once(node: Node) -> None:
    await enter(node.coordinator, "x")
    joined = []
    for names in (["a", "a", "b"], ["b"], ["a"]):
        protocols = tuple((name, SUBSCRIPTION) for name in names)
        first = await node.join("g", protocols=protocols)
        joined.append(first.error)
    assert joined == [E.NONE, E.NONE, E.INCONSISTENT_GROUP_PROTOCOL]
    assert (await beat(node.coordinator, "x", -1)).error == E.NONE
    assert not isinstance(node.coordinator.find("g")[1], ConsumerGroup)


# --- under any failure ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def fails_while(condition: Callable[[], bool]) -> Iterator[None]:
    """Let every step of the machines of both protocols raise while the condition is true."""

    def failing(method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if condition():
            raise RuntimeError("a fault of the machine")
        return method(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        for step in (ClassicStep, ConsumerStep):
            for name in [each for each, found in vars(step).items() if callable(found) and each != "__init__"]:
                method = getattr(step, name)
                wrapped = lambda *args, _method=method, **kwargs: failing(_method, *args, **kwargs)  # noqa: E731
                stack.enter_context(mock.patch.object(step, name, wrapped))
        yield


class FakeLog:
    """A log that refuses when the test says so, as for a full disk, or raises; else it is durable after a turn."""

    def __init__(self, refuses: Callable[[], bool], random: Random) -> None:
        self.refuses = refuses
        self._random = random
        self.on_offline: Any = None

    def partition_of(self, _: str) -> int:
        return 0

    async def finish(self) -> None:
        """Return at once: nothing waits."""

    def to_load(self) -> list[Any]:
        return []

    def write(self, _partition: int, _records: Any, _now_ms: int, done: Any, **_: Any) -> None:
        if self.refuses():
            how = self._random.choice([E.MESSAGE_TOO_LARGE, E.KAFKA_STORAGE_ERROR, None])
            if how is None:
                raise OSError("a fault of the log")
            done(how)
        else:
            asyncio.get_running_loop().call_soon(done, 0)


class Client:
    """A living client: it goes on after any error, and joins again."""

    def __init__(self, coordinator: GroupCoordinator, name: str) -> None:
        self.coordinator = coordinator
        self.name = name
        self.member_id = ""
        self.epoch = 0

    async def run(self, one_round: Callable[[], Any]) -> None:
        while True:
            with contextlib.suppress(RuntimeError, TimeoutError):
                async with asyncio.timeout(15):
                    await one_round()
            await asyncio.sleep(1)

    async def classic(self) -> None:
        join = Join(
            request=0,
            member_id=self.member_id,
            new_member_id="",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", SUBSCRIPTION),),
            client_id=self.name,
        )
        if not self.epoch:
            joined = await self.coordinator.join("g", join)
            self.member_id = joined.member_id if joined.error in (E.NONE, E.MEMBER_ID_REQUIRED) else ""
            if joined.error:
                return
            assignments = {each.member_id: b"x" for each in joined.members}
            sync = Sync(
                request=0, member_id=self.member_id, generation_id=joined.generation_id, assignments=assignments
            )
            synced = await self.coordinator.sync("g", sync)
            self.epoch = 0 if synced.error else joined.generation_id
            return
        heartbeat = Heartbeat(request=0, member_id=self.member_id, generation_id=self.epoch)
        error = await answered(self.coordinator.heartbeat, "g", heartbeat)
        if error:
            self.epoch = 0
        if error == E.UNKNOWN_MEMBER_ID:
            self.member_id = ""

    async def consumer(self) -> None:
        self.member_id = self.name
        if not self.epoch:
            answer = await enter(self.coordinator, self.name)
        else:
            answer = await beat(self.coordinator, self.name, self.epoch, owned={})
        self.epoch = 0 if answer.error else answer.member_epoch


async def _survive(random: Random, protocol: str) -> None:
    loop = asyncio.get_running_loop()
    played = PlayedTime(loop)
    loop.time = played.now  # type: ignore[method-assign]
    share = 0.0

    def fails() -> bool:
        return random.random() < share

    topics = PlayedTopics()
    topics.create("orders", 4)
    limits = CoordinatorSettings(initial_rebalance_delay_ms=0, session_timeout_min_ms=1, consumer=CONSUMER)
    coordinator = GroupCoordinator(
        FakeLog(fails, random), limits, lambda *_: True, topics, NoTransactions(), lambda: int(played.now() * 1000)
    )  # type: ignore[arg-type]
    clients = [Client(coordinator, name) for name in ("a", "b", "c")]
    speaks = {each: random.choice(["classic", "consumer"]) if protocol == "mixed" else protocol for each in clients}
    tasks = [asyncio.create_task(each.run(getattr(each, speaks[each]))) for each in clients]
    try:
        await played.go_on(15)
        share = random.choice([0.02, 0.2, 1.0])
        with fails_while(fails):
            await played.go_on(random.choice([0, 3]))
            tasks[random.randrange(3)].cancel()
            await played.go_on(30)
            share = 0.0
        await played.go_on(60)
        living = {each.member_id for each, task in zip(clients, tasks, strict=True) if not task.done()}
        group = coordinator.groups["g"].entity
        ids = set(group.members if isinstance(group, ConsumerGroup) else group.members.ids())
        assert (ids, group.state) in ((living, GroupState.STABLE), (living, ConsumerGroupState.STABLE))
        group.check_invariants()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await coordinator.stop()
        del loop.time


@pytest.mark.parametrize("protocol", ["classic", "consumer", "mixed"])
def test_after_any_failure_the_living_are_members_and_the_dead_are_not(protocol: str) -> None:
    @settings(max_examples=12, deadline=None)
    @given(st.integers(0, 1 << 32))
    def survive(seed: int) -> None:
        asyncio.run(_survive(Random(seed), protocol))

    survive()
