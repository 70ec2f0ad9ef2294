"""Answers that go on for as long as their client receives: a download ends with its records, a tail with its client.

The answer owns its client of the gateway from before the head is sent until the end, however that comes: the last
record, a client that leaves, a failure, or the stop of the server. While the receiver is slow, nothing is fetched.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from service_chassis.http.ring import LASTING_KEY
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from admin_api.kafka_clients import KafkaClient, KafkaClients, Use


class LastingResponse(StreamingResponse):
    """A response without a time limit. Its end closes the stack of the things that it holds."""

    def __init__(self, parts: AsyncIterator[bytes], held: AsyncExitStack, *, media_type: str, **headers: str) -> None:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        super().__init__(parts, media_type=media_type, headers=named)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_lasting(message: Message) -> None:
            if message["type"] == "http.response.start":
                message[LASTING_KEY] = True
            await send(message)

        async with self._held:  # mutant: download-client-released
            await super().__call__(scope, receive, send_lasting)

    @classmethod
    def empty(cls, *, media_type: str, **headers: str) -> LastingResponse:
        """Return a response that holds nothing and ends at once: the answer to HEAD."""

        async def nothing() -> AsyncGenerator[bytes]:
            return
            yield b""

        return cls(nothing(), AsyncExitStack(), media_type=media_type, **headers)


async def borrowed(
    clients: KafkaClients, use: Use, may_read: Callable[[], Awaitable[None]]
) -> tuple[KafkaClient, AsyncExitStack]:
    """Return a connected client, and the stack that returns it. Raises ApiError as long as there is no answer.

    The client asks `may_read` again and again: a stream may last longer than the right to read.
    """
    async with AsyncExitStack() as held:
        client = await held.enter_async_context(clients.borrow(use))
        client.may_read = may_read
        await client.connect()
        return client, held.pop_all()
    raise AssertionError  # a stack does not suppress exceptions
