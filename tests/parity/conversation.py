"""The same conversation with two brokers: a script's requests, and their answers with names instead of ids.

A script is a coroutine over a `Talk`. Each of its clients has a separate connection, as a parked request holds up later
requests on the same one. `Talk.transcript` must be equal for two brokers. Member ids are numbered in the order in which
they first appear, and topic ids become names. Times and messages for people are left out.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

from protocol_lib.messages.describe_groups import DescribeGroupsRequest

from tests.wire.conftest import Wire

#: Number and interval of questions about the group after a request that is parked. They show that the request has
#: reached the coordinator before the next one on another connection: a slow coordinator answers these slowly, too.
LOOKS, LOOK_S = 10, 0.01
#: Fields that are not compared: times, addresses and sentences.
LEFT_OUT = frozenset(("throttle_time_ms", "error_message", "unknown_tagged_fields"))


class Pending:
    """A request whose answer is awaited later."""

    def __init__(self, name: str, receiving: asyncio.Task[Any]) -> None:
        self.name = name
        self.receiving = receiving


class Talk:
    """One script's clients and their answers; `group` is a group that only this script uses."""

    def __init__(self, address: tuple[str, int], group: str, topic_ids: Mapping[str, bytes]) -> None:
        self.group = group
        self.topic_ids = topic_ids
        self.transcript: list[object] = []
        self._address = address
        self._names: dict[object, str] = {each: f"<{name}>" for name, each in topic_ids.items()}
        self._wires: dict[str, Wire] = {}

    async def ask(self, who: str, api_key: int, version: int, request: Any) -> Any:
        """Send a request; return the answer, which also goes into the transcript."""
        return await self.answer(await self._send(who, api_key, version, request))

    async def silent(self, who: str, api_key: int, version: int, request: Any) -> Any:
        """Send a request; return the answer. The script decides on the part that goes into the transcript."""
        _, response = await (await self._send(who, api_key, version, request)).receiving
        return response

    async def later(self, who: str, api_key: int, version: int, request: Any) -> Pending:
        """Send a request that the broker parks; `answer` puts its answer into the transcript."""
        pending = await self._send(who, api_key, version, request)
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_S)
            await self.silent("somebody else", 15, 5, DescribeGroupsRequest(groups=(self.group,)))
        return pending

    async def answer(self, pending: Pending) -> Any:
        _, response = await pending.receiving
        self.transcript.append((pending.name, self._named(response)))
        return response

    async def _send(self, who: str, api_key: int, version: int, request: Any) -> Pending:
        wire = self._wires.get(who)
        if wire is None:
            reader, writer = await asyncio.open_connection(*self._address)
            wire = self._wires[who] = Wire(reader, writer)
        wire.send(api_key, version, request)
        return Pending(f"{who}: {type(request).__name__} {version}", asyncio.create_task(wire.receive()))

    async def close(self) -> None:
        for wire in self._wires.values():
            await wire.close()

    def _named(self, value: Any) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            member_id = getattr(value, "member_id", None)
            if member_id:
                self._names.setdefault(member_id, f"<member {len(self._names) - len(self.topic_ids) + 1}>")
            return {
                field.name: self._named(getattr(value, field.name))
                for field in dataclasses.fields(value)
                if field.name not in LEFT_OUT
            }
        if isinstance(value, tuple | list):
            named = [self._named(each) for each in value]
            # Members, groups and topics come in no order that means anything.
            return sorted(named, key=repr) if named and isinstance(named[0], dict) else named
        if isinstance(value, memoryview | bytearray):
            value = bytes(value)
        return self._names.get(value, value)
