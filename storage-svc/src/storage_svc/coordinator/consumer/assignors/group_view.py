"""The input and the output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from storage_svc.coordinator.consumer.member import Partitions

#: member id -> its partitions. A member that is missing shall have none.
Assignment = Mapping[str, Partitions]


@dataclass(frozen=True, slots=True)
class MemberView:
    instance_id: str | None
    #: Topics it subscribes to, those that exist.
    topic_ids: Set[bytes]
    #: The partitions that the assignment before gave it.
    previous: Partitions


@dataclass(frozen=True, slots=True)
class GroupView:
    """Members in the order in which ties are broken, and how many partitions each topic has."""

    members: Mapping[str, MemberView]
    partition_counts: Mapping[bytes, int]
    #: All members subscribe to the same topics.
    is_homogeneous: bool
