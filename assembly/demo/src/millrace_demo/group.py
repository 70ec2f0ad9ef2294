"""A consumer group of stock clients that reads a topic, each member in a thread, and a check of the records.

It begins when every member has its partitions, and ends when its members together are at the end of every partition.
Each member then commits its offsets.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import uuid4

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from millrace_demo import flights
from millrace_demo.access import NO_OPTIONS, Options
from millrace_demo.errors import DemoError, MismatchError
from millrace_demo.load import checksum
from millrace_demo.patience import STILL_SECONDS, Patience

BATCH = 10_000
POLL_SECONDS = 0.2
QUERY_SECONDS = 120.0
LEAVE_SECONDS = 5.0


@dataclass(slots=True)
class Read:
    """The records of one member: the number of each key, and a checksum of its last value."""

    counts: Counter[bytes] = field(default_factory=Counter)
    checksums: dict[bytes, int] = field(default_factory=dict)
    partitions: set[int] = field(default_factory=set)
    headers_missing: int = 0
    count: int = 0
    bytes: int = 0

    def add(self, message: Message) -> None:
        key, value = message.key() or b"", message.value() or b""
        self.counts[key] += 1
        self.count += 1
        self.checksums[key] = checksum(value)
        self.bytes += len(key) + len(value)
        if message.headers() != flights.HEADERS:
            self.headers_missing += 1


@dataclass(slots=True)
class Group:
    members: list[Read]
    seconds: float  # from the moment every member had its partitions

    @property
    def count(self) -> int:
        return sum(member.count for member in self.members)

    @property
    def bytes(self) -> int:
        return sum(member.bytes for member in self.members)


def read(
    bootstrap_servers: str,
    expected: int,
    advance: Callable[[int], None],
    *,
    members: int = 2,
    still_s: float = STILL_SECONDS,
    options: Options = NO_OPTIONS,
) -> Group:
    """Read every record of the flights topic once, by `members` members. Fail at a member's first error, or when no
    record comes for `still_s` seconds.
    """
    configuration = {
        **options,
        "bootstrap.servers": bootstrap_servers,
        "group.id": f"millrace-demo-{uuid4().hex[:12]}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "heartbeat.interval.ms": 500,  # members that join one after the other find together soon
        "fetch.wait.max.ms": 100,
        "check.crcs": True,
    }
    ends = end_offsets(bootstrap_servers, flights.TOPIC, options)
    if sum(ends.values()) != expected:
        raise MismatchError(f"the topic {flights.TOPIC} ends at {sum(ends.values())} records, expected {expected}")
    began = time.monotonic()
    reads = [Read() for _ in range(members)]
    work = _Work(ends, members, Patience(still_s))
    threads = [
        threading.Thread(target=_Member(configuration, number, reads[number], work).run, daemon=True)
        for number in range(members)
    ]
    for thread in threads:
        thread.start()
    shown = 0
    try:
        while any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
            count = sum(member.count for member in reads)
            advance(count - shown)
            shown = count
            work.look(count)
    finally:
        work.stopped = True
        for thread in threads:
            thread.join(LEAVE_SECONDS)
    if work.failure is not None:
        raise work.failure
    group = Group(reads, time.monotonic() - (work.began or began))
    advance(group.count - shown)
    return group


def check(group: Group, expected: Mapping[bytes, int]) -> None:
    """Check for every key exactly once, with the value and the headers that were written, and both members at work."""
    counts: Counter[bytes] = Counter()
    checksums: dict[bytes, int] = {}
    for member in group.members:
        counts.update(member.counts)
        checksums.update(member.checksums)
    lost = expected.keys() - counts.keys()
    extra = counts.keys() - expected.keys()
    twice = [key for key, count in counts.items() if count > 1]
    changed = [key for key in expected.keys() & checksums.keys() if expected[key] != checksums[key]]
    for what, keys in [("lost", lost), ("never written", extra), ("read twice", twice), ("changed", changed)]:
        if keys:
            raise MismatchError(f"{len(keys)} keys {what}, for example {sorted(keys)[:3]}")
    if group.count != len(expected):
        raise MismatchError(f"{group.count} records read, {len(expected)} written")
    headers_missing = sum(member.headers_missing for member in group.members)
    if headers_missing:
        raise MismatchError(f"{headers_missing} records came without their headers")
    idle = [number for number, member in enumerate(group.members) if not member.partitions]
    if idle:
        raise MismatchError(f"group member {idle[0]} was given no partition")


def end_offsets(bootstrap_servers: str, topic: str, options: Options = NO_OPTIONS) -> dict[int, int]:
    """Return the end offset of each partition of a topic."""
    consumer = Consumer({**options, "bootstrap.servers": bootstrap_servers, "group.id": "millrace-demo-ends"})
    try:
        metadata = consumer.list_topics(topic, QUERY_SECONDS).topics[topic]
        if metadata.error is not None:
            raise DemoError(f"the topic {topic}: {metadata.error}")
        partitions = [TopicPartition(topic, partition) for partition in metadata.partitions]
        return {p.partition: consumer.get_watermark_offsets(p, QUERY_SECONDS)[1] for p in partitions}
    except KafkaException as error:
        raise DemoError(f"{bootstrap_servers}: {error.args[0]}") from error
    finally:
        consumer.close()


def position_of(message: Message) -> tuple[int, int]:
    """Return partition and offset, which every consumed record has."""
    partition, offset = message.partition(), message.offset()
    if partition is None or offset is None:
        raise DemoError("a consumed record without partition or offset")
    return partition, offset


class _Work:
    """The state that the members share: the owner of each partition, the ends still to be reached, and whether to
    continue.
    """

    def __init__(self, ends: Mapping[int, int], members: int, patience: Patience) -> None:
        self._ends = ends
        self._patience = patience
        self._lock = threading.Lock()
        self._assigned: list[set[int]] = [set() for _ in range(members)]
        self._reached: set[int] = {partition for partition, end in ends.items() if end == 0}
        self.began: float | None = None
        self.stopped = False
        self.failure: DemoError | None = None

    def assigned(self, member: int, partitions: set[int]) -> None:
        with self._lock:
            self._assigned[member] = partitions

    def shared_out(self) -> bool:
        """Return whether every member has partitions, and every partition a member."""
        with self._lock:
            complete = all(self._assigned) and sorted(p for own in self._assigned for p in own) == sorted(self._ends)
            if complete and self.began is None:
                self.began = time.monotonic()
            return complete

    def reached(self, partition: int, position: int) -> None:
        if position >= self._ends[partition]:
            with self._lock:
                self._reached.add(partition)

    def look(self, count: int) -> None:
        """Fail if the number of records has not grown for too long."""
        if self._patience.is_over(count):
            left = sorted(self._ends.keys() - self._reached)
            self.fail(f"the group reads no more records, and has not reached the end of the partitions {left}")

    def over(self) -> bool:
        return self.stopped or self.failure is not None or len(self._reached) == len(self._ends)

    def fail(self, reason: str) -> None:
        with self._lock:
            self.failure = self.failure or MismatchError(reason)


class _Member:
    """One consumer. It reads once the whole group has its partitions, and commits before it loses them."""

    def __init__(self, configuration: Mapping[str, object], number: int, read: Read, work: _Work) -> None:
        self._number = number
        self._read = read
        self._work = work
        self._positions: dict[int, int] = {}
        self._paused: list[TopicPartition] = []
        self._consumer = Consumer({**configuration, "client.id": f"millrace-demo-member-{number}"})

    def run(self) -> None:
        try:
            self._consumer.subscribe([flights.TOPIC], on_assign=self._on_assign, on_revoke=self._on_revoke)
            while not self._work.over():
                for message in self._consumer.consume(BATCH, POLL_SECONDS):
                    self._take(message)
                for partition, position in self._positions.items():
                    self._work.reached(partition, position)
                if self._paused and self._work.shared_out():
                    self._consumer.resume(self._paused)
                    self._paused = []
            self._commit(self._positions.keys())
        except KafkaException as error:
            self._work.fail(f"group member {self._number}: {error.args[0]}")
        finally:
            self._consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is None:
            self._read.add(message)
            partition, offset = position_of(message)
            self._positions[partition] = offset + 1
        elif not error.retriable():
            raise KafkaException(error)

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        self._paused = partitions
        own = {partition.partition for partition in partitions}
        self._read.partitions = own
        self._work.assigned(self._number, own)

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._work.assigned(self._number, set())
        self._paused = []
        self._commit({partition.partition for partition in partitions})
        consumer.unassign()

    def _commit(self, partitions: Iterable[int]) -> None:
        """Commit the offsets of processed records only: the next owner continues exactly there."""
        offsets = [
            TopicPartition(flights.TOPIC, partition, self._positions[partition])
            for partition in partitions
            if partition in self._positions
        ]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)
            for partition in offsets:
                del self._positions[partition.partition]
