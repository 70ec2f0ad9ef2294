"""A call of a gRPC client: what the server answers, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2 import headers
from service_chassis.http2.connection import Connection
from service_chassis.http2.frames import DATA, END_STREAM, ErrorCode, frame
from service_chassis.http2.headers import Fields, Metadata
from service_chassis.http2.stream import Stream

#: The status of an answer without `grpc-status`, by its HTTP status (gRPC's http-grpc-status-mapping).
_OF_HTTP: Final = {
    "400": Status.INTERNAL,
    "401": Status.UNAUTHENTICATED,
    "403": Status.PERMISSION_DENIED,
    "404": Status.UNIMPLEMENTED,
    "429": Status.UNAVAILABLE,
    "502": Status.UNAVAILABLE,
    "503": Status.UNAVAILABLE,
    "504": Status.UNAVAILABLE,
}


class ClientCall(Stream):
    """A call: messages by `read` and `write`, or by `receive`, `send_from` and `on_room`. `ended` waits for its end."""

    __slots__ = ("_error", "_first_fields", "_has_finished", "_parse", "_serialize", "details", "on_begin", "status")

    def __init__(
        self,
        connection: Connection,
        stream_id: int,
        serialize: Callable[[Any], Any] | None,
        parse: Callable[[Any], Any] | None,
        message_bytes_max: int,
    ) -> None:
        super().__init__(connection, stream_id, message_bytes_max)
        self._serialize, self._parse = serialize, parse
        self._first_fields: Fields | None = None
        self._has_finished = False
        self._error: Exception | None = None
        #: The end of the call; None before it.
        self.status: Status | None = None
        self.details = ""
        #: The function that gets the metadata which precedes the answers.
        self.on_begin: Callable[[Metadata], None] | None = None

    # -- events of the stream ----------------------------------------------------------------------------------------

    def on_headers(self, fields: Fields, *, ends: bool) -> None:
        found = fields.by_name
        http = found.get(":status", "")
        if self._first_fields is None and len(http) == 3 and http[0] == "1":
            return  # an interim answer
        if (
            self._first_fields is None
            and "grpc-status" not in found
            and (http != "200" or not found.get("content-type", "application/grpc").startswith("application/grpc"))
        ):
            self._end(_OF_HTTP.get(http, Status.UNKNOWN), f"the answer is HTTP {http[:20]}, not gRPC")
        elif ends:
            status = Status.of(found["grpc-status"]) if "grpc-status" in found else Status.UNKNOWN
            self._end(status, headers.unescaped(found.get("grpc-message", "")))
        elif self._first_fields is None:
            self._first_fields = fields
            if self.on_begin is not None:
                try:
                    self.on_begin(fields.metadata)
                except Exception as error:
                    self.on_callback_error(error)
            self.wake()
        else:
            self._end(Status.INTERNAL, "HEADERS between messages")

    def on_finished(self) -> None:
        self._has_finished = True

    def on_last_message(self) -> None:
        self._end(Status.INTERNAL, "the server ended the call without a status")

    def on_lost(self, status: Status, details: str) -> None:
        self._note_end(status, details)

    def on_callback_error(self, error: Exception) -> None:
        self._error = error
        self.cancel()

    def _note_end(self, status: Status, details: str) -> None:
        if self.status is None:
            self.status, self.details = status, details
            self.half_closed = True
            self.wake()

    def _end(self, status: Status, details: str) -> None:
        self._note_end(status, details)
        if self._has_finished:
            self.connection.forget(self)
        else:  # the server does not want the rest
            self.connection.reset(self, ErrorCode.CANCEL)

    @property
    def may_repeat(self) -> bool:
        """Whether the call has ended before the server did anything for it: it has not begun to answer either."""
        return self.was_refused and self._first_fields is None  # mutant: answered-call-never-repeated

    # -- for callers -------------------------------------------------------------------------------------------------

    def cancel(self) -> None:
        """End the call. Idempotent."""
        self._note_end(Status.CANCELLED, "the caller cancelled the call")
        self.connection.reset(self, ErrorCode.CANCEL)

    def expire(self) -> None:
        """End the call because its time is over. Idempotent."""
        self._note_end(Status.DEADLINE_EXCEEDED, "the deadline is over")
        self.connection.reset(self, ErrorCode.CANCEL)

    def error(self) -> Exception:
        """Return the error of an ended call that did not end with OK."""
        return self._error or RpcError(self.status or Status.OK, self.details)

    async def ended(self) -> None:
        """Wait for the end of the call.

        Raises:
            RpcError: it did not end with OK.
            Exception: the error of the receiver, which has ended the call.
        """
        while self.status is None:
            await self.news()
        if self._error is not None or self.status is not Status.OK:
            raise self.error()

    async def initial_metadata(self) -> Metadata:
        """Wait for the metadata that precedes the answers.

        Raises:
            RpcError: the call has ended without it.
        """
        while self._first_fields is None and self.status is None:
            await self.news()
        if self._first_fields is None:
            raise self.error()
        return self._first_fields.metadata

    async def read(self) -> Any:
        """Return the next message of the server; None after the last one.

        Raises:
            RpcError: the call did not end with OK.
        """
        message = await self.next_message()
        if message is None:
            await self.ended()
            return None
        return message if self._parse is None else self._parse(message)

    async def write(self, message: Any) -> None:
        """Send a message, and wait until there is room for another.

        Raises:
            RpcError: the call has ended.
        """
        wire = message if self._serialize is None else self._serialize(message)
        if not self.is_open:
            raise self.error()
        self.send((wire,), len(wire))
        await self.room()

    def done_writing(self) -> None:
        """Tell the server that the last message was sent."""
        self.finish(frame(DATA, END_STREAM, self.id))
