"""Records that are stored through aiokafka's producer: idempotent, acks=all, each record with an outcome.

A producer serves one topic as it was when it started, one call at a time. After any failure it is not used again, for
aiokafka would go on with the sequence numbers after those that failed. It runs in an event loop and a thread of its
own: aiokafka sends a batch again for as long as its broker is away, and has no call to give one up. The end of the loop
does, so that no record is sent any more once it is reported as failed.

Only the routes of records import this module: aiokafka takes 5 MB.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.errors import BrokerResponseError, KafkaError, kafka_errors
from aiokafka.partitioner import DefaultPartitioner
from service_chassis.address import Address

from admin_api import errors
from admin_api.idle import Idle
from admin_api.kafka_clients import CLIENT_ID, PRODUCE, KafkaClients, unreachable
from admin_api.new_records import NewRecord, Stored

Outcome = Stored | errors.ApiError

#: Seconds for which a batch is sent again, and those of an idle producer.
DELIVERY_S = 20.0
IDLE_S = 10.0
#: Seconds for an idle producer to close its connections.
_STOP_S = 1.0
#: Bytes of a batch: the caller bounds them, and the topic.
_BATCH_BYTES_MAX = 1 << 30
#: Kafka's errors of a producer that the broker does not know any more: the batch is not to blame.
_LOST_IDENTITY = frozenset((45, 46, 47, 59, 90))

_partition_of = DefaultPartitioner()
# It logs every try, hundreds a second while a broker is away. The outcome of each record is in its report.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class InvalidRecordError(BrokerResponseError):  # type: ignore[misc]  # aiokafka has no types
    """One that the broker has validated: aiokafka does not know this code of Kafka's."""

    errno = 87
    message = "INVALID_RECORD"


kafka_errors.setdefault(InvalidRecordError.errno, InvalidRecordError)


class Target(NamedTuple):
    """A topic as storage described it to the request."""

    name: str
    topic_id: bytes
    partition_count: int


class Producers:
    """The producers of an application: as many as PRODUCE allows at once, and as many idle ones."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._idle: Idle[_Producer] = Idle(_Producer.end, count_max=PRODUCE.clients_max, idle_s=IDLE_S)
        clients.on_stop.append(self._idle.close)

    async def produce(self, target: Target, records: Sequence[NewRecord]) -> list[Outcome]:
        """Store the records and return the outcome of each, in order.

        Raises:
            ApiError: there are too many producers at once; no record was sent.
        """
        outcomes: list[Outcome] = [errors.partition_not_found()] * len(records)
        by_partition: dict[int, list[int]] = {}
        partitions = range(target.partition_count)
        sticky = [random.choice(partitions)]  # as Kafka's producers: records without a key stay together
        for index, record in enumerate(records):
            partition = record.partition
            if partition is None:
                partition = _partition_of(record.key, partitions, sticky)
            if partition < target.partition_count:
                by_partition.setdefault(partition, []).append(index)
        if not by_partition:
            return outcomes
        async with self._clients.borrow(PRODUCE):
            alone = await self._deliver(target, records, by_partition, outcomes)
            while alone:
                partition, index = alone.popleft()
                await self._deliver(target, records, {partition: [index]}, outcomes)
                outcome = outcomes[index]
                if isinstance(outcome, errors.ApiError) and outcome.status_code == 503:  # it is not the record's fault
                    for _, index in alone:
                        outcomes[index] = outcome
                    break
        return outcomes

    async def _deliver(
        self,
        target: Target,
        records: Sequence[NewRecord],
        by_partition: Mapping[int, list[int]],
        outcomes: list[Outcome],
    ) -> deque[tuple[int, int]]:
        """Send a batch to each partition, and write the outcomes. Return the records of a batch that was refused for
        one of them: each is to be sent alone.
        """
        answers = await self._answers(
            target, {partition: [records[index] for index in each] for partition, each in by_partition.items()}
        )
        alone: deque[tuple[int, int]] = deque()
        for partition, indexes in by_partition.items():
            answer = answers[partition]
            if len(indexes) > 1 and _is_refusal(answer):  # mutant: refusal-of-one-record
                alone += [(partition, index) for index in indexes]
            for number, index in enumerate(indexes):
                if isinstance(answer, Exception):
                    outcomes[index] = _fault(answer)
                else:
                    when = records[index].timestamp if answer.timestamp == -1 else answer.timestamp
                    outcomes[index] = Stored(partition, answer.offset + number, when)
        return alone

    async def _answers(self, target: Target, batches: Mapping[int, Sequence[NewRecord]]) -> dict[int, Any]:
        """Return the metadata of each partition's batch, or the reason why it is not stored, or may not be."""
        producer, is_good = self._idle.take(lambda idle: idle.target == target), False
        try:
            async with asyncio.timeout(DELIVERY_S):
                if producer is None:
                    producer = _Producer(target, self._clients.addresses, self._clients.timeout_s)
                    await producer.start()
                answers = await producer.send(batches)
            is_good = not any(isinstance(answer, Exception) for answer in answers.values())
            return answers
        except TimeoutError:
            return dict.fromkeys(batches, errors.ApiError(503, 50003, "The gateway did not answer in time."))
        except KafkaError as error:
            return dict.fromkeys(batches, _fault(error))
        finally:
            if producer is not None and is_good and not self._clients.stopped:
                self._idle.put(producer)
            elif producer is not None:
                producer.end()  # mutant: failure-ends-producer
                await producer.ended()


class _Producer:
    """One of aiokafka's producers, in its own loop. `start`, `send` and `ended` are awaited in the caller's."""

    def __init__(self, target: Target, addresses: Sequence[Address], timeout_s: float) -> None:
        self.target = target
        self._addresses = [str(address) for address in addresses]
        self._timeout_ms = max(1, int(timeout_s * 1000))
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._over = self._loop.create_future()
        #: Whether batches may be without an answer.
        self._under_way = False

    async def start(self) -> None:
        """Connect. Raises KafkaError if no gateway can be reached."""
        threading.Thread(target=self._run, name="producer", daemon=True).start()
        await asyncio.wrap_future(self._started)

    async def send(self, batches: Mapping[int, Sequence[NewRecord]]) -> dict[int, Any]:
        """Return the metadata of each partition's batch, or the KafkaError that says why it is not stored."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._send(batches), self._loop))

    def end(self) -> None:
        """Send nothing any more."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._over.cancel)

    async def ended(self) -> None:
        await asyncio.wrap_future(self._ended)

    def _run(self) -> None:
        try:
            with contextlib.suppress(asyncio.CancelledError), self._runner as runner:
                runner.run(self._main())
        finally:
            self._ended.set_result(None)

    async def _main(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self._addresses,
            client_id=CLIENT_ID,
            enable_idempotence=True,
            acks="all",
            max_batch_size=_BATCH_BYTES_MAX,
            request_timeout_ms=self._timeout_ms,
        )
        running = asyncio.current_task()
        assert running is not None
        self._over.add_done_callback(lambda _: running.cancel())
        try:
            await producer.start()
            self._producer = producer
            self._started.set_result(None)
            await self._over
        except Exception as error:
            if not self._started.done():
                self._started.set_exception(error)
        finally:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0 if self._under_way else _STOP_S):  # what is under way is given up
                    await producer.stop()

    async def _send(self, batches: Mapping[int, Sequence[NewRecord]]) -> dict[int, Any]:
        topic = self.target.name
        self._under_way = True
        known = await self._producer.partitions_for(topic)
        sent = {}
        for partition in batches.keys() & known:
            batch = self._producer.create_batch()
            for record in batches[partition]:
                batch.append(
                    timestamp=record.timestamp, key=record.key, value=record.value, headers=list(record.headers)
                )
            sent[partition] = await self._producer.send_batch(batch, topic, partition=partition)
        answers = await asyncio.gather(*sent.values(), return_exceptions=True)
        self._under_way = False
        return {**dict.fromkeys(batches, errors.partition_not_found()), **dict(zip(sent, answers, strict=True))}


def _is_refusal(answer: Any) -> bool:
    return isinstance(answer, BrokerResponseError) and not answer.retriable and answer.errno not in _LOST_IDENTITY


def _fault(error: Exception) -> errors.ApiError:
    if isinstance(error, errors.ApiError):
        return error
    if not isinstance(error, BrokerResponseError):
        return unreachable()
    try:
        errors.check(error.errno)
    except errors.ApiError as answer:
        return answer
    return errors.internal_error()
