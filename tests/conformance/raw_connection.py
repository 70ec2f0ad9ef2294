"""Requests as they are, one at a time, to any broker."""

from __future__ import annotations

import socket
import struct
import time
from typing import Any

from protocol_lib.api import APIS
from protocol_lib.codec import decode, encode
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    SpecialTimestamp,
)

WAIT_S = 60


class Connection:
    """One request at a time."""

    def __init__(self, bootstrap: str) -> None:
        host, _, port = bootstrap.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=WAIT_S)

    def call(self, api_key: int, version: int, request: Any) -> Any:
        frame = encode_request_header(RequestHeader(api_key, version, 1, "conformance")) + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        answer = self._read(struct.unpack(">i", self._read(4))[0])
        _, position = decode_response_header(api_key, version, answer)
        return decode(APIS[api_key].response, version, answer, position)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self._socket.recv(size - len(data))
            assert piece, "the broker closed the connection"
            data += piece
        return data

    def close(self) -> None:
        self._socket.close()


def until_led(bootstrap: str, topic: str, partitions: int = 1) -> None:
    """Wait until partitions are led. Kafka's controller creates a topic before its broker knows it and has its
    folders.
    """
    connection = Connection(bootstrap)
    asked = [
        ListOffsetsPartition(partition_index=index, timestamp=SpecialTimestamp.LATEST) for index in range(partitions)
    ]
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=(ListOffsetsTopic(name=topic, partitions=tuple(asked)),)
    )
    deadline = time.monotonic() + WAIT_S
    while any(each.error_code for each in connection.call(2, 7, request).topics[0].partitions):
        assert time.monotonic() < deadline, f"{topic} is not led"
        time.sleep(0.02)
    connection.close()
