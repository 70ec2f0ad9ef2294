"""A broker of a script: the test decides on each answer. It shows behaviour that real brokers cannot be made to
show.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import encode
from protocol_lib.headers import RequestHeader, decode_request, decode_request_header, encode_response_header
from protocol_lib.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol_lib.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from protocol_lib.schema import ZERO_UUID

#: Answers to (header, request): a response message, a body's bytes, None to hang up, or an awaitable of these.
Answer = Callable[[RequestHeader, Any], Any]


def versions(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    """Return an ApiVersions answer: every API at every version we know, except the named ranges."""
    chosen = {api.key: (api.min_version, api.max_version) for api in APIS.values()}
    chosen |= {ApiKey[name]: span for name, span in ranges.items()}
    keys = tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in chosen.items())
    return ApiVersionsResponse(error_code=0, api_keys=keys)


class ScriptedBroker:
    """Listens on loopback. `requests` has every request with its header; `answer` makes the answers."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.requests: list[tuple[RequestHeader, Any]] = []
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> ScriptedBroker:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.bootstrap = f"127.0.0.1:{self.port}"
        return self

    async def stop(self) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
                header, position = decode_request_header(frame)
                request = decode_request(header, frame, position)
                self.requests.append((header, request))
                answer = self.answer(header, request)
                if isinstance(answer, Awaitable):
                    answer = await answer
                if answer is None:
                    return
                if not isinstance(answer, bytes):
                    answer = encode(answer, header.api_version)
                answer = encode_response_header(header.api_key, header.api_version, header.correlation_id) + answer
                writer.write(len(answer).to_bytes(4, "big") + answer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()


def one_node(broker: ScriptedBroker, request: MetadataRequest, partitions: int = 1) -> MetadataResponse:
    """Return a Metadata answer: the broker alone leads every partition of the requested topics."""
    leads = tuple(
        MetadataResponsePartition(
            error_code=0, partition_index=index, leader_id=1, leader_epoch=0, replica_nodes=(1,), isr_nodes=(1,)
        )
        for index in range(partitions)
    )
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=1, host="127.0.0.1", port=broker.port),),
        controller_id=1,
        topics=tuple(
            MetadataResponseTopic(error_code=0, name=topic.name, topic_id=ZERO_UUID, partitions=leads)
            for topic in request.topics or ()
        ),
    )


StartScript = Callable[[Answer], Awaitable[ScriptedBroker]]
