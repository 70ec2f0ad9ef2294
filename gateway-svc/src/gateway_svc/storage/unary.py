"""Unary calls of storage, and the answers that clients get when storage gives none (`failed`).

once         at most one call                                     creating a topic
repeatable   another call when storage dies before it answers     listing offsets
parked       one call, as long as it takes                        joining a group

A method that is cancelled cancels its call: storage does not begin one that it has not begun yet.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from broker_contract import stubs
from google.protobuf.message import Message
from protocol_lib.errors import ErrorCode
from service_chassis.grpc_status import RpcError

from gateway_svc.errors import StorageUnavailable
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.storage.group_stream import CONTROL_WAIT_S
from gateway_svc.storage.lasting_stream import RECONNECT_MAX_S

#: Fields that a row of an answer shares with the element of the request.
_SHARED: Final = ("type", "name", "id", "group_id", "member_id")

RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
MessageT = TypeVar("MessageT", bound=Message)
#: A method of the Protocols in `storage.protocols`.
Method = Callable[[RequestT], Coroutine[Any, Any, AnswerT]]
StubMethod = stubs.Unary


class Unary:
    """A maker of the Protocols' methods from one channel's unary calls."""

    def __init__(self, metrics: GatewayMetrics, connected: asyncio.Event) -> None:
        """Make methods that wait for `connected`, where they must not start without storage."""
        self._metrics = metrics
        self._connected = connected

    def once(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT] | None = None,
        timeout_s: float = CONTROL_WAIT_S,
    ) -> Method[RequestT, AnswerT]:
        """Return a method that calls storage once: storage may have done its work before it died.

        Args:
            method: of a stub.
            otherwise: returns the answer when storage has none in time, or raises. Without it the method raises.
            timeout_s: for the call, and for storage to be there.
        """

        async def call(request: RequestT) -> AnswerT:
            try:
                return await self.ask(method, request, timeout_s)
            except StorageUnavailable:
                if otherwise is None:
                    raise
                return otherwise(request)

        return call

    def repeatable(
        self,
        method: StubMethod[RequestT, AnswerT],
        otherwise: Callable[[RequestT], AnswerT],
        may_repeat: Callable[[RequestT], bool] = lambda _: True,
    ) -> Method[RequestT, AnswerT]:
        """Return a method that calls storage again when it died before it answered.

        The call must change nothing the second time, not even after acts of others in between.

        Args:
            method: of a stub.
            otherwise: as for `once`.
            may_repeat: returns whether that holds for a request.
        """

        async def call(request: RequestT) -> AnswerT:
            loop = asyncio.get_running_loop()
            until = loop.time() + CONTROL_WAIT_S
            while True:
                try:
                    return await self.ask(method, request, until - loop.time())
                except StorageUnavailable:
                    if loop.time() + RECONNECT_MAX_S >= until or not may_repeat(request):  # mutant: delete-records-once
                        return otherwise(request)
                    await asyncio.sleep(RECONNECT_MAX_S)

        return call

    def parked(
        self, method: StubMethod[RequestT, AnswerT], otherwise: Callable[[RequestT], AnswerT]
    ) -> Method[RequestT, AnswerT]:
        """Return a method for a call that storage may park for as long as other clients make it wait; it calls once.

        Storage must be there first: the wait for it would be as long otherwise. `otherwise`: as for `once`.
        """

        async def call(request: RequestT) -> AnswerT:
            try:
                async with asyncio.timeout(CONTROL_WAIT_S):
                    await self._connected.wait()
                return await self.ask(method, request, None)
            except (TimeoutError, StorageUnavailable):
                return otherwise(request)

        return call

    async def ask(self, method: StubMethod[RequestT, AnswerT], request: RequestT, timeout_s: float | None) -> AnswerT:
        """Call storage, and wait until it is there. `timeout_s`: None for no end but that of the connection.

        Raises:
            StorageUnavailable: there was no answer in time, or an error instead.
        """
        started = time.perf_counter()
        try:
            return await method(request, timeout=timeout_s, wait_for_ready=True)
        except RpcError as error:
            self._metrics.storage_errors[error.status.name] += 1
            raise StorageUnavailable(str(error)) from error
        finally:
            name = type(request).__name__.removesuffix("Request")
            self._metrics.storage_calls[name].observe(time.perf_counter() - started)


def failed(response: type[MessageT], error: int, **fields: int) -> Callable[[Any], MessageT]:
    """Return a function that makes the answer without storage: the error code with these fields.

    The code is of the whole request or, where the response has no place for that, of each element of its first list.
    """
    shape = response.DESCRIPTOR
    if "error_code" in shape.fields_by_name:
        return lambda request: response(error_code=error, **fields, **_shared(shape, request))
    (rows,) = (each for each in shape.fields if each.is_repeated)

    def answer(request: Message) -> MessageT:
        name = next(each.name for each in request.DESCRIPTOR.fields if each.is_repeated)
        elements = getattr(request, name)
        if rows.message_type is None:
            return response(**{rows.name: [error] * len(elements)})
        made = response()
        for element in elements:
            getattr(made, rows.name).add(error_code=error, **fields, **_shared(rows.message_type, element))
        return made

    return answer


def _shared(shape: Any, element: Any) -> dict[str, Any]:
    """Return the fields by which a handler finds the row of an element; a string is the id of a group."""
    if isinstance(element, str):
        return {"group_id": element} if "group_id" in shape.fields_by_name else {}
    theirs = element.DESCRIPTOR.fields_by_name
    return {name: getattr(element, name) for name in _SHARED if name in shape.fields_by_name and name in theirs}


def timed_out(response: type[MessageT]) -> Callable[[Any], MessageT]:
    return failed(response, ErrorCode.REQUEST_TIMED_OUT)


def not_leader(response: type[MessageT], **fields: int) -> Callable[[Any], MessageT]:
    return failed(response, ErrorCode.NOT_LEADER_OR_FOLLOWER, **fields)


def no_coordinator(response: type[MessageT], **fields: int) -> Callable[[Any], MessageT]:
    return failed(response, ErrorCode.COORDINATOR_NOT_AVAILABLE, **fields)
