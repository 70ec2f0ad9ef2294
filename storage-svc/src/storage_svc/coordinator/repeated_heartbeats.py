"""A heartbeat said again, word for word, by the same member over the same connection.

Most are: nothing has happened to the group, and all that the machines would do is to start the session again. Who has
seen one answered may keep a `Repeat` of it and call that instead of coming with the whole heartbeat. It looks at
everything the answer depends on and can change, and says False when any of it has: then the heartbeat has to come
whole, and False has done nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from storage_svc.coordinator.consumer_events import ConsumerHeartbeat
from storage_svc.coordinator.consumer_group import ConsumerGroup, Topics
from storage_svc.coordinator.group import Group
from storage_svc.coordinator.group_events import GroupState, Heartbeat
from storage_svc.coordinator.timers import Deadline, Timers

#: True: the answer is what it was, and the session has started again.
Repeat = Callable[[], bool]
#: Whether groups of this offsets partition are served now.
Serves = Callable[[int], bool]


class Hosted(Protocol):
    """The place of a group among those that are served (`hosted_groups.HostedGroup`)."""

    group: Group | ConsumerGroup
    partition: int


class ClassicRepeat:
    """Of a heartbeat that a stable classic group answered without an error."""

    __slots__ = ("_group", "_heartbeat", "_hosted", "_serves", "_session", "_timers")

    def __init__(
        self,
        hosted: Hosted,
        group: Group,
        heartbeat: Heartbeat,
        timers: Timers[Any],
        session: Deadline,
        serves: Serves,
    ) -> None:
        self._hosted = hosted
        self._group = group
        self._heartbeat = heartbeat
        self._timers = timers
        #: Ends with the member, with its group, and when its partition is not served any more.
        self._session = session
        self._serves = serves

    def __call__(self) -> bool:
        group, heartbeat = self._group, self._heartbeat
        return (
            group.state is GroupState.STABLE
            and self._hosted.group is group
            and not group.call_error(heartbeat.member_id, heartbeat.instance_id, heartbeat.generation_id)
            and self._serves(self._hosted.partition)
            and self._timers.push_back(self._session, group.members[heartbeat.member_id].session_timeout_ms)
        )


class ConsumerRepeat:
    """Of a heartbeat that said nothing new (`consumer_machine.says_nothing_new`).

    A consumer group never changes but for what was learnt of the topics and over which connection its members were
    told: every other change makes another object of it.
    """

    __slots__ = ("_group", "_heartbeat", "_hosted", "_serves", "_session", "_timeout_ms", "_timers", "_topics")

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
        self._hosted = hosted
        self._group = group
        self._heartbeat = heartbeat
        self._topics = topics
        self._timers = timers
        #: As of the classic one.
        self._session = session
        self._timeout_ms = timeout_ms
        self._serves = serves

    def __call__(self) -> bool:
        group, heartbeat = self._group, self._heartbeat
        return (
            self._hosted.group is group
            and group.hashed_version == self._topics.version
            and group.told_over.get(heartbeat.member_id) == heartbeat.connection_id
            and self._serves(self._hosted.partition)
            and self._timers.push_back(self._session, self._timeout_ms)
        )
