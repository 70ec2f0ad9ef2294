"""grpc.health.v1 (https://grpc.io/docs/guides/health-checking): Check and Watch for the server as a whole.

Messages are encoded here, as each has one field: a request has the name of a service, an answer its status.
"""

from __future__ import annotations

import asyncio
import enum
from typing import Final

from service_chassis.grpc_server import Server, ServerCall, answers, unary
from service_chassis.grpc_status import RpcError, Status

SERVICE: Final = "grpc.health.v1.Health"
_REQUEST_BYTES_MAX: Final = 1024


class Serving(enum.IntEnum):
    """The status of a service in an answer."""

    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3


class HealthService:
    """The health of a server: NOT_SERVING until `set_serving`."""

    def __init__(self, target: Server) -> None:
        self._status = Serving.NOT_SERVING
        self._changed = asyncio.Event()
        check = unary(self._check, _service, _answer, request_bytes_max=_REQUEST_BYTES_MAX)
        watch = answers(self._watch, _service, _answer, request_bytes_max=_REQUEST_BYTES_MAX)
        target.add(SERVICE, {"Check": check, "Watch": watch})

    def set_serving(self, serving: bool) -> None:
        self._status = Serving.SERVING if serving else Serving.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _check(self, service: str, _call: ServerCall) -> Serving:
        if service:
            raise RpcError(Status.NOT_FOUND, "the server has one status, that of the empty name")
        return self._status

    async def _watch(self, service: str, call: ServerCall) -> None:
        """Send the status, and again whenever it has changed, until the client has enough."""
        while True:
            changed = self._changed
            await call.write(Serving.SERVICE_UNKNOWN if service else self._status)
            await changed.wait()


def _service(request: bytes) -> str:
    """Return the name in a HealthCheckRequest.

    Raises:
        RpcError: it has another form.
    """
    if not request:
        return ""
    if len(request) < 2 or request[0] != 0x0A or request[1] != len(request) - 2:  # shorter than 128 bytes
        raise RpcError(Status.INVALID_ARGUMENT, "not a request of grpc.health.v1")
    return request[2:].decode(errors="replace")


def _answer(status: Serving) -> bytes:
    return bytes((0x08, status))
