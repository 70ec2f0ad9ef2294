"""Request and response headers.

    request v0   api_key i16, api_version i16, correlation_id i32          ControlledShutdown v0 only
    request v1   … client_id nullable string
    request v2   … client_id nullable string, tagged fields                flexible versions
    response v0  correlation_id i32                                        and ApiVersions, always
    response v1  correlation_id i32, tagged fields                         flexible versions

The header's version follows from the API's. A request for an API or a version that is not declared here still has a
header that can be read; asking for its body (`decode_request`) raises UnknownApiKey or UnsupportedVersion.
Tagged fields of headers are skipped: Kafka defines none.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

from protocol_lib.api import APIS, ApiKey, find_api
from protocol_lib.codec import decode
from protocol_lib.errors import DecodeError
from protocol_lib.varint import Buffer, read_unsigned

_CONTROLLED_SHUTDOWN: Final = 7
_START: Final = struct.Struct(">hhi")
_START_AND_LENGTH: Final = struct.Struct(">hhih")
_CORRELATION: Final = struct.Struct(">i")
_CORRELATION_AND_NO_TAGS: Final = struct.Struct(">ix")


@dataclass(slots=True)
class RequestHeader:
    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def is_flexible(api_key: int, api_version: int) -> bool:
    api = APIS.get(api_key)
    return api is not None and api_version >= api.flexible_from


def decode_request_header(frame: Buffer) -> tuple[RequestHeader, int]:
    """Read the header at the start of a frame, and where the body begins."""
    try:
        api_key, api_version, correlation_id = _START.unpack_from(frame)
        if api_key == _CONTROLLED_SHUTDOWN and api_version == 0:
            return RequestHeader(api_key, api_version, correlation_id, None), 8
        (length,) = struct.unpack_from(">h", frame, 8)
        end = 10 + length
        if length == -1:
            client_id, end = None, 10
        elif length < 0 or end > len(frame):
            raise DecodeError(f"a client id of {length} bytes")
        else:
            client_id = str(frame[10:end], "utf-8", "replace")  # as Kafka
        if is_flexible(api_key, api_version):
            end = _skip_tags(frame, end)
    except (DecodeError, struct.error, IndexError) as fault:
        raise DecodeError(f"request header: {fault}") from fault
    return RequestHeader(api_key, api_version, correlation_id, client_id), end


def decode_request(header: RequestHeader, frame: Buffer, position: int) -> Any:
    """Read the body of a request, from where its header ended to the end of the frame."""
    return decode(find_api(header.api_key, header.api_version).request, header.api_version, frame, position)


def encode_request_header(header: RequestHeader) -> bytes:
    start = header.api_key, header.api_version, header.correlation_id
    if header.api_key == _CONTROLLED_SHUTDOWN and header.api_version == 0:
        return _START.pack(*start)
    tags = b"\0" if is_flexible(header.api_key, header.api_version) else b""
    if header.client_id is None:
        return _START_AND_LENGTH.pack(*start, -1) + tags
    client_id = header.client_id.encode()
    return _START_AND_LENGTH.pack(*start, len(client_id)) + client_id + tags


def encode_response_header(api_key: int, api_version: int, correlation_id: int) -> bytes:
    if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version):
        return _CORRELATION_AND_NO_TAGS.pack(correlation_id)
    return _CORRELATION.pack(correlation_id)


def decode_response_header(api_key: int, api_version: int, frame: Buffer) -> tuple[int, int]:
    """Read the correlation id at the start of a frame, and where the body begins."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        end = 4
        if api_key != ApiKey.API_VERSIONS and is_flexible(api_key, api_version):
            end = _skip_tags(frame, end)
    except (DecodeError, struct.error, IndexError) as fault:
        raise DecodeError(f"response header: {fault}") from fault
    return correlation_id, end


def _skip_tags(frame: Buffer, position: int) -> int:
    count = frame[position]
    position += 1
    if count == 0:
        return position
    count, position = read_unsigned(frame, position - 1)
    if count > (len(frame) - position) // 2:
        raise DecodeError("more tagged fields than there are bytes")
    for _ in range(count):
        _, position = read_unsigned(frame, position)
        length, position = read_unsigned(frame, position)
        position += length
        if position > len(frame):
            raise DecodeError("a tagged field is longer than the frame")
    return position
