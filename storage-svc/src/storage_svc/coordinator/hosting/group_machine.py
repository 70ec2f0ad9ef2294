"""What the coordinator asks of the host of one kind of group. Adding a kind is a `GroupKind` and one of these."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.classic.events import Commit, Heartbeat, Join
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.consumer.step import ConsumerOutcome
from storage_svc.coordinator.hosting.hosted_group import HostedGroup
from storage_svc.coordinator.hosting.performer import Machine
from storage_svc.coordinator.hosting.repeatable_heartbeats import RepeatableHeartbeat, Serves
from storage_svc.topic_partition import TopicPartition


class GroupMachine(Machine, Protocol):
    """The machine of one kind of group, and the part of its host that knows this kind."""

    def admit(self, hosted: HostedGroup[Any], join: Join, /) -> ErrorCode:
        """Give a JoinGroup the id that a new member gets, or return why no member can join."""
        ...

    def heartbeat(
        self, hosted: HostedGroup[Any], heartbeat: Heartbeat, done: Callable[[ErrorCode], None], serves: Serves, /
    ) -> RepeatableHeartbeat | None:
        """Answer a heartbeat of the classic protocol; return it to be repeated, if that gets the same answer."""
        ...

    def decide(self, hosted: HostedGroup[Any], heartbeat: ConsumerHeartbeat, /) -> ConsumerOutcome:
        """Return the outcome of a heartbeat of KIP-848."""
        ...

    def commit_fault(
        self, hosted: HostedGroup[Any], commit: Commit, partitions: Iterable[TopicPartition], knows_epochs: bool, /
    ) -> ErrorCode:
        """Return why the group does not accept a commit of these partitions; `knows_epochs`: OffsetCommit 9 or newer.

        The group is not forgotten: its offsets follow.
        """
        ...

    def repeated_commit(self, hosted: HostedGroup[Any], commit: Commit, /) -> Callable[[], bool]:
        """Return the check whether the group accepts an accepted commit again, while it is the same object. A member's
        session starts again then."""
        ...

    def fetch_fault(self, hosted: HostedGroup[Any], member_id: str | None, member_epoch: int, /) -> ErrorCode:
        """Return why a member does not get the group's offsets."""
        ...

    def deleted(self, hosted: HostedGroup[Any], /) -> None:
        """Answer the calls that wait for a group that is hosted no more."""
        ...
