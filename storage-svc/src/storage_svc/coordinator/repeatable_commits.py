"""A commit that the same client repeats, of the same partitions, with the same metadata: only the offsets differ.

Most commits are such. The caller of an accepted one may keep a `RepeatableCommit` and call that with the new offsets,
instead of sending the whole commit. It checks everything that decides whether a commit is accepted. If any of that may
have changed, it returns False and commits no offset: the caller then sends the whole commit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from protocol_lib.internal.offset_commit import OffsetCommitValue

from storage_svc.coordinator.classic.events import Commit
from storage_svc.coordinator.consumer.group import Topics
from storage_svc.coordinator.hosting.hosted_group import AnyGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import Serves
from storage_svc.coordinator.stored.records import OffsetTail, group_error
from storage_svc.topic_partition import TopicPartition

#: One of more partitions is not kept: each of them takes some hundred bytes for as long as the client may repeat it.
PARTITIONS_MAX: Final = 16

#: A function that gets Kafka's code of each partition once they are durable; an empty list when all are 0.
Done = Callable[[Sequence[int]], None]


class RepeatableCommit:
    """A commit to repeat. Owned by its keeper; refers to the group until then."""

    __slots__ = (
        "_group",
        "_group_accepts",
        "_hosted",
        "_hosts",
        "_now_ms",
        "_partitions",
        "_serves",
        "_topics",
        "_version",
    )

    def __init__(
        self,
        hosted: AnyGroup,
        commit: Commit,
        accepted: Mapping[TopicPartition, OffsetCommitValue],
        *,
        hosts: HostedGroups,
        topics: Topics,
        serves: Serves,
        now_ms: Callable[[], int],
    ) -> None:
        """Keep a commit; `accepted` is all of it, in its order, without a retention time."""
        self._hosted = hosted
        self._group = hosted.entity
        self._group_accepts = hosts.performer.machine_of(hosted).repeated_commit(hosted, commit)
        self._hosts = hosts
        self._topics = topics
        self._version = topics.version
        self._serves = serves
        self._now_ms = now_ms
        group_id = hosted.key
        self._partitions = [(key, value, OffsetTail(group_id, key, value)) for key, value in accepted.items()]

    def __call__(self, offsets: Sequence[int], done: Done) -> bool:
        """Commit as many offsets as it had, in its order. True: `done` is called once, later or before this returns."""
        if not self._is_accepted():
            return False
        now_ms = self._now_ms()  # wall clock: commit times of offsets, which are stored
        values: dict[TopicPartition, OffsetCommitValue] = {}
        tails: list[bytes] = []
        for (key, like, tail), offset in zip(self._partitions, offsets, strict=True):
            values[key] = OffsetCommitValue(
                offset=offset,
                leader_epoch=like.leader_epoch,
                metadata=like.metadata,
                commit_timestamp=now_ms,
                topic_id=like.topic_id,
            )
            tails.append(tail.at(offset, now_ms))

        def written(code: int) -> None:
            done([group_error(code)] * len(tails) if code else ())

        self._hosts.write_offsets(self._hosted, values, tails, now_ms, written)
        return True

    def forget(self) -> None:
        """Forget the commit; there is nothing kept of it elsewhere."""

    def _is_accepted(self) -> bool:
        """Return whether the whole commit would be accepted, for all its partitions. Its member's session has started
        again then."""
        hosted = self._hosted
        # mutant: short-commit-topics
        if (
            hosted.entity is not self._group
            or self._hosts.by_id.get(hosted.key) is not hosted
            or self._topics.version != self._version
            or not self._serves(hosted.partition)
        ):
            return False
        return self._group_accepts()
