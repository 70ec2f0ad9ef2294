"""An idempotent producer over the pool of the gateway's clients: acks=all, each record with an outcome.

Each borrowed client produces under another identity, a producer id with the next sequence of each partition. A
request that may have been lost is sent again with the same sequences, and storage then keeps one copy.

It asks for no metadata: that could bring back a topic that was deleted, and name addresses that admin-api cannot reach.
aiokafka's producer asks for both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from protocol_lib.client import Partitioner, ProducedPartition
from protocol_lib.records.batch import add_to_sequence, build_batch
from protocol_lib.records.record import Record

from admin_api import errors
from admin_api.kafka_clients import PRODUCE, KafkaClient, KafkaClients
from admin_api.new_records import NewRecord, Stored

Outcome = Stored | errors.ApiError

#: Sending a batch: how often, and for how many seconds to wait before the second time, twice as long before the third.
ATTEMPTS = 4
BACKOFF_S = 0.1
#: Characters of a broker's reason that a report has.
_MESSAGE_MAX = 500
#: The wait of storage for a disk, in milliseconds: Kafka's default of request.timeout.ms.
_TIMEOUT_MS = 30_000
#: Records of one call that have no key stay together.
_STICKY_BYTES = 1 << 30
#: Partitions of one identity: a new one begins with none.
_SEQUENCES_MAX = 1000

#: Kafka's errors after which the same batch may succeed, and those for which it needs another identity.
_RETRIABLE = frozenset((5, 6, 7, 19, 20, 56))
_LOST_IDENTITY = frozenset((45, 47, 59, 90))
#: REQUEST_TIMED_OUT and NOT_ENOUGH_REPLICAS_AFTER_APPEND.
_MAY_BE_STORED = frozenset((7, 20))


class _Identity:
    __slots__ = ("epoch", "producer_id", "sequences")

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.sequences: dict[tuple[str, int], int] = {}


class Producer:
    """The identities of an application's producers; as many as clients were borrowed at once."""

    def __init__(self, clients: KafkaClients) -> None:
        self._clients = clients
        self._idle: list[_Identity] = []

    async def produce(self, topic: str, partition_count: int, records: Sequence[NewRecord]) -> list[Outcome]:
        """Store the records and return the outcome of each, in order.

        Raises:
            ApiError: there are too many producers at once; no record was sent.
        """
        outcomes: list[Outcome] = [errors.partition_not_found()] * len(records)
        by_partition: dict[int, list[int]] = {}
        partitions, partitioner = range(partition_count), Partitioner(sticky_bytes=_STICKY_BYTES)
        for index, record in enumerate(records):
            partition = record.partition
            if partition is None:
                partition = partitioner.partition(topic, record.key, partitions, 0)
            if partition < partition_count:
                by_partition.setdefault(partition, []).append(index)
        if not by_partition:
            return outcomes
        async with self._clients.borrow(PRODUCE) as client:
            sending = _Sending(client, topic, records, outcomes, self._idle.pop() if self._idle else None)
            await sending.run(by_partition)
            if sending.identity is not None and len(sending.identity.sequences) <= _SEQUENCES_MAX:
                self._idle.append(sending.identity)
        return outcomes


class _Sending:
    """The records of one call, under one identity."""

    def __init__(
        self,
        client: KafkaClient,
        topic: str,
        records: Sequence[NewRecord],
        outcomes: list[Outcome],
        identity: _Identity | None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._records = records
        self._outcomes = outcomes
        self.identity = identity

    async def run(self, by_partition: dict[int, list[int]]) -> None:
        """Send a batch to each partition, and single records where a batch is refused for one of them."""
        alone: list[tuple[int, int]] = []
        for partition, indexes in (await self._send(by_partition)).items():
            alone += [(partition, index) for index in indexes]
        for partition, index in alone:
            await self._send({partition: [index]})

    async def _send(self, pending: dict[int, list[int]]) -> dict[int, list[int]]:
        """Send batches until each has an outcome. Return those of several records that were refused."""
        refused: dict[int, list[int]] = {}
        pending = dict(pending)
        fault: errors.ApiError | None = None
        in_doubt: set[int] = set()
        for attempt in range(ATTEMPTS):
            if attempt:
                await asyncio.sleep(BACKOFF_S * 2 ** (attempt - 1))
            try:
                answers = await self._exchange(pending)
            except errors.ApiError as error:
                fault = error  # mutant: doubt-keeps-identity
                in_doubt |= pending.keys()  # mutant: sent-batches-in-doubt
                continue
            for answer in answers:
                partition, code = answer.partition, answer.error_code
                indexes = pending[partition]
                if code == 0:
                    self._stored(answer, indexes)
                elif code in _LOST_IDENTITY:
                    self.identity = None
                    fault = _fault(code)
                    continue
                elif code in _RETRIABLE:
                    fault = _fault(code)
                    in_doubt |= {partition} if code in _MAY_BE_STORED else set()
                    continue
                elif len(indexes) > 1:  # mutant: refusal-of-one-record
                    refused[partition] = indexes
                else:
                    self._outcomes[indexes[0]] = _fault(code, answer.message)
                del pending[partition]
            if self.identity is None:
                # Under another identity storage would not know a batch that it has.
                for partition in in_doubt & pending.keys():
                    self._fail(pending.pop(partition), fault)
            if not pending:
                return refused
        self.identity = None  # its sequences are in doubt
        for indexes in pending.values():
            self._fail(indexes, fault)
        return refused

    def _fail(self, indexes: list[int], fault: errors.ApiError | None) -> None:
        for index in indexes:
            self._outcomes[index] = fault or errors.internal_error()

    async def _exchange(self, pending: dict[int, list[int]]) -> list[ProducedPartition]:
        """Return the answer to each batch."""
        if self.identity is None:
            self.identity = _Identity(*await self._client.new_producer_id())
        batches = {partition: self._batch(self.identity, partition, each) for partition, each in pending.items()}
        answers = await self._client.produce(self._topic, batches, timeout_ms=_TIMEOUT_MS)
        return [answer for answer in answers if answer.partition in pending]

    def _batch(self, identity: _Identity, partition: int, indexes: list[int]) -> bytes:
        records = (self._records[index] for index in indexes)
        return build_batch(
            (
                Record(offset, record.timestamp, record.key, record.value, record.headers)
                for offset, record in enumerate(records)
            ),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=identity.sequences.get((self._topic, partition), 0),
        )

    def _stored(self, answer: ProducedPartition, indexes: list[int]) -> None:
        """Give the records of a stored batch their offsets. -1 is the timestamp of a topic without LogAppendTime."""
        assert self.identity is not None
        place = (self._topic, answer.partition)
        self.identity.sequences[place] = add_to_sequence(self.identity.sequences.get(place, 0), len(indexes))
        for number, index in enumerate(indexes):
            when = self._records[index].timestamp if answer.timestamp == -1 else answer.timestamp
            self._outcomes[index] = Stored(answer.partition, answer.base_offset + number, when)


def _fault(code: int, message: str = "") -> errors.ApiError:
    try:
        errors.check(code, message[:_MESSAGE_MAX])
    except errors.ApiError as error:
        return error
    return errors.internal_error()
