"""The committed offsets of the groups this broker hosts, of both protocols: commit, fetch, delete, expire.

A commit is visible, and its caller answered, once its records are durable: all of one commit are one batch. The first
commit makes a group without members; the group is forgotten with its last offset.

Everything runs on one event loop, and every call decides synchronously before it waits: no lock is needed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from protocol_lib.errors import ErrorCode
from protocol_lib.internal.offset_commit import OffsetCommitValue
from protocol_lib.records.record import write_tail
from service_chassis import logs as service_logs

from storage_svc.coordinator.consumer.group import Topics
from storage_svc.coordinator.hosting.deleted_topics import DeletedTopics
from storage_svc.coordinator.hosting.hosted_group import AnyGroup
from storage_svc.coordinator.hosting.hosted_groups import HostedGroups
from storage_svc.coordinator.hosting.repeatable_heartbeats import Serves
from storage_svc.coordinator.limits import CommitRequest, CoordinatorSettings, NewOffset, metadata_fault
from storage_svc.coordinator.repeatable_commits import PARTITIONS_MAX, RepeatableCommit
from storage_svc.coordinator.stored.offset_expiration import (
    expired,
)
from storage_svc.coordinator.stored.records import encode_offset_key, encode_offset_value, group_error
from storage_svc.topic_partition import TopicPartition

log = service_logs.get(__name__)


class GroupFault(Protocol):
    """A function that returns why a group cannot be served now (its name, its partition, a stop); NONE if it can."""

    def __call__(self, group_id: str, *, empty_allowed: bool = False) -> ErrorCode: ...


class GroupOffsets:
    """Owner: the coordinator, on the event loop."""

    def __init__(
        self,
        hosted: HostedGroups,
        settings: CoordinatorSettings,
        topics: Topics,
        deleted_topics: DeletedTopics,
        partition_exists: Callable[[str, int], bool],
        wall_clock_ms: Callable[[], int],
        group_fault: GroupFault,
        room_fault: Callable[[], ErrorCode],
        serves: Serves,
    ) -> None:
        self._hosted = hosted
        self._groups = hosted.by_id
        self._settings = settings
        self._topics = topics
        self._deleted_topics = deleted_topics
        self._partition_exists = partition_exists
        self._now_ms = wall_clock_ms
        self._group_fault = group_fault
        #: The reason why no group can be made.
        self._room_fault = room_fault
        self._serves = serves

    def commit(self, request: CommitRequest, done: Callable[[Sequence[ErrorCode]], None]) -> RepeatableCommit | None:
        """Commit offsets; `done` gets one code per offset, in order, once the accepted ones are durable in one batch.

        Returns:
            The commit to repeat with other offsets, if `will_repeat` and all offsets were accepted.
        """
        missing = [self._missing(each) for each in request.offsets]  # mutant: missing-partition-first
        hosted, error = self._host(request)
        if hosted is None:
            done([each or error for each in missing])
            return None
        error = self._member_fault(hosted, request)
        limits = [metadata_fault(each.metadata, self._settings) for each in request.offsets]
        errors = [each or error or limit for each, limit in zip(missing, limits, strict=True)]
        now_ms = self._now_ms()  # wall clock: commit and expiry times of offsets, which are stored
        accepted = accepted_offsets(request, errors, self._topics, now_ms)
        if not accepted:
            self._hosted.forget_if_unused(hosted)
            done(errors)
            return None
        self._write(hosted, accepted, errors, now_ms, done)
        if not request.will_repeat or request.retention_time_ms >= 0:
            return None
        if not len(request.offsets) == len(accepted) <= PARTITIONS_MAX:
            return None
        return RepeatableCommit(
            hosted,
            request.caller,
            accepted,
            hosts=self._hosted,
            topics=self._topics,
            serves=self._serves,
            now_ms=self._now_ms,
        )

    def _host(self, request: CommitRequest) -> tuple[AnyGroup | None, ErrorCode]:
        """Return the group, which a commit by no member makes; or the error."""
        error = self._group_fault(request.group_id, empty_allowed=True)
        hosted = self._groups.get(request.group_id)
        if not error and hosted is None:
            if request.caller.generation_id < 0:
                error = self._room_fault()
            elif request.knows_epochs:
                error = ErrorCode.GROUP_ID_NOT_FOUND
            else:
                error = ErrorCode.ILLEGAL_GENERATION
        return (None, error) if error else (hosted or self._hosted.host(request.group_id), error)

    def _member_fault(self, hosted: AnyGroup, request: CommitRequest) -> ErrorCode:
        """Return why the group does not accept this commit."""
        partitions = ((each.topic, each.partition) for each in request.offsets)
        machine = self._hosted.performer.machine_of(hosted)
        return machine.commit_fault(hosted, request.caller, partitions, request.knows_epochs)

    def _write(
        self,
        hosted: AnyGroup,
        accepted: dict[TopicPartition, OffsetCommitValue],
        errors: Sequence[ErrorCode],
        now_ms: int,
        done: Callable[[Sequence[ErrorCode]], None],
    ) -> None:
        def written(code: int) -> None:
            outcome = group_error(code)
            done([fault or outcome for fault in errors])

        group_id = hosted.entity.group_id
        tails = [
            write_tail(encode_offset_key(group_id, *key), encode_offset_value(value)) for key, value in accepted.items()
        ]
        self._hosted.write_offsets(hosted, accepted, tails, now_ms, written)

    def fetch(
        self,
        group_id: str,
        wanted: Sequence[TopicPartition] | None,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> tuple[ErrorCode, list[tuple[TopicPartition, OffsetCommitValue | None]]]:
        """Return committed offsets in the order wanted; all of the group's, sorted, for None."""
        error = self._group_fault(group_id, empty_allowed=True)
        hosted = self._groups.get(group_id)
        if not error and hosted is not None:
            error = self._hosted.performer.machine_of(hosted).fetch_fault(hosted, member_id, member_epoch)
        if error:
            return error, []
        offsets = {} if hosted is None else hosted.offsets.durable
        keys = sorted(offsets) if wanted is None else wanted
        is_current = self._deleted_topics.is_current
        found = ((key, offsets.get(key)) for key in keys)
        shown = [(key, None if value is None or not is_current(key, value) else value) for key, value in found]
        return ErrorCode.NONE, shown if wanted is not None else [each for each in shown if each[1] is not None]

    def unstable(self, group_id: str) -> Container[TopicPartition]:
        """Return the partitions of which open transactions have committed an offset of the group."""
        hosted = self._groups.get(group_id)
        return () if hosted is None else hosted.offsets.unstable

    async def delete(self, group_id: str, keys: Sequence[TopicPartition]) -> tuple[ErrorCode, list[ErrorCode]]:
        """Delete offsets, and return the group's error, or one code per offset once they are gone for good. An offset
        that was not there counts as gone.

        KIP-496: while the group has members, only offsets of topics that none of them subscribes to can be deleted.
        """
        error = self._group_fault(group_id)
        hosted = self._groups.get(group_id)
        if error or hosted is None:
            return error or ErrorCode.GROUP_ID_NOT_FOUND, []
        if error := hosted.entity.deletion_fault():
            return error, []
        subscribed = hosted.entity.subscribed_topics()
        errors = [self._deletion_fault(topic, partition, subscribed) for topic, partition in keys]
        known = set(hosted.offsets.keys())
        due = [key for key, fault in zip(keys, errors, strict=True) if not fault and key in known]
        gone: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._hosted.delete_offsets(hosted, list(dict.fromkeys(due)), gone.set_result)
        outcome = group_error(await asyncio.shield(gone))  # it is set without its caller, too
        return ErrorCode.NONE, [fault or outcome for fault in errors]

    def _deletion_fault(self, topic: str, partition: int, subscribed: set[str] | None) -> ErrorCode:
        if not self._partition_exists(topic, partition):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if subscribed is None or topic in subscribed:
            return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        return ErrorCode.NONE

    def topic_deleted(self) -> None:
        """Begin to forget the committed offsets of deleted topics. Clients no longer get them."""
        self._deleted_topics.sweep()

    def _missing(self, offset: NewOffset) -> ErrorCode:
        """Return the fault of an offset of no partition, which comes before those of group and member (Kafka)."""
        exists = self._partition_exists(offset.topic, offset.partition)
        return ErrorCode.NONE if exists else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retention_check_interval_ms / 1000)
            try:
                self.expire()
            except Exception:
                log.exception("expiring offsets failed")

    def expire(self) -> None:
        """Forget offsets that are due, and empty groups that hold none."""
        now_ms, retention_ms = self._now_ms(), self._settings.offsets_retention_ms
        for hosted in list(self._groups.values()):
            offsets = hosted.offsets
            due = expired(hosted.entity, offsets.durable, retention_ms, now_ms)
            # One that is being committed again stays: its tombstone would come after the new commit in the log.
            due = [key for key in due if not offsets.is_pending(key)]
            forgotten = self._hosted.delete_offsets(hosted, due)
            self._hosted.delete_if_unused(hosted)
            if forgotten:
                log.info("expired committed offsets", group=hosted.entity.group_id, offsets=forgotten)


def accepted_offsets(
    request: CommitRequest, errors: Sequence[ErrorCode], topics: Topics, now_ms: int
) -> dict[TopicPartition, OffsetCommitValue]:
    """Return the values to write of those offsets of a request that have no error."""
    expire_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    accepted = {}
    for each, error in zip(request.offsets, errors, strict=True):
        topic = topics.get(each.topic)
        if not error and topic is not None:
            accepted[each.topic, each.partition] = OffsetCommitValue(
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata or "",
                commit_timestamp=now_ms,
                expire_timestamp=expire_ms,
                topic_id=topic.id,
            )
    return accepted
