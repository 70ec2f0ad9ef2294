"""The markers of ended transactions on their way to the partitions: some at a time, and again until each is written.

A marker that cannot be written now (its partition loads, its disk fails) is written again after `RETRY_S`. Until it is
there, consumers with read_committed wait. Only a deleted partition, and one in which a newer producer epoch or
coordinator has written, need it no more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from protocol_lib.errors import ErrorCode
from service_chassis import logs as service_logs

from storage_svc.topic_partition import TopicPartition
from storage_svc.transaction_ports import Marker, MarkerWriter

log = service_logs.get(__name__)

#: Seconds until a marker that could not be written is written again (Kafka's coordinators wait 100 ms to 1 s).
RETRY_S: Final = 0.5
#: Markers begun in one turn of the event loop: some milliseconds of work.
_STEP: Final = 50
#: Markers under way at a time. One sync may end all of them, and the last one of a transaction completes it.
_UNDER_WAY_MAX: Final = 300
#: Codes after which the partition needs the marker no more.
_FINAL: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    )
)


@dataclass(slots=True, eq=False)
class _Delivery:
    transactional_id: str
    marker: Marker
    #: The number of partitions that are not settled.
    left: int
    #: Partitions that are settled, and that the coordinator does not know of yet.
    settled: list[TopicPartition] = field(default_factory=list)
    #: Partitions that have refused the marker, once or more often.
    refused: set[TopicPartition] = field(default_factory=set)
    is_over: bool = False


class MarkerDelivery:
    """All markers under way. Owner: the transaction coordinator, on the event loop."""

    def __init__(self, settled: Callable[[str, frozenset[TopicPartition]], None]) -> None:
        """Call `settled` with a transactional id and partitions that have their marker, or need none."""
        self._loop = asyncio.get_running_loop()
        self._writer: MarkerWriter | None = None
        self._settled = settled
        self._by_id: dict[str, _Delivery] = {}
        self._waiting: deque[tuple[_Delivery, TopicPartition]] = deque()
        self._under_way = 0
        self._is_scheduled = False

    def __len__(self) -> int:
        """Return the number of transactional ids with markers under way."""
        return len(self._by_id)

    def start(self, writer: MarkerWriter) -> None:
        self._writer = writer

    def begin(self, transactional_id: str, marker: Marker, partitions: frozenset[TopicPartition]) -> None:
        """Write the marker to the partitions, from the next turn on."""
        delivery = self._by_id[transactional_id] = _Delivery(transactional_id, marker, len(partitions))
        self._waiting.extend((delivery, each) for each in sorted(partitions))
        self._schedule()

    def forget(self, transactional_id: str) -> None:
        """Write no more markers of this transactional id, and report none."""
        if (delivery := self._by_id.pop(transactional_id, None)) is not None:
            delivery.is_over = True

    def close(self) -> None:
        """Write no more markers: the next start writes them."""
        for transactional_id in list(self._by_id):
            self.forget(transactional_id)

    def _schedule(self) -> None:
        if not self._is_scheduled and self._waiting and self._under_way < _UNDER_WAY_MAX:
            self._is_scheduled = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._is_scheduled = False
        for _ in range(_STEP):
            if not self._waiting or self._under_way >= _UNDER_WAY_MAX:
                break
            delivery, partition = self._waiting.popleft()
            if not delivery.is_over:
                self._write(delivery, partition)
        self._schedule()

    def _write(self, delivery: _Delivery, partition: TopicPartition) -> None:
        self._under_way += 1
        done = partial(self._written, delivery, partition)
        assert self._writer is not None  # no marker is due before the start
        try:
            self._writer.write(partition, delivery.marker, done)
        except Exception:  # a bug; the transaction must end all the same
            log.exception("marker failed", transactional_id=delivery.transactional_id, partition=partition)
            done(ErrorCode.UNKNOWN_SERVER_ERROR)

    def _written(self, delivery: _Delivery, partition: TopicPartition, error: ErrorCode) -> None:
        self._under_way -= 1
        self._schedule()
        if delivery.is_over:
            return
        if error not in _FINAL:
            say = log.debug if partition in delivery.refused else log.warning  # mutant: refused-marker-said-once
            delivery.refused.add(partition)
            say(
                "marker is written again later",
                transactional_id=delivery.transactional_id,
                partition=partition,
                error_code=error,
            )
            self._loop.call_later(RETRY_S, self._again, delivery, partition)
            return
        if error:
            log.info(
                "marker is not needed",
                transactional_id=delivery.transactional_id,
                partition=partition,
                error_code=error,
            )
        if not delivery.settled:
            self._loop.call_soon(self._report, delivery)
        delivery.settled.append(partition)
        delivery.left -= 1

    def _again(self, delivery: _Delivery, partition: TopicPartition) -> None:
        self._waiting.append((delivery, partition))
        self._schedule()

    def _report(self, delivery: _Delivery) -> None:
        settled, delivery.settled = frozenset(delivery.settled), []
        if delivery.is_over:
            return
        if not delivery.left:
            self.forget(delivery.transactional_id)
        self._settled(delivery.transactional_id, settled)
