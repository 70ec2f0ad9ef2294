"""Commands that speak the Kafka protocol: run with an administrator of protocol_lib, its errors in one line."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from protocol_lib.client import Admin, ClientSettings, KafkaError, TopicPartition

from millrace.cli.errors import USAGE, CliError
from millrace.cli.profile import current

Result = TypeVar("Result")

CONNECT_TIMEOUT_S = 3.0
_API_TIMEOUT_MS = 30_000


def settings(address: str | None) -> ClientSettings:
    """Return the settings of a client of these bootstrap servers, by default of the profile's."""
    if address == "":
        raise CliError("--kafka: the address is empty; is a shell variable not set?", USAGE)
    given = address or current().kafka
    try:
        return ClientSettings(
            bootstrap_servers=given,
            client_id="millrace-cli",
            connect_timeout_ms=int(CONNECT_TIMEOUT_S * 1000),
            api_timeout_ms=_API_TIMEOUT_MS,
        )
    except ValueError as error:
        raise CliError(f"--kafka: {given!r} is not host:port", USAGE) from error


def administer(address: str | None, work: Callable[[Admin], Coroutine[Any, Any, Result]]) -> Result:
    """Return the result of `work` with a connected administrator."""

    async def whole() -> Result:
        admin = Admin(settings(address))
        await started(admin.start(), address)
        try:
            return await work(admin)
        finally:
            await admin.close()

    return run(whole())


async def started(start: Coroutine[Any, Any, None], address: str | None) -> None:
    """Await the start of a client. Raises CliError when no broker answers within 3 s."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await start
    except (TimeoutError, KafkaError, OSError) as error:
        raise CliError(f"no broker answers at {address or current().kafka}") from error


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run until it ends. Raises CliError with the reason of a client's error."""
    try:
        return asyncio.run(work)
    except KafkaError as error:
        raise CliError(str(error)) from error


async def topic_partitions(admin: Admin, topic: str, partitions: list[int]) -> list[TopicPartition]:
    """Return partitions of a topic, all of them for an empty list. Raises CliError for one that it has not."""
    described = await admin.topics.describe(topic)
    missing = [number for number in partitions if number not in described.indexes]
    if missing:
        raise CliError(f"{topic} has no partition {missing[0]}; it has {len(described.indexes)}")
    return [TopicPartition(topic, number) for number in (partitions or sorted(described.indexes))]
