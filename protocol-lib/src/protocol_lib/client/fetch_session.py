"""Incremental fetches (KIP-227): broker and client remember which partitions are fetched and from where, and a request
names only changes.

    session id 0, epoch 0      opens a session: a full request; the answer names the session
    session id n, epoch 1, 2…  only partitions that are new or changed, and those to forget
    the broker forgot it       the next request opens a new one

A broker that does not want a session answers with id 0; every request is full then. One per connection; pure.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from protocol_lib.client.metadata import TopicPartition
from protocol_lib.messages.fetch import FetchPartition, FetchTopic, ForgottenTopic
from protocol_lib.schema import ZERO_UUID

_NO_SESSION: Final = 0
_FIRST: Final = 0
_EPOCH_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Position and limit of the fetches of one partition."""

    offset: int
    bytes_max: int
    leader_epoch: int
    topic_id: bytes = ZERO_UUID


class FetchSession:
    def __init__(self) -> None:
        self.session_id = _NO_SESSION
        self.epoch = _FIRST
        self._remembered: dict[TopicPartition, Wanted] = {}

    def request(
        self, wanted: Mapping[TopicPartition, Wanted]
    ) -> tuple[tuple[FetchTopic, ...], tuple[ForgottenTopic, ...]]:
        """Return the contents of the next request, under `session_id` and `epoch`, to fetch these and no other."""
        if self.epoch == _FIRST:
            self._remembered = {}
        changed: dict[tuple[str, bytes], list[FetchPartition]] = defaultdict(list)
        for topic_partition, asked in wanted.items():
            if self._remembered.get(topic_partition) != asked:
                changed[topic_partition.topic, asked.topic_id].append(
                    FetchPartition(
                        partition=topic_partition.partition,
                        current_leader_epoch=asked.leader_epoch,
                        fetch_offset=asked.offset,
                        partition_max_bytes=asked.bytes_max,
                    )
                )
        forgotten: dict[tuple[str, bytes], list[int]] = defaultdict(list)
        for topic_partition, asked in self._remembered.items():
            if topic_partition not in wanted or wanted[topic_partition].topic_id != asked.topic_id:
                forgotten[topic_partition.topic, asked.topic_id].append(topic_partition.partition)
        self._remembered = dict(wanted)
        return (
            tuple(
                FetchTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions))
                for (topic, topic_id), partitions in changed.items()
            ),
            tuple(
                ForgottenTopic(topic=topic, topic_id=topic_id, partitions=tuple(partitions))
                for (topic, topic_id), partitions in forgotten.items()
            ),
        )

    def answered(self, session_id: int) -> None:
        """Advance the epoch: the broker accepted the request."""
        if session_id == _NO_SESSION:
            self.reset()
            return
        self.session_id = session_id
        self.epoch = self.epoch + 1 if self.epoch < _EPOCH_MAX else 1

    def reset(self) -> None:
        """Let the next request open a session: after errors, or on a new connection."""
        self.session_id, self.epoch = _NO_SESSION, _FIRST
        self._remembered = {}
