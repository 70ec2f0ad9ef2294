"""Send a recording to a broker, and return its answers without those parts in which two brokers may differ.

The bytes go out as they were recorded. Only ids that another broker gave are replaced: topic ids, member ids, fetch
sessions. A request that contains one is decoded and encoded again.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import struct
import time
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from conformance.raw_connection import Connection as RawConnection
from conformance.raw_connection import until_led
from protocol_lib.api import APIS, ApiKey
from protocol_lib.codec import decode, decode_prefix, encode
from protocol_lib.errors import DecodeError
from protocol_lib.headers import RequestHeader, decode_request_header, decode_response_header, encode_request_header
from protocol_lib.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from protocol_lib.records.batch import read_batches

from tests.corpus.frames import Recording

#: Seconds for an answer, and for one that may wait for other members.
ANSWER_S = 20.0
PARKED_S = 0.5
PARKED = {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}
FETCH_WAIT_MS = 100
#: The epoch of a group whose first member joined with a pattern, once its topics are found.
RESOLVED_EPOCH = 2
#: Fields with times, addresses, sentences for people, and ids and epochs that a broker chooses.
LEFT_OUT = frozenset(
    {
        "throttle_time_ms",
        "error_message",
        "host",
        "port",
        "node_id",
        "rack",
        "cluster_id",
        "controller_id",
        "leader_id",
        "leader_epoch",
        "committed_leader_epoch",
        "current_leader",
        "replica_nodes",
        "isr_nodes",
        "eligible_leader_replicas",
        "last_known_elr",
        "session_id",
        "broker_id",
        "coordinator_id",
        "producer_id",
        "api_keys",
        "supported_features",
        "finalized_features",
        "finalized_features_epoch",
        "zk_migration_ready",
        "unknown_tagged_fields",
        "node_endpoints",
        "endpoint_type",
        "client_host",
        "replica_id",
    }
)
#: Other tests compare configs.
LEFT_OUT_OF = {ApiKey.CREATE_TOPICS: {"configs"}, ApiKey.DESCRIBE_CONFIGS: {"configs"}}

Answer = tuple[str, object]


class Replay:
    """One broker's answers to one recording."""

    def __init__(self, address: str, recording: Recording, prefix: str, topic_ids: Mapping[str, bytes]) -> None:
        """Prepare a replay.

        Args:
            address: host:port of the broker.
            recording: of one client.
            prefix: of the names of topics and groups that are compared.
            topic_ids: of this broker, by topic.
        """
        self._bootstrap = address
        host, _, port = address.rpartition(":")
        self._address = host, int(port)
        self._recording = recording
        self._prefix = prefix
        self._given: dict[object, object] = {}
        self._names: dict[object, str] = {}
        for name, topic_id in topic_ids.items():
            self._note_topic(name, topic_id)
        self._connections: dict[int, _Connection] = {}
        #: Ids that members got and have not used, by group and connection, the oldest first.
        self._fresh: deque[tuple[str, int, str]] = deque()

    async def run(self) -> list[Answer]:
        """Return (request, answer) of each frame in order; "closed" where the broker closed the connection."""
        pending: list[tuple[str, asyncio.Future[object]]] = []
        newest: dict[int, asyncio.Future[object]] = {}
        for number, frame in self._recording.frames:
            header, position = decode_request_header(frame)
            api = APIS[header.api_key]
            request = _decoded(api.request, header.api_version, frame, position)
            name = f"{api.name} {header.api_version}"
            connection = self._connections.get(number)
            if connection is None or connection.is_closed:
                connection = self._connections[number] = await _Connection.open(self._address)
            if number in newest:  # the client had this answer, and a slow broker's may have ids
                await asyncio.wait([newest[number]], timeout=ANSWER_S)
            changed = self._with_ids(request, number, connection)
            data = frame if changed == request else _encoded(header, changed)
            answer = connection.ask(header, data, expects=not (name.startswith("Produce") and request.acks == 0))
            pending.append((name, asyncio.ensure_future(self._received(answer, header, request, number, connection))))
            newest[number] = pending[-1][1]
            wait_s = PARKED_S if header.api_key in PARKED else ANSWER_S
            await asyncio.wait([pending[-1][1]], timeout=wait_s)
            if getattr(request, "subscribed_topic_regex", None):
                await asyncio.to_thread(self._until_resolved, request.group_id)
            if header.api_key == ApiKey.CREATE_TOPICS:
                for each in request.topics:
                    await asyncio.to_thread(until_led, self._bootstrap, each.name, max(1, each.num_partitions))
        answers = [(name, await asyncio.wait_for(each, ANSWER_S)) for name, each in pending]
        for connection in self._connections.values():
            await connection.close()
        return answers

    def _note_topic(self, name: str, topic_id: bytes) -> None:
        self._names[topic_id] = f"<{name}>"
        if name in self._recording.topics:
            self._given[bytes.fromhex(self._recording.topics[name])] = topic_id

    def _until_resolved(self, group: str) -> None:
        """Wait until the broker, in the background, has found the topics of the group's patterns."""
        asked = ConsumerGroupDescribeRequest(group_ids=(group,), include_authorized_operations=False)
        connection, deadline = RawConnection(self._bootstrap), time.monotonic() + ANSWER_S
        while connection.call(69, 1, asked).groups[0].group_epoch < RESOLVED_EPOCH:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        connection.close()

    # -- ids -------------------------------------------------------------------------------------------------------

    def _with_ids(self, request: Any, number: int, connection: _Connection) -> Any:
        """Return the request with this broker's ids."""
        changes = {}
        if hasattr(request, "max_wait_ms") and hasattr(request, "session_id"):
            changes["max_wait_ms"] = min(request.max_wait_ms, FETCH_WAIT_MS)
            if request.session_id:
                connection.session_epoch += 1
                changes |= {"session_id": connection.session_id, "session_epoch": connection.session_epoch}
        member_id = getattr(request, "member_id", "")
        if member_id and member_id not in self._given:
            self._given[member_id] = self._take_fresh(getattr(request, "group_id", ""), number, member_id)
        return self._replaced(dataclasses.replace(request, **changes))

    def _take_fresh(self, group: str, number: int, recorded: str) -> str:
        of_group = [each for each in self._fresh if each[0] == group]
        found = next((each for each in of_group if each[1] == number), of_group[0] if of_group else None)
        if found is None:
            return recorded  # the client has chosen it
        self._fresh.remove(found)
        return found[2]

    def _replaced(self, value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            changed = {name: new for name, each in fields.items() if (new := self._replaced(each)) is not each}
            return dataclasses.replace(value, **changed) if changed else value
        if isinstance(value, tuple):
            made = tuple(self._replaced(each) for each in value)
            return value if all(new is old for new, old in zip(made, value, strict=True)) else made
        if isinstance(value, str | bytes) and value:
            return self._given.get(value, value)
        return value

    # -- answers ---------------------------------------------------------------------------------------------------

    async def _received(
        self,
        answer: asyncio.Future[bytes | None],
        header: RequestHeader,
        request: Any,
        number: int,
        connection: _Connection,
    ) -> object:
        frame = await answer
        if frame is None:
            return "closed"
        if not frame:
            return "none"
        _, position = decode_response_header(header.api_key, header.api_version, frame)
        try:
            response = decode(APIS[header.api_key].response, header.api_version, frame, position)
        except DecodeError:
            if header.api_key != ApiKey.API_VERSIONS:
                raise
            return "closed"  # an answer in version 0: the client asks again
        if (session_id := getattr(response, "session_id", 0)) and session_id != connection.session_id:
            connection.session_id, connection.session_epoch = session_id, 0
        member_id = getattr(response, "member_id", None)
        if member_id:
            self._names.setdefault(member_id, f"<member {sum('<member' in each for each in self._names.values())}>")
            known = {each[2] for each in self._fresh} | set(self._given.values())
            if not request.member_id and member_id not in known:
                self._fresh.append((request.group_id, number, member_id))
        return self._plain(response, LEFT_OUT | LEFT_OUT_OF.get(ApiKey(header.api_key), set()))

    def _plain(self, value: Any, left_out: frozenset[str] | set[str]) -> object:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            name, topic_id = getattr(value, "name", None), bytes(getattr(value, "topic_id", b""))
            if name and any(topic_id):
                self._note_topic(name, topic_id)
            return {
                each.name: len(getattr(value, each.name))
                if each.name == "brokers"
                else _values(getattr(value, each.name))
                if each.name == "records"
                else self._plain(getattr(value, each.name), left_out)
                for each in dataclasses.fields(value)
                if each.name not in left_out
            }
        if isinstance(value, tuple | list):
            rows = [self._plain(each, left_out) for each in value if self._is_compared(each)]
            return sorted(rows, key=repr) if rows and isinstance(rows[0], dict) else rows
        if isinstance(value, memoryview | bytearray):
            value = bytes(value)
        return self._names.get(value, value)

    def _is_compared(self, row: Any) -> bool:
        """Return whether a row of a list is about the recording, not about another one on the same broker."""
        for field in ("name", "group_id"):
            name = getattr(row, field, None)
            if isinstance(name, str) and name and not name.startswith(self._prefix):
                return False
        return True


class _Connection:
    """Answers come in the order of the requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._waiting: deque[asyncio.Future[bytes | None]] = deque()
        self._came = asyncio.Event()
        self._receiving = asyncio.create_task(self._receive())
        self.is_closed = False
        self.session_id = 0
        self.session_epoch = 0

    @classmethod
    async def open(cls, address: tuple[str, int]) -> _Connection:
        return cls(*await asyncio.open_connection(*address, limit=1 << 26))

    def ask(self, header: RequestHeader, frame: bytes, *, expects: bool) -> asyncio.Future[bytes | None]:
        answer: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._writer.write(struct.pack(">i", len(frame)) + frame)
        if expects:
            self._waiting.append(answer)
            self._came.set()
        else:
            answer.set_result(b"")
        return answer

    async def _receive(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                frame = await self._reader.readexactly(size)
                self._waiting.popleft().set_result(frame)
        self.is_closed = True
        while self._waiting:
            self._waiting.popleft().set_result(None)

    async def close(self) -> None:
        self._receiving.cancel()
        self._writer.close()
        await asyncio.gather(self._receiving, return_exceptions=True)


def _decoded(kind: Any, version: int, frame: bytes, position: int) -> Any:
    return decode_prefix(kind, version, frame, position)


def _encoded(header: RequestHeader, request: Any) -> bytes:
    return encode_request_header(header) + encode(request, header.api_version)


def _values(records: Any) -> object:
    """Return the number of records and bytes: batches have the times of the producer."""
    if records is None:
        return None
    data = bytes(records)
    return Counter(header.records_count for header, _ in read_batches(data)) if data else "empty"
