"""Heartbeats that a connection repeats word for word, recognised and answered as bytes.

The member of a stable group sends the same heartbeat again and again. Such a request is not decoded. Storage checks
that its last answer is still valid (`RepeatableHeartbeat`), and starts the member's session again. The answer is the
last one, with this request's correlation id and throttle time. If storage has another answer, that is passed on, and
the next heartbeat is served like a decoded one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from protocol_lib.api import APIS
from protocol_lib.codec import decode
from protocol_lib.template import AnswerTemplate, RequestTemplate, read_correlation_id

from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.contexts import GroupContext
from gateway_svc.requests.patterns import Store
from gateway_svc.requests.rights import OUTDATED
from gateway_svc.requests.subject import Subject
from gateway_svc.storage.protocols import RepeatableHeartbeat

#: Longer heartbeats, such as those that name a thousand topics each, are not kept.
KEPT_BYTES_MAX: Final = 4096
#: The end of the correlation id in an answer with its length.
_CORRELATION_ID_END: Final = 8

Serve = Callable[[Call, Any, GroupContext], RepeatableHeartbeat | None]
#: A function that answers a heartbeat with the answer of storage.
Answer = Callable[[Call, GroupContext, Any], None]


class HeartbeatPattern:
    """A `patterns.Pattern` for both heartbeat APIs: the latest heartbeat that may be repeated."""

    __slots__ = (
        "_answer",
        "_client",
        "_context",
        "_error",
        "_fill",
        "_first",
        "_repeat",
        "_request",
        "_ring",
        "_serve",
        "_subject",
        "_template",
        "rights",
    )

    _subject: Subject

    def __init__(
        self,
        serve: Serve,
        answer: Answer,
        client: Client,
        ring: Ring,
        context: GroupContext,
        pipeline: Pipeline,  # noqa: ARG002
        shared: bytearray,  # noqa: ARG002
    ) -> None:
        """Start without a heartbeat. `serve` and `answer` are those of the API's handler."""
        self._serve = serve
        self._answer = answer
        self._client = client
        self._ring = ring
        self._context = context
        self.rights = OUTDATED
        self._template: RequestTemplate | None = None
        self._request: Any = None
        #: The offer of storage to repeat the answer to the call below.
        self._repeat: RepeatableHeartbeat | None = None
        #: The call whose answer is repeated, until that is known.
        self._first: Call | None = None
        self._fill: Callable[[int, int], bytes] = _no_answer
        #: The error code of the answer.
        self._error = 0

    def open(self, store: Store, begin: int, frame_end: int, end: int) -> Call | None:  # noqa: ARG002
        template = self._template
        if template is None or not template.matches(store, begin, frame_end):
            return None
        correlation_id = read_correlation_id(store, begin)
        return Call(self._client, self._ring, self._subject, correlation_id, template.size)

    def serve(self, call: Call) -> None:
        repeat = self._repeat
        if repeat is None or not repeat(partial(self._repeated, call)):
            self._forget_repeat()
            self._first = call
            self._repeat = self._serve(call, self._request, self._context)

    def _repeated(self, call: Call, answer: Any) -> None:
        if answer is not None:
            self._forget_repeat()
            self._answer(call, self._context, answer)
            return
        if self._first is not None:
            self._learn_answer(self._first)
        call.answer_bytes(partial(self._fill, call.correlation_id), self._error)

    def _learn_answer(self, call: Call) -> None:
        assert call.parts is not None, "it was answered, or it would not be repeated"
        (answer,) = call.parts
        assert isinstance(answer, bytes)
        body_at = _CORRELATION_ID_END + len(call.route.header_tail)
        response = decode(APIS[call.route.api_key].response, call.version, answer, body_at)
        self._error = response.error_code
        self._fill = AnswerTemplate(response, call.version, ("throttle_time_ms",)).fill
        self._first = None

    def learn(self, call: Call, request: Any, frame: bytes | memoryview, kept: object) -> None:
        """Keep a heartbeat that storage lets the gateway repeat: `kept` is a RepeatableHeartbeat then."""
        self.forget()
        if kept is None:
            return
        repeat: RepeatableHeartbeat = kept  # type: ignore[assignment]
        template = None
        if len(frame) <= KEPT_BYTES_MAX:
            template = RequestTemplate.learn(request, call.version, frame)
        if template is None:
            repeat.forget()
            return
        self._template = template
        self._request = request
        self._subject = call.subject
        self.rights = call.subject.rights
        self._repeat = repeat
        self._first = call

    def forget(self) -> None:
        self._template = None
        self._first = None
        self._forget_repeat()

    def _forget_repeat(self) -> None:
        if self._repeat is not None:
            self._repeat.forget()
            self._repeat = None


def _no_answer(correlation_id: int, throttle_time_ms: int) -> bytes:
    raise AssertionError((correlation_id, throttle_time_ms))
