"""Request bodies: read whole within limits of size and time, parsed within limits of structure.

    BODY_BYTES_MAX    bytes of a body, on every route but those that read theirs in parts, with limits of their own
    BODY_TIMEOUT_S    from the head to the last byte
    VALUES_MAX        commas and opening brackets: about the number of values in the JSON text
    MEMBERS_MAX       members of one object

A value of JSON can be as short as a comma, and its object in Python takes up to 200 bytes. The limits of structure keep
the memory of a request at 20 times BODY_BYTES_MAX.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Message, Receive

from service_chassis.http import errors

#: The key of the Body in the ASGI scope, for an endpoint that reads it in parts.
BODY_KEY = "service_chassis.http.body"
#: A topic with 34 configurations and the assignments of 1,000 partitions takes 40 KB.
BODY_BYTES_MAX = 65_536
#: nginx's client_body_timeout is 60 s, but between two reads and for bodies of any size.
BODY_TIMEOUT_S = 10.0
VALUES_MAX = 4096
MEMBERS_MAX = 16
#: Limits, in bytes and seconds, of reading a refused body before its sender is cut off; nginx lingers for 5 s.
DRAIN_BYTES_MAX = 256 * BODY_BYTES_MAX
DRAIN_TIMEOUT_S = 5.0


class Body:
    """The body of one request on its way in."""

    __slots__ = ("_announced", "_receive", "_received", "_whole", "to_come")

    def __init__(self, receive: Receive, headers: Headers) -> None:
        self._receive = receive
        self._announced = headers.get("content-length", "")
        self._received = 0
        self._whole: bytes | None = b""
        has_body = self._announced not in ("", "0") or "transfer-encoding" in headers
        #: Whether more bytes will come. A client that expects 100 Continue sends nothing until the body is read.
        self.to_come = has_body and "expect" not in headers
        if has_body:
            self._whole = None

    async def read(self, timeout_s: float = BODY_TIMEOUT_S) -> None:
        """Read the whole body, for `receive`.

        Raises:
            ApiError: it is too large or too slow.
            ClientDisconnect: its sender left before its end.
        """
        digits = self._announced
        if digits.isascii() and digits.isdigit() and (len(digits) > 18 or int(digits) > BODY_BYTES_MAX):
            raise _too_large()
        if self._whole is not None:
            return
        whole = bytearray()
        self.to_come = True
        try:
            async with asyncio.timeout(timeout_s):
                while self.to_come:
                    whole += await self._next()
                    if len(whole) > BODY_BYTES_MAX:
                        raise _too_large()
        except TimeoutError:
            raise errors.of_status(408, "The request body took too long.", {"connection": "close"}) from None
        self._whole = bytes(whole)

    async def parts(self, bytes_max: int, silence_s: float = BODY_TIMEOUT_S) -> AsyncIterator[bytes]:
        """Yield the parts of a body that `read` did not read, as they arrive.

        Raises:
            ApiError: the body is larger than `bytes_max`, or no part comes for `silence_s`.
            ClientDisconnect: its sender left before its end.
        """
        self.to_come = self._whole is None
        while self.to_come:
            try:
                async with asyncio.timeout(silence_s):
                    part = await self._next()
            except TimeoutError:
                raise errors.of_status(408, "The request body took too long.", {"connection": "close"}) from None
            if self._received > bytes_max:
                raise _too_large(bytes_max)
            yield part

    async def receive(self) -> Message:
        """Return the body that `read` got, and then the caller's departure, as ASGI has it."""
        if self._whole is None:
            return await self._receive()
        whole, self._whole = self._whole, None
        return {"type": "http.request", "body": whole, "more_body": False}

    async def drain(self) -> None:
        """Discard the rest of the body, within limits: a sender that is cut off in the middle sees no answer."""
        with contextlib.suppress(TimeoutError, ClientDisconnect):
            async with asyncio.timeout(DRAIN_TIMEOUT_S):
                while self.to_come and self._received <= DRAIN_BYTES_MAX:
                    await self._next()

    async def _next(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self.to_come = False
            raise ClientDisconnect  # mutant: cut-off-body
        part: bytes = message.get("body", b"")
        self._received += len(part)
        self.to_come = bool(message.get("more_body"))
        return part


def parsed(body: bytes) -> Any:
    """Return the value of a JSON text. Raises ApiError for too large a structure, ValueError for other texts."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") > VALUES_MAX:  # mutant: json-values-bounded
        raise errors.of_status(400, f"The body has more than {VALUES_MAX} commas and opening brackets.")
    return json.loads(body, object_pairs_hook=_object)


def require_json(request: Request) -> None:
    """Refuse a body of another media type, such as the form of a web page, and a compressed one (RFC 9110, 8.4)."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise errors.of_status(415, "The body must be JSON, with Content-Type: application/json.")
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise errors.of_status(415, "The body must not be compressed: no Content-Encoding is understood.")


class _JsonRequest(Request):
    async def json(self) -> Any:
        return parsed(await self.body())


class JsonRoute(APIRoute):
    """A route whose body, if it has one, must be JSON: the form of a web page is refused (415).

    FastAPI takes milliseconds of the processor for each route: signatures, validators. A service has many. So the rest
    of a route is made when a request or the description needs it first. Until then it matches, and has dependencies.
    """

    #: The event loop makes routes, and a thread that describes them.
    _making = threading.RLock()

    def __init__(self, path: str, endpoint: Callable[..., Any], **given: Any) -> None:
        self._given: tuple[str, Callable[..., Any], dict[str, Any]] | None = (path, endpoint, given)
        self.path, self.endpoint = path, endpoint
        self.path_regex, self.path_format, self.param_convertors = compile_path(path)
        self.methods = {method.upper() for method in given["methods"]}
        self.dependencies = list(given.get("dependencies") or ())

    def __getattr__(self, name: str) -> Any:
        """Make the rest of the route, and return an attribute of it."""
        with self._making:
            given, self._given = self.__dict__.get("_given"), None
            if given is not None:
                path, endpoint, options = given
                super().__init__(path, endpoint, **options)
            try:
                return self.__dict__[name]
            except KeyError:
                raise AttributeError(name) from None

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_json(request: Request) -> Response:
            require_json(request)
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members) > MEMBERS_MAX:  # mutant: json-members-bounded
        raise errors.of_status(400, f"An object of the body has more than {MEMBERS_MAX} members.")
    return dict(members)


def _too_large(bytes_max: int = BODY_BYTES_MAX) -> errors.ApiError:
    message = f"The request body is larger than {bytes_max} bytes."
    return errors.of_status(413, message, {"connection": "close"})
