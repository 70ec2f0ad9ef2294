"""The range assignor: each topic's partitions, in order, are cut into one run per subscriber.

Static members come first, by their instance id, then the others by member id, so that names keep their partitions over
restarts. The first ones get one partition more where the count does not divide. Topics with as many partitions and the
same subscribers are cut alike: their equal partitions meet at one member. Earlier assignments do not count.
Kafka: RangeAssignor.
"""

from __future__ import annotations

from storage_svc.coordinator.consumer.assignors.group_view import Assignment, GroupView


def assign(group: GroupView) -> Assignment:
    def rank(member_id: str) -> tuple[bool, str]:
        instance_id = group.members[member_id].instance_id
        return (True, member_id) if instance_id is None else (False, instance_id)

    subscribers: dict[bytes, list[str]] = {}
    ordered = sorted(group.members, key=rank)
    for member_id in ordered:
        for topic_id in group.members[member_id].topic_ids:
            subscribers.setdefault(topic_id, []).append(member_id)
    assignment: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in ordered}
    for topic_id, member_ids in subscribers.items():
        share, extra = divmod(group.partition_counts[topic_id], len(member_ids))
        start = 0
        for index, member_id in enumerate(member_ids):
            end = start + share + (index < extra)
            if start < end:
                assignment[member_id][topic_id] = frozenset(range(start, end))
            start = end
    return assignment
