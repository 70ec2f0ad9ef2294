"""Brokers of scripts, stopped at the end of each test."""

from collections.abc import AsyncIterator

import pytest
from support.scripted_broker import Answer, ScriptedBroker, StartScript


@pytest.fixture
async def scripted() -> AsyncIterator[StartScript]:
    """`await scripted(answer)`: a listening ScriptedBroker."""
    started: list[ScriptedBroker] = []

    async def start(answer: Answer) -> ScriptedBroker:
        started.append(await ScriptedBroker(answer).start())
        return started[-1]

    yield start
    for broker in started:
        await broker.stop()
