"""How often a gateway asks for the access rules, and whether it goes on without an answer."""

from __future__ import annotations

import asyncio

import pytest
from broker_contract import access_pb2 as pb
from gateway_svc.errors import StorageUnavailable
from gateway_svc.storage.followed_rules import HOLD_MS, FollowedRules

LEASE_MS = 300


class Storage:
    """Answers the first question, and holds the next one until it is lost; it is away then."""

    def __init__(self) -> None:
        self.asked: list[pb.FollowRequest] = []
        self.lost = asyncio.Event()

    async def follow(self, request: pb.FollowRequest) -> pb.FollowResponse:
        self.asked.append(request)
        if len(self.asked) == 1:
            return pb.FollowResponse(run=7, revision=1, whole=True, has_quotas=True)
        if request.lease_ms:
            await self.lost.wait()
        raise StorageUnavailable("away")


@pytest.fixture
async def storage() -> Storage:
    return Storage()


async def follow(storage: Storage, *, lapse: bool) -> FollowedRules:
    rules = FollowedRules(storage, "gw", LEASE_MS, lapse=lapse)  # type: ignore[arg-type]
    await rules.start()
    while len(storage.asked) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    return rules


async def test_rules_that_nobody_decides_by_are_asked_for_once_and_do_not_lapse(storage: Storage) -> None:
    rules = await follow(storage, lapse=False)
    changes: list[bool] = []
    rules.attach(lambda: changes.append(rules.are_current))
    await asyncio.sleep(1.5 * LEASE_MS / 1000)
    assert [(each.wait_ms, each.revision) for each in storage.asked] == [(HOLD_MS, 0), (HOLD_MS, 1)]
    storage.lost.set()
    while len(storage.asked) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    assert (rules.are_current, changes) == (True, [])
    await rules.stop()
    assert storage.asked[-1].lease_ms == 0


async def test_rules_by_which_a_gateway_decides_are_asked_for_in_time_and_lapse(storage: Storage) -> None:
    rules = await follow(storage, lapse=True)
    lapsed = asyncio.Event()
    rules.attach(lapsed.set)
    assert [each.wait_ms for each in storage.asked] == [LEASE_MS // 3] * 2
    assert rules.are_current
    await lapsed.wait()
    assert not rules.are_current
    await rules.stop()
