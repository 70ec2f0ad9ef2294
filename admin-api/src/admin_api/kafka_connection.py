"""One connection to a gateway: aiokafka's, which reads no answer before there is memory for it.

Only `kafka_clients` imports this module, when a client first connects: aiokafka takes 5 MB.
"""

from __future__ import annotations

import asyncio
import struct
import weakref
from typing import Any

from aiokafka.conn import AIOKafkaConnection, CloseReason
from aiokafka.errors import KafkaError
from service_chassis.address import Address

from admin_api.answer_memory import ANSWER_BYTES_MAX, AnswerMemory, AnswerTooLargeError

__all__ = ["CLIENT_ID", "KafkaConnection"]

CLIENT_ID = "admin-api"
#: aiokafka holds an answer twice while it decodes it.
_COPIES = 2
_LENGTH = struct.Struct(">i")


class KafkaConnection:
    """A connection with at most one request under way."""

    def __init__(self, address: Address, timeout_s: float, memory: AnswerMemory) -> None:
        self._wire = _Wire(
            address.host, address.port, client_id=CLIENT_ID, request_timeout_ms=max(1, int(timeout_s * 1000))
        )
        self._wire.memory = memory

    @property
    def is_open(self) -> bool:
        connected: bool = self._wire.connected()
        return connected

    async def open(self) -> None:
        """Connect. Raises OSError, also for a peer that does not answer in time or is no broker."""
        try:
            await self._wire.connect()
        except (KafkaError, ValueError) as error:
            raise ConnectionError(str(error)) from error
        self._wire.release()

    async def exchange(self, request: Any) -> Any:
        """Send one of aiokafka's requests and return its answer. A failure leaves the connection to be closed.

        Raises:
            AnswerTooLargeError: the answer exceeds ANSWER_BYTES_MAX.
            TimeoutError: no answer came in time.
            ConnectionError: the connection is lost.
        """
        try:
            return await self._wire.send(request)
        except KafkaError as error:
            if isinstance(error.__cause__, AnswerTooLargeError):
                raise error.__cause__ from None
            raise ConnectionError(str(error)) from error

    def use(self, memory: AnswerMemory) -> None:
        """Let the next answers count in this memory."""
        self.release()
        self._wire.memory = memory

    def release(self) -> None:
        """Release the memory of the last answer."""
        self._wire.release()

    def close(self) -> None:
        self._wire.release()
        self._wire.close(CloseReason.SHUTDOWN)


class _Wire(AIOKafkaConnection):  # type: ignore[misc]  # aiokafka has no types
    memory: AnswerMemory
    _reserved = 0

    def release(self) -> None:
        size, self._reserved = self._reserved, 0
        self.memory.release(size)

    async def reserve(self, size: int) -> None:
        if not 0 <= size <= ANSWER_BYTES_MAX:
            raise AnswerTooLargeError(f"an answer of {size} bytes")
        await self.memory.reserve(_COPIES * size)
        self._reserved += _COPIES * size

    @staticmethod
    async def _read(self_ref: weakref.ref[_Wire]) -> None:
        """Hand over one answer after the other, as aiokafka's own loop does. Any exception closes the connection."""
        self = self_ref()
        reader: asyncio.StreamReader | None = None if self is None else self._reader
        while self is not None and reader is not None:
            del self  # a connection that nobody has any more may go while its reader waits
            (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            self = self_ref()
            if self is not None:
                await self.reserve(size)  # mutant: answer-memory-reserved
                self._handle_frame(await reader.readexactly(size))
