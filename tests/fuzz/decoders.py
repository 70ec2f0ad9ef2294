"""The decoders that read a stranger's bytes, each as a function of bytes.

    request            a frame
    response           API key u8, version u8, a frame
    record_batches     batches back to back
    records            attributes u8, count u8, the bytes after a batch's header, before compression
    walker             rules u8, count u8, the bytes after a batch's header
    message_set        messages back to back
    messages           attributes u8, messages back to back; they get their CRC and, with a codec, a wrapper
    conversion         message format u8, batches and messages back to back
    consumer_protocol  which of its formats u8, its bytes
    brokers_records    key or which value u8, which topic u8, its bytes
    sasl_token         which of its messages u8, its bytes
    http2              length of the pieces u8, frames of a client after its greeting

corpus/ has a folder for each.
"""

import asyncio
import zlib
from collections.abc import Callable

from protocol_lib import consumer_protocol as formats
from protocol_lib.api import APIS
from protocol_lib.codec import decode, decoder
from protocol_lib.errors import DecodeError, MalformedRecord, ProtocolError
from protocol_lib.headers import decode_request, decode_request_header, decode_response_header
from protocol_lib.internal.record import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, read_key, read_value
from protocol_lib.plain import decode_plain
from protocol_lib.records.batch import HEADER, crc_matches, read_batches
from protocol_lib.records.compression import Codec, compress
from protocol_lib.records.control import read_marker
from protocol_lib.records.conversion import down_convert, up_convert
from protocol_lib.records.legacy import Message, read_message_set, write_message
from protocol_lib.records.record import read_records
from protocol_lib.records.walker import RecordWalker
from protocol_lib.scram import ScramClient, ScramCredential, ScramMechanism, ScramServer
from service_chassis.grpc_server import Server, ServerCall, stream, unary

from tests.unit.service_chassis.grpc.memory_pipe import RawPeer

#: The most bytes that the records of one input may decompress to.
DECOMPRESSED_BYTES_MAX = 1 << 20
_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
_VALUES = [tuple(dict.fromkeys(value for _, value in kinds.values())) for kinds in _TOPICS]
_CONSUMER_PROTOCOL = (
    formats.decode_subscription,
    formats.decode_assignment,
)
_BASES = (0, 1_700_000_000_000, 2**63 - 1, -(2**63))
_CREDENTIAL = ScramCredential.of_password(ScramMechanism.SHA_256, "pencil", salt=b"salt")


def request(data: bytes) -> None:
    header, position = decode_request_header(data)
    decode_request(header, data, position)


def response(data: bytes) -> None:
    key, version, frame = data[0], data[1], data[2:]
    api = APIS.get(key)
    if api is None or not api.min_version <= version <= api.max_version:
        raise DecodeError("no such response")
    _, position = decode_response_header(key, version, frame)
    decode(api.response, version, frame, position)


def record_batches(data: bytes) -> None:
    for header, batch in read_batches(data):
        crc_matches(batch)
        for record in read_records(batch, limit=DECOMPRESSED_BYTES_MAX):
            if header.is_control:
                read_marker(record)


def message_set(data: bytes) -> None:
    for _ in read_message_set(data, partial=True, limit=DECOMPRESSED_BYTES_MAX):
        pass
    up_convert(data, partial=True, limit=DECOMPRESSED_BYTES_MAX)


def records(data: bytes) -> None:
    attributes, count, body = data[0], data[1], data[2:]
    packed = compress(Codec(attributes & 7), body) if attributes & 7 in list(Codec) else body
    header = HEADER.pack(0, 49 + len(packed), 0, 2, 0, attributes, 0, 0, 0, -1, -1, -1, count)
    record_batches(header + packed)


def walker(data: bytes) -> None:
    """Walk by `check` and by `scan`, in slices that end anywhere: both must stop at the same place, for one reason.

    Bits of the rules: 0-1 the offset and time that deltas are added to, 2 LogAppendTime, 3 keys are required,
    4-7 steps of a slice.
    """
    rules, count, body = data[0], data[1], data[2:]
    base, append_time, steps = _BASES[rules & 3], 5 if rules & 4 else None, 1 + (rules >> 4)
    checking = RecordWalker(
        body, count, base, base, append_time, earliest=1, latest=1 << 20, keys_required=bool(rules & 8)
    )
    scanning = RecordWalker(body, count, base, base, append_time)
    columns: tuple[list[int], list[int], list[int], list[bytes | None], list[int]] = ([], [], [], [], [])
    ends = []
    for walk, is_left in (
        (checking, lambda: checking.check(steps)),
        (scanning, lambda: scanning.scan(columns, steps)),
    ):
        fault = None
        try:
            while is_left():
                pass
        except MalformedRecord as malformed:
            fault = malformed
        ends.append((str(fault), walk.index, walk.position, walk.in_order, walk.is_over))
    if ends[0] != ends[1]:
        raise AssertionError(ends)
    if fault is not None:
        raise fault


def messages(data: bytes) -> None:
    """Give messages their CRC: random ones would hardly ever get past it."""
    attributes, body = data[0], bytearray(data[1:])
    position = 0
    while position + 17 <= len(body) and (size := int.from_bytes(body[position + 8 : position + 12], "big")) >= 14:
        body[position + 12 : position + 16] = zlib.crc32(body[position + 16 : position + 12 + size]).to_bytes(4, "big")
        position += 12 + size
    magic, codec = attributes >> 4 & 1, attributes & 3
    inside = bytes(body)
    if codec:
        inside = write_message(Message(9, magic, attributes & 15, 0, None, compress(Codec(codec), inside)))
    message_set(inside)


def consumer_protocol(data: bytes) -> None:
    _CONSUMER_PROTOCOL[data[0] % len(_CONSUMER_PROTOCOL)](data[1:])


def brokers_records(data: bytes) -> None:
    is_key, topic, rest = data[0] & 1, data[1] % len(_TOPICS), data[2:]
    if is_key:
        read_key(_TOPICS[topic], rest)
    else:
        values = _VALUES[topic]
        read_value(values[(data[0] >> 1) % len(values)], rest)


def sasl_token(data: bytes) -> None:
    which, token = data[0] % 5, data[1:]
    server = ScramServer(ScramMechanism.SHA_256, nonce="server")
    client = ScramClient(ScramMechanism.SHA_256, "user", "pencil", nonce="client")
    if which == 0:
        decode_plain(token)
    elif which == 1:
        server.receive_first(token)
    elif which == 2:
        server.receive_first(client.first())
        server.challenge(_CREDENTIAL)
        server.receive_final(token)
    elif which == 3:
        client.final(token)
    else:
        client.verify(token)


def conversion(data: bytes) -> None:
    down_convert(data[1:], data[0] & 1, limit=DECOMPRESSED_BYTES_MAX)


def http2(data: bytes) -> None:
    """Feed a gRPC server's connection: nothing but a GOAWAY may come of it, and its invariants hold."""
    asyncio.run(_http2(data))


async def _http2(data: bytes) -> None:
    server = Server()
    server.add("x", {"Chat": stream(_read_all), "Echo": unary(_echo)})
    peer = RawPeer(server).greet()
    size, position = 1 + data[0], 1
    while position < len(data) and not peer.transport.is_closing():
        peer.send(data[position : position + size])
        position += size
        await asyncio.sleep(0)
    peer.connection.check_invariants()
    reason = peer.connection.end_reason
    peer.connection.abort("the input is over")
    if reason:
        raise DecodeError(reason)


async def _read_all(call: ServerCall) -> None:
    while (message := await call.read()) is not None:
        await call.write(message)


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


DECODERS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (
        request,
        response,
        record_batches,
        records,
        walker,
        message_set,
        messages,
        conversion,
        consumer_protocol,
        brokers_records,
        sasl_token,
        http2,
    )
}
SELECTORS_MAX = 2


def decode_one(name: str, data: bytes) -> bool:
    """Return whether the input was well-formed. Raises the errors that no decoder may raise."""
    if len(data) < SELECTORS_MAX:
        return False
    try:
        DECODERS[name](data)
    except ProtocolError:
        return False
    return True


def compile_every_decoder() -> None:
    """Compile the codecs of messages: at first use they would count as the cost of an input."""
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            decoder(api.request, version)
            decoder(api.response, version)
