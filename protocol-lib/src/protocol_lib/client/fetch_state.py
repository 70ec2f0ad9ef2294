"""What a consumer knows of each partition it reads: where it is, and what was fetched and not handed over yet. Pure."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from protocol_lib.client.errors import KafkaError
from protocol_lib.client.metadata import TopicPartition
from protocol_lib.records.record import Header, Record


@dataclass(slots=True)
class ConsumerRecord:
    """One record; its timestamp is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


@dataclass(slots=True)
class Fetched:
    """What one fetch brought of a partition; its records are decoded as they are taken."""

    records: Iterator[Record]
    size: int
    #: where the next fetch begins: behind the last batch, whatever it holds
    next_offset: int
    leader_epoch: int


class PartitionState:
    """One assigned partition. The `position` is the offset of the record that is handed over next."""

    def __init__(self, place: TopicPartition) -> None:
        self.place = place
        self.position: int | None = None
        #: of the record before the position
        self.leader_epoch = -1
        self.is_paused = False
        #: the offset after what was fetched; None while there is no position
        self.fetch_offset: int | None = None
        self.buffered_bytes = 0
        #: raised when the consumer comes to this place
        self.fault: KafkaError | None = None
        #: nothing is asked about it before
        self.not_before = 0.0
        #: a timestamp whose offset is to become the position
        self.reset_to: int | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: the replica that the leader wants to be asked, and until when
        self._replica: tuple[int, float] | None = None
        #: counts the times that it went elsewhere: what was fetched for an earlier place is not wanted any more
        self.journey = 0
        self._buffered: deque[Fetched] = deque()

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        self._leave()
        self.position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch

    def reset(self, timestamp: int) -> None:
        """The position is that of a timestamp, once it is known."""
        self._leave()
        self.position = self.fetch_offset = None
        self.reset_to = timestamp

    def stop(self, fault: KafkaError) -> None:
        """Nothing more is fetched; who comes to this place hears why. The position, if there is one, stays."""
        self._leave()
        self.fetch_offset = None
        self.fault = fault

    def prefer(self, node_id: int, until: float) -> None:
        """The leader says that this replica is nearer (KIP-392)."""
        self._replica = node_id, until

    def forget_replica(self) -> bool:
        """Back to the leader; whether it was another node that was asked."""
        replica, self._replica = self._replica, None
        return replica is not None

    def replica(self, now: float) -> int | None:
        """The node to ask instead of the leader."""
        if self._replica is not None and now >= self._replica[1]:
            self._replica = None
        return None if self._replica is None else self._replica[0]

    def add(self, fetched: Fetched) -> None:
        self._buffered.append(fetched)
        self.buffered_bytes += fetched.size
        self.fetch_offset = fetched.next_offset

    @property
    def has_something(self) -> bool:
        return bool(self._buffered) or self.fault is not None

    def take(self, count: int) -> list[ConsumerRecord]:
        """Up to so many records; the position moves behind them. Raises what went wrong at this place, once."""
        taken: list[ConsumerRecord] = []
        topic, partition = self.place
        while self._buffered and len(taken) < count:
            fetched = self._buffered[0]
            try:
                for record in fetched.records:
                    taken.append(
                        ConsumerRecord(
                            topic,
                            partition,
                            record.offset,
                            record.timestamp,
                            record.key,
                            record.value,
                            record.headers,
                        )
                    )
                    if len(taken) == count:
                        break
                else:
                    self._drop_first()
                    self.position = fetched.next_offset
                    self.leader_epoch = fetched.leader_epoch
                    continue
            except KafkaError as fault:
                self.stop(fault)  # nothing behind a broken batch is read before a seek
            break
        if taken and self._is_inside(taken[-1]):
            self.position = taken[-1].offset + 1
        if not taken and self.fault is not None:
            raised, self.fault = self.fault, None
            raise raised
        return taken

    def _is_inside(self, last: ConsumerRecord) -> bool:
        return self.position is None or self.position <= last.offset

    def _drop_first(self) -> None:
        self.buffered_bytes -= self._buffered.popleft().size

    def _leave(self) -> None:
        self.journey += 1
        self._buffered.clear()
        self.buffered_bytes = 0
        self.fault = None
        self.reset_to = None
