"""Members of consumer groups, one class for each stock Python client, driven in the same way.

Every member lives in a thread that polls all the time, as an application's does. That thread handles the requests of a
test between two polls. Its records and assignments are collected for the test.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, ClassVar, TypeVar

from support.late import Late, aiokafka, confluent, kafka_python

from tests.support.waiting import until

cooperative_sticky = Late("kafka.coordinator.assignors.cooperative_sticky")
range_assignor = Late("kafka.coordinator.assignors.range")

TIMEOUT_S = 60.0
POLL_S = 0.05
HEARTBEAT_MS = 100
FETCH_MS = 100
SESSION_MS = 6000

#: The reason why a member of the consumer protocol is not asked for cooperative rebalances.
ALWAYS_COOPERATIVE = "Not the client's choice: the broker assigns, and members keep the partitions they still own"

_Value = TypeVar("_Value")


class Member(ABC):
    """One consumer of one topic in a group; `auto.offset.reset` is earliest, nothing is committed by itself."""

    #: The client's name and protocol, as docs/clients.md has them.
    title: ClassVar[str]
    #: Abilities that the client lacks, and why: `static`, `cooperative` or `seek`.
    lacks: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self, bootstrap: str, topic: str, group: str, *, instance: str | None = None, cooperative: bool = False
    ) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.group = group
        self.instance = instance
        self.cooperative = cooperative
        #: Partitions it owns, a new set each time, and the client's reports of it: ("assigned" or "revoked",
        #: partitions).
        self.owned: set[int] = set()
        self.reports: list[tuple[str, frozenset[int]]] = []
        #: (partition, offset, value), in the order of arrival.
        self.received: list[tuple[int, int, int]] = []
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._is_asked = False
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # --- the actions of a test -----------------------------------------------------------------------------------

    def until_owned(self, count: int) -> None:
        until(lambda: self._alive() and len(self.owned) == count, lambda: (count, self.reports))

    def until_received(self, count: int) -> None:
        until(lambda: self._alive() and len(self.received) >= count, lambda: (count, len(self.received)))

    def values(self) -> list[int]:
        return sorted(value for _, _, value in self.received)

    def pause(self, partition: int) -> None:
        self._do(lambda: self._pause(partition))

    def resume(self, partition: int) -> None:
        self._do(lambda: self._resume(partition))

    def seek(self, partition: int, offset: int) -> None:
        self._do(lambda: self._seek(partition, offset))

    def commit(self) -> None:
        """Commit the received records."""
        self._do(self._commit)

    def lag(self) -> dict[int, int]:
        """End offset minus committed offset of each partition it owns."""
        return self._do(lambda: {each: self._end(each) - self._committed(each) for each in sorted(self.owned)})

    def begin_to_close(self) -> None:
        self._ended.set()

    def close(self) -> None:
        """Leave the group, unless it is static: then it only goes."""
        self.begin_to_close()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive()
        self._alive()

    # --- its thread -----------------------------------------------------------------------------------------------

    def _do(self, call: Callable[[], _Value]) -> _Value:
        self._is_asked = True
        done: Future[_Value] = Future()
        self._asked.put((call, done))
        return done.result(TIMEOUT_S)

    def _alive(self) -> bool:
        if self._failure is not None:
            raise AssertionError("the member failed") from self._failure
        return True

    def _run(self) -> None:
        try:
            self._start()
            try:
                while not self._ended.is_set():
                    self.received.extend(self._poll())
                    while not self._asked.empty():
                        self._answer(*self._asked.get())
            finally:
                self._stop()
        except BaseException as failure:
            self._failure = failure

    def _answer(self, call: Callable[[], Any], done: Future[Any]) -> None:
        try:
            done.set_result(call())
        except Exception as failure:
            done.set_exception(failure)

    def _assigned(self, partitions: Iterable[int]) -> None:
        new = frozenset(partitions)
        self.owned = self.owned | new
        self.reports.append(("assigned", new))

    def _revoked(self, partitions: Iterable[int]) -> None:
        gone = frozenset(partitions)
        self.owned = self.owned - gone
        self.reports.append(("revoked", gone))

    @abstractmethod
    def _start(self) -> None: ...
    @abstractmethod
    def _poll(self) -> list[tuple[int, int, int]]: ...
    @abstractmethod
    def _stop(self) -> None: ...
    @abstractmethod
    def _pause(self, partition: int) -> None: ...
    @abstractmethod
    def _resume(self, partition: int) -> None: ...
    @abstractmethod
    def _seek(self, partition: int, offset: int) -> None: ...
    @abstractmethod
    def _commit(self) -> None: ...
    @abstractmethod
    def _committed(self, partition: int) -> int: ...
    @abstractmethod
    def _end(self, partition: int) -> int: ...


class ConfluentMember(Member):
    title = "confluent-kafka (librdkafka), classic"

    def _settings(self) -> dict[str, object]:
        return {
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": HEARTBEAT_MS,
            "partition.assignment.strategy": "cooperative-sticky" if self.cooperative else "range",
        }

    def _start(self) -> None:
        self._consumer = confluent.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": FETCH_MS,
                **self._settings(),
                **({} if self.instance is None else {"group.instance.id": self.instance}),
            }
        )
        self._consumer.subscribe(
            [self.topic],
            on_assign=lambda _, partitions: self._assigned(each.partition for each in partitions),
            on_revoke=lambda _, partitions: self._revoked(each.partition for each in partitions),
        )

    def _place(self, partition: int, *offset: int) -> confluent.TopicPartition:
        return confluent.TopicPartition(self.topic, partition, *offset)

    def _poll(self) -> list[tuple[int, int, int]]:
        records = self._consumer.consume(100, POLL_S)
        assert [record.error() for record in records if record.error()] == []
        return [(record.partition(), record.offset(), int(record.value())) for record in records]

    def _stop(self) -> None:
        self._consumer.close()

    def _pause(self, partition: int) -> None:
        self._consumer.pause([self._place(partition)])

    def _resume(self, partition: int) -> None:
        self._consumer.resume([self._place(partition)])

    def _seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._place(partition, offset))

    def _commit(self) -> None:
        positions = self._consumer.position([self._place(each) for each in self.owned])
        self._consumer.commit(offsets=[each for each in positions if each.offset >= 0], asynchronous=False)

    def _committed(self, partition: int) -> int:
        return int(self._consumer.committed([self._place(partition)], TIMEOUT_S)[0].offset)

    def _end(self, partition: int) -> int:
        return int(self._consumer.get_watermark_offsets(self._place(partition), TIMEOUT_S)[1])


class ConfluentConsumerProtocolMember(ConfluentMember):
    title = "confluent-kafka (librdkafka), consumer"
    lacks: ClassVar[Mapping[str, str]] = {"cooperative": ALWAYS_COOPERATIVE}

    def _settings(self) -> dict[str, object]:
        return {"group.protocol": "consumer"}


class KafkaPythonMember(Member):
    """A member whose polls are long until a request comes. kafka-python 3.0.12 forgets its assignment if a poll ends
    between the answers to JoinGroup and to SyncGroup.
    """

    title = "kafka-python, classic"
    _FIRST_POLL_S = 1.0

    def _start(self) -> None:
        member = self

        class Listener(kafka_python.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: set[kafka_python.TopicPartition]) -> None:
                member._assigned(each.partition for each in assigned)

            def on_partitions_revoked(self, revoked: set[kafka_python.TopicPartition]) -> None:
                if revoked:  # it also tells of none, before the first assignment
                    member._revoked(each.partition for each in revoked)

        self._consumer = kafka_python.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            group_instance_id=self.instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            fetch_max_wait_ms=FETCH_MS,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            partition_assignment_strategy=[
                cooperative_sticky.CooperativeStickyAssignor
                if self.cooperative
                else range_assignor.RangePartitionAssignor
            ],
        )
        self._consumer.subscribe([self.topic], listener=Listener())

    def _place(self, partition: int) -> kafka_python.TopicPartition:
        return kafka_python.TopicPartition(self.topic, partition)

    def _poll(self) -> list[tuple[int, int, int]]:
        seconds = POLL_S if self._is_asked else self._FIRST_POLL_S
        found = self._consumer.poll(timeout_ms=int(seconds * 1000))
        return [(each.partition, each.offset, int(each.value)) for records in found.values() for each in records]

    def _stop(self) -> None:
        self._consumer.close()

    def _pause(self, partition: int) -> None:
        self._consumer.pause(self._place(partition))

    def _resume(self, partition: int) -> None:
        self._consumer.resume(self._place(partition))

    def _seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(self._place(partition), offset)

    def _commit(self) -> None:
        self._consumer.commit()

    def _committed(self, partition: int) -> int:
        return int(self._consumer.committed(self._place(partition)) or 0)

    def _end(self, partition: int) -> int:
        return int(self._consumer.end_offsets([self._place(partition)])[self._place(partition)])


class AiokafkaMember(Member):
    title = "aiokafka, classic"
    lacks: ClassVar[Mapping[str, str]] = {"cooperative": "aiokafka has no cooperative assignor"}

    def _start(self) -> None:
        member = self

        class Listener(aiokafka.abc.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: set[aiokafka.TopicPartition]) -> None:
                member._assigned(each.partition for each in assigned)

            def on_partitions_revoked(self, revoked: set[aiokafka.TopicPartition]) -> None:
                if revoked:
                    member._revoked(each.partition for each in revoked)

        async def start() -> aiokafka.AIOKafkaConsumer:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap,
                group_id=self.group,
                group_instance_id=self.instance,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                fetch_max_wait_ms=FETCH_MS,
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )
            consumer.subscribe([self.topic], listener=Listener())
            await consumer.start()
            return consumer

        self._runner = asyncio.Runner()
        self._consumer = self._await(start())

    def _await(self, coroutine: Coroutine[Any, Any, _Value]) -> _Value:
        return self._runner.run(coroutine)

    def _in_loop(self, call: Callable[[], None]) -> None:
        async def made() -> None:
            call()

        self._await(made())

    def _place(self, partition: int) -> aiokafka.TopicPartition:
        return aiokafka.TopicPartition(self.topic, partition)

    def _poll(self) -> list[tuple[int, int, int]]:
        found = self._await(self._consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [(each.partition, each.offset, int(each.value)) for records in found.values() for each in records]

    def _stop(self) -> None:
        self._await(self._consumer.stop())
        self._runner.close()

    def _pause(self, partition: int) -> None:
        self._in_loop(lambda: self._consumer.pause(self._place(partition)))

    def _resume(self, partition: int) -> None:
        self._in_loop(lambda: self._consumer.resume(self._place(partition)))

    def _seek(self, partition: int, offset: int) -> None:
        self._in_loop(lambda: self._consumer.seek(self._place(partition), offset))

    def _commit(self) -> None:
        self._await(self._consumer.commit())

    def _committed(self, partition: int) -> int:
        return self._await(self._consumer.committed(self._place(partition))) or 0

    def _end(self, partition: int) -> int:
        place = self._place(partition)
        return int(self._await(self._consumer.end_offsets([place]))[place])


MEMBERS: tuple[type[Member], ...] = (
    ConfluentMember,
    ConfluentConsumerProtocolMember,
    KafkaPythonMember,
    AiokafkaMember,
)
