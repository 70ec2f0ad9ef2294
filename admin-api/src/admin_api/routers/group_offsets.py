"""Committed offsets of consumer groups, moved, copied and deleted; and groups deleted."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from broker_contract import administration_pb2, groups_pb2
from broker_contract.acls import Operation
from fastapi import FastAPI, Request
from service_chassis.http import audit

from admin_api import errors, groups, offset_targets
from admin_api.needs import Calls, in_body, on_group, on_topic
from admin_api.rights import GROUP as GROUP_KIND
from admin_api.rights import TOPIC
from admin_api.routers.operations import Operations
from admin_api.schemas.administration import (
    CommittedOffset,
    CommittedOffsets,
    CopyRequest,
    OffsetChange,
    OffsetChanges,
    ResetRequest,
    RestoreRequest,
)
from admin_api.storage import EARLIEST, LATEST, StorageCalls
from admin_api.view import GroupId, TopicName

GROUP = "/api/v1/consumer-groups/{consumer_group_id}"
#: Partitions of one change: more are changed by topic.
PARTITIONS_MAX = 10_000

TopicPartition = tuple[str, int]
_Offset = administration_pb2.AlterOffsetsRequest.Offset
_Committed = dict[TopicPartition, groups_pb2.FetchOffsetsResponse.Offset]


def add_operations(app: FastAPI) -> None:
    operations = Operations(app, "Consumer groups (api/v1)")
    moves = on_group(Operation.READ) & in_body("READ topic")
    operations.add(
        "POST",
        f"{GROUP}/offsets:reset",
        "resetConsumerGroupOffsets",
        reset_group_offsets,
        needs=moves,
    )
    operations.get(
        f"{GROUP}/offsets", "listConsumerGroupOffsets", list_group_offsets, needs=on_group(Operation.DESCRIBE)
    )
    operations.add(
        "POST",
        f"{GROUP}/offsets:restore",
        "restoreConsumerGroupOffsets",
        restore_group_offsets,
        needs=moves,
    )
    operations.add(
        "POST",
        f"{GROUP}/offsets:copy",
        "copyConsumerGroupOffsets",
        copy_group_offsets,
        needs=on_group(Operation.DESCRIBE) & in_body("READ group, READ topic"),
    )
    operations.add(
        "DELETE",
        f"{GROUP}/offsets/{{topic_name}}",
        "deleteConsumerGroupOffsets",
        delete_group_offsets,
        status_code=204,
        needs=on_group(Operation.DELETE) & on_topic(Operation.READ),
    )
    operations.add(
        "DELETE", GROUP, "deleteConsumerGroup", delete_group, status_code=204, needs=on_group(Operation.DELETE)
    )


async def reset_group_offsets(
    calls: Calls, consumer_group_id: GroupId, given: ResetRequest, request: Request
) -> OffsetChanges:
    """Move the committed offsets of a group without members (409), or with dry_run say how they would move."""
    audit.note(request, topic=given.topic, to=given.to, dry_run=given.dry_run)
    if given.partitions is not None and given.topic is None:
        raise errors.of_status(400, "body.partitions: name the topic too")
    if given.topic is not None:
        await calls.rights.require((Operation.READ, TOPIC, given.topic))
    await _check_empty(calls, consumer_group_id, may_be_absent=given.topic is not None)
    committed = await _committed(calls, consumer_group_id)
    partitions = await _partitions(calls, given, committed)
    before = {pair: offset.offset for pair, offset in committed.items()}
    # wall clock: a duration before now, as record timestamps are
    after = await offset_targets.targets(calls, given, partitions, before, time.time_ns() // 1_000_000)
    if not given.dry_run:  # mutant: dry-run-changes-nothing
        await calls.alter_offsets(
            consumer_group_id,
            [
                _Offset(topic=topic, partition=partition, offset=offset, leader_epoch=-1)
                for (topic, partition), offset in after.items()
            ],
        )
    return _changes(consumer_group_id, before, after, dry_run=given.dry_run)


async def list_group_offsets(calls: Calls, consumer_group_id: GroupId) -> CommittedOffsets:
    """List the committed offsets of a group with its lags. They can be kept, and restored later."""
    committed = await _committed(calls, consumer_group_id)
    if not committed:
        await groups.describe(calls, consumer_group_id)
    _check_count(len(committed))
    pairs = sorted(committed)
    found = await calls.offsets([(*pair, kind) for pair in pairs for kind in (EARLIEST, LATEST)])
    (ages,) = await calls.lag_times([consumer_group_id])
    rows = []
    for pair, earliest, latest in zip(pairs, found[::2], found[1::2], strict=True):
        each, is_known = committed[pair], not (earliest.error_code or latest.error_code)
        rows.append(
            CommittedOffset(
                topic_name=pair[0],
                partition_id=pair[1],
                offset=each.offset,
                leader_epoch=each.leader_epoch,
                metadata=each.metadata,
                log_start_offset=earliest.offset if is_known else None,
                log_end_offset=latest.offset if is_known else None,
                lag=max(0, latest.offset - each.offset) if is_known else None,
                lag_seconds=ages.get(pair),
            )
        )
    return CommittedOffsets(consumer_group_id=consumer_group_id, data=rows)


async def restore_group_offsets(
    calls: Calls, consumer_group_id: GroupId, given: RestoreRequest, request: Request
) -> OffsetChanges:
    """Commit offsets that were listed before, for a group without members (409), which need not exist."""
    audit.note(request, dry_run=given.dry_run)
    after = {(each.topic_name, each.partition_id): each for each in given.offsets}
    if len(after) != len(given.offsets):
        raise errors.of_status(400, "body.offsets: a partition is given twice")
    names = sorted({each.topic_name for each in given.offsets})
    await calls.rights.require(*[(Operation.READ, TOPIC, name) for name in names])
    for name in names:
        count = (await calls.topic(name)).partition_count
        if max(partition for topic, partition in after if topic == name) >= count:
            raise errors.partition_not_found()
    await _check_empty(calls, consumer_group_id, may_be_absent=True)
    before = {pair: offset.offset for pair, offset in (await _committed(calls, consumer_group_id)).items()}
    if not given.dry_run:  # mutant: restore-dry-run
        await calls.alter_offsets(
            consumer_group_id,
            [
                _Offset(
                    topic=topic,
                    partition=partition,
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                )
                for (topic, partition), each in sorted(after.items())
            ],
        )
    moved = {pair: each.offset for pair, each in sorted(after.items())}
    return _changes(consumer_group_id, before, moved, dry_run=given.dry_run)


async def copy_group_offsets(
    calls: Calls, consumer_group_id: GroupId, given: CopyRequest, request: Request
) -> OffsetChanges:
    """Commit a group's offsets for another group, which has no members (409) and need not exist."""
    audit.note(request, to=given.to, topic=given.topic, dry_run=given.dry_run)
    await calls.rights.require((Operation.READ, GROUP_KIND, given.to))
    committed = await _committed(calls, consumer_group_id)
    chosen = {pair: each for pair, each in sorted(committed.items()) if given.topic in (None, pair[0])}
    if not chosen:
        await groups.describe(calls, consumer_group_id)
        raise errors.not_found("The consumer group has committed no offset there.")
    _check_count(len(chosen))
    await _check_empty(calls, given.to, may_be_absent=True)
    before = {pair: offset.offset for pair, offset in (await _committed(calls, given.to)).items()}
    if not given.dry_run:
        await calls.alter_offsets(
            given.to,
            [
                _Offset(
                    topic=topic,
                    partition=partition,
                    offset=each.offset,
                    leader_epoch=each.leader_epoch,
                    metadata=each.metadata,
                )
                for (topic, partition), each in chosen.items()
            ],
        )
    return _changes(given.to, before, {pair: each.offset for pair, each in chosen.items()}, dry_run=given.dry_run)


async def delete_group_offsets(calls: Calls, consumer_group_id: GroupId, topic_name: TopicName) -> None:
    """Delete the committed offsets of a topic that no member of the group reads (409)."""
    committed = await _committed(calls, consumer_group_id)
    partitions = [pair for pair in sorted(committed) if pair[0] == topic_name]
    if not partitions:
        await groups.describe(calls, consumer_group_id)
        raise errors.not_found("The consumer group has committed no offset there.")
    await calls.delete_offsets(consumer_group_id, partitions)


async def delete_group(calls: Calls, consumer_group_id: GroupId) -> None:
    """Delete a group without members (409), with its committed offsets."""
    await calls.delete_group(consumer_group_id)


async def _check_empty(calls: StorageCalls, group_id: str, *, may_be_absent: bool) -> None:
    """Raise ApiError if the group has members, or if there is none and must be one."""
    try:
        group = await groups.describe(calls, group_id)
    except errors.ApiError as error:
        if may_be_absent and error.error_code == 40405:
            return
        raise
    if group.state != "EMPTY":  # mutant: empty-group-only
        count = len(group.members)
        raise errors.has_members(f"The consumer group is {group.state} with {count} members: stop them first.")


async def _committed(calls: StorageCalls, group_id: str) -> _Committed:
    (group,) = await calls.committed_offsets([group_id])
    if group.error_code != errors.GROUP_ID_NOT_FOUND:
        errors.check(group.error_code)
    return {(each.topic, each.partition): each for each in group.offsets if each.offset >= 0 and not each.error_code}


async def _partitions(calls: StorageCalls, given: ResetRequest, committed: _Committed) -> Sequence[TopicPartition]:
    """Return the partitions that the request means, by topic and partition."""
    if given.topic is None:
        if not committed:
            raise errors.not_found("The consumer group has committed no offset.")
        _check_count(len(committed))
        return sorted(committed)
    topic = await calls.topic(given.topic)
    chosen = range(topic.partition_count) if given.partitions is None else sorted(set(given.partitions))
    if chosen and not 0 <= chosen[0] <= chosen[-1] < topic.partition_count:
        raise errors.partition_not_found()
    _check_count(len(chosen))
    return [(topic.name, partition) for partition in chosen]


def _check_count(count: int) -> None:
    if count > PARTITIONS_MAX:
        raise errors.of_status(400, f"These are more than {PARTITIONS_MAX} partitions: name a topic.")


def _changes(
    group_id: str, before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int], *, dry_run: bool
) -> OffsetChanges:
    return OffsetChanges(
        consumer_group_id=group_id,
        dry_run=dry_run,
        data=[
            OffsetChange(topic_name=topic, partition_id=partition, before=before.get((topic, partition)), after=offset)
            for (topic, partition), offset in after.items()
        ],
    )
