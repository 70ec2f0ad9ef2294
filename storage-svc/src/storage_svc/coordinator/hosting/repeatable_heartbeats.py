"""A heartbeat said again, word for word, by the same member over the same connection.

Most are: nothing has happened to the group, and all that the machines would do is to start the session again. Who has
seen one answered may keep a `RepeatableHeartbeat` of it and call that instead of coming with the whole heartbeat. It
looks at everything the answer depends on and can change, and says False when any of it has: then the heartbeat has to
come whole, and False has done nothing.

Who is too far away to call it each time has it promised: until it is told that the answer holds no more, it answers
itself, and calls afterwards. `HostedGroup.changed` tells, wherever something happens to a group.
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

#: Whether groups of this offsets partition are served now.
Serves = Callable[[int], bool]


class Hosted(Protocol):
    """The place of a group among those that are served (`hosted_groups.HostedGroup`)."""

    group: Group | ConsumerGroup
    partition: int
    promised: dict[RepeatableHeartbeat, Callable[[], None]]


class RepeatableHeartbeat(ABC):
    """Owned by who keeps it; knows the group until then."""

    __slots__ = ("_hosted", "_serves", "_session", "_timeout_ms", "_timers")

    def __init__(self, hosted: Hosted, timers: Timers[Any], session: Deadline, timeout_ms: int, serves: Serves) -> None:
        self._hosted = hosted
        self._timers = timers
        #: Ends with the member, with its group, and when its partition is not served any more.
        self._session = session
        self._timeout_ms = timeout_ms
        self._serves = serves

    def __call__(self) -> bool:
        """True: the answer is what it was, and the session has started again."""
        return self.holds() and self._timers.push_back(self._session, self._timeout_ms)

    def start_session(self, late_ms: int = 0) -> bool:
        """Again, if it has not ended. `late_ms`: how much later than the member says it we may hear it next time."""
        return self._timers.push_back(self._session, self._timeout_ms + late_ms)

    @abstractmethod
    def holds(self) -> bool:
        """Whether the answer is what it was."""

    @property
    def is_promised(self) -> bool:
        return self in self._hosted.promised

    def promise(self, ended: Callable[[], None]) -> None:
        """`ended` is called once, when something has happened after which it does not hold."""
        self._hosted.promised[self] = ended

    def forget(self) -> None:
        """Nobody asks any more."""
        self._hosted.promised.pop(self, None)


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
        return (
            self._hosted.group is group
            and group.state is GroupState.STABLE
            and not group.call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
            and self._serves(self._hosted.partition)
        )


class ConsumerRepeatableHeartbeat(RepeatableHeartbeat):
    """A heartbeat whose outcome was quiet.

    A consumer group never changes but for its memory in no record, which `answers_again` looks at: every other change
    makes another object of it.
    """

    __slots__ = ("_group", "_heartbeat", "_topics")

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
        self._heartbeat = heartbeat
        self._topics = topics

    def holds(self) -> bool:
        group, heartbeat = self._group, self._heartbeat
        return (
            self._hosted.group is group
            and group.answers_again(self._topics.version, heartbeat.member_id, heartbeat.connection_id)
            and self._serves(self._hosted.partition)
        )
