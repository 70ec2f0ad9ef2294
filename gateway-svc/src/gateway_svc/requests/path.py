"""The only way in for requests: recognise or decode, admit, serve. `Call.finish` is the only way out.

    bytes ── recognised by the pattern of its API and version ─────────────┐
         └── decoded (`dispatch`), judged (`admission`), learned by it ──┐ │
                                                                         admit ── serve ── answer ── finish
                                                           (decoded and denied)  └── refuse ──────────────┘

A request gets its position in the connection's pipeline before it is admitted, so answers leave in the order of the
requests. Bytes are copied out of the shared buffer once, into memory that is never written again. A pool of buffers
would be wrong here: storage may still read a buffer when the next client's records arrive in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any, Final

from protocol_lib.errors import ErrorCode

from gateway_svc.clients.frame_reader import SMALL_FRAME_BYTES
from gateway_svc.clients.pipeline import Kind, Pipeline
from gateway_svc.errors import StorageUnavailable
from gateway_svc.request_memory import RequestMemory
from gateway_svc.requests.admission import Admission
from gateway_svc.requests.call import Call, Client
from gateway_svc.requests.dispatch import Dispatcher
from gateway_svc.requests.handler import Handler, WhenClientLeft
from gateway_svc.requests.patterns import Patterns, Store
from gateway_svc.requests.rights import Verdict
from gateway_svc.requests.topic_names import TopicNames

_api_and_version_of: Final = Struct(">i").unpack_from


@dataclass(frozen=True, slots=True)
class PathContext:
    """The parts of a gateway that the paths and logins of its connections use."""

    dispatcher: Dispatcher
    admission: Admission
    #: Memory of requests that are received in part or in service.
    memory: RequestMemory
    names: TopicNames


class RequestPath:
    """The way in of one connection, which owns it."""

    __slots__ = (
        "_admission",
        "_by_api_and_version",
        "_client",
        "_client_has_left",
        "_dispatcher",
        "_is_closed",
        "_memory",
        "_names",
        "_patterns",
        "_pipeline",
        "_share",
        "_shared",
    )

    #: `clients.resources.Requests`: the client is known, and stays.
    frame_bytes_max: Final = None
    deadline_s: Final = math.inf
    is_login: Final = False

    def __init__(self, client: Client, context: PathContext, pipeline: Pipeline, shared: bytearray) -> None:
        """Start without patterns. `shared` is overwritten after each call of `start_requests`."""
        self._client = client
        self._admission = context.admission
        self._memory = context.memory
        self._names = context.names
        self._share = client.share
        self._dispatcher = context.dispatcher
        self._pipeline = pipeline
        self._shared = shared
        self._patterns = Patterns(client, context.admission, pipeline, shared)
        self._by_api_and_version = self._patterns.by_api_and_version
        #: Whether requests that waited were found to have lost their client.
        self._client_has_left = False
        #: Whether the client is gone, or others serve its requests: its session has ended.
        self._is_closed = False

    def kind(self, store: Store, begin: int) -> Kind:
        """Return how the request at `begin` shares its connection."""
        return self._dispatcher.kind(_api_and_version_of(store, begin)[0])

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        """Check a request of `size` bytes by the first 8 of them; raise RequestRefused if it is not served."""
        self._dispatcher.check_long(start, size)

    def client_left(self) -> None:
        """Decode each request from now on, and drop those that are of no use without their client."""
        self._client_has_left = True
        self._patterns.close()

    def close(self) -> None:
        """Forget the connection's patterns: the client is gone, or its session has ended."""
        self._is_closed = True
        self._patterns.close()

    def start_requests(self, store: Store, begin: int, frame_end: int, end: int) -> int:
        """Start the request between `begin` and `frame_end`, which the pipeline admits.

        A pattern may start requests after it with it, up to `end`. Returns where the last of them ends.

        Raises:
            RequestRefused: it is no request that can be answered.
        """
        pattern = self._by_api_and_version.get(_api_and_version_of(store, begin)[0])
        # mutant: pattern-used
        if (
            pattern is not None
            and pattern.rights.is_current
            and (not pattern.rights.may_lapse or self._admission.is_current)
        ):
            call = pattern.open(store, begin, frame_end, end)
            if call is not None:
                call.recognised = True
                self._memory.take(self._share, call.size)
                self._pipeline.open(call)
                try:
                    self._admission.admit(call)  # mutant: pattern-admitted
                    pattern.serve(call)
                    if self._admission.throttles:
                        call.suspend()
                except Exception as failure:
                    call.failed(failure)
                return begin + call.size
        view = memoryview(store)[begin:frame_end]
        is_copied = store is self._shared or len(view) <= SMALL_FRAME_BYTES
        self._decode(view.tobytes() if is_copied else view)
        return frame_end

    def _decode(self, frame: bytes | memoryview) -> None:
        call, request = self._dispatcher.open(self._client, self._admission, frame)
        self._memory.take(self._share, call.size)
        self._pipeline.open(call)
        try:
            self._judge(call, request, frame, final=False)
            if self._admission.throttles:
                call.suspend()
        except Exception as failure:
            call.failed(failure)

    def _judge(self, call: Call, request: Any, frame: bytes | memoryview, *, final: bool) -> None:
        """Judge a decoded request and serve it; `final`: storage has been asked for the names of its topics."""
        dispatcher, key = self._dispatcher, call.route.api_key
        handler, context = dispatcher.handlers[key], dispatcher.contexts[key]
        if self._must_drop(handler, request):  # mutant: join-of-gone-client
            dispatcher.refuse(call, request, ErrorCode.NETWORK_EXCEPTION)
            return
        resources = partial(handler.resources, call, request, context)
        verdict = self._admission.judge(call.subject, self._client.host, request, handler, resources, final=final)
        if not isinstance(verdict, Verdict):
            unnamed = verdict
            again = partial(self._judge_again, call, request, frame, bool(unnamed))
            self._pipeline.block()  # mutant: name-wait-keeps-order
            if unnamed:
                self._names.resolve(unnamed, call.correlation_id, again)
            else:
                self._admission.when_current(again)
            return
        self._admission.admit(call)
        if verdict.error:
            dispatcher.refuse(call, request, verdict.error)
            return
        if verdict.denied:  # mutant: denied-rows-answered
            call.subject.complete = partial(dispatcher.complete, call, verdict)
        kept = dispatcher.serve(call, verdict.request)
        # mutant: no-pattern-of-half-denied
        if handler.pattern is not None and not self._client_has_left and not verdict.denied:
            self._patterns.learn(handler.pattern, context, call, request, frame, kept)

    def _must_drop(self, handler: Handler[Any], request: Any) -> bool:
        """Return whether a request must be dropped, because its client has closed the connection."""
        if handler.when_client_left is WhenClientLeft.SERVE or handler.is_farewell(request):
            return False
        return self._client_has_left or (
            handler.when_client_left is WhenClientLeft.DROP and not self._client.peer_is_open()
        )

    def _judge_again(
        self, call: Call, request: Any, frame: bytes | memoryview, final: bool, failure: Exception | None
    ) -> None:
        """Judge a request again, now that storage has answered. Without storage, close the connection."""
        if self._pipeline.closed:
            return
        self._pipeline.unblock()
        try:
            if self._is_closed:  # mutant: ended-session-of-waiting-request
                call.close_refused("session_ended")
            elif failure is None:
                self._judge(call, request, frame, final=final)
            elif isinstance(failure, StorageUnavailable):
                call.close_refused("storage_unavailable", "names of topics" if final else "access rules")
            else:
                call.failed(failure)
        except Exception as error:
            call.failed(error)
        self._client.start_held_frames()
