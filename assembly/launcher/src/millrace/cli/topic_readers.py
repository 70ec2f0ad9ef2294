"""Consumers that know where they end: of partitions by themselves, and as members of a group.

Both notice partitions that are added, and read them from their first record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from protocol_lib.client import Admin, ClientSettings, Consumer, ConsumerRecord, KafkaError, TopicPartition

from millrace.cli.kafka import started
from millrace.cli.names import pattern
from millrace.cli.offset_range import OffsetRange
from millrace.cli.output import note

_POLL_MS = 200
#: Bytes of records that wait to be written, but for the last of them; compressed ones have far more than was fetched.
POLL_BYTES = 4 << 20
_COMMIT_S = 5.0
#: Time after which a member without partitions counts as one for which none is left, in seconds.
_LEFT_OUT_S = 10.0
_SHOWN_PARTITIONS = 8


@dataclass(frozen=True)
class Consumption:
    """The records to read."""

    topics: tuple[str, ...]
    #: whether `topics` are regular expressions
    is_regex: bool
    range: OffsetRange
    partitions: tuple[int, ...]
    group: str | None
    to_end: bool
    count: int | None
    quiet: bool
    #: arguments of the consumer
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """A consumer that knows where it ends."""

    async def start(self) -> None:
        """Begin. Raises CliError when there is nothing to read."""

    async def poll(self, records_max: int) -> Sequence[ConsumerRecord]: ...

    def wants(self, record: ConsumerRecord) -> bool:
        """Return whether a polled record is still to be written."""

    async def stay(self) -> None:
        """Take part in the group while records wait to be written."""

    def written(self, records: Sequence[ConsumerRecord]) -> None:
        """Note that these are written."""

    def finished(self) -> None:
        """Note that all polled records are written, or not wanted any more."""

    async def is_at_end(self) -> bool: ...

    async def close(self) -> None: ...


class PartitionReader:
    """Reads partitions from where the range begins, independently of other consumers."""

    def __init__(
        self, settings: ClientSettings, given: Consumption, admin: Admin, topics: Mapping[str, Sequence[int]]
    ) -> None:
        self._settings = settings
        self._given = given
        self._admin = admin
        self._assigned = _pairs(topics)
        self._consumer = Consumer(settings, **given.arguments)
        #: first offsets that are wanted, of logs that end before them
        self._starts: dict[TopicPartition, int] = {}
        #: offsets that are not read any more
        self._stops: dict[TopicPartition, int] = {}
        #: log end offsets at the start, which tell when there is nothing older to read
        self._ends: dict[TopicPartition, int] = {}
        self._open: set[TopicPartition] = set(self._assigned)
        self._watching: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await started(self._consumer.start(), self._settings)
        await self._consumer.assign(self._assigned)
        span = self._given.range
        ends = self._ends = await self._consumer.end_offsets(self._assigned)
        firsts = await self._consumer.beginning_offsets(self._assigned)
        at = {number: await self._offsets_at(number) for number in span.times}
        starts: dict[TopicPartition, int] = {}
        for each in self._assigned:
            first, end = firsts[each], ends[each]
            start = span.start.offset(first, end, at.get(span.start.number, {}).get(each))
            starts[each] = min(start, end)
            if span.stop is not None:
                self._starts[each] = start
                self._stops[each] = span.stop.offset(first, end, at.get(span.stop.number, {}).get(each))
            if self._given.to_end:
                self._stops[each] = min(self._stops.get(each, end), end)
            self._consumer.seek(each, starts[each])
        self._announce(starts)
        if not self._stops and not self._given.partitions:
            self._watching = asyncio.create_task(self._watch())

    async def _offsets_at(self, milliseconds: int) -> dict[TopicPartition, int]:
        found = await self._consumer.offsets_for_times(dict.fromkeys(self._assigned, milliseconds))
        return {each: at.offset for each, at in found.items() if at is not None}

    def _announce(self, starts: Mapping[TopicPartition, int]) -> None:
        if self._given.quiet:
            return
        begins = self._given.range.start.kind
        where = {"beginning": "the beginning", "end": "the end"}.get(begins, "the chosen offsets")
        older = "; -o beginning reads the older records" if begins == "end" and any(self._ends.values()) else ""
        note(f"reading from {where}: {_listed({each: str(offset) for each, offset in starts.items()})}{older}")

    async def poll(self, records_max: int) -> Sequence[ConsumerRecord]:
        if self._watching is not None and self._watching.done():
            self._watching.result()
        return await self._consumer.poll(_POLL_MS, records_max=records_max, bytes_max=POLL_BYTES)

    def wants(self, record: ConsumerRecord) -> bool:
        each = TopicPartition(record.topic, record.partition)
        stop = self._stops.get(each)
        return self._starts.get(each, 0) <= record.offset and (stop is None or record.offset < stop)

    async def stay(self) -> None:
        """Do nothing: partitions are not shared with others."""

    def written(self, records: Sequence[ConsumerRecord]) -> None:
        """Do nothing: no offset is committed."""

    def finished(self) -> None:
        """Do nothing: no offset is committed."""

    async def is_at_end(self) -> bool:
        """Return whether each partition is read up to its stop, or up to its end at the start."""
        for each in tuple(self._open):
            if await self._consumer.position(each) >= self._stops.get(each, self._ends.get(each, 0)):
                self._open.discard(each)
                if each in self._stops:
                    self._consumer.pause(each)
        return not self._open

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._consumer.close()

    async def _watch(self) -> None:
        """Read partitions and topics that are added, from their first record."""
        while True:
            await asyncio.sleep(self._settings.metadata_max_age_ms / 1000)
            with contextlib.suppress(KafkaError):
                names = None if self._given.is_regex else self._given.topics
                found = await self._admin.topics.partitions(names)
                if self._given.is_regex:
                    wanted = pattern(self._given.topics)
                    found = {name: indexes for name, indexes in found.items() if wanted.fullmatch(name)}
                added = [each for each in _pairs(found) if each not in self._assigned]
                if added:  # mutant: added-partitions-read
                    await self._consumer.assign([*self._assigned, *added])
                    self._assigned += added
                    self._consumer.seek_to_beginning(*added)
                    if not self._given.quiet:
                        note(f"added: {_listed(dict.fromkeys(added, 'beginning'))}")


class GroupReader:
    """Reads as a member of a group, and commits what is written."""

    def __init__(
        self, settings: ClientSettings, given: Consumption, _admin: Admin, topics: Mapping[str, Sequence[int]]
    ) -> None:
        arguments = dict(given.arguments)
        self._commits = arguments.pop("auto_commit", True)
        self._commit_s = arguments.pop("auto_commit_interval_ms", _COMMIT_S * 1000) / 1000
        self._settings = settings
        self._given = given
        #: partitions at the start; others are added later, and read from their first record
        self._known = frozenset(_pairs(topics))
        reset = "earliest" if given.range.start.kind == "beginning" else "latest"
        self._consumer = Consumer(
            settings, group_id=given.group, auto_offset_reset=reset, auto_commit=False, **arguments
        )
        #: whether polled records wait to be written: positions are past them then
        self._holds = False
        #: offsets after the last written records
        self._written: dict[TopicPartition, int] = {}
        #: partitions given up since the last poll: their records that are held are read again, by any member
        self._given_up: set[TopicPartition] = set()
        self._assigned_at: float | None = None
        self._loop = asyncio.get_running_loop()
        self._commit_at = self._loop.time() + self._commit_s

    async def start(self) -> None:
        await started(self._consumer.start(), self._settings)
        wanted = pattern(self._given.topics) if self._given.is_regex else self._given.topics
        await self._consumer.subscribe(wanted, self)

    async def poll(self, records_max: int) -> Sequence[ConsumerRecord]:
        if self._loop.time() >= self._commit_at:
            await self._commit()
        records = await self._consumer.poll(_POLL_MS, records_max=records_max, bytes_max=POLL_BYTES)
        self._given_up.clear()
        self._holds = bool(records)
        return records

    def wants(self, record: ConsumerRecord) -> bool:
        return TopicPartition(record.topic, record.partition) not in self._given_up

    async def stay(self) -> None:
        await self._consumer.poll(0, records_max=0)

    def written(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            each = TopicPartition(record.topic, record.partition)
            if each not in self._given_up:
                self._written[each] = record.offset + 1

    def finished(self) -> None:
        self._holds = False

    async def is_at_end(self) -> bool:
        """Return whether everything assigned is read, or nothing has been assigned for a while."""
        if self._assigned_at is None:
            return False
        assigned = self._consumer.assignment()
        if not assigned:
            return self._loop.time() - self._assigned_at > _LEFT_OUT_S
        ends = await self._consumer.end_offsets(assigned)
        try:
            return all([await self._consumer.position(each) >= end for each, end in ends.items()])
        except ValueError:  # the partition was given up
            return False

    async def close(self) -> None:
        """Commit, by `on_revoked`, and leave the group."""
        await self._consumer.close()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._assigned_at = self._loop.time()
        with contextlib.suppress(KafkaError):
            committed = await self._consumer.committed(partitions)
            added = [each for each in partitions if committed[each] is None and each not in self._known]
            self._consumer.seek_to_beginning(*added)
            if not self._given.quiet:
                start = "beginning" if self._given.range.start.kind == "beginning" else "end"
                texts = {each: str(at.offset) if at else start for each, at in committed.items()}
                texts |= dict.fromkeys(added, "beginning")
                note(f"group {self._given.group} assigns {_listed(texts) or 'no partition'}")

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self._commit()
        await self.on_lost(partitions)

    async def on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        self._given_up |= partitions
        for each in partitions:
            self._written.pop(each, None)

    async def _commit(self) -> None:
        """Commit the positions, or the written records while others are held. What fails is read again."""
        self._commit_at = self._loop.time() + self._commit_s
        if self._commits and (self._written or not self._holds):
            with contextlib.suppress(KafkaError, TimeoutError):
                async with asyncio.timeout(_COMMIT_S):
                    await self._consumer.commit(dict(self._written) if self._holds else None)


def _pairs(topics: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers]


def _listed(texts: Mapping[TopicPartition, str]) -> str:
    """Return partitions with a text each, the first ones where there are many."""
    shown = [f"{each} at {text}" for each, text in sorted(texts.items())[:_SHOWN_PARTITIONS]]
    more = len(texts) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
