"""What a host knows of a group of any kind. Each kind is a class with its machine."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from enum import Enum
from typing import Protocol

from protocol_lib.errors import ErrorCode

from storage_svc.coordinator.machine.outcome import Record


class GroupKind(Protocol):
    """A group of any kind. Adding a kind is a class with these members, and a machine."""

    @property
    def group_id(self) -> str:
        """The group's id."""

    @property
    def type_name(self) -> str:
        """Kafka's name of the kind, as ListGroups names it (GroupType). The kind has its machine by it."""

    @property
    def protocol_type(self) -> str:
        """The protocol type; empty until it is known."""

    @property
    def state(self) -> Enum:
        """The state, with Kafka's name of it as the value."""

    @property
    def members(self) -> Sized:
        """The members."""

    @property
    def is_stored(self) -> bool:
        """Whether the log may hold records of the group, besides its offsets."""

    def is_idle(self) -> bool:
        """Return whether forgetting the group would lose nothing but its committed offsets."""

    def tombstones(self) -> Sequence[Record]:
        """Return the records that delete the group from the log, without its offsets."""

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics that members subscribe to; None when nothing may be concluded."""

    def subscribed_patterns(self) -> set[str]:
        """Return the patterns that members subscribe to, as far as the coordinator matches them."""

    def deletion_fault(self) -> ErrorCode:
        """Return why a client may delete no committed offset at all (KIP-496)."""

    def topics_in_use(self) -> set[str] | None:
        """Return the topics of which committed offsets do not expire; None stands for all topics."""

    @property
    def empty_since_ms(self) -> int | None:
        """The wall clock time since when the group has no members, if its offsets expire from then on; else None."""
