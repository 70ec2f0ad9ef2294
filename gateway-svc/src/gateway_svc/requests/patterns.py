"""Requests that are recognised by their bytes: the Protocol of a pattern, and the patterns of one connection.

The first four bytes of a request, API key and version, choose the pattern, which compares the other bytes. A handler
declares its pattern (`Handler.pattern`). The path uses a pattern only while the rights of its requests are current.
After that the next request is decoded, judged and learned again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.requests.call import Call, Client, Ring
from gateway_svc.requests.rights import Rights

Store = bytes | bytearray


class Pattern(Protocol):
    """A template of one connection's requests of one API and version."""

    #: The rights by which the requests it learned from were judged; OUTDATED if it has learned none.
    rights: Rights

    def open(self, store: Store, begin: int, frame_end: int, end: int) -> Call | None:
        """Return the call of the request between `begin` and `frame_end`, or None if it must be decoded.

        The call may cover requests after it, up to `end`; its `size` is the distance from `begin` to the end of the
        last one. `store` is overwritten when this returns, so a call copies the bytes that it keeps.
        """
        ...

    def serve(self, call: Call) -> None:
        """Serve a call that `open` returned."""
        ...

    def learn(self, call: Call, request: Any, frame: bytes | memoryview, kept: object) -> None:
        """Learn from a decoded request that was admitted. `kept`: the return value of its handler's `serve`."""
        ...

    def forget(self) -> None:
        """Forget all requests."""
        ...


#: The context of the handler.
C = TypeVar("C")
#: A function that makes a connection's pattern. Its last argument is the buffer of all reads; other stores hold one
#: request.
MakePattern = Callable[[Client, Ring, C, Pipeline, bytearray], Pattern]


class Patterns:
    """The patterns of one connection, at most one for each API. Owned by its RequestPath."""

    __slots__ = ("_client", "_keys", "_pipeline", "_ring", "_shared", "by_api_and_version")

    def __init__(self, client: Client, ring: Ring, pipeline: Pipeline, shared: bytearray) -> None:
        self._client = client
        self._ring = ring
        self._pipeline = pipeline
        self._shared = shared
        #: The patterns by API key << 16 | version.
        self.by_api_and_version: dict[int, Pattern] = {}
        self._keys: dict[int, int] = {}

    def learn(
        self, make: MakePattern[C], context: C, call: Call, request: Any, frame: bytes | memoryview, kept: object
    ) -> None:
        """Have the API's pattern learn from a decoded request. A pattern of another version is forgotten."""
        route = call.route
        start = route.api_key << 16 | route.version
        pattern = self.by_api_and_version.get(start)
        if pattern is None:
            earlier = self._keys.get(route.api_key)
            if earlier is not None:
                self.by_api_and_version.pop(earlier).forget()
            pattern = make(self._client, self._ring, context, self._pipeline, self._shared)
            self.by_api_and_version[start] = pattern
            self._keys[route.api_key] = start
        pattern.learn(call, request, frame, kept)

    def close(self) -> None:
        """Forget all of them: the client is gone."""
        for pattern in self.by_api_and_version.values():
            pattern.forget()
        self.by_api_and_version.clear()
