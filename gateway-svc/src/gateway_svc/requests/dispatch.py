"""From a request's bytes to its handler.

The table of routes is built from the handlers' own declarations; what ApiVersions answers is read from the same. What
cannot be routed or parsed is refused: logged, counted, and the connection closed, as Kafka does. One exception, also
Kafka's: an ApiVersions request of an unknown version is answered in version 0 with error 35, so that newer clients
can step down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode_prefix, decoder
from protocol_lib.errors import DecodeError
from protocol_lib.headers import RequestHeader, decode_request_header, encode_response_header
from service_chassis import logs

from gateway_svc.clients.pipeline import Kind
from gateway_svc.errors import RequestRefused, StorageUnavailable
from gateway_svc.handlers import api_versions
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.requests.call import Call, Client, Route, Services
from gateway_svc.requests.route import Handler, TaskHandler

#: Requests other than Produce are all structure: a decoded one takes some forty times its bytes. No client comes near
#: this, which is ten thousand partitions with names of the greatest length, several times over.
CONTROL_REQUEST_BYTES_MAX = 16 << 20

log = logs.get(__name__)


class Dispatcher:
    """Owned by the gateway; used from its event loop."""

    def __init__(self, handlers: Sequence[Handler], metrics: GatewayMetrics) -> None:
        self._handlers: dict[int, Handler] = {}
        self._routes: dict[tuple[int, int], Route] = {}
        self._kinds: dict[int, Kind] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._metrics = metrics
        for handler in handlers:
            self._register(handler)

    def _register(self, handler: Handler) -> None:
        key = int(handler.api_key)
        if key in self._handlers:
            raise ValueError(f"{handler.api_key.name} is registered twice")
        api = APIS[key]
        if handler.min_version < api.min_version or handler.max_version > api.max_version:
            raise ValueError(f"{api.name}: versions {handler.min_version}-{handler.max_version} are not all declared")
        self._handlers[key] = handler
        self._metrics.api(api.name)  # shown as 0 until it is asked for
        for version in range(handler.min_version, handler.max_version + 1):
            kind = Kind.CONTROL if version < handler.alone_below else handler.kind
            self._kinds[key << 16 | version] = kind

    def _route(self, key: int, version: int) -> Route | None:
        """Of a request; None when it is not served. Made when the first one comes: compiling the decoders of every
        version of everything takes a tenth of the start."""
        handler = self._handlers.get(key)
        if handler is None or not handler.min_version <= version <= handler.max_version:
            return None
        api = APIS[key]
        route = self._routes[key, version] = Route(
            api_key=key,
            api_name=api.name,
            version=version,
            kind=self._kinds[key << 16 | version],
            handler=handler,
            decode=decoder(api.request, version),
            header_tail=encode_response_header(key, version, 0)[4:],
            by_parts=key == ApiKey.FETCH,
            may_park=handler.may_park,
            counts=self._metrics.api(api.name),
        )
        return route

    @property
    def api_ranges(self) -> tuple[tuple[int, int, int], ...]:
        """(API key, lowest, highest version) of everything served, by key."""
        return tuple((key, each.min_version, each.max_version) for key, each in sorted(self._handlers.items()))

    def kind(self, start: int) -> Kind:
        """How a request shares its connection, by its first four bytes: API key and version."""
        return self._kinds.get(start, Kind.CONTROL)

    def open(self, client: Client, frame: bytes | memoryview) -> tuple[Call, Any]:
        """The request's call and its decoded body.

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
        elif len(frame) > CONTROL_REQUEST_BYTES_MAX and header.api_key != ApiKey.PRODUCE:
            raise _refusal("request_too_large", f"{len(frame)} bytes", header)
        else:
            try:
                request = _decode(route, frame, position)
            except DecodeError as error:
                raise _refusal("malformed_body", str(error), header) from error
        call = Call(client, route, header.correlation_id, header.client_id, len(frame))
        if logs.debug_enabled():
            log.debug(
                "request",
                api=route.api_name,
                version=header.api_version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                peer=client.peer,
                bytes=len(frame),
            )
        return call, request

    def _unknown_version(self, header: RequestHeader) -> tuple[Route, Any]:
        if header.api_key == ApiKey.API_VERSIONS and (lowest := self._route(ApiKey.API_VERSIONS, 0)) is not None:
            return lowest, api_versions.UNSUPPORTED
        if header.api_key in self._handlers:
            raise _refusal("unsupported_version", "", header)
        raise _refusal("unknown_api", "", header)

    def start(self, call: Call, request: Any, services: Services) -> None:
        """Hands the request to its handler, which answers now or later."""
        handler = call.route.handler
        if type(handler) is TaskHandler:
            task = services.loop.create_task(self._run(handler, call, request, services), name=call.route.api_name)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        try:
            handler.serve(call, request, services)
        except Exception as error:
            call.failed(error)

    async def _run(self, handler: TaskHandler, call: Call, request: Any, services: Services) -> None:
        try:
            response, error = await handler.handle(call, request, services)
            call.answer(response, error)
        except StorageUnavailable as error:
            call.refuse("storage_unavailable", str(error))
        except Exception as error:
            call.failed(error)

    async def close(self, deadline_s: float) -> int:
        """Waits for the requests in service; returns how many had to be cut off."""
        tasks = set(self._tasks)
        if not tasks:
            return 0
        _, late = await asyncio.wait(tasks, timeout=deadline_s)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)


def _decode(route: Route, frame: bytes | memoryview, position: int) -> Any:
    """The request's body. Bytes after it are ignored, as Apache Kafka does.

    librdkafka 2 depends on it: asking for all topics in a flexible version of Metadata, it writes the null array in
    four bytes where one is enough, so that three bytes are left over.
    """
    try:
        return route.decode(frame, position)
    except DecodeError:
        return decode_prefix(APIS[route.api_key].request, route.version, frame, position)


def _refusal(reason: str, detail: str, header: RequestHeader) -> RequestRefused:
    return RequestRefused(
        reason,
        detail,
        client_id=header.client_id,
        api_key=header.api_key,
        version=header.api_version,
        correlation_id=header.correlation_id,
    )
