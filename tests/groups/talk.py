"""Clients of a broker over sockets, each with a connection of its own: a parked request holds up later ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from protocol_lib.messages.describe_groups import DescribeGroupsRequest

from tests.groups.requests import Asked, GroupRequests
from tests.wire.conftest import Wire

#: Number and interval of questions about the group after a request that is parked. They show that the request has
#: reached the coordinator before the next one on another connection: a slow coordinator answers these slowly, too.
LOOKS, LOOK_S = 10, 0.01


class Talk:
    """Clients, and the group that they talk about."""

    def __init__(self, address: tuple[str, int], group: str, topic_ids: Mapping[str, bytes]) -> None:
        self.address = address
        self.requests = GroupRequests(group, topic_ids)
        self._wires: dict[str, Wire] = {}

    async def send(self, who: str, asked: Asked) -> asyncio.Task[Any]:
        """Send a request; return its answer, to be awaited."""
        wire = self._wires.get(who)
        if wire is None:
            reader, writer = await asyncio.open_connection(*self.address)
            wire = self._wires[who] = Wire(reader, writer)
        wire.send(*asked)

        async def answer() -> Any:
            return (await wire.receive())[1]

        return asyncio.create_task(answer())

    async def ask(self, who: str, api_key: int, version: int, message: Any) -> Any:
        return await (await self.send(who, Asked(api_key, version, message)))

    async def park(self, who: str, asked: Asked) -> Awaitable[Any]:
        """Send a request that the broker parks; return when it is there."""
        pending = await self.send(who, asked)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            await self.ask("somebody else", 15, 5, DescribeGroupsRequest(groups=(self.requests.group,)))
        assert not pending.done()
        return pending

    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.close()


class GroupTalk(Talk):
    """A talk in Python: `await talk.heartbeat("a", member_id, 1)` sends that request, and returns its answer.

    `join_later` and `sync_later` return the answer to be awaited.
    """

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        request, parks = name.removesuffix("_later"), name.endswith("_later")

        async def call(who: str, *arguments: Any, **fields: Any) -> Any:
            asked = getattr(self.requests, request)(*arguments, **fields)
            return await self.park(who, asked) if parks else await self.ask(who, *asked)

        return call

    async def stable(self, who: str = "a", version: int = 3, **fields: Any) -> tuple[str, int]:
        """Join a group of one with an assignment; return (member id, generation id)."""
        joined = await self.join(who, version=version, **fields)
        await self.sync(who, joined.member_id, joined.generation_id, assignments={joined.member_id: b"all"})
        return joined.member_id, joined.generation_id

    async def pair(self, **fields: Any) -> tuple[str, str, int]:
        """Join a stable group of two, "a" its leader; return their member ids and the generation id."""
        first, _ = await self.stable("a", **fields)
        second = await self.join_later("b", version=3, **fields)
        await self.join("a", version=3, member_id=first, **fields)
        joined = await second
        generation_id = joined.generation_id
        following = await self.sync_later("b", joined.member_id, generation_id)
        await self.sync("a", first, generation_id, assignments={first: b"one", joined.member_id: b"two"})
        await following
        return first, joined.member_id, generation_id
