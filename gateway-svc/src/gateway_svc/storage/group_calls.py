"""Calls over the group stream, and the two that a gateway may repeat in short once storage has allowed it.

RemoteRepeatableHeartbeat    the same bytes        sent as the first one's call id
RemoteRepeatableCommit       only other offsets    sent as the first one's call id and the offsets
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from broker_contract import groups_pb2
from protocol_lib.errors import ErrorCode
from service_chassis import logs

_log = logs.get(__name__)

_UNAVAILABLE: Final = ErrorCode.COORDINATOR_NOT_AVAILABLE

Request = groups_pb2.HeartbeatRequest | groups_pb2.CommitOffsetsRequest | groups_pb2.ConsumerGroupHeartbeatRequest
CommitDone = Callable[[Sequence[int]], None]


class Stream(Protocol):
    """The part of the group stream that is used here."""

    def repeat(self, call: RepeatedCall) -> bool: ...

    def forget(self, kept: RemoteRepeatable) -> None: ...

    def time(self) -> float: ...


class GroupCall:
    """A call without an answer."""

    __slots__ = ("asked_at", "done", "is_sent", "is_wanted", "kept", "kind", "repeatable", "request")

    def __init__(
        self, kind: str, request: Request, done: Callable[[Any], None], asked_at: float, *, repeatable: bool
    ) -> None:
        #: The name of its field in GroupCall, and of its answer's in GroupAnswer.
        self.kind = kind
        self.request = request
        self.done = done
        self.asked_at = asked_at
        self.repeatable = repeatable
        #: The test whether its client is still connected.
        self.is_wanted: Callable[[], bool] = _always
        #: Whether it was sent, so that storage may have done it.
        self.is_sent = False
        #: The means to repeat it in short once it is answered; None if the caller will not repeat it.
        self.kept: RemoteRepeatable | None = None

    def may_wait(self) -> bool:
        """Return whether the call may go to the next stream.

        A commit that was sent may not: it could undo a later commit of another gateway.
        """
        return self.repeatable and not (self.is_sent and self.kind == "commit_offsets")

    def tell(self, answer: Any) -> None:
        """Pass the answer on. A caller that fails keeps no other from its answer."""
        try:
            self.done(answer)
        except Exception:  # mutant: failing-group-caller-alone
            _log.exception("answering failed", call=self.kind)

    def answer(self, answer: groups_pb2.GroupAnswer) -> None:
        if answer.WhichOneof("answer") == self.kind:
            self.tell(getattr(answer, self.kind))
        else:  # the call failed in storage
            self.fail()

    def fail(self) -> None:
        match self.request:
            case groups_pb2.HeartbeatRequest():
                self.tell(groups_pb2.HeartbeatResponse(error_code=_UNAVAILABLE))
            case groups_pb2.CommitOffsetsRequest(offsets=offsets):
                self.tell(groups_pb2.CommitOffsetsResponse(error_codes=[_UNAVAILABLE for _ in offsets]))
            case groups_pb2.ConsumerGroupHeartbeatRequest():
                self.tell(groups_pb2.ConsumerGroupHeartbeatResponse(error_code=_UNAVAILABLE))


def _always() -> bool:
    return True


class RepeatedCall(GroupCall):
    """A call like an earlier one, in short until storage refuses that."""

    __slots__ = ("is_short", "like", "offsets")

    def __init__(
        self, like: RemoteRepeatable, offsets: Sequence[int], done: Callable[[Any], None], asked_at: float
    ) -> None:
        super().__init__(like.kind, like.request, done, asked_at, repeatable=like.kind != "consumer_group_heartbeat")
        self.like = like
        self.is_wanted = like.is_wanted
        #: The offsets of a commit; a heartbeat has none.
        self.offsets = offsets
        #: Whether only the id of the earlier call and the offsets are sent.
        self.is_short = True

    def make_whole(self) -> None:
        """Send the whole call: storage has forgotten the earlier one, or refuses the short one."""
        self.like.holds = False
        self.is_short = False

    def succeed(self) -> None:
        """Answer as the earlier call was answered."""
        self.tell(None)


class RepeatedCommitCall(RepeatedCall):
    """A commit; `done` gets the error codes, or none when there is no error."""

    __slots__ = ()

    def make_whole(self) -> None:
        if self.is_short:
            whole = groups_pb2.CommitOffsetsRequest()
            whole.CopyFrom(self.like.request)
            whole.will_repeat = False
            for row, offset in zip(whole.offsets, self.offsets, strict=True):
                row.offset = offset
            self.request = whole
        super().make_whole()

    def succeed(self) -> None:
        self.tell(())

    def answer(self, answer: groups_pb2.GroupAnswer) -> None:
        if answer.HasField("commit_offsets"):
            self.tell(answer.commit_offsets.error_codes)
        else:
            self.fail()

    def fail(self) -> None:
        self.tell([_UNAVAILABLE] * len(self.offsets))


class RemoteRepeatable:
    """A call that went over the stream and may be repeated in short."""

    __slots__ = ("_stream", "call_id", "holds", "is_wanted", "kind", "request", "stream_number")

    def __init__(self, stream: Stream, call_id: int, call: GroupCall, stream_number: int) -> None:
        """Keep the whole call for a storage that has forgotten it."""
        self._stream = stream
        self.call_id = call_id
        self.kind = call.kind
        self.request: Any = call.request
        self.is_wanted = call.is_wanted
        #: Number of streams that had been lost when it was answered: storage forgets it with the stream.
        self.stream_number = stream_number
        #: Whether storage allows it: not before its answer has arrived.
        self.holds = False

    def forget(self) -> None:
        self._stream.forget(self)


class RemoteRepeatableHeartbeat(RemoteRepeatable):
    """The `RepeatableHeartbeat` of a heartbeat that went over the stream."""

    __slots__ = ()

    def __call__(self, done: Callable[[Any], None]) -> bool:
        return self.holds and self._stream.repeat(RepeatedCall(self, (), done, self._stream.time()))


class RemoteRepeatableCommit(RemoteRepeatable):
    """The `RepeatableCommit` of a commit that went over the stream."""

    __slots__ = ()

    def __call__(self, offsets: Sequence[int], done: CommitDone) -> bool:
        return self.holds and self._stream.repeat(RepeatedCommitCall(self, offsets, done, self._stream.time()))
