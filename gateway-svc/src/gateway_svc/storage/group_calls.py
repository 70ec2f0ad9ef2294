"""Calls over the group stream, and the two that a gateway may repeat in short once storage has allowed it.

RemoteRepeatableHeartbeat    the same bytes        the gateway answers it, while storage's promise holds
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

    def repeat_heartbeat(self, call_id: int) -> bool: ...

    def forget(self, kept: RemoteRepeatableHeartbeat | RemoteRepeatableCommit) -> None: ...

    def repeat_commit(self, like: RemoteRepeatableCommit, offsets: Sequence[int], done: CommitDone) -> bool: ...


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
        self.kept: RemoteRepeatableHeartbeat | RemoteRepeatableCommit | None = None

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


class RepeatedCommitCall(GroupCall):
    """A commit like an earlier one; `done` gets the error codes, or none when there is no error."""

    __slots__ = ("is_short", "like", "offsets")

    def __init__(self, like: RemoteRepeatableCommit, offsets: Sequence[int], done: CommitDone, asked_at: float) -> None:
        super().__init__("commit_offsets", like.request, done, asked_at, repeatable=True)
        self.like = like
        self.is_wanted = like.is_wanted
        self.offsets = offsets
        #: Whether only the offsets are sent.
        self.is_short = True

    def make_whole(self) -> None:
        """Send the whole commit: storage has forgotten the earlier one, or refuses the short one."""
        self.like.holds = False
        if self.is_short:
            self.is_short = False
            whole = groups_pb2.CommitOffsetsRequest()
            whole.CopyFrom(self.like.request)
            whole.will_repeat = False
            for row, offset in zip(whole.offsets, self.offsets, strict=True):
                row.offset = offset
            self.request = whole

    def answer(self, answer: groups_pb2.GroupAnswer) -> None:
        if answer.HasField("commit_offsets"):
            self.tell(answer.commit_offsets.error_codes)
        else:
            self.fail()

    def fail(self) -> None:
        self.tell([_UNAVAILABLE] * len(self.offsets))


class RemoteRepeatableHeartbeat:
    """The `RepeatableHeartbeat` of a heartbeat that went over the stream."""

    __slots__ = ("_stream", "call_id", "group_id", "holds")

    def __init__(self, stream: Stream, call_id: int, group_id: str) -> None:
        self._stream = stream
        self.call_id = call_id
        self.group_id = group_id
        #: Whether storage allows it: not before its answer has arrived.
        self.holds = False

    def __call__(self) -> bool:
        return self.holds and self._stream.repeat_heartbeat(self.call_id)

    def forget(self) -> None:
        self._stream.forget(self)


class RemoteRepeatableCommit:
    """The `RepeatableCommit` of a commit that went over the stream."""

    __slots__ = ("_stream", "call_id", "holds", "is_wanted", "request", "stream_number")

    def __init__(
        self,
        stream: Stream,
        call_id: int,
        request: groups_pb2.CommitOffsetsRequest,
        stream_number: int,
        is_wanted: Callable[[], bool],
    ) -> None:
        """Keep the whole commit, of which only the offsets change."""
        self._stream = stream
        self.is_wanted = is_wanted
        self.call_id = call_id
        self.request = request
        #: Number of streams that had been lost when it was answered: storage forgets it with the stream.
        self.stream_number = stream_number
        #: Whether storage allows it: not before its answer has arrived.
        self.holds = False

    def __call__(self, offsets: Sequence[int], done: CommitDone) -> bool:
        return self.holds and self._stream.repeat_commit(self, offsets, done)

    def forget(self) -> None:
        self._stream.forget(self)
