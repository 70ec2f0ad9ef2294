"""The path of one connection, from bytes to answers, over real handlers and a storage that a test plays."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from gateway_svc.clients.pipeline import Pending, Pipeline
from gateway_svc.clients.slices import Part
from gateway_svc.errors import RequestRefused
from gateway_svc.handlers import HANDLERS
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals
from gateway_svc.request_memory import RequestMemory, Share
from gateway_svc.requests import contexts
from gateway_svc.requests.admission import Admission, Policy
from gateway_svc.requests.call import Call
from gateway_svc.requests.dispatch import Dispatcher
from gateway_svc.requests.path import PathContext, RequestPath
from gateway_svc.requests.resources import Operation, ResourceType
from gateway_svc.requests.topic_names import TopicNames
from protocol_lib.codec import encode
from protocol_lib.headers import RequestHeader, encode_request_header

NOT_NEEDED: Any = None


def framed(api_key: int, version: int, request: Any, correlation_id: int = 7, client_id: str | None = "c") -> bytes:
    """Return a request with its length."""
    header = encode_request_header(RequestHeader(api_key, version, correlation_id, client_id))
    body = header + encode(request, version)
    return struct.pack(">i", len(body)) + body


class FakeClient:
    """A `requests.call.Client` that keeps its answers and refusals."""

    connection_id = 1
    peer, host, listener, principal = "1.2.3.4:5", "1.2.3.4", "EXTERNAL", "User:ANONYMOUS"
    address = host

    def __init__(self, pipeline: Pipeline | None = None) -> None:
        self.handler_states: dict[int, Any] = {}
        self.share = Share(1 << 30, is_strict=False)
        self._pipeline = pipeline
        #: The bytes of each answer or run of answers, with lengths.
        self.answers: list[bytes] = []
        self.refused: list[RequestRefused] = []
        self.muted_ms: list[int] = []
        self.is_aborted = self.is_ending = False
        self.has_left = False
        #: Starts the requests that the rig holds.
        self.start_held: Callable[[], None] = lambda: None

    def start_held_frames(self) -> None:
        self.start_held()

    def block_later_requests(self) -> None:
        if self._pipeline is not None:
            self._pipeline.block()

    def unblock_later_requests(self) -> None:
        if self._pipeline is not None:
            self._pipeline.unblock()
            self.start_held()

    def answered(self, pending: Pending, parts: Sequence[Part]) -> None:
        pending.parts = parts
        if self._pipeline is not None:
            self._pipeline.answer(pending, parts)
            parts = self._pipeline.take()
        self.answers += [b"".join(cast(Sequence[bytes], parts))] if parts else []

    def close_refused(self, refusal: RequestRefused) -> None:
        self.refused.append(refusal)

    def abort(self) -> None:
        self.is_aborted = True

    def close_when_answered(self) -> None:
        self.is_ending = True

    def peer_is_open(self) -> bool:
        return not self.has_left

    def mute(self, milliseconds: int) -> None:
        self.muted_ms.append(milliseconds)


class FakePolicy:
    """A policy that keeps the rights it is asked for and the calls it throttles."""

    decides_access = True
    may_lapse = True
    throttles = True
    is_current = True

    def __init__(self) -> None:
        #: (operation, type, name) of each question, by their names.
        self.asked: list[tuple[str, str, str | None]] = []
        self.throttled: list[int] = []
        self.denies: Callable[[str | None], bool] = lambda name: False
        self.changed: Callable[[], None] = lambda: None

    def attach(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    def may(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str | None
    ) -> bool:
        assert (principal, host) == (FakeClient.principal, FakeClient.host)
        self.asked.append((operation.name, resource_type.name, name))
        return not self.denies(name)

    def fetch_bytes_max(self, principal: str, client_id: str | None) -> int | None:
        return None

    def throttle_ms(self, call: Call, size: int) -> int:
        self.throttled.append(call.count)
        return 17


class FakeTopics:
    """Has no topics."""

    async def describe_topics(self, request: Any) -> Any:
        raise AssertionError("nobody asks")


@dataclass(frozen=True)
class Parts:
    """The parts of a gateway, with a context of each kind that handlers here are served with."""

    metrics: GatewayMetrics
    names: TopicNames
    admission: Admission
    requests: RequestMemory
    topic_templates: MemoryBudget
    contexts: tuple[object, ...]

    @property
    def produce_context(self) -> contexts.ProduceContext:
        (found,) = (each for each in self.contexts if isinstance(each, contexts.ProduceContext))
        return found


def parts(
    policy: Policy | None = None,
    make_admission: Callable[[TopicNames, Policy | None], Admission] = Admission,
    **storage: Any,
) -> Parts:
    """Return the parts of a gateway with these parts of storage."""
    topics, metrics = storage.setdefault("topics", FakeTopics()), GatewayMetrics()
    names, templates, loop = TopicNames(topics), MemoryBudget(1 << 20), cast(Any, _running_loop())
    records, groups = storage.get("records"), storage.get("groups")
    made = (
        contexts.NoContext(),
        contexts.ProduceContext(
            cast(Any, records), topics, names, NOT_NEEDED, templates, metrics, Refusals(metrics), loop
        ),
        contexts.FetchContext(
            records=cast(Any, records),
            files=None,
            lanes=None,
            value_reads=NOT_NEEDED,
            message_sets=NOT_NEEDED,
            sessions=NOT_NEEDED,
            layouts=NOT_NEEDED,
            bytes_max=NOT_NEEDED,
            names=names,
            metrics=metrics,
            loop=loop,
        ),
        contexts.LogContext(NOT_NEEDED, NOT_NEEDED, topics, NOT_NEEDED),
        contexts.TopicContext(topics, NOT_NEEDED, names, NOT_NEEDED),
        contexts.GroupContext(cast(Any, groups), topics, names, loop),
        contexts.TransactionContext(NOT_NEEDED, NOT_NEEDED, topics),
        contexts.AccessContext(NOT_NEEDED, has_authorizer=False),
        contexts.UserContext(NOT_NEEDED),
        contexts.ClusterContext(NOT_NEEDED, NOT_NEEDED, names, ()),
    )
    return Parts(
        metrics=metrics,
        names=names,
        admission=make_admission(names, policy),
        requests=RequestMemory(1 << 30),
        topic_templates=templates,
        contexts=made,
    )


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Rig:
    """One connection."""

    def __init__(
        self,
        policy: Policy | None = None,
        make_admission: Callable[[TopicNames, Policy | None], Admission] = Admission,
        **storage: Any,
    ) -> None:
        self.parts = own = parts(policy, make_admission, **storage)
        self.dispatcher = Dispatcher(HANDLERS, own.contexts, own.metrics)
        self.pipeline = Pipeline()
        self.client = FakeClient(self.pipeline)
        self.shared = bytearray(1 << 16)
        context = PathContext(self.dispatcher, own.admission, own.requests, own.names)
        self.path = RequestPath(self.client, context, self.pipeline, self.shared)
        #: Requests that may not start yet; `Client.start_held_frames` starts them.
        self.held = b""
        self.client.start_held = self._start_held

    def receive(self, *frames: bytes) -> list[bytes]:
        """Let these requests arrive in one piece, and return the answers that leave."""
        stream = b"".join(frames)
        earlier = len(self.client.answers)
        self._start(stream)
        return self.client.answers[earlier:]

    def _start_held(self) -> None:
        held, self.held = self.held, b""
        self._start(held)

    def _start(self, stream: bytes) -> None:
        self.shared[: len(stream)] = stream
        position = 0
        while position < len(stream):
            (size,) = struct.unpack_from(">i", stream, position)
            begin = position + 4
            if not self.pipeline.admits(self.path.kind(self.shared, begin)):
                self.held = stream[position:]
                break
            position = self.path.start_requests(self.shared, begin, begin + size, len(stream))
        self.shared[: len(stream)] = bytes(len(stream))

    def recognised(self, api: str) -> int:
        return self.parts.metrics.api(api).recognised

    def finished(self, api: str) -> dict[Any, int]:
        """Return the number of finished requests by (version, error name)."""
        return dict(self.parts.metrics.api(api).answers)
