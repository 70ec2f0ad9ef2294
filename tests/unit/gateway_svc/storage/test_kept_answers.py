"""Offsets that the gateway keeps: used only for the same request, while storage would return the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from broker_contract import data_pb2
from broker_contract.revisions import Revisions
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage import kept_answers
from gateway_svc.storage.kept_answers import GOOD_S, KEPT_MAX, KeptOffsets

SLOT = 3
SAME = {"topic": "t", "partition": 1, "timestamp": -1, "current_leader_epoch": 5, "segment_starts_max": 0}


class Rig:
    """Kept offsets of a storage that returns another offset each time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(kept_answers, "monotonic", lambda: self.now)
        self.storage = seen("first")
        self.records: Any = SimpleNamespace(revisions=self.storage)
        #: The name in storage's answers, and the errors in them.
        self.names, self.error = "first", 0
        self.metrics = GatewayMetrics()
        self.asked = 0
        self.offsets = KeptOffsets(self.answer, self.records, self.metrics)

    async def answer(self, request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
        self.asked += 1
        self.during()
        response = data_pb2.ListOffsetsResponse()
        for _ in request.targets:
            found = response.offsets.add(offset=self.asked, error_code=self.error)
            if self.names:
                found.valid.revisions, found.valid.slot = self.names, SLOT
                found.valid.revision = self.storage[SLOT]
        return response

    def during(self) -> None:
        """Change something while storage is asked."""

    async def ask(self, isolation: int = 0, **changes: Any) -> int:
        """Return the offset in the answer: the number of times that storage was asked before it."""
        return await self.ask_for([{**SAME, **changes}], isolation)

    async def ask_for(self, targets: list[dict[str, Any]], isolation: int = 0) -> int:
        made = [data_pb2.ListOffsetsRequest.Target(**each) for each in targets]
        request = data_pb2.ListOffsetsRequest(isolation_level=isolation, targets=made)
        return (await self.offsets.list_offsets(request)).offsets[0].offset


def seen(name: str) -> Revisions:
    made = Revisions()
    made.name = name
    return made


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Rig:
    return Rig(monkeypatch)


async def test_the_same_request_is_answered_without_storage_for_a_while(rig: Rig) -> None:
    assert [await rig.ask() for _ in range(3)] == [1, 1, 1]
    assert (rig.asked, rig.metrics.offsets_kept) == (1, 2)
    rig.now += GOOD_S * 0.99
    assert await rig.ask() == 1
    rig.now = 100.0 + GOOD_S
    assert [await rig.ask() for _ in range(2)] == [2, 2]
    assert rig.metrics.offsets_kept == 4


async def test_the_time_begins_before_storage_is_asked(rig: Rig) -> None:
    def during() -> None:
        rig.now += GOOD_S

    rig.during = during  # type: ignore[method-assign]
    assert [await rig.ask() for _ in range(2)] == [1, 2]


@pytest.mark.parametrize(
    "changes",
    [
        {"topic": "u"},
        {"partition": 2},
        {"timestamp": -2},
        {"current_leader_epoch": -1},
        {"segment_starts_max": 1},
        {"isolation": 1},
    ],
    ids=str,
)
async def test_another_request_goes_to_storage(rig: Rig, changes: dict[str, Any]) -> None:
    assert await rig.ask() == 1
    assert await rig.ask(**changes) == 2
    assert [await rig.ask(), await rig.ask(**changes)] == [1, 2]


async def test_a_change_of_the_log_ends_the_answer(rig: Rig) -> None:
    assert await rig.ask() == 1
    rig.storage.move(SLOT + 1)
    assert await rig.ask() == 1
    rig.storage.move(SLOT)
    assert [await rig.ask() for _ in range(2)] == [2, 2]


async def test_a_change_while_the_answer_is_on_its_way_ends_it(rig: Rig) -> None:
    async def late(request: data_pb2.ListOffsetsRequest) -> data_pb2.ListOffsetsResponse:
        response = await rig.answer(request)
        rig.storage.move(SLOT)
        return response

    rig.offsets = KeptOffsets(late, rig.records, rig.metrics)
    assert [await rig.ask() for _ in range(2)] == [1, 2]


async def test_answers_end_with_their_storage(rig: Rig) -> None:
    assert await rig.ask() == 1
    rig.records.revisions = None
    assert await rig.ask() == 2
    rig.records.revisions = seen("second")
    assert await rig.ask() == 3


async def test_an_answer_of_another_storage_is_not_kept(rig: Rig) -> None:
    """The next storage has answered already; the stream of the first is not known to be lost."""
    rig.names = "second"
    assert [await rig.ask() for _ in range(2)] == [1, 2]


async def test_an_answer_that_may_change_without_a_sign_is_not_kept(rig: Rig) -> None:
    rig.names = ""
    assert [await rig.ask() for _ in range(2)] == [1, 2]
    assert rig.metrics.offsets_kept == 0


async def test_answers_of_several_partitions_are_not_kept(rig: Rig) -> None:
    both = [SAME, {**SAME, "partition": 2}]
    assert [await rig.ask_for(both) for _ in range(2)] == [1, 2]
    assert await rig.ask() == 3


async def test_the_oldest_answers_go(rig: Rig) -> None:
    for partition in range(KEPT_MAX + 1):
        await rig.ask(partition=partition)
    assert await rig.ask(partition=1) == 2
    assert await rig.ask(partition=0) == KEPT_MAX + 2
    assert len(rig.offsets._kept) == KEPT_MAX
