"""OffsetCommit requests that a connection repeats with other offsets, recognised by their bytes.

Only the offsets of such a request are read. Storage remembers the first such commit, so it is sent the offsets alone.
If it no longer remembers it, it is sent the first commit's message with these offsets. An answer without an error is
filled into a template. Storage decides each time whether it accepts the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from broker_contract import groups_pb2
from protocol_lib.messages.offset_commit import OffsetCommitRequest
from protocol_lib.template import AnswerTemplate, RequestTemplate, read_correlation_id

from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.handlers.offset_commit_messages import answer, asked, response_of
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.patterns import Store
from gateway_svc.requests.rights import OUTDATED
from gateway_svc.requests.subject import Subject
from gateway_svc.storage.protocols import RepeatableCommit

#: Longer requests are not kept.
KEPT_BYTES_MAX: Final = 4096
#: Stop comparing after this many differing requests in a row: they may name other partitions each time.
MISSES_MAX: Final = 8

_OFFSETS: Final = ("topics.partitions.committed_offset",)


class CommitCall(Call):
    """A recognised commit."""

    __slots__ = ("offsets",)

    #: One for each partition, in the order of the request.
    offsets: Sequence[int]


class _Learned:
    """One commit in its parts. Its message to storage is reused: a connection has one commit at a time."""

    __slots__ = ("asked", "fill", "repeat", "request", "subject", "template")

    def __init__(self, call: Call, request: OffsetCommitRequest, template: RequestTemplate) -> None:
        self.template = template
        self.subject: Subject = call.subject
        self.request = request
        self.asked = asked(call, request)
        self.asked.will_repeat = True
        #: A function that sends storage the offsets alone.
        self.repeat: RepeatableCommit | None = None
        no_errors = [0] * len(self.asked.offsets)
        self.fill = AnswerTemplate(response_of(request, no_errors), call.version, ("throttle_time_ms",)).fill


class OffsetCommitPattern:
    """A `patterns.Pattern`: the connection's latest commit."""

    __slots__ = ("_client", "_context", "_learned", "_misses", "_ring", "rights")

    def __init__(
        self,
        client: Client,
        ring: Ring,
        context: GroupContext,
        pipeline: Pipeline,  # noqa: ARG002
        shared: bytearray,  # noqa: ARG002
    ) -> None:
        self._client = client
        self._ring = ring
        self._context = context
        self.rights = OUTDATED
        self._learned: _Learned | None = None
        self._misses = 0

    def open(self, store: Store, begin: int, frame_end: int, end: int) -> Call | None:  # noqa: ARG002
        learned = self._learned
        if learned is None or not learned.template.matches(store, begin, frame_end):
            return None
        self._misses = 0
        template, correlation_id = learned.template, read_correlation_id(store, begin)
        call = CommitCall(self._client, self._ring, learned.subject, correlation_id, template.size)
        call.offsets = template.values(store, begin)
        return call

    def serve(self, call: Call) -> None:
        learned = self._learned
        assert learned is not None
        assert isinstance(call, CommitCall)
        if learned.repeat is not None:
            if learned.repeat(call.offsets, partial(_answer, call, learned)):
                return
            self._forget_repeat(learned)
        message = learned.asked
        message.correlation_id = call.correlation_id
        for row, offset in zip(message.offsets, call.offsets, strict=True):
            row.offset = offset
        learned.repeat = self._context.groups.commit_offsets(
            message, partial(_committed, call, learned), self._client.peer_is_open
        )

    def learn(self, call: Call, request: Any, frame: bytes | memoryview, kept: object) -> None:  # noqa: ARG002
        self.forget()
        if self._misses == MISSES_MAX or len(frame) > KEPT_BYTES_MAX:
            return
        self._misses += 1
        template = RequestTemplate.learn(request, call.version, frame, _OFFSETS)
        if template is not None and any(topic.partitions for topic in request.topics):
            self._learned = _Learned(call, request, template)
            self.rights = call.subject.rights

    def forget(self) -> None:
        if self._learned is not None:
            self._forget_repeat(self._learned)
            self._learned = None

    def _forget_repeat(self, learned: _Learned) -> None:
        if learned.repeat is not None:
            learned.repeat.forget()
            learned.repeat = None


def _committed(call: Call, learned: _Learned, outcome: groups_pb2.CommitOffsetsResponse) -> None:
    _answer(call, learned, outcome.error_codes)


def _answer(call: Call, learned: _Learned, error_codes: Sequence[int]) -> None:
    if any(error_codes):
        answer(call, learned.request, error_codes)
    else:
        call.answer_bytes(partial(learned.fill, call.correlation_id))
