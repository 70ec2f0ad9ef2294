"""Frames and blocks of headers: any input, in any pieces."""

from __future__ import annotations

import asyncio

import hpack
import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from service_chassis.grpc_server import Server, ServerCall, stream
from service_chassis.grpc_status import Status
from service_chassis.http2 import frames, headers
from service_chassis.http2.frames import PREFACE, ErrorCode, PeerError, frame
from service_chassis.http2.headers import HeaderDecoder
from service_chassis.http2.reader import READ_BYTES

from tests.unit.service_chassis.grpc.memory_pipe import RawPeer, feed, request

NAMES = st.text("abcdefghij-0123456789", min_size=1, max_size=300).filter(lambda name: not name.endswith("-bin"))
FIELDS = st.lists(
    st.one_of(
        st.tuples(NAMES, st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=300)),
        st.tuples(NAMES.map(lambda name: f"{name}-bin"), st.binary(max_size=300)),
    ),
    max_size=8,
)


@given(FIELDS)
def test_fields_come_back_as_they_were(fields: list[tuple[str, str | bytes]]) -> None:
    block = headers.block(fields)
    decoder = HeaderDecoder(1 << 20)
    assert headers.metadata(decoder.decode(block)) == fields
    assert headers.metadata(decoder.decode(block)) == fields  # from the blocks that are kept


@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=4), max_size=8))
def test_kept_blocks_mean_the_same_while_the_peer_has_a_table(blocks: list[list[tuple[str, str]]]) -> None:
    """A stock client uses a table until it has read our SETTINGS, and then sends without one."""
    encoder, decoder = hpack.Encoder(), HeaderDecoder(1 << 20)
    for number, fields in enumerate(blocks):
        if number == len(blocks) // 2:
            encoder.header_table_size = 0
        block = encoder.encode(fields)
        assert decoder.decode(block) == tuple(fields)


@given(st.binary(max_size=300))
def test_any_block_is_decoded_or_breaks_the_connection(block: bytes) -> None:
    decoder = HeaderDecoder(16_384)
    code, fields = None, []
    try:
        fields = decoder.decode(block)
    except PeerError as error:
        code = error.code
    headers.metadata(fields)
    headers.fault_of_request(fields)
    assert code in (None, ErrorCode.COMPRESSION_ERROR, ErrorCode.ENHANCE_YOUR_CALM)


@given(st.text(max_size=200))
def test_messages_of_errors_come_back_as_they_were(text: str) -> None:
    text = text.encode(errors="replace").decode()
    assert headers.unescaped(headers.escaped(text)) == text
    assert headers.escaped(text).isascii()


def test_a_percent_sign_and_a_line_end_are_escaped() -> None:
    assert headers.escaped("n\u00f6 100% \n") == "n%C3%B6 100%25 %0A"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ([], "a missing pseudo field"),
        ([(":path", "")], "a missing pseudo field"),
        ([(":status", "200")], "the pseudo field ':status'"),
        ([("a", "b"), (":path", "/")], "the pseudo field ':path'"),
        ([(":path", "/x")], "the pseudo field ':path'"),
        ([("Upper", "")], "the field 'Upper'"),
        ([("connection", "close")], "the field 'connection'"),
        ([("content-length", "5")], "the field 'content-length'"),
        ([("te", "gzip")], "the field 'te'"),
        ([("te", "trailers")], None),
    ],
)
def test_requests_that_break_the_rules_of_fields(fields: list[tuple[str, str]], fault: str | None) -> None:
    first = [(":method", "POST"), (":scheme", "http"), (":path", "/")]
    assert headers.fault_of_request(fields if fault == "a missing pseudo field" else [*first, *fields]) == fault


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("0", Status.OK),
        ("16", Status.UNAUTHENTICATED),
        ("17", Status.UNKNOWN),
        ("", Status.UNKNOWN),
        ("-1", Status.UNKNOWN),
        ("\u0663", Status.UNKNOWN),
    ],
)
def test_status_numbers(text: str, status: Status) -> None:
    assert Status.of(text) is status


async def _received(data: bytes, pieces: list[int]) -> list[bytes]:
    """Return the messages that a stream receives from these bytes, which come in pieces."""
    got: list[bytes] = []

    async def take(call: ServerCall) -> None:
        call.receive(lambda view: got.append(bytes(view)))
        await call.last_message()

    server = Server()
    server.add("x", {"Chat": stream(take)})
    peer = RawPeer(server)
    feed(
        peer.connection, PREFACE + frames.settings() + frame(frames.HEADERS, frames.END_HEADERS, 1, request("/x/Chat"))
    )
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    position = 0
    for piece in (*pieces, len(data)):
        feed(peer.connection, data[position : position + piece])
        position += piece
    peer.connection.check_invariants()
    assert peer.end() is None
    return got


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.sampled_from([0, 1, 100, READ_BYTES - 15, READ_BYTES - 14, READ_BYTES, 200_000]), max_size=4),
    frame_bytes=st.sampled_from([7, 1_000, 16_384, 1 << 20]),
    padding=st.integers(0, 3),
    pieces=st.lists(st.integers(1, 70_000), max_size=12),
)
def test_messages_come_whole_from_any_frames_in_any_pieces(
    sizes: list[int], frame_bytes: int, padding: int, pieces: list[int]
) -> None:
    messages = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    if frame_bytes == 7:
        messages = [message[:500] for message in messages]
    body = b"".join(b"\0" + len(each).to_bytes(4, "big") + each for each in messages)
    data = b""
    for at in range(0, len(body), frame_bytes):
        part = body[at : at + frame_bytes]
        if padding:
            part = bytes((padding,)) + part + bytes(padding)
        data += frame(frames.DATA, frames.PADDED if padding else 0, 1, part)
    assert asyncio.run(_received(data, pieces)) == messages


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 255), st.integers(0, 4), st.binary(max_size=40)), max_size=8),
    st.lists(st.integers(1, 50), max_size=5),
)
def test_any_frames_raise_nothing(found: list[tuple[int, int, int, bytes]], pieces: list[int]) -> None:
    async def run() -> None:
        server = Server()
        server.add("x", {"Chat": stream(_read_all)})
        peer = RawPeer(server)
        data = b"".join(frame(*each) for each in found)
        feed(peer.connection, PREFACE + frames.settings() + frame(1, 4, 1, request("/x/Chat")))
        position = 0
        for piece in (*pieces, len(data)):
            if peer.transport.is_closing():
                return
            feed(peer.connection, data[position : position + piece])
            position += piece
            await asyncio.sleep(0)
        peer.connection.check_invariants()
        peer.connection.abort("the test is over")

    asyncio.run(run())


async def _read_all(call: ServerCall) -> None:
    while await call.read() is not None:
        pass
