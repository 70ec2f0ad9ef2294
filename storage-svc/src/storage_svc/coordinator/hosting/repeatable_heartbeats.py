"""A heartbeat that the same member repeats with the same bytes over the same connection.

Most heartbeats are such: the group has not changed, and its machine would only start the session again. The caller of
an answered one may keep a `RepeatableHeartbeat` and call that instead of sending the whole heartbeat. It checks
everything that the answer depends on. If any of it has changed, it returns False and starts no session: the caller then
sends the whole heartbeat.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol

from storage_svc.coordinator.classic.events import GroupState, Heartbeat
from storage_svc.coordinator.classic.group import Group
from storage_svc.coordinator.consumer.events import ConsumerHeartbeat
from storage_svc.coordinator.consumer.group import ConsumerGroup, Topics
from storage_svc.coordinator.hosting.timers import Deadline, Timers
from storage_svc.coordinator.machine.group_kind import GroupKind

#: Whether groups of this offsets partition are served now.
Serves = Callable[[int], bool]


class Hosted(Protocol):
    """The place of a group among those that are served (`hosted_group.HostedGroup`)."""

    @property
    def entity(self) -> GroupKind: ...

    partition: int


class RepeatableHeartbeat(ABC):
    """A heartbeat to repeat. Owned by its keeper; refers to the group until then."""

    __slots__ = ("_hosted", "_serves", "_session", "_timeout_ms", "_timers")

    def __init__(self, hosted: Hosted, timers: Timers[Any], session: Deadline, timeout_ms: int, serves: Serves) -> None:
        self._hosted = hosted
        self._timers = timers
        #: Ends with the member, with its group, and when its partition is not served any more.
        self._session = session
        self._timeout_ms = timeout_ms
        self._serves = serves

    def __call__(self, done: Callable[[None], None]) -> bool:
        """Start the session again if the answer is the same, and call `done`. Otherwise return False."""
        if not (self.holds() and self._timers.push_back(self._session, self._timeout_ms)):
            return False
        done(None)
        return True

    def keep_session(self, delay_ms: int) -> None:
        """Let the session last for `delay_ms` from now at least, if it has not ended."""
        self._timers.extend(self._session, delay_ms)

    @abstractmethod
    def holds(self) -> bool:
        """Return whether the answer is still the same."""

    def forget(self) -> None:  # noqa: B027 (a gateway calls it for every kind)
        """Forget the heartbeat; there is nothing kept of it elsewhere."""


class ClassicRepeatableHeartbeat(RepeatableHeartbeat):
    """A heartbeat that a stable classic group answered without an error."""

    __slots__ = ("_group", "_heartbeat")

    def __init__(
        self,
        hosted: Hosted,
        group: Group,
        heartbeat: Heartbeat,
        timers: Timers[Any],
        session: Deadline,
        serves: Serves,
    ) -> None:
        # The timeout changes by a join only, which is a rebalance.
        super().__init__(hosted, timers, session, group.members[heartbeat.member_id].session_timeout_ms, serves)
        self._group = group
        self._heartbeat = heartbeat

    def holds(self) -> bool:
        group, heartbeat = self._group, self._heartbeat
        # mutant: repeated-heartbeat-of-stable-group
        return (
            self._hosted.entity is group
            and group.state is GroupState.STABLE
            and not group.call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
            and self._serves(self._hosted.partition)
        )


class ConsumerRepeatableHeartbeat(RepeatableHeartbeat):
    """A heartbeat whose outcome was quiet.

    A consumer group object changes only in facts that no record holds, which `answers_again` checks. Every other change
    makes a new object.
    """

    __slots__ = ("_connection_id", "_group", "_member_id", "_topics")

    def __init__(
        self,
        hosted: Hosted,
        group: ConsumerGroup,
        heartbeat: ConsumerHeartbeat,
        topics: Topics,
        timers: Timers[Any],
        session: Deadline,
        timeout_ms: int,
        serves: Serves,
    ) -> None:
        super().__init__(hosted, timers, session, timeout_ms, serves)
        self._group = group
        self._member_id = heartbeat.member_id
        self._connection_id = heartbeat.connection_id
        self._topics = topics

    def holds(self) -> bool:
        group = self._group
        # mutant: repeated-heartbeat-without-news
        return (
            self._hosted.entity is group
            and group.answers_again(self._topics.version, self._member_id, self._connection_id)
            and self._serves(self._hosted.partition)
        )
