"""State of each partition that a consumer reads: its position, and the records fetched and not handed over. Pure."""

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
    #: A key may have bytes that are not UTF-8, as `surrogateescape` keeps them.
    headers: tuple[Header, ...]

    @property
    def size(self) -> int:
        """Bytes of key, value and headers, and letters of their keys."""
        headers = sum([len(name) + len(value or b"") for name, value in self.headers])
        return len(self.key or b"") + len(self.value or b"") + headers


@dataclass(slots=True)
class Fetched:
    """Records of one partition from one fetch, decoded as the application reads them."""

    records: Iterator[Record]
    size: int
    #: offset of the next fetch: after the last batch, even one without records for us
    next_offset: int
    leader_epoch: int


class PartitionState:
    """One assigned partition. The `position` is the offset of the record that is handed over next."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.position: int | None = None
        #: leader epoch of the record before the position
        self.leader_epoch = -1
        self.is_paused = False
        #: offset after the fetched records; None while there is no position
        self.fetch_offset: int | None = None
        self.buffered_bytes = 0
        #: error to raise when the consumer reads on here
        self.fault: KafkaError | None = None
        #: time before which brokers are not asked about it
        self.not_before = 0.0
        #: timestamp whose offset is to become the position
        self.reset_to: int | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        #: the replica that the leader prefers for fetches, and until when
        self._replica: tuple[int, float] | None = None
        #: number of moves: records fetched for an earlier position are not wanted any more
        self.journey = 0
        self._buffered: deque[Fetched] = deque()

    def seek(self, offset: int, leader_epoch: int = -1) -> None:
        self._leave()
        self.position = self.fetch_offset = offset
        self.leader_epoch = leader_epoch

    def reset(self, timestamp: int) -> None:
        """Move to the offset of a timestamp, once it is known."""
        self._leave()
        self.position = self.fetch_offset = None
        self.reset_to = timestamp

    def stop(self, fault: KafkaError) -> None:
        """Fetch nothing more, and raise the error to the next reader. The position, if there is one, stays."""
        self._leave()
        self.fetch_offset = None
        self.fault = fault

    def prefer(self, node_id: int, until: float) -> None:
        """Read from this replica, which the leader calls nearer (KIP-392)."""
        self._replica = node_id, until

    def forget_replica(self) -> bool:
        """Go back to the leader. Returns whether the fetches went to another node."""
        replica, self._replica = self._replica, None
        return replica is not None

    def replica(self, now: float) -> int | None:
        """Return the node to ask instead of the leader."""
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

    def take(self, count: int, bytes_left: int | None) -> tuple[list[ConsumerRecord], int | None]:
        """Return at most `count` records and move the position past them. Raises the error of this partition, once.

        With `bytes_left` they end with the record that reaches it. What the records leave of it is returned, too.
        """
        records: list[ConsumerRecord] = []
        topic, partition = self.topic_partition
        while self._buffered and len(records) < count:
            fetched = self._buffered[0]
            try:
                for record in fetched.records:
                    records.append(
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
                    if bytes_left is not None:
                        bytes_left -= records[-1].size
                    if len(records) == count or (bytes_left is not None and bytes_left <= 0):
                        break
                else:
                    self._drop_first()
                    self.position = fetched.next_offset
                    self.leader_epoch = fetched.leader_epoch
                    continue
            except KafkaError as fault:
                self.stop(fault)  # nothing after a broken batch is read before a seek
            break
        if records and self._is_inside(records[-1]):
            self.position = records[-1].offset + 1
        if not records and self.fault is not None:
            raised, self.fault = self.fault, None
            raise raised
        return records, bytes_left

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
