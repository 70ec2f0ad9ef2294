"""A proxy between clients and one broker that knows frames: it can count requests, delay answers and hang up.

    async with KafkaProxy(bootstrap) as proxy:
        client = connect(proxy.bootstrap)
        proxy.on_answer = lambda api_key: Action.DROP if api_key == ApiKey.PRODUCE else Action.PASS

Answers with addresses of brokers contain the proxy's address instead, so clients stay on it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Callable
from enum import Enum
from types import TracebackType
from typing import Any, Self

from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, encode
from protocol_lib.headers import decode_request_header, decode_response_header


class Action(Enum):
    PASS = "pass"
    #: hang up instead of passing the frame on
    DROP = "drop"
    #: lose the frame, and every later one in its direction, without hanging up: as a network does that is cut
    STALL = "stall"


Decide = Callable[[ApiKey], Action]
#: Function that returns seconds to wait before the decision about a frame.
Delay = Callable[[ApiKey], float]


def _pass(_: ApiKey) -> Action:
    return Action.PASS


class KafkaProxy:
    def __init__(self, target: str) -> None:
        self.target = target
        #: requests passed on, by API
        self.requests: Counter[ApiKey] = Counter()
        #: sizes of these requests in bytes
        self.sizes: defaultdict[ApiKey, list[int]] = defaultdict(list)
        #: hooks for each request before it reaches the broker, and each answer before it reaches the client
        self.on_request: Decide = _pass
        self.on_answer: Decide = _pass
        #: delays of requests and of answers; later frames of the connection wait too
        self.request_delay: Delay = lambda _: 0.0
        self.answer_delay: Delay = lambda _: 0.0
        #: hook for each request and answer on its way out: "request" or "answer", API, its version, the frame
        self.on_passed: Callable[[str, ApiKey, int, bytes], None] = lambda *_: None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._server.close()
        self.hang_up()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def hang_up(self) -> None:
        """Hang up on all clients."""
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        host, _, port = self.target.rpartition(":")
        try:
            broker_reader, broker_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.transport.abort()
            self._tasks.discard(task)
            return
        ends = {writer, broker_writer}
        self._open |= ends
        asked: dict[int, tuple[ApiKey, int]] = {}
        ways = [
            asyncio.ensure_future(self._requests(reader, broker_writer, asked)),
            asyncio.ensure_future(self._answers(broker_reader, writer, asked)),
        ]
        with contextlib.suppress(asyncio.CancelledError):  # only the end of the proxy cancels
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        self._open -= ends
        for end in ends:
            end.transport.abort()
        self._tasks.discard(task)

    async def _requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        while frame := await _read(reader):
            header, _ = decode_request_header(frame)
            key = ApiKey(header.api_key)
            if delay := self.request_delay(key):
                await asyncio.sleep(delay)
            if await _ends(self.on_request(key)):
                return
            self.requests[key] += 1
            self.sizes[key].append(len(frame))
            asked[header.correlation_id] = key, header.api_version
            self.on_passed("request", key, header.api_version, frame)
            writer.write(len(frame).to_bytes(4, "big") + frame)

    async def _answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: dict[int, tuple[ApiKey, int]]
    ) -> None:
        while frame := await _read(reader):
            key, version = asked.pop(int.from_bytes(frame[:4], "big"))
            if delay := self.answer_delay(key):
                await asyncio.sleep(delay)
            if await _ends(self.on_answer(key)):
                return
            self.on_passed("answer", key, version, frame)
            if key in (ApiKey.METADATA, ApiKey.FIND_COORDINATOR):
                frame = self._readdressed(key, version, frame)
            writer.write(len(frame).to_bytes(4, "big") + frame)

    def _readdressed(self, key: ApiKey, version: int, frame: bytes) -> bytes:
        _, position = decode_response_header(key, version, frame)
        response = decode(APIS[key].response, version, frame, position)
        for node in getattr(response, "brokers", ()) or getattr(response, "coordinators", ()) or (response,):
            node.host, node.port = "127.0.0.1", self.port
        return frame[:position] + encode(response, version)


async def _ends(action: Action) -> bool:
    """Return whether to hang up; does not return from a stall."""
    if action is Action.STALL:
        await asyncio.get_running_loop().create_future()
    return action is Action.DROP


async def _read(reader: asyncio.StreamReader) -> bytes | None:
    """Return the next frame, None at the end."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
