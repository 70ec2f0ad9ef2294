"""From a request's bytes to its handler.

The table of routes is built from the handlers' own declarations; ApiVersions answers from the same. A request that
cannot be routed or parsed is refused: logged, counted, and the connection closed, as Kafka does. One exception, also
Kafka's: an ApiVersions request of an unknown version is answered in version 0 with error 35. So newer clients can step
down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from dataclasses import fields
from functools import partial
from inspect import iscoroutine
from struct import Struct
from typing import Any, Final

from protocol_lib.api import APIS
from protocol_lib.codec import prefix_decoder
from protocol_lib.errors import DecodeError, TooManyElements
from protocol_lib.headers import RequestHeader, decode_request_header, encode_response_header

from gateway_svc.clients.pipeline import CONTROL, Kind
from gateway_svc.errors import AnswerTooLarge, RequestRefused, StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.handler import OLD_ELEMENTS_MAX, Handler
from gateway_svc.requests.rights import Verdict
from gateway_svc.requests.route import Route
from gateway_svc.requests.subject import Subject
from gateway_svc.requests.turns import is_long

_header_start: Final = Struct(">hhi").unpack_from


def api_ranges(handlers: Iterable[Handler[Any]]) -> tuple[tuple[int, int, int], ...]:
    """Return (API key, lowest, highest version) of everything these handlers serve, by key."""
    return tuple(sorted((int(each.api_key), each.min_version, each.max_version) for each in handlers))


class Dispatcher:
    """The table of routes. The gateway owns it; only the event loop uses it."""

    def __init__(self, handlers: Sequence[Handler[Any]], contexts: Iterable[object], metrics: GatewayMetrics) -> None:
        """Serve these APIs. `contexts` has one of each class that a handler names.

        Raises:
            ValueError: an API is registered twice, in versions that are not declared, or without its context.
        """
        self.handlers: dict[int, Handler[Any]] = {}
        #: The context of each API's handler.
        self.contexts: dict[int, Any] = {}
        by_class = {type(each): each for each in contexts}
        self._as_task: set[int] = set()
        self._routes: dict[tuple[int, int], Route] = {}
        self._kinds: dict[int, Kind] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        for handler in handlers:
            if handler.context not in by_class:
                raise ValueError(f"{handler.api_key.name}: there is no {handler.context.__name__}")
            self._register(handler, by_class[handler.context])

    def _register(self, handler: Handler[Any], context: object) -> None:
        key = int(handler.api_key)
        if key in self.handlers:
            raise ValueError(f"{handler.api_key.name} is registered twice")
        api = APIS[key]
        if handler.min_version < api.min_version or handler.max_version > api.max_version:
            raise ValueError(f"{api.name}: versions {handler.min_version}-{handler.max_version} are not all declared")
        self.handlers[key] = handler
        self.contexts[key] = context
        if handler.runs_as_task:
            self._as_task.add(key)
        self._metrics.api(api.name)  # shown as 0 until a request arrives
        for version in range(handler.min_version, handler.max_version + 1):
            kind = CONTROL if version < handler.alone_below else handler.kind
            self._kinds[key << 16 | version] = kind

    def _route(self, key: int, version: int) -> Route | None:
        """Return the route of a request, or None when it is not served.

        A route is made when its first request arrives: compiling the decoders of all APIs and versions would take a
        tenth of the start.
        """
        handler = self.handlers.get(key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            return None
        api = APIS[key]
        # mutant: elements-bounded
        route = self._routes[key, version] = Route(
            api_key=key,
            api_name=api.name,
            version=version,
            kind=self._kinds[key << 16 | version],
            # librdkafka 2 asks for all topics of Metadata with three bytes after the message. Kafka ignores them, too.
            decode=prefix_decoder(
                api.request, version, OLD_ELEMENTS_MAX if version < handler.converted_below else handler.elements_max
            ),
            header_tail=encode_response_header(key, version, 0)[4:],
            by_parts=handler.by_parts,
            may_park=handler.may_park,
            has_throttle="throttle_time_ms" in {each.name for each in fields(api.response)},
            counts=self._metrics.api(api.name),
        )
        return route

    def kind(self, start: int) -> Kind:
        """Return how a request shares its connection, by its first four bytes: API key and version."""
        return self._kinds.get(start, CONTROL)

    def check_long(self, start: bytes | memoryview, size: int) -> None:
        """Check a request of `size` bytes by the first 8 of them, before the rest is received.

        Raises:
            RequestRefused: no request of this API, version and size is served.
        """
        key, version, correlation_id = _header_start(start)
        header = RequestHeader(key, version, correlation_id, None)
        handler = self.handlers.get(key)
        if handler is None:
            raise _refusal("unknown_api", f"a request of {size} bytes", header)
        if handler.request_bytes_max is not None and size > handler.request_bytes_max:
            raise _refusal("request_too_large", f"{size} bytes", header)

    def open(self, client: Client, ring: Ring, frame: bytes | memoryview) -> tuple[Call, Any]:
        """Return the request's call and its decoded body.

        Raises:
            RequestRefused: the frame is no request that this gateway serves.
        """
        try:
            header, position = decode_request_header(frame)
        except DecodeError as error:
            raise RequestRefused("malformed_header", str(error)) from error
        key, version = header.api_key, header.api_version
        route = self._routes.get((key, version)) or self._route(key, version)
        if route is None:
            route, request = self._unknown_version(header)
        else:
            try:
                request = route.decode(frame, position)
            except TooManyElements as error:
                raise _refusal("too_many_elements", str(error), header) from error
            except DecodeError as error:
                raise _refusal("malformed_body", str(error), header) from error
        subject = Subject(route, header.client_id, client.principal)
        return Call(client, ring, subject, header.correlation_id, len(frame)), request

    def _unknown_version(self, header: RequestHeader) -> tuple[Route, Any]:
        handler = self.handlers.get(header.api_key)
        if handler is None:
            raise _refusal("unknown_api", "", header)
        lowest = self._route(header.api_key, handler.min_version)
        if handler.unsupported is None or lowest is None:
            raise _refusal("unsupported_version", "", header)
        return lowest, handler.unsupported

    def serve(self, call: Call, request: Any) -> object:
        """Have the handler serve the request, now or later. Returns the object for its pattern to learn from."""
        key = call.route.api_key
        handler, context = self.handlers[key], self.contexts[key]
        if key in self._as_task:
            task = self._start(call, handler.serve(call, request, context))
            if not handler.is_farewell(request):  # mutant: waiting-join-of-gone-client
                call.abandon = partial(_cancel, task)
            return None
        try:
            kept: object = handler.serve(call, request, context)
        except Exception as error:
            call.failed(error)
            return None
        return kept

    def refuse(self, call: Call, request: Any, error: int) -> None:
        """Answer a request with an error, in the shape of its API."""
        try:
            key = call.route.api_key
            refused = self.handlers[key].refuse(call, request, error, self.contexts[key])
            if iscoroutine(refused):
                self._start(call, refused)
            elif refused is not None:
                call.answer(refused, error)
        except Exception as failure:
            call.failed(failure)

    def complete(self, call: Call, verdict: Verdict, response: Any, error: int) -> tuple[Any, int]:
        """Add the rows of the denied entries to an answer; return it and its first error code.

        An answer that refuses the whole request has no rows.
        """
        key = call.route.api_key
        handler, context = self.handlers[key], self.contexts[key]
        rows = handler.rows
        whole: int = getattr(response, "error_code", 0)
        if rows is None or whole:
            return response, error
        found = list(getattr(response, rows.answered))
        for denied, code in verdict.denied:
            refused = handler.refuse(call, denied, code, context)
            found += getattr(refused, rows.answered)
            error = error or code
        setattr(response, rows.answered, tuple(found))
        return response, error

    def _start(self, call: Call, work: Coroutine[Any, Any, tuple[Any, int]]) -> asyncio.Task[None]:
        running = self._run(call, work)
        if call.ring.throttles:
            running = _timed(call, running)
        task = asyncio.get_running_loop().create_task(running, name=call.route.api_name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, call: Call, work: Coroutine[Any, Any, tuple[Any, int]]) -> None:
        try:
            response, error = await work
            if is_long(response):
                await call.answer_long(response, error)
            else:
                call.answer(response, error)
        except AnswerTooLarge as error:
            call.close_refused("answer_too_large", str(error))
        except StorageUnavailable as error:
            call.close_refused("storage_unavailable", str(error))
        except RequestRefused as refusal:
            call.close_refused(refusal.reason, refusal.detail)
        except Exception as error:
            call.failed(error)

    async def close(self, deadline_s: float) -> int:
        """Wait for the requests in service; return how many were cancelled at the deadline."""
        tasks = set(self._tasks)
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=deadline_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)


class _Steps:
    """The steps of a coroutine, whose time counts for its request. What it waits for does not."""

    def __init__(self, call: Call, work: Coroutine[Any, Any, None]) -> None:
        self._call = call
        self._work = work

    def __await__(self) -> Generator[Any, Any, None]:
        call, work = self._call, self._work
        step: Callable[[Any], Any] = work.send
        given: Any = None
        while True:
            call.resume()
            try:
                awaited = step(given)
            except StopIteration:
                return
            finally:
                call.suspend()  # mutant: steps-of-tasks-counted
            try:
                step, given = work.send, (yield awaited)
            except BaseException as error:  # such as the end of a task whose client is gone
                step, given = work.throw, error


async def _timed(call: Call, work: Coroutine[Any, Any, None]) -> None:
    await _Steps(call, work)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


def _refusal(reason: str, detail: str, header: RequestHeader) -> RequestRefused:
    return RequestRefused(
        reason,
        detail,
        client_id=header.client_id,
        api_key=header.api_key,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )
