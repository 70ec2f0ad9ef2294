"""The begin of a connection: how its bytes travel, and who its client is.

    wire ready ── Login ┬ at once ────────────── RequestPath        `open_login`: as its certificate names it
                        └ Requests of its own ── RequestPath        it has asked the client, by requests

A login that asks serves the connection's requests itself (`clients.resources.Requests`). Its frames are shorter, it has
a deadline, and the connection counts as new until it has ended. It opens and answers calls as a RequestPath does, so
the ring counts and logs its requests, too.

The principal belongs to the connection from then on. All that handlers and patterns have learned of the connection
belongs to its RequestPath, which the next login replaces.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from gateway_svc.clients.connection import Connection
from gateway_svc.clients.pipeline import Pipeline
from gateway_svc.clients.plain_wire import PlainWire
from gateway_svc.clients.resources import Requests
from gateway_svc.clients.wire import MakeWire
from gateway_svc.requests.call import Call
from gateway_svc.requests.path import PathContext, RequestPath


@dataclass(frozen=True, slots=True)
class Arrival:
    """A connection whose wire is ready, and the parts that serve it."""

    client: Connection
    context: PathContext
    pipeline: Pipeline
    #: The buffer of all reads.
    shared: bytearray

    def open(self, frame: bytes) -> tuple[Call, Any]:
        """Return the call and the request of a frame that a login serves itself; the call waits in its place.

        Raises:
            RequestRefused: the frame is no request that this gateway serves.
        """
        context = self.context
        call, request = context.dispatcher.open(self.client, context.admission, frame)
        context.memory.take(self.client.share, call.size)
        self.pipeline.open(call)
        return call, request

    def enter(self, principal: str) -> Requests:
        """Let the client in as this user; return its RequestPath.

        A login that returned other Requests before has the connection use it (`Connection.serve`).
        """
        self.client.log_in(principal)
        return RequestPath(self.client, self.context, self.pipeline, self.shared)


#: A function that returns the first Requests of a connection: its RequestPath, or those of a login that asks.
Login = Callable[[Arrival], Requests]


def open_login(arrival: Arrival) -> Requests:
    """Let every client in, as the user of its certificate if it has shown one."""
    return arrival.enter(arrival.client.wire_principal)


@dataclass(frozen=True, slots=True)
class SecurityProtocol:
    """The wire and the login of a listener's connections (Kafka's `SecurityProtocol`)."""

    make_wire: MakeWire = PlainWire
    login: Login = open_login


PLAINTEXT: Final = SecurityProtocol()
