"""Whether a gateway answers Kafka clients: one ApiVersions round trip over its first listener."""

from __future__ import annotations

import contextlib
import socket
import struct

from protocol_lib.api import ApiKey
from protocol_lib.codec import decode
from protocol_lib.errors import DecodeError
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.api_versions import ApiVersionsResponse
from service_chassis.address import parse_listeners

TIMEOUT_S = 5.0
#: An ApiVersions answer is some 300 bytes.
_ANSWER_BYTES_MAX = 65_536
_CORRELATION_ID = 1


def kafka_fault(listeners: str) -> str | None:
    """Return None if the first of the listeners answers, else a text that names the fault."""
    address = parse_listeners(listeners)[0].address
    host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    request = encode_request_header(RequestHeader(ApiKey.API_VERSIONS, 0, _CORRELATION_ID, "healthcheck"))
    try:
        with contextlib.closing(socket.create_connection((host, address.port), TIMEOUT_S)) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            (length,) = struct.unpack(">i", _receive(connection, 4))
            if not 0 < length <= _ANSWER_BYTES_MAX:
                return f"{address}: an answer of {length} bytes"
            frame = _receive(connection, length)
        correlation_id, position = decode_response_header(ApiKey.API_VERSIONS, 0, frame)
        answer = decode(ApiVersionsResponse, 0, frame, position)
    except (OSError, EOFError, DecodeError) as error:
        return f"{address}: {error}"
    if correlation_id != _CORRELATION_ID or answer.error_code:
        return f"{address}: error {answer.error_code}, correlation id {correlation_id}"
    return None


def _receive(connection: socket.socket, length: int) -> bytes:
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise EOFError("connection closed")
        data += part
    return data
