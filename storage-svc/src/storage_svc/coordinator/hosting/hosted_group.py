"""A group with its place among the groups that this broker hosts."""

from __future__ import annotations

from dataclasses import dataclass

from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.group import ConsumerGroup
from storage_svc.coordinator.hosting.group_write import GroupWrite
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets


@dataclass(slots=True)
class HostedGroup:
    #: Replaced and never changed by the host.
    group: Group | ConsumerGroup
    #: The partition of the offsets topic that holds its records.
    partition: int
    offsets: CommittedOffsets
    #: The newest write of the group's records; None when all have ended.
    write: GroupWrite | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; a classic one may wait for some."""
        return not self.group.members

    @property
    def is_idle(self) -> bool:
        """Whether forgetting the group would lose nothing but its committed offsets."""
        return self.group.is_idle()
