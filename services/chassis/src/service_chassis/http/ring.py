"""The outermost ring of every HTTP request: the rules for all routes.

1. Each request gets an id (the caller's X-Request-Id if that is well-formed) and a correlation id. The answer has the
   first. The service's debug lines have both, those of services that it calls the second.
2. A prefix that the service's paths may have becomes the request's root path, so that links keep it.
3. %2F and %25 stay escaped in the routed path, so that a name such as "a/b" is one segment.
4. A request of a page of another site is refused: see `origins`.
5. The sender of each request is known before its body is read: see `access`. A change leaves an audit line.
6. Limits: a request counts from the moment at which its body is there (see `bodies`) to the beginning of its answer.
   RUNNING_MAX run at once, and PAGES_RUNNING_MAX of pages in a browser. More wait for at most WAIT_TIMEOUT_S, if they
   are no more than WAITING_MAX of their kind. Probes do not wait. Requests whose endpoint reads the body have places of
   their kind, from their head to the end of their answer; one client has half of them at most.
7. Requests are counted and timed by route template, never by raw path.
8. An unhandled exception is logged whole and answered with a 500 that does not mention it.
9. HEAD is a GET whose answer ends with its head. An endpoint of a stream finds HEAD_KEY and opens none.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
import uuid
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from prometheus_client import Counter, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service_chassis import logs
from service_chassis.http import errors
from service_chassis.http.access import PAGE_KEY, Access, client_of
from service_chassis.http.audit import NO_ANSWER, Audit
from service_chassis.http.bodies import BODY_KEY, Body
from service_chassis.http.connections import FIELDS_MAX
from service_chassis.http.origins import PROBES, Hosts
from service_chassis.http.places import Places, Share
from service_chassis.http.rules import Rules
from service_chassis.metrics import Registry

#: The key of the RequestContext in the ASGI scope.
REQUEST_KEY = "service_chassis.http.request"
#: The key, in the ASGI scope, of whether the client requests the head of an answer alone.
HEAD_KEY = "service_chassis.http.head"
#: The key, in the first message of an answer, of whether it goes on for as long as its client receives.
LASTING_KEY = "service_chassis.http.lasting"
#: Requests that run at once: they share one thread, and each may hold a large answer of another service. Those of pages
#: have places of their own, so that a person gets an answer while programs keep theirs busy.
RUNNING_MAX = 12
PAGES_RUNNING_MAX = 4
#: Requests of programs, and as many of pages, that wait for their turn; more are refused with 503, as those that waited
#: for too long.
WAITING_MAX = 256
WAIT_TIMEOUT_S = 5.0
#: Seconds a request may take in all, from the moment at which its body is there. Lasting answers need only begin.
REQUEST_TIMEOUT_S = 60.0
#: Parameters of a query.
PARAMETERS_MAX = 16
#: Correlation ids are int32 and start again at 1.
_CORRELATION_ID_MAX = 2**31 - 1

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KEPT_ESCAPES = re.compile(rb"%(?=2[fF]|25)")
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}

log = logs.get(__name__)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The identity of one request in answers and logs."""

    request_id: str
    correlation_id: int


class HttpMetrics:
    """Counters of the HTTP server, by route template."""

    def __init__(self, registry: Registry) -> None:
        kept: Any = registry  # a metric of the library calls `register` alone
        self.requests = Counter(
            "http_requests_total", "HTTP requests answered.", ["method", "route", "status"], registry=kept
        )
        self.duration = Histogram(
            "http_request_duration_seconds", "From request to answer.", ["method", "route"], registry=kept
        )


class RequestRing:
    """The ASGI middleware of this module's docstring. The event loop alone runs it."""

    def __init__(self, app: ASGIApp, *, metrics: HttpMetrics, hosts: Hosts, access: Access) -> None:
        self._app = app
        self._metrics = metrics
        self._hosts = hosts
        self._access = access
        self._rules: Rules = access.rules
        self._audit = Audit(access.rules)
        self._correlation_ids = itertools.count(1)
        self._programs = _Queue(RUNNING_MAX)
        self._pages = _Queue(PAGES_RUNNING_MAX)
        self._in_parts = {kind: Places(places) for kind, places in self._rules.places.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        context = RequestContext(
            _request_id(headers.get("x-request-id")), next(self._correlation_ids) % _CORRELATION_ID_MAX
        )
        method = scope["method"]
        is_head = method == "HEAD"
        scope = {**scope, "method": "GET" if is_head else method, HEAD_KEY: is_head, REQUEST_KEY: context}
        body = Body(receive, headers)
        answer = _Answer(send, body, context, is_head=is_head)
        started = time.perf_counter()
        try:
            await self._run(scope, headers, body, answer)
        finally:
            self._record(scope, method, context, answer.status, time.perf_counter() - started)

    async def _run(self, scope: Scope, headers: Headers, body: Body, answer: _Answer) -> None:
        """Run the application and answer the exceptions that it did not handle. Raises only cancellation."""
        try:
            _check_size(scope)
            self._hosts.check(scope["method"], scope["path"], headers)
            await self._access.admit(scope, headers)
            in_parts = self._rules.reads_in_parts(scope["method"], scope["path"])
            if not in_parts:
                await body.read()  # mutant: body-before-place
            scope[BODY_KEY] = body
            self._set_path(scope)
            if scope["path"] in PROBES:
                await self._app(scope, body.receive, answer.send)
                return
            queue = self._pages if scope[PAGE_KEY] else self._programs  # mutant: pages-have-places
            turns = self._in_parts[in_parts].of(client_of(scope)) if in_parts else queue.running
            await self._take_turn(turns, queue)
            answer.turn = None if isinstance(turns, Share) else turns
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S) as answer.time_limit:
                    await self._app(scope, body.receive, answer.send)
            finally:
                turns.release() if in_parts else answer.end_turn()
        except errors.ApiError as error:
            await self._give(scope, body, answer, error)
        except ClientDisconnect:
            return
        except TimeoutError:
            await self._give(scope, body, answer, errors.of_status(408, "The request took too long."))
        except Exception:
            context: RequestContext = scope[REQUEST_KEY]
            log.exception("request failed", request_id=context.request_id, correlation_id=context.correlation_id)
            await self._give(scope, body, answer, self._rules.refusal(500, "The server met an unexpected error."))

    async def _take_turn(self, turns: asyncio.Semaphore | Share, queue: _Queue) -> None:
        """Acquire a place among running requests. Raises ApiError if there are too many requests."""
        if not turns.locked():
            await turns.acquire()
            return
        if queue.waiting >= WAITING_MAX:
            raise self._too_many()
        queue.waiting += 1
        try:
            async with asyncio.timeout(WAIT_TIMEOUT_S):
                await turns.acquire()
        except TimeoutError:
            raise self._too_many() from None
        finally:
            queue.waiting -= 1

    async def _give(self, scope: Scope, body: Body, answer: _Answer, error: errors.ApiError) -> None:
        """Answer with the error. If another answer has begun, do nothing: the server cuts that one off."""
        if answer.status == NO_ANSWER:
            await self._rules.render(error)(scope, body.receive, answer.send)

    def _too_many(self) -> errors.ApiError:
        return self._rules.refusal(503, "Too many requests at once.", {"retry-after": "1"})

    def _set_path(self, scope: Scope) -> None:
        if scope.get("raw_path"):
            scope["path"] = unquote(_KEPT_ESCAPES.sub(b"%25", scope["raw_path"]).decode("latin-1"))
        if root_path := self._rules.root_path(scope["path"]):
            scope["root_path"] = root_path

    def _record(self, scope: Scope, method: str, context: RequestContext, status: int, seconds: float) -> None:
        method = method if method in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.duration.labels(method, route).observe(seconds)
        self._audit.write(scope, context.request_id, status)
        if log.debug_enabled:
            log.debug(
                "request",
                request_id=context.request_id,
                correlation_id=context.correlation_id,
                method=method,
                path=scope["path"],
                route=route,
                status=status,
                duration_ms=round(seconds * 1000, 3),
            )


class _Queue:
    """The places of one kind of requests, and the number of those that wait for one."""

    __slots__ = ("running", "waiting")

    def __init__(self, places: int) -> None:
        self.running = asyncio.Semaphore(places)
        self.waiting = 0


class _Answer:
    """The answer on its way out: gets the common headers, and remembers whether and how it began."""

    __slots__ = ("_body", "_context", "_is_head", "_lasts", "_send", "status", "time_limit", "turn")

    def __init__(self, send: Send, body: Body, context: RequestContext, *, is_head: bool) -> None:
        self._send = send
        self._body = body
        self._context = context
        self._is_head = is_head
        self._lasts = False
        #: NO_ANSWER until the answer begins.
        self.status = NO_ANSWER
        #: The semaphore to release when the answer begins: a slow receiver of the rest holds up no other request.
        self.turn: asyncio.Semaphore | None = None
        #: The time limit of the request.
        self.time_limit: asyncio.Timeout | None = None

    async def send(self, message: Message) -> None:
        """Send a part of the answer. The end of a lasting one closes a connection whose body goes on.

        Raises ClientDisconnect to end a stream whose head is sent alone.
        """
        if message["type"] == "http.response.start":
            await self._send(self._begun(message))
            return
        goes_on = bool(message.get("more_body"))
        if self._is_head:
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        if self._body.to_come and not goes_on and not self._lasts:
            # The answer is out before the rest of the body is read, and only then is it over.
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)
        if self._is_head and goes_on:  # mutant: head-stops-early
            raise ClientDisconnect

    def _begun(self, message: Message) -> Message:
        """Return the head of the answer with the common headers."""
        self.status = message["status"]
        self.end_turn()
        self._lasts = message.pop(LASTING_KEY, False)
        if self._lasts and self.time_limit is not None:
            self.time_limit.reschedule(None)
        headers = MutableHeaders(scope=message)
        headers["x-request-id"] = self._context.request_id
        for name, value in _SAFE_HEADERS.items():
            headers.setdefault(name, value)
        return message

    def end_turn(self) -> None:
        if self.turn is not None:
            self.turn.release()
            self.turn = None


def _check_size(scope: Scope) -> None:
    """Refuse a request of too many parts, each of which the application makes objects for. Drop the cookies."""
    if len(scope["headers"]) > FIELDS_MAX:
        raise errors.of_status(431, headers={"connection": "close"})
    if scope["query_string"].count(b"&") >= PARAMETERS_MAX:
        raise errors.of_status(400, f"The query has more than {PARAMETERS_MAX} parameters.")
    scope["headers"] = [field for field in scope["headers"] if field[0] != b"cookie"]


def _request_id(given: str | None) -> str:
    return given if given is not None and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
