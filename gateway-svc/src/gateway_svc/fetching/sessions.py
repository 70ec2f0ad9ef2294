"""Fetch sessions (KIP-227): a client names its partitions once, later only changes, and its answers hold only changes.

    session id 0, epoch -1     no session: every partition named, every partition answered
    session id 0, epoch 0      the same, and a session is made of it; id 0 in the answer: there is no room for one
    session id n, epoch 0/-1   as above; session n ends
    session id n, epoch k > 0  incremental: `topics` are added or changed, `forgotten` removed; the answer has
                               partitions with records, an error, or a moved high watermark or log start offset

A session lives in the gateway that made it, for one user at one address. All others, and clients of other gateways,
are answered FETCH_SESSION_ID_NOT_FOUND and start again with a full fetch. So does a client whose session grows beyond a
limit.

There are SESSIONS_MAX at most, and SESSION_PARTITIONS_MAX partitions in all of them. A new session replaces the longest
unused one after EVICT_AFTER_S without use. If there is none, it replaces one of the address that holds the most, while
that address holds more than its own: one address can have all sessions only while no other wants one.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeVar

from protocol_lib.errors import ErrorCode
from protocol_lib.messages.fetch import FetchPartition, FetchRequest
from protocol_lib.schema import ZERO_UUID

#: Kafka's max.incremental.fetch.session.cache.slots and min.incremental.fetch.session.eviction.ms.
SESSIONS_MAX = 1000
EVICT_AFTER_S = 120.0
#: Partitions of one session; a fetch of more is answered without one. An incremental fetch of a few bytes costs the
#: work for all of them: a hundredth of a second.
PARTITIONS_MAX: Final = 2000
#: Partitions of all sessions together, which take some 400 bytes each.
SESSION_PARTITIONS_MAX: Final = 100_000

_FINAL_EPOCH = -1
_INITIAL_EPOCH = 0


_Result = TypeVar("_Result")


class Owner(Protocol):
    """The client that a session is made for."""

    @property
    def principal(self) -> str: ...

    @property
    def address(self) -> str: ...


class FetchedPartition:
    """A partition as the client last asked for it, and the offsets in the last answer."""

    __slots__ = ("asked", "high_watermark", "log_start_offset", "name", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: bytes, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        #: The topic's name, also if it is called by its id and its name is forgotten while it is read.
        self.name = None if topic_id != ZERO_UUID and not topic else topic
        self.asked = asked
        self.high_watermark = -1
        self.log_start_offset = -1


#: Topic name, topic id (zeros when by name), partition index.
PartitionKey = tuple[str, bytes, int]


class FetchSession:
    """One client's partitions, in the order they are read."""

    __slots__ = ("address", "by_id", "epoch", "partitions", "principal", "session_id", "used_at")

    def __init__(self, session_id: int, owner: Owner, by_id: bool, now: float) -> None:
        self.session_id = session_id
        self.principal = owner.principal
        self.address = owner.address
        self.by_id = by_id
        #: The epoch of the next incremental request.
        self.epoch = 1
        self.partitions: OrderedDict[PartitionKey, FetchedPartition] = OrderedDict()
        self.used_at = now


class Fetch:
    """The partitions of one request, and the session it belongs to, if any."""

    __slots__ = ("denied", "incremental", "partitions", "session")

    def __init__(self, partitions: list[FetchedPartition], session: FetchSession | None, incremental: bool) -> None:
        self.partitions = partitions
        self.session = session
        self.incremental = incremental
        #: Partitions that the client may not read: they are answered, and not read.
        self.denied: list[FetchedPartition] = []

    def deny(self, may_read: Callable[[FetchedPartition], bool]) -> None:
        """Move partitions that may not be read out of `partitions`."""
        self.denied = [each for each in self.partitions if not may_read(each)]
        if self.denied:
            self.partitions = [each for each in self.partitions if may_read(each)]

    def deny_results(
        self, may_read: Callable[[FetchedPartition], bool], results: Sequence[_Result]
    ) -> tuple[list[int], list[_Result]]:
        """Move partitions that may not be read any more out of `partitions`.

        Returns the indices of those that stay, and their results.
        """
        kept = [index for index, each in enumerate(self.partitions) if may_read(each)]
        if len(kept) < len(self.partitions):
            self.denied = [*self.denied, *(each for each in self.partitions if not may_read(each))]
            self.partitions = [self.partitions[index] for index in kept]
        return kept, [results[index] for index in kept]

    @property
    def session_id(self) -> int:
        """The session's id; 0 without a session."""
        return 0 if self.session is None else self.session.session_id

    def has_changed(
        self, partition: FetchedPartition, high_watermark: int, log_start_offset: int, error_code: int, size: int
    ) -> bool:
        """Return whether the answer has to hold this partition; remember the offsets that the client receives."""
        if self.session is None:
            return True
        if high_watermark < 0 and not error_code and self.incremental:
            return False  # storage did not answer in time: nothing is new
        changed = partition.high_watermark != high_watermark or partition.log_start_offset != log_start_offset
        partition.high_watermark = high_watermark
        partition.log_start_offset = log_start_offset
        if error_code:
            # The next answer holds it, whatever the watermarks are by then.
            partition.high_watermark = -1
        if size:
            # Read last next time, so that every partition has its turn.
            key = (partition.topic, partition.topic_id, partition.asked.partition)
            if key in self.session.partitions:
                self.session.partitions.move_to_end(key)
        return changed or bool(error_code) or size > 0 or not self.incremental


class _Share:
    """The sessions of one address."""

    __slots__ = ("partitions", "sessions")

    def __init__(self, sessions: int = 0, partitions: int = 0) -> None:
        self.sessions = sessions
        self.partitions = partitions

    @property
    def weight(self) -> float:
        """The share of the sessions or the partitions that there may be, whichever is larger."""
        return max(self.sessions / SESSIONS_MAX, self.partitions / SESSION_PARTITIONS_MAX)


class FetchSessions:
    """All sessions of one gateway; the longest unused first."""

    def __init__(self) -> None:
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        #: Partitions of all sessions.
        self.partition_count = 0
        self._by_address: dict[str, _Share] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, owner: Owner, request: FetchRequest, by_id: bool, now: float) -> Fetch | ErrorCode:
        """Return the request's partitions, or the error that sends the client back to a full fetch.

        `now`: the event loop's time.
        """
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            earlier = self._find(owner, request.session_id)
            if earlier is not None:
                self._end(earlier)
            partitions = list(_partitions(request))
            session = None
            if request.session_epoch == _INITIAL_EPOCH and partitions:
                session = self._create(owner, partitions, by_id, now)
            return Fetch(partitions, session, incremental=False)
        session = self._find(owner, request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        self._change(session, request)
        if not session.partitions:  # the last one was forgotten: as in Kafka, that is the end of the session
            self._end(session)
            return Fetch([], None, incremental=False)
        # mutant: session-size-bounded
        if len(session.partitions) > PARTITIONS_MAX or self.partition_count > SESSION_PARTITIONS_MAX:
            self._end(session)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._advance(session, now)
        return Fetch(list(session.partitions.values()), session, incremental=True)

    def check_invariants(self) -> None:
        """Assert that sessions are bounded, in the order of their use, and hold their partitions by key."""
        assert len(self._sessions) <= SESSIONS_MAX
        assert self.partition_count == sum(len(each.partitions) for each in self._sessions.values())
        assert self.partition_count <= SESSION_PARTITIONS_MAX
        for address, share in self._by_address.items():
            held = [len(each.partitions) for each in self._sessions.values() if each.address == address]
            assert (share.sessions, share.partitions) == (len(held), sum(held))
            assert held
        used_at = [session.used_at for session in self._sessions.values()]
        assert used_at == sorted(used_at)
        for session_id, session in self._sessions.items():
            assert session.session_id == session_id
            assert session.epoch >= 1
            assert len(session.partitions) <= PARTITIONS_MAX
            for key, each in session.partitions.items():
                assert key == (each.topic, each.topic_id, each.asked.partition)

    def topics(self, owner: Owner, request: FetchRequest) -> list[tuple[str, bytes]]:
        """Return name and id of each partition's topic that an incremental request reads without naming it."""
        if request.session_epoch in (_FINAL_EPOCH, _INITIAL_EPOCH):
            return []
        session = self._find(owner, request.session_id)
        return [] if session is None else [(topic, bytes(topic_id)) for topic, topic_id, _ in session.partitions]

    def continues(self, last: Fetch, request: FetchRequest) -> bool:
        """Return whether a request goes on with the one partition of `last`, in the same session or without any.

        The caller has compared the partition, its topic and the version of the request with those of `last`.
        """
        session = last.session
        if session is None:
            return request.session_id == 0 and request.session_epoch == _FINAL_EPOCH
        # mutant: read-ahead-of-same-session
        return (
            request.session_epoch == session.epoch
            and request.session_id == session.session_id
            and self._sessions.get(session.session_id) is session
            and not request.forgotten_topics_data
            and [*session.partitions.values()] == last.partitions
        )

    def continue_session(self, last: Fetch, asked: FetchPartition, now: float) -> Fetch:
        """Return the fetch of a request that `continues` the last one, as `open` does; its session moves on."""
        last.partitions[0].asked = asked
        session = last.session
        if session is None:
            return last
        self._advance(session, now)
        return last if last.incremental else Fetch(last.partitions, session, incremental=True)

    def _advance(self, session: FetchSession, now: float) -> None:
        session.epoch = 1 if session.epoch == 2**31 - 1 else session.epoch + 1
        session.used_at = now
        self._sessions.move_to_end(session.session_id)

    def _find(self, owner: Owner, session_id: int) -> FetchSession | None:
        """Return the session with this id if it was made for this client's user and address."""
        session = self._sessions.get(session_id)
        # mutant: session-of-its-owner
        if session is None or session.address != owner.address or session.principal != owner.principal:
            return None
        return session

    def _create(self, owner: Owner, partitions: list[FetchedPartition], by_id: bool, now: float) -> FetchSession | None:
        if len(partitions) > PARTITIONS_MAX:
            return None
        while len(self._sessions) >= SESSIONS_MAX or self.partition_count + len(partitions) > SESSION_PARTITIONS_MAX:
            replaced = self._replaceable(owner.address, len(partitions), now)
            if replaced is None:
                return None
            self._end(replaced)
        session_id = secrets.randbelow(2**31 - 1) + 1
        while session_id in self._sessions:
            session_id = secrets.randbelow(2**31 - 1) + 1
        session = self._sessions[session_id] = FetchSession(session_id, owner, by_id, now)
        for partition in partitions:
            session.partitions[partition.topic, partition.topic_id, partition.asked.partition] = partition
        self._count(session, 1, len(session.partitions))
        return session

    def _replaceable(self, address: str, count: int, now: float) -> FetchSession | None:
        """Return the session that gives way to one of `count` partitions for a client of this address."""
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_at >= EVICT_AFTER_S:
            return oldest
        largest, share = max(self._by_address.items(), key=lambda item: item[1].weight)
        own = self._by_address.get(address, _Share())
        if share.weight <= _Share(own.sessions + 1, own.partitions + count).weight:
            return None
        return next(session for session in self._sessions.values() if session.address == largest)

    def _end(self, session: FetchSession) -> None:
        del self._sessions[session.session_id]
        self._count(session, -1, -len(session.partitions))

    def _count(self, session: FetchSession, sessions: int, partitions: int) -> None:
        self.partition_count += partitions
        share = self._by_address.setdefault(session.address, _Share())
        share.sessions += sessions
        share.partitions += partitions
        if not share.sessions:
            del self._by_address[session.address]

    def _change(self, session: FetchSession, request: FetchRequest) -> None:
        before = len(session.partitions)
        for partition in _partitions(request):
            key = (partition.topic, partition.topic_id, partition.asked.partition)
            known = session.partitions.get(key)
            if known is not None:
                known.asked = partition.asked
            else:
                session.partitions[key] = partition
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop((topic.topic, topic.topic_id, index), None)
        if len(session.partitions) != before:
            self._count(session, 0, len(session.partitions) - before)


def _partitions(request: FetchRequest) -> Iterable[FetchedPartition]:
    """Return each partition that the request names, once: of several positions the last one counts, as in Kafka."""
    named = [
        FetchedPartition(topic.topic, topic.topic_id, asked) for topic in request.topics for asked in topic.partitions
    ]
    if len(named) < 2:
        return named
    return {(each.topic, each.topic_id, each.asked.partition): each for each in named}.values()
