"""Commands that speak the Kafka protocol: run with an administrator of protocol_lib, its errors in one line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import typer
from protocol_lib.client import Admin, ClientSettings, KafkaError, TopicPartition
from protocol_lib.client.errors import AuthenticationError, UnknownTopicOrPartitionError

from millrace.cli.addresses import without_secrets
from millrace.cli.client_properties import Properties, read_file, read_properties, security
from millrace.cli.errors import USAGE, CliError
from millrace.cli.profile import current

Result = TypeVar("Result")

CONNECT_TIMEOUT_S = 3.0
_API_TIMEOUT_MS = 30_000


def settings(address: str | None, properties: Properties | None = None, **defaults: Any) -> ClientSettings:
    """Return the settings of a client of these bootstrap servers, by default of $MILLRACE_KAFKA's or the profile's.

    Properties win over those of the profile's file, and these over `defaults`, which are arguments of ClientSettings.
    """
    source = "MILLRACE_KAFKA" if address is None and "MILLRACE_KAFKA" in os.environ else "--kafka"
    in_use = current()
    given = in_use.kafka if address is None else address
    if given == "":
        raise CliError(f"{source}: the address is empty; is a shell variable not set?", USAGE)
    if "@" in given:  # names of users and passwords are properties
        raise CliError(f"{source}: {without_secrets(given)!r} is not host:port", USAGE)
    properties = properties or Properties()
    kept = Properties()
    if in_use.client_config and given == in_use.kafka:
        kept = read_file(in_use.client_config)
    arguments = {
        "client_id": "millrace-cli",
        "connect_timeout_ms": int(CONNECT_TIMEOUT_S * 1000),
        "api_timeout_ms": _API_TIMEOUT_MS,
        **defaults,
        **kept.client,
        **properties.client,
    }
    named = {**kept.security, **properties.security}
    secured = security(named) if named else {}
    try:
        return ClientSettings(bootstrap_servers=given, **arguments, **secured)
    except ValueError as error:
        raise CliError(f"{source}: {given!r} is not host:port", USAGE) from error


def administer(
    address: str | None,
    work: Callable[[Admin], Coroutine[Any, Any, Result]],
    properties: list[str] | None = None,
    *,
    limit_s: float | None = None,
) -> Result:
    """Return the result of `work` with a connected administrator. Raises TimeoutError after so many seconds."""
    chosen = settings(address, read_properties(properties or []))

    async def whole() -> Result:
        admin = Admin(chosen)
        async with asyncio.timeout(limit_s):
            await started(admin.start(), chosen)
            try:
                return await work(admin)
            finally:
                await admin.close()

    return run(whole())


async def started(start: Coroutine[Any, Any, None], given: ClientSettings) -> None:
    """Await the start of a client. Raises CliError when no broker answers within 3 s."""
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await start
    except AuthenticationError as error:
        raise CliError(f"{given.bootstrap_servers}: {error}") from error
    except (TimeoutError, KafkaError, OSError) as error:
        raise CliError(f"no broker answers at {given.bootstrap_servers}") from error


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run until it ends, or a signal cancels it: SIGTERM and SIGHUP end it in order, as Ctrl-C does.

    Raises CliError with the reason of a client's error, and typer.Exit with 128 and the signal's number.
    """
    ended = Ended()
    try:
        return asyncio.run(_until_signal(work, ended))
    except KafkaError as error:
        raise CliError(str(error)) from error
    except asyncio.CancelledError:
        raise typer.Exit(128 + ended.by) from None


class Ended:
    """The signal that ended a command, 0 for none."""

    by = 0


async def _until_signal(work: Coroutine[Any, Any, Result], ended: Ended) -> Result:
    with _cancelled_by_signals(ended):
        return await work


@contextlib.contextmanager
def _cancelled_by_signals(ended: Ended) -> Iterator[None]:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def end(number: int) -> None:
        ended.by = ended.by or number
        loop.remove_signal_handler(number)  # a second one ends the process at once
        task.cancel()

    # nohup has SIGHUP ignored, and keeps it
    heard = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    try:
        for number in heard:
            loop.add_signal_handler(number, end, number)
    except (RuntimeError, ValueError):
        heard = []  # not the main thread: its signals are not ours
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


async def topic_indexes(admin: Admin, topic: str) -> tuple[int, ...]:
    """Return the indexes of a topic's partitions. Raises CliError when it does not exist."""
    try:
        return (await admin.topics.describe(topic)).indexes
    except UnknownTopicOrPartitionError as error:
        raise CliError(f"topic {topic} does not exist") from error


async def topic_partitions(admin: Admin, topic: str, partitions: list[int]) -> list[TopicPartition]:
    """Return partitions of a topic, all of them for an empty list. Raises CliError for one that it has not."""
    indexes = await topic_indexes(admin, topic)
    missing = [number for number in partitions if number not in indexes]
    if missing:
        raise CliError(f"{topic} has no partition {missing[0]}; it has {len(indexes)}")
    return [TopicPartition(topic, number) for number in (partitions or indexes)]
