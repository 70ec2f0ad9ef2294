"""A group with its place among the groups that this broker hosts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from storage_svc.coordinator.hosting.entity_write import EntityWrite
from storage_svc.coordinator.machine.group_kind import GroupKind
from storage_svc.coordinator.stored.committed_offsets import CommittedOffsets

GroupT_co = TypeVar("GroupT_co", bound=GroupKind, covariant=True)


@dataclass(slots=True)
class HostedGroup(Generic[GroupT_co]):
    """The `performer.Hosted` of a group. Owner: the coordinator, on the event loop."""

    #: The group. Replaced and never changed by the host.
    entity: GroupT_co
    #: The partition of the offsets topic that holds its records.
    partition: int
    offsets: CommittedOffsets
    #: The newest write of the group's records; None when all have ended.
    write: EntityWrite | None = None
    #: The group's id.
    key: str = field(init=False)

    def __post_init__(self) -> None:
        self.key = self.entity.group_id

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members; a classic one may wait for some."""
        return not self.entity.members

    @property
    def is_idle(self) -> bool:
        """Whether forgetting the group would lose nothing but its committed offsets."""
        return self.entity.is_idle()


#: A group of any kind.
AnyGroup = HostedGroup[GroupKind]
