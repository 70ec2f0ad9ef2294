"""The task that empties the accumulator: it puts ready batches into Produce requests, one request per leader with a
batch of each of its partitions, and processes the answers.

A request is written in the same step in which its batches leave their queues, so the batches in flight to a leader are
in order. The answers come by callback. `wake` signals the task that there may be something to do.
"""

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import Final

from protocol_lib.api import ApiKey
from protocol_lib.client.accumulator import IN_FLIGHT_MAX, Accumulator, Batch, PartitionQueue
from protocol_lib.client.backoff import Backoff
from protocol_lib.client.cluster import Cluster
from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import (
    BrokerError,
    ClientClosedError,
    DeliveryTimeoutError,
    InvalidResponseError,
    KafkaError,
    UnsupportedByBrokerError,
    broker_error,
)
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.client.rounds import Rounds
from protocol_lib.errors import ErrorCode, ProtocolError
from protocol_lib.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from protocol_lib.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from protocol_lib.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from protocol_lib.schema import ZERO_UUID

#: The last version that names topics, and the first that carries record batches.
_BY_NAME: Final = 12
_WITH_BATCHES: Final = 3

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
#: The broker lost, or never had, the state that a batch's number needs: the partition goes on under a new epoch.
_SEQUENCE_LOST: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID})


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Settings of deliveries. Times are in milliseconds."""

    acks: int
    timeout_ms: int
    linger_ms: int
    request_bytes: int
    idempotent: bool


class Sender:
    def __init__(self, cluster: Cluster, accumulator: Accumulator, delivery: Delivery) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._delivery = delivery
        self._rounds = Rounds(self._send_what_is_due, self._break)
        self._connecting: set[int] = set()
        self._backoffs: dict[int, Backoff] = defaultdict(lambda: Backoff(cluster.settings))
        #: time before which nothing is sent to a node
        self._node_not_before: dict[int, float] = {}
        self._in_flight: dict[int, int] = defaultdict(int)
        self._producer_id = NO_PRODUCER_ID
        self._producer_epoch = NO_PRODUCER_EPOCH
        self._identifying = False
        self._loop = asyncio.get_running_loop()
        #: error of every call from now on, after a bug in this class
        self.broken: KafkaError | None = None
        #: number of flushes under way; while above 0, no batch waits to be filled
        self.flushing = 0

    def start(self) -> None:
        self._cluster.on_metadata(self._rounds.wake)
        self._rounds.start()

    def wake(self) -> None:
        self._rounds.wake()

    async def stop(self) -> None:
        """Stop; records without acknowledgement by now fail."""
        await self._rounds.stop()
        for queue in self._accumulator.queues.values():
            fault = ClientClosedError(f"{queue.topic_partition}: the producer was closed")
            for batch in list(queue.queued):  # a producer that starts again does not send them
                self._give_up(queue, batch, fault)
            for batch in queue.in_flight:
                self._fail(batch, fault)

    def _break(self, fault: Exception) -> None:
        """Fail all records, and every later call: a bug of ours must not leave a caller waiting."""
        self.broken = KafkaError(f"the producer is broken: {fault!r}")
        self.broken.__cause__ = fault
        for batch in list(self._accumulator.incomplete):
            self._fail(batch, self.broken)  # mutant: failed-batch-memory

    def _send_what_is_due(self, now: float) -> float | None:
        """Return after how many seconds there may be more to do, None for not by itself."""
        if self._delivery.idempotent and self._producer_id == NO_PRODUCER_ID and self._accumulator.queues:
            if not self._identifying:
                self._identifying = True
                self._rounds.help(self._identify())
            due = self._expire(now)
            return None if due is None else max(0.0, due - now)
        return self._send_what_is_ready(now)

    async def _identify(self) -> None:
        """Get a producer id, for as long as it takes."""
        backoff = Backoff(self._cluster.settings)
        while True:
            try:
                response: InitProducerIdResponse = await self._cluster.any_request(
                    InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
                )
                fault: KafkaError | None = None
                if response.error_code:
                    fault = broker_error(response.error_code, "InitProducerId")
            except KafkaError as error:
                fault = error
            if fault is None:
                self._producer_id, self._producer_epoch = response.producer_id, response.producer_epoch
                self._identifying = False
                self._rounds.wake()
                return
            if not fault.retriable:
                for batch in list(self._accumulator.incomplete):
                    self._give_up(self._accumulator.queues[batch.topic_partition], batch, fault)
            await backoff.wait()

    # -- sending

    def _send_what_is_ready(self, now: float) -> float | None:
        """Send; returns after how many seconds there may be more to send, None for not by itself."""
        next_deadline = self._expire(now)
        wake_at = [] if next_deadline is None else [next_deadline]
        linger_s = 0.0 if self.flushing else self._delivery.linger_ms / 1000
        by_node: dict[int, list[PartitionQueue]] = defaultdict(list)
        leaderless = False
        for queue in self._accumulator.queues.values():
            if queue.has_gap and queue.close_gap():
                self._producer_id = NO_PRODUCER_ID
                self._rounds.wake()
                return 0
            if queue.queued and queue.queued[0].not_before > now:
                wake_at.append(queue.queued[0].not_before)
                continue
            batch = queue.sendable(
                now,
                idempotent=self._delivery.idempotent or self._delivery.acks == 0,
                producer_id=self._producer_id,
            )
            if batch is None:
                continue
            if len(queue.queued) == 1 and not self._accumulator.is_ready(batch, now, linger_s):
                wake_at.append(batch.created + linger_s)
                continue
            node_id = self._cluster.metadata.leader(queue.topic_partition)
            if node_id is None:
                leaderless = True
                batch.not_before = now + self._cluster.settings.retry_backoff_ms / 1000
                wake_at.append(batch.not_before)
            else:
                by_node[node_id].append(queue)
        if leaderless:
            self._cluster.refresh_soon()
        for node_id, queues in by_node.items():
            not_before = self._node_not_before.get(node_id, 0)
            if not_before > now:
                wake_at.append(not_before)
            else:
                self._send_to(node_id, queues)
        return max(0.0, min(wake_at) - now) if wake_at else None

    def _send_to(self, node_id: int, queues: list[PartitionQueue]) -> None:
        connection = self._cluster.open_connection(node_id)
        if connection is None:
            self._connect(node_id)
            return
        while queues and self._in_flight[node_id] < IN_FLIGHT_MAX and connection.is_writable:
            batches, left, size = list[Batch](), list[PartitionQueue](), 0
            for queue in queues:
                head = queue.queued[0]
                if batches and size + head.builder.size > self._delivery.request_bytes:
                    left.append(queue)
                    continue
                size += head.builder.size
                batches.append(queue.take(self._producer_id, self._producer_epoch))
            self._send(connection, node_id, batches)
            queues = left
        if queues and not connection.is_writable:
            self._rounds.help(self._when_writable(connection))

    def _send(self, connection: Connection, node_id: int, batches: list[Batch]) -> None:
        self._in_flight[node_id] += 1
        names: dict[bytes, str] | None = None
        try:
            request, version = self._request(connection, batches)
            if version > _BY_NAME:
                names = {topic.topic_id: topic.name for topic in request.topic_data}
            # After the delivery timeout an answer would come too late for every batch of the request.
            timeout_ms = min(self._cluster.settings.request_timeout_ms, self._delivery.timeout_ms)
            future = connection.submit(request, version, timeout_ms=timeout_ms, answered=self._delivery.acks != 0)
        except ProtocolError as fault:
            future = self._loop.create_future()
            future.set_exception(fault)
        future.add_done_callback(partial(self._on_answer, node_id, batches, names))

    def _request(self, connection: Connection, batches: list[Batch]) -> tuple[ProduceRequest, int]:
        topic_id = self._cluster.metadata.topic_id
        named: dict[str, list[PartitionProduceData]] = defaultdict(list)
        for batch in batches:
            topic, index = batch.topic_partition
            named[topic].append(PartitionProduceData(index=index, records=batch.encoded()))
        every_id = all(topic_id(topic) != ZERO_UUID for topic in named)
        request = ProduceRequest(
            acks=self._delivery.acks,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=tuple(
                TopicProduceData(name=topic, topic_id=topic_id(topic), partition_data=tuple(data))
                for topic, data in named.items()
            ),
        )
        version = connection.version_for(ApiKey.PRODUCE, None if every_id else _BY_NAME)
        if version < _WITH_BATCHES:
            raise UnsupportedByBrokerError(f"{connection.address} serves Produce up to version {version}")
        return request, version

    def _connect(self, node_id: int) -> None:
        if node_id not in self._connecting:
            self._connecting.add(node_id)
            self._rounds.help(self._connect_then_wake(node_id))

    async def _connect_then_wake(self, node_id: int) -> None:
        try:
            await self._cluster.connection(node_id)
            self._backoffs[node_id].reset()
        except KafkaError as fault:
            self._node_not_before[node_id] = self._loop.time() + self._backoffs[node_id].next_delay()
            if not fault.retriable:
                self._refuse_all_of(node_id, fault)
            else:
                self._cluster.refresh_soon()
        finally:
            self._connecting.discard(node_id)
            self._rounds.wake()

    async def _when_writable(self, connection: Connection) -> None:
        await connection.writable()
        self._rounds.wake()

    # -- answers

    def _on_answer(
        self,
        node_id: int,
        batches: list[Batch],
        names: dict[bytes, str] | None,
        future: "asyncio.Future[ProduceResponse | None]",
    ) -> None:
        try:
            self._answered(node_id, batches, names, future)
        except Exception as fault:
            self._break(fault)

    def _answered(
        self,
        node_id: int,
        batches: list[Batch],
        names: dict[bytes, str] | None,
        future: "asyncio.Future[ProduceResponse | None]",
    ) -> None:
        """Process an answer, whose topics have these names by id; None when it names them itself."""
        self._in_flight[node_id] -= 1
        self._rounds.wake()
        if future.cancelled():
            return
        fault = future.exception()
        if fault is not None:
            self._node_not_before[node_id] = self._loop.time() + self._backoffs[node_id].next_delay()
            for batch in batches:
                self._failed(batch, fault if isinstance(fault, KafkaError) else KafkaError(str(fault)))
            self._cluster.refresh_soon()
            return
        self._backoffs[node_id].reset()
        response = future.result()
        if response is None:
            for batch in batches:
                self._succeeded(batch, -1, -1)
            return
        # mutant: topic-ids-of-request
        answers = {
            TopicPartition(topic.name if names is None else names.get(topic.topic_id, ""), answer.index): answer
            for topic in response.responses
            for answer in topic.partition_responses
        }
        for batch in batches:
            answer = answers.get(batch.topic_partition)
            if answer is None:
                self._failed(batch, InvalidResponseError(f"{batch.topic_partition}: not in the answer"))
            else:
                self._judge(batch, answer)

    def _judge(self, batch: Batch, answer: PartitionProduceResponse) -> None:
        code = ErrorCode.of(answer.error_code)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._succeeded(batch, answer.base_offset, answer.log_append_time_ms)
            return
        queue = self._accumulator.queues[batch.topic_partition]
        if code in _TOO_LARGE and len(batch) > 1 and not batch.is_done:
            self._accumulator.split(queue, batch)
            return
        if answer.current_leader is not None:
            leader = answer.current_leader
            self._cluster.metadata.set_leader(batch.topic_partition, leader.leader_id, leader.leader_epoch)
        messages = [each.batch_index_error_message for each in answer.record_errors if each.batch_index_error_message]
        self._failed(batch, broker_error(code, str(batch.topic_partition), answer.error_message or "; ".join(messages)))

    def _succeeded(self, batch: Batch, base_offset: int, log_append_time_ms: int) -> None:
        self._accumulator.queues[batch.topic_partition].acknowledge(batch)
        if not batch.is_done:
            batch.succeed(base_offset, log_append_time_ms)
            self._accumulator.release(batch.reserved)

    def _failed(self, batch: Batch, fault: KafkaError) -> None:
        """Send a batch again where that may help, else give it up."""
        queue = self._accumulator.queues[batch.topic_partition]
        code = fault.code if isinstance(fault, BrokerError) else None
        lost = batch.base_sequence != NO_SEQUENCE and code in _SEQUENCE_LOST
        if batch.is_done or not (lost or fault.retriable):
            self._give_up(queue, batch, fault)
            return
        if lost and queue.is_oldest(batch):
            queue.is_missing = True  # mutant: missing-batch-renumbered
        queue.put_back(batch)
        batch.not_before = self._loop.time() + self._cluster.settings.retry_backoff_ms / 1000
        if code is not None and code.means_stale_metadata:
            self._cluster.refresh_soon()

    def _give_up(self, queue: PartitionQueue, batch: Batch, fault: KafkaError) -> None:
        queue.give_up(batch)
        self._fail(batch, fault)

    def _fail(self, batch: Batch, fault: KafkaError) -> None:
        if not batch.is_done:
            batch.fail(fault)
            self._accumulator.release(batch.reserved)

    def _expire(self, now: float) -> float | None:
        """Give up batches that are not delivered in time; returns when the next batch is due.

        The answer to one that is in flight arrives later, when no caller waits for it."""
        due: float | None = None
        for queue in self._accumulator.queues.values():
            while queue.queued and queue.queued[0].deadline <= now:
                head = queue.queued[0]
                fault = DeliveryTimeoutError(f"{queue.topic_partition}: not delivered in time, in {head.tries} tries")
                self._give_up(queue, head, fault)
            for batch in queue.in_flight:
                if batch.deadline <= now:
                    self._fail(batch, DeliveryTimeoutError(f"{queue.topic_partition}: no answer in time"))
                elif not batch.is_done:
                    due = batch.deadline if due is None else min(due, batch.deadline)
            if queue.queued:
                due = queue.queued[0].deadline if due is None else min(due, queue.queued[0].deadline)
        return due

    def _refuse_all_of(self, node_id: int, fault: KafkaError) -> None:
        """Give up all batches for a node that refuses this client."""
        for batch in list(self._accumulator.incomplete):
            if self._cluster.metadata.leader(batch.topic_partition) == node_id:
                queue = self._accumulator.queues[batch.topic_partition]
                if batch not in queue.in_flight:
                    self._give_up(queue, batch, fault)
