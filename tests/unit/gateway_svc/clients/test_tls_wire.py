"""What a client encrypts arrives, however the network cuts it and the connection pauses; garbage only closes."""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Any

import pytest
from gateway_svc.clients import tls_wire
from gateway_svc.clients.client_hello import HelloCheck, asks_again
from gateway_svc.clients.tls_wire import HANDSHAKE_BYTES, PIECE_BYTES, TlsEnd, TlsWire
from service_chassis.shared_turns import stranger_turns
from service_chassis.tls import PeerCertificate, server_context
from support.certificates import Authority


class Transport:
    """A transport of asyncio that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.is_read = True
        self.closed = ""
        self.unread = 0

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return bool(self.closed)

    def write(self, data: bytes) -> None:
        self.written.append(bytes(data))

    def writelines(self, pieces: list[bytes]) -> None:
        assert all(len(piece) <= PIECE_BYTES + 100 for piece in pieces)
        self.written += pieces

    def abort(self) -> None:
        self.closed = "aborted"

    def close(self) -> None:
        self.closed = self.closed or "closed"

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def get_extra_info(self, _name: str) -> Any:
        return self

    def __getitem__(self, _number: int) -> None: ...

    def setsockopt(self, *_options: object) -> None: ...


class User:
    """A connection that takes what comes into rooms of any size, and pauses now and then."""

    def __init__(self, chance: random.Random, pauses: float = 0.0) -> None:
        self.received_bytes = bytearray()
        self.failures: list[tuple[str, str]] = []
        self.is_ready = False
        self._chance, self._pauses = chance, pauses
        self._room = bytearray()
        #: Whether the client is owed answers, and how often that was asked.
        self.owes, self.asked = False, 0

    def began(self, wire: Any) -> None:
        self._wire = wire

    def ready(self) -> None:
        self.is_ready = True

    def room(self) -> memoryview:
        self._room = bytearray(self._chance.choice((1, 100, 4096, 20_000, 300_000)))
        return memoryview(self._room)

    def received(self, count: int) -> None:
        assert 0 < count <= len(self._room)
        self.received_bytes += self._room[:count]
        if self._chance.random() < self._pauses:
            self._wire.pause_reading()

    def ended(self) -> bool:
        self.asked += 1
        return self.owes

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def failed(self, reason: str, detail: str) -> None:
        self.failures.append((reason, detail))

    def lost(self) -> None: ...


class Pair:
    """A wire, and a client of it in memory."""

    def __init__(self, context: ssl.SSLContext, trust: ssl.SSLContext, user: User) -> None:
        self.user, self.transport = user, Transport()
        self.end = TlsEnd(lambda: context, lambda _: "User:test", stranger_turns(asyncio.get_running_loop()))
        self.wire = TlsWire(self.end, user, None)  # type: ignore[arg-type]
        self.wire.connection_made(self.transport)  # type: ignore[arg-type]
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = trust.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    async def shake_hands(self) -> bytes:
        """Let both sides agree; return what the client has to send after it: the last message of the handshake."""
        while True:
            try:
                self.client.do_handshake()
            except ssl.SSLWantReadError:
                await self.send(self._outgoing.read())
                self._take()
            else:
                return self._outgoing.read()

    def begin(self) -> bytes:
        """Return the first message of the client."""
        with pytest.raises(ssl.SSLWantReadError):
            self.client.do_handshake()
        return self._outgoing.read()

    def _take(self) -> None:
        self._incoming.write(b"".join(self.transport.written))
        self.transport.written.clear()

    def receive(self) -> bytes:
        """Return what the wire has sent."""
        self._take()
        found = b""
        while self._incoming.pending or self.client.pending():
            try:
                found += self.client.read(1 << 20)
            except (ssl.SSLWantReadError, ValueError):
                break
        return found

    def encrypt(self, data: bytes) -> bytes:
        self.client.write(data)
        return self._outgoing.read()

    async def send(self, data: bytes, cut: Callable[[], int] = lambda: 1 << 20) -> None:
        at = 0
        while at < len(data):
            while not self.transport.is_read and not self.transport.closed:
                if self.wire._is_paused:
                    self.wire.resume_reading()
                await asyncio.sleep(0)
            room = self.wire.get_buffer(-1)
            count = min(cut(), len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self.wire.buffer_updated(count)
            at += count
            while self.wire._awaits_turn and not self.transport.closed:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if self.transport.closed:
                return

    async def settle(self) -> None:
        """Wait until nothing more arrives."""
        for _ in range(3000):
            if self.wire._is_paused:
                self.wire.resume_reading()
            await asyncio.sleep(0)
            if not self.wire._is_paused and not self.wire._rest:
                return


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def context(authority: Authority) -> ssl.SSLContext:
    return server_context(authority.files(authority.issue("server")), PeerCertificate.NONE)


def trust_of(authority: Authority, version: ssl.TLSVersion) -> ssl.SSLContext:
    trust = authority.trust()
    trust.maximum_version = version
    return trust


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("seed", range(20))
async def test_all_bytes_arrive_in_order(
    authority: Authority, context: ssl.SSLContext, version: ssl.TLSVersion, seed: int
) -> None:
    chance = random.Random(seed)
    pair = Pair(context, trust_of(authority, version), User(chance, pauses=seed % 3 * 0.3))
    sent = bytearray()
    encrypted = await pair.shake_hands()  # the first request follows in the same read
    for _ in range(30):
        data = chance.randbytes(chance.choice((1, 50, 1000, 16_383, 16_384, 16_385, 100_000)))
        sent += data
        encrypted += pair.encrypt(data)
    await pair.send(encrypted, lambda: chance.choice((1, 4, 5, 6, 700, 16_400, 65_536, 1 << 20)))
    await pair.settle()
    assert pair.user.received_bytes == sent
    assert (pair.user.failures, pair.transport.closed, pair.end.backlog) == ([], "", 0)
    answer = chance.randbytes(chance.choice((1, 16_384, 16_385, 600_000)))
    pair.wire.write(answer)
    assert pair.receive() == answer
    pair.wire.connection_lost(None)


async def test_a_record_that_never_ends_waits_outside_of_the_connection(
    authority: Authority, context: ssl.SSLContext
) -> None:
    user = User(random.Random(0))
    pair = Pair(context, authority.trust(), user)
    await pair.send(await pair.shake_hands())
    whole = pair.encrypt(b"x" * 16_000)
    for cut in (3, 5, 9000):
        await pair.send(whole[:cut] if cut == 3 else whole[3 if cut == 5 else 5 : cut])
        assert (user.received_bytes, user.failures) == (b"", [])
    assert pair.wire._incoming.pending <= PIECE_BYTES
    await pair.send(whole[9000:])
    assert user.received_bytes == b"x" * 16_000


async def test_paused_wires_keep_little_and_read_less_when_they_are_many(
    authority: Authority, context: ssl.SSLContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_wire, "BACKLOG_BYTES", 50_000)
    user = User(random.Random(0), pauses=1.0)
    pair = Pair(context, authority.trust(), user)
    await pair.send(await pair.shake_hands())
    encrypted = pair.encrypt(b"x" * 500_000)
    room = pair.wire.get_buffer(-1)
    assert len(room) == 128 * 1024
    room[:] = encrypted[: len(room)]
    pair.wire.buffer_updated(len(room))
    assert 50_000 < pair.end.backlog < len(room)
    assert len(pair.wire.get_buffer(-1)) == 4096
    pair.wire.connection_lost(None)
    assert pair.end.backlog == 0


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("owes", [True, False])
async def test_a_client_that_ends_gets_the_answers_that_are_due(
    authority: Authority, context: ssl.SSLContext, version: ssl.TLSVersion, owes: bool
) -> None:
    """It ends TLS by an alert and then the connection; answers come between the two, and after them."""
    user = User(random.Random(0))
    user.owes = owes
    pair = Pair(context, trust_of(authority, version), user)
    await pair.send(await pair.shake_hands())
    pair.receive()
    last = pair.encrypt(b"the last request")
    with pytest.raises(ssl.SSLWantReadError):
        pair.client.unwrap()
    await pair.send(last + pair._outgoing.read())
    assert user.received_bytes == b"the last request"
    assert pair.transport.closed == ("" if owes else "closed")
    if owes:
        pair.wire.write(b"first")
        assert pair.wire.eof_received() is True
        pair.wire.write(b"second")
        assert (user.asked, pair.transport.closed) == (1, "")
        assert sum(map(len, pair.transport.written)) > len(b"firstsecond")
        pair.wire.close()
    assert pair.transport.closed == "closed"


@pytest.mark.parametrize("seed", range(100))
async def test_garbage_closes_with_a_reason(authority: Authority, context: ssl.SSLContext, seed: int) -> None:
    """Changed bytes, in the handshake or after it, in a head or in a body."""
    chance = random.Random(seed)
    user = User(chance)
    pair = Pair(context, authority.trust(), user)
    if seed % 4:
        await pair.send(await pair.shake_hands())
        wrong = bytearray(pair.encrypt(chance.randbytes(3000)))
        at = chance.randrange(5 if seed % 4 == 1 else len(wrong))
        wrong[at] ^= chance.randrange(1, 256)
        wrong += pair.encrypt(b"later" * 20_000)
        expected = {"tls_record"}
    else:
        wrong = bytearray(b"\x16\x03\x01" * (seed % 8 == 0)) + bytearray(chance.randbytes(70_000))
        expected = {"tls_handshake", "tls_plaintext"}
    await pair.send(bytes(wrong))
    assert user.received_bytes in (b"", user.received_bytes[:0])
    assert {reason for reason, _ in user.failures} <= expected
    assert len(user.failures) == 1, "one line, and one count"
    assert pair.transport.closed == "closed", "after an alert"


async def test_a_handshake_has_a_bound(authority: Authority) -> None:
    asking = server_context(authority.files(authority.issue("server")), PeerCertificate.REQUESTED)
    user = User(random.Random(0))
    pair = Pair(asking, trust_of(authority, ssl.TLSVersion.TLSv1_2), user)
    await pair.send(pair.begin())
    # A certificate that OpenSSL would receive whole, in records of 16 KiB.
    chain = b"\x0b" + (90_000).to_bytes(3, "big") + bytes(16_380)
    for _ in range(6):
        await pair.send(b"\x16\x03\x03\x40\x00" + chain)
        chain = bytes(16_384)
    assert set(user.failures) == {("tls_handshake", f"more than {HANDSHAKE_BYTES} bytes")}
    assert pair.transport.closed == "closed"


def record(kind: int, data: bytes) -> bytes:
    return bytes((kind, 3, 1)) + len(data).to_bytes(2, "big") + data


def hello(length: int, sent: int) -> bytes:
    return b"\x01" + length.to_bytes(3, "big") + bytes(sent)


#: First messages of handshakes for which OpenSSL would take 128 KiB, or that no client has.
HELLOS = {
    "a long one of which little comes": record(22, hello(0x1FFFF, 12)),
    "a long one of which a record comes": record(22, hello(0x1FFFF, 16_380)),
    "one that goes on in the next record": record(22, hello(4000, 2000)) + record(22, bytes(2000)),
    "a record without data": record(22, b""),
    "a record with half of a head": record(22, b"\x01\x01") + record(22, b"\xff\xff"),
    "another message with it": record(22, hello(100, 100) + hello(0x1FFFF, 12)),
    "another message": record(22, b"\x0b" + hello(0x1FFFF, 12)[1:]),
}


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
@pytest.mark.parametrize("name", HELLOS)
async def test_a_hello_that_would_take_memory_is_refused(
    authority: Authority, context: ssl.SSLContext, name: str, cut: int
) -> None:
    user = User(random.Random(0))
    pair = Pair(context, authority.trust(), user)
    await pair.send(HELLOS[name], lambda: cut)
    assert user.failures == [("tls_handshake", "no ClientHello in one record")]
    assert pair.transport.closed == "closed"


def test_a_hello_after_others_has_the_same_bound() -> None:
    before = record(22, hello(100, 100)) + record(21, b"\x01\x00") + record(20, b"") + record(22, hello(5, 5))
    for cut in (1, 7, 1000):
        check = HelloCheck()
        for at in range(0, len(before), cut):
            check.check(memoryview(before)[at : at + cut])
        with pytest.raises(ValueError, match="no ClientHello in one record"):
            check.check(memoryview(HELLOS["a long one of which little comes"]))


async def test_a_second_hello_is_served_if_it_was_asked_for_and_has_the_same_bound(authority: Authority) -> None:
    asking = server_context(authority.files(authority.issue("server")), PeerCertificate.NONE)
    asking.set_ecdh_curve("secp384r1")  # clients guess another one
    user = User(random.Random(0))
    pair = Pair(asking, authority.trust(), user)
    await pair.send(await pair.shake_hands())
    await pair.send(pair.encrypt(b"served"))
    assert (user.received_bytes, user.failures) == (b"served", [])
    other = User(random.Random(0))
    pair = Pair(asking, authority.trust(), other)
    await pair.send(pair.begin())
    assert asks_again(b"".join(pair.transport.written))
    await pair.send(record(20, b"\x01") + HELLOS["a long one of which little comes"])
    assert other.failures == [("tls_handshake", "no ClientHello in one record")]
    assert pair.transport.closed == "closed"


async def test_answers_of_tls_that_nobody_reads_close(authority: Authority, context: ssl.SSLContext) -> None:
    """Under TLS 1.2 each attempt to renegotiate is answered with a warning."""
    user = User(random.Random(0))
    pair = Pair(context, trust_of(authority, ssl.TLSVersion.TLSv1_2), user)
    await pair.send(await pair.shake_hands())
    pair.wire._outgoing.write(b"alert")
    pair.transport.unread = 1 << 20
    await pair.send(pair.encrypt(b"x"))
    assert user.failures == [("tls_record", "the client asks for answers that it does not read")]
    assert pair.transport.closed == "aborted"
