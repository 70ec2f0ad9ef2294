"""The outermost ring of every HTTP request: the rules for all routes.

1. Each request gets an id (the caller's X-Request-Id if that is well-formed) and a correlation id. The answer has the
   first. The debug lines of admin-api have both, those of storage the second.
2. /kafka/v3 is the same as /v3: the prefix becomes the request's root path, so that links keep it.
3. %2F and %25 stay escaped in the routed path, so that a consumer group named "a/b" is one segment.
4. Limits: requests at once, seconds per request, bytes of body; a host name that is not ours is refused.
5. Requests are counted and timed by route template, never by raw path.
6. An unhandled exception is logged whole and answered with a 500 that does not mention it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
import uuid
from dataclasses import dataclass
from urllib.parse import unquote

from prometheus_client import CollectorRegistry, Counter, Histogram
from service_chassis import logs
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from admin_api import errors

__all__ = ["REQUEST_KEY", "HttpMetrics", "RequestContext", "RequestRing", "error_response"]

#: The key of the RequestContext in the ASGI scope.
REQUEST_KEY = "admin_api.request"
#: Requests at once; more are refused with 503. uvicorn has no default, Tomcat's thread pool is 200.
REQUESTS_MAX = 256
#: Seconds a request may take in all, its slow sender included; nginx's client_body_timeout is 60.
REQUEST_TIMEOUT_S = 60.0
#: Largest body. No request here has use for more; nginx's client_max_body_size is the same.
BODY_BYTES_MAX = 1_048_576
#: Limits, in bytes and seconds, of reading a refused body before its sender is cut off; nginx lingers for 5 s.
DRAIN_BYTES_MAX = 16 * BODY_BYTES_MAX
DRAIN_TIMEOUT_S = 5.0
#: Correlation ids are int32 and start again at 1.
_CORRELATION_ID_MAX = 2**31 - 1

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KEPT_ESCAPES = re.compile(rb"%(?=2[fF]|25)")
_KAFKA_PREFIX = "/kafka"
#: Paths that a kubelet requests by the pod's address, under any host name.
_PROBES = ("/healthz", "/readyz")
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

    def __init__(self, registry: CollectorRegistry) -> None:
        self.requests = Counter(
            "http_requests_total", "HTTP requests answered.", ["method", "route", "status"], registry=registry
        )
        self.duration = Histogram(
            "http_request_duration_seconds", "From request to answer.", ["method", "route"], registry=registry
        )


class RequestRing:
    """The ASGI middleware of this module's docstring. The event loop alone runs it."""

    def __init__(self, app: ASGIApp, *, metrics: HttpMetrics, allowed_hosts: frozenset[str] | None) -> None:
        self._app = app
        self._metrics = metrics
        #: Lower case, without ports; None allows any.
        self._allowed_hosts = allowed_hosts
        self._correlation_ids = itertools.count(1)
        self._in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        context = RequestContext(
            _request_id(headers.get("x-request-id")), next(self._correlation_ids) % _CORRELATION_ID_MAX
        )
        scope[REQUEST_KEY] = context
        body = _Body(receive, headers)
        answer = _Answer(send, body, context)
        started = time.perf_counter()
        self._in_flight += 1
        try:
            await self._run(scope, headers, body, answer)
        finally:
            self._in_flight -= 1
            self._record(scope, context, answer.status, time.perf_counter() - started)

    async def _run(self, scope: Scope, headers: Headers, body: _Body, answer: _Answer) -> None:
        """Run the application and answer the exceptions that it did not handle. Raises only cancellation."""
        try:
            if self._in_flight > REQUESTS_MAX:
                raise errors.ApiError(503, 50003, "Too many requests at once.", {"retry-after": "1"})
            if scope["path"] not in _PROBES:
                self._check_host(headers.get("host", ""))
            body.check_announced_length()
            _set_path(scope)
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                await self._app(scope, body.receive, answer.send)
        except errors.ApiError as error:
            await answer.give(scope, body.receive, error)
        except TimeoutError:
            await answer.give(scope, body.receive, errors.of_status(408, "The request took too long."))
        except Exception:
            context: RequestContext = scope[REQUEST_KEY]
            log.exception("request failed", request_id=context.request_id, correlation_id=context.correlation_id)
            await answer.give(scope, body.receive, errors.internal_error())

    def _check_host(self, host: str) -> None:
        if self._allowed_hosts is not None and _host_name(host) not in self._allowed_hosts:
            raise errors.of_status(
                421, "This host name is not served; MILLRACE_ADMIN_ALLOWED_HOSTS can add it.", {"connection": "close"}
            )

    def _record(self, scope: Scope, context: RequestContext, status: int, seconds: float) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", "unmatched")
        self._metrics.requests.labels(method, route, str(status)).inc()
        self._metrics.duration.labels(method, route).observe(seconds)
        if logs.debug_enabled():
            log.debug(
                "request",
                request_id=context.request_id,
                correlation_id=context.correlation_id,
                method=scope["method"],
                path=scope["path"],
                route=route,
                status=status,
                duration_ms=round(seconds * 1000, 3),
            )


class _Body:
    """The body on its way in, counted: a chunked one announces no length."""

    __slots__ = ("_announced", "_receive", "_received", "to_come")

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self._announced = headers.get("content-length", "")
        self._received = 0
        has_body = self._announced not in ("", "0") or "transfer-encoding" in headers
        #: Whether more bytes will come. A client that expects 100 Continue sends nothing until the body is read.
        self.to_come = has_body and "expect" not in headers

    def check_announced_length(self) -> None:
        digits = self._announced
        if digits.isascii() and digits.isdigit() and (len(digits) > 18 or int(digits) > BODY_BYTES_MAX):
            raise _too_large()

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        self.to_come = bool(message.get("more_body"))
        if self._received > BODY_BYTES_MAX:
            raise _too_large()
        return message

    async def drain(self) -> None:
        """Discard the rest of the body, within limits: a sender that is cut off in the middle sees no answer."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.to_come and self._received <= DRAIN_BYTES_MAX:
                    message = await self._receive()
                    self._received += len(message.get("body", b""))
                    self.to_come = bool(message.get("more_body"))


class _Answer:
    """The answer on its way out: gets the common headers, and remembers whether and how it began."""

    __slots__ = ("_body", "_context", "_send", "status")

    def __init__(self, send: Send, body: _Body, context: RequestContext) -> None:
        self._send = send
        self._body = body
        self._context = context
        #: 0 until the answer began; 499, nginx's word, is for a caller that left before.
        self.status = 499

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self._context.request_id
            for name, value in _SAFE_HEADERS.items():
                headers.setdefault(name, value)
        elif self._body.to_come and not message.get("more_body"):
            # The answer is out before the rest of the body is read, and only then is it over.
            await self._send({**message, "more_body": True})
            await self._body.drain()
            message = {"type": "http.response.body", "body": b"", "more_body": False}
        await self._send(message)

    async def give(self, scope: Scope, receive: Receive, error: errors.ApiError) -> None:
        """Answer with the error. If another answer has begun, do nothing: the server cuts that one off."""
        if self.status == 499:
            await error_response(error)(scope, receive, self.send)


def error_response(error: errors.ApiError) -> JSONResponse:
    return JSONResponse(
        {"error_code": error.error_code, "message": error.message}, status_code=error.status_code, headers=error.headers
    )


def _request_id(given: str | None) -> str:
    return given if given is not None and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _set_path(scope: Scope) -> None:
    path = unquote(_KEPT_ESCAPES.sub(b"%25", scope["raw_path"]).decode("latin-1")) if scope.get("raw_path") else None
    if path is not None:
        scope["path"] = path
    if scope["path"].startswith(_KAFKA_PREFIX + "/v3/"):
        scope["root_path"] = _KAFKA_PREFIX


def _host_name(host: str) -> str:
    name = host.rpartition("]")[0] + "]" if host.startswith("[") else host.partition(":")[0]
    return name.lower()


def _too_large() -> errors.ApiError:
    message = f"The request body is larger than {BODY_BYTES_MAX} bytes."
    return errors.of_status(413, message, {"connection": "close"})
