"""The frames of clients that nobody knows yet.

    python -m tests.fuzz.before_login [FRAMES [SEED]]

changes conversations of logins at random, until so many frames have been started or refused, and prints the rate. No
frame may raise an error of ours, let a stranger in, or leave memory that is counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import random
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, cast

import jwt
import uvloop
from broker_contract import users_pb2 as pb
from broker_contract.user_revisions import UserRevisions
from cryptography.hazmat.primitives.asymmetric import ed25519
from gateway_svc.clients.connection import Connection
from gateway_svc.clients.entrance import Entrance
from gateway_svc.clients.resources import Resources
from gateway_svc.handlers import HANDLERS
from gateway_svc.memory_budget import MemoryBudget
from gateway_svc.refusals import Refusals
from gateway_svc.requests.dispatch import Dispatcher
from gateway_svc.requests.login import Arrival
from gateway_svc.requests.path import PathContext
from gateway_svc.sasl import login
from gateway_svc.sasl.exchanges import BearerExchange, Exchange, PlainExchange, ScramExchange
from gateway_svc.sasl.session import Sessions
from protocol_lib import scram
from protocol_lib.codec import encode
from protocol_lib.headers import RequestHeader, encode_request_header
from protocol_lib.messages.api_versions import ApiVersionsRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from protocol_lib.scram import ScramClient, ScramCredential, ScramMechanism
from service_chassis import logs
from service_chassis.bearer_tokens import BearerSettings, BearerTokens

from tests.unit.gateway_svc.clients.test_connection_model import Others, Polling
from tests.unit.gateway_svc.rig import Parts, parts

FRAMES: Final = 100_000
#: Turns of the event loop within which each frame is answered.
TURNS_MAX: Final = 100_000
PASSWORD: Final = "pencil"
NAMES: Final = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
_CREDENTIALS: Final = {each: ScramCredential.of_password(each, PASSWORD, salt=b"salt") for each in ScramMechanism}
_SCRAM: Final = {each.mechanism_name: each for each in ScramMechanism}
_KEY: Final = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(32))


class Wire:
    """A `gateway_svc.clients.wire.Wire` in memory, whose client reads everything."""

    ready_within_s = 10.0
    mover = None
    peer = ("10.0.0.1", 1)
    principal = "User:ANONYMOUS"

    def __init__(self) -> None:
        self.is_closed = False
        self.written = 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def peer_is_open(self) -> bool:
        return True

    def write(self, data: bytes | memoryview, /) -> None:
        self.written += len(data)

    def unwritten(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Users:
    """One user, whose credentials a login is given; every other name has a made-up one."""

    async def find_credential(self, request: pb.FindCredentialRequest) -> pb.FindCredentialResponse:
        mechanism = ScramMechanism(request.mechanisms[0])
        found = _CREDENTIALS[mechanism]
        stored = found.stored_key if request.user == "user" else bytes(mechanism.hash_size)
        return pb.FindCredentialResponse(
            mechanism=mechanism.value,
            salt=found.salt,
            iterations=found.iterations,
            stored_key=stored,
            server_key=found.server_key,
        )


class Inline:
    """Checks of passwords and tokens without threads; those of tokens once the keys are read."""

    async def run(self, check: Callable[[], Any]) -> Any:
        return check()

    async def is_right(self, user: str, password: str, _credential: bytes, _fits: object) -> bool:
        return (user, password) == ("user", PASSWORD)


class Mechanisms:
    """Those of a listener, as `gateway_svc.sasl.mechanisms.Mechanisms` has them."""

    session_max_ms = 0
    sessions = Sessions(UserRevisions({}, 0))

    def __init__(self, made: Parts, tokens: BearerTokens) -> None:
        self.metrics = made.metrics
        self._tokens = tokens

    def of(self, _listener: str) -> list[str]:
        return NAMES

    def exchange(self, name: str) -> Exchange:
        users, checks = cast(Any, Users()), cast(Any, Inline())
        if name == "PLAIN":
            return PlainExchange(users, checks)
        if name in _SCRAM:
            return ScramExchange(_SCRAM[name], users)
        return BearerExchange(self._tokens)


class Strangers:
    """A gateway's part before logins. One event loop uses it."""

    def __init__(self, folder: Path) -> None:
        keys = folder / "keys.json"
        keys.write_text(json.dumps({"keys": [json.loads(jwt.algorithms.OKPAlgorithm.to_jwk(_KEY.public_key()))]}))
        settings = BearerSettings(
            sasl_oauthbearer_jwks_endpoint_url=keys.as_uri(),
            sasl_oauthbearer_expected_issuer="i",
            sasl_oauthbearer_expected_audience="a",
        )
        self._parts = made = parts()
        self._tokens = BearerTokens(settings, threads=cast(Any, Inline()))
        self._tokens._keys._may_ask_at = math.inf  # no other thread while frames are answered
        self._mechanisms = Mechanisms(made, self._tokens)
        self._others = Others()
        self._resources = Resources(
            request_bytes_max=1 << 20,
            requests=made.requests,
            answers=MemoryBudget(1 << 20),
            polling=cast(Any, Polling()),
            window=None,
            refusals=Refusals(made.metrics),
            loop=asyncio.get_running_loop(),
        )
        self._entrance = Entrance(self._resources.refusals, lambda: 0.0, most=10, most_per_address=10, rate=0)
        dispatcher = Dispatcher(HANDLERS, made.contexts, made.metrics)
        self._context = PathContext(dispatcher, made.admission, made.requests, made.names)
        #: Frames that were started or refused, and users that were let in.
        self.frames = 0
        self.users: Counter[str] = Counter()

    async def receive(self, data: bytes, piece: int) -> str:
        """Feed a new connection these bytes, piece by piece; return the user that was let in, or ""."""
        await self._tokens._keys.until_known()
        wire = Wire()
        entry = self._entrance.enter("10.0.0.1", 1, "EXTERNAL")
        assert entry is not None
        connection = Connection("EXTERNAL", cast(Any, self._others), self._resources, self._login, entry)
        connection.began(cast(Any, wire))
        connection.ready()
        position = 0
        while position < len(data) and not connection._reading.closed and connection.principal == "":
            room = connection.room()
            count = min(piece, len(data) - position, len(room))
            room[:count] = data[position : position + count]
            del room
            position += count
            connection.received(count)
            for _ in range(TURNS_MAX):
                if not self._is_busy(connection):
                    break
                await asyncio.sleep(0)
            else:
                raise AssertionError(f"never answered: {data.hex()}")
            if not connection._reading.closed:
                connection.check_invariants()
        user = connection.principal
        connection.lost()
        assert self._parts.requests.used == 0
        self.users[user] += 1
        return user

    @staticmethod
    def _is_busy(connection: Connection) -> bool:
        """Return whether a request waits for its turn, a token is being checked, or the answer that closes is late."""
        if connection._reading.closed or connection._requests is None:
            return False
        return bool(connection._pipeline.order) or connection._gate.held_for is not None

    def _login(self, connection: Connection, pipeline: Any) -> Any:
        arrival = Arrival(connection, self._context, pipeline, self._others.shared_buffer)
        return CountedLogin(self, cast(Any, self._mechanisms), arrival)


class CountedLogin(login.SaslLogin):
    """A login that counts its frames."""

    def __init__(self, strangers: Strangers, mechanisms: Any, arrival: Arrival) -> None:
        super().__init__(mechanisms, arrival)
        self._strangers = strangers

    def start_requests(self, store: bytes | bytearray, begin: int, frame_end: int, end: int) -> int:
        self._strangers.frames += 1
        return super().start_requests(store, begin, frame_end, end)


@contextlib.contextmanager
def predictable() -> Iterator[None]:
    """Let servers of SCRAM choose no random nonce, and failures come at once."""
    nonce, delay = scram._random_nonce, login.FAILURE_DELAY_S
    scram._random_nonce = lambda: "server"
    login.FAILURE_DELAY_S = 0  # type: ignore[misc]
    logging.disable()
    try:
        yield
    finally:
        scram._random_nonce, login.FAILURE_DELAY_S = nonce, delay  # type: ignore[misc]
        logging.disable(logging.NOTSET)


def framed(key: int, version: int, request: Any) -> bytes:
    frame = encode_request_header(RequestHeader(key, version, 7, "c")) + encode(request, version)
    return struct.pack(">i", len(frame)) + frame


def conversations() -> Iterator[list[bytes]]:
    """Return the frames of a login for each mechanism, in each version."""
    for version in (0, 1, 2):
        versions = framed(18, version + 1, ApiVersionsRequest(client_software_name="n", client_software_version="1"))
        for name in NAMES:
            tokens = _tokens(name)
            yield [
                versions,
                framed(17, 1, SaslHandshakeRequest(mechanism=name)),
                *[framed(36, version, SaslAuthenticateRequest(auth_bytes=each)) for each in tokens],
            ]
            raw = [struct.pack(">i", len(each)) + each for each in tokens]
            yield [framed(17, 0, SaslHandshakeRequest(mechanism=name)), *raw]


def _tokens(name: str) -> list[bytes]:
    if name == "PLAIN":
        return [b"\0user\0" + PASSWORD.encode()]
    if name == "OAUTHBEARER":
        now = int(time.time())  # wall clock: dates of a token
        token = jwt.encode({"iss": "i", "aud": "a", "sub": "user", "iat": now, "exp": now + 86_400}, _KEY, "EdDSA")
        return [f"n,,\x01auth=Bearer {token}\x01\x01".encode()]
    client = ScramClient(_SCRAM[name], "user", PASSWORD, nonce="client")
    return [client.first(), client.final(b"r=clientserver,s=c2FsdA==,i=4096")]


_NUMBERS: Final = [struct.pack(">i", each) for each in (-1, 0, 1, 7, 8, 65_536, 65_537, 2**31 - 1, -(2**31))]
_TEXTS: Final = [
    b"p=tls-unique,,", b"y,,", b"n,a=admin,", b",m=1", b",tokenauth=true", b"=2C", b"=3D", b"i=1", b"\0", b"\x01",
    b",,", b"c=cD10bHM=", b"r=", b"n=" + b"x" * 5000, "\u0131".encode(), b"\xed\xa0\x80", b"eyJhbGciOiJub25lIn0",
    b".", b"SCRAM-SHA-256-PLUS",
]  # fmt: skip


def changed(frames: list[bytes], others: list[list[bytes]], choice: random.Random) -> bytes:
    """Return the bytes of a conversation with a few random changes."""
    frames = list(frames)
    kind = choice.randrange(8)
    if kind == 0:
        frames.insert(choice.randrange(len(frames) + 1), choice.choice(choice.choice(others)))
    elif kind == 1:
        del frames[choice.randrange(len(frames))]
    at = choice.randrange(len(frames)) if frames else 0
    for _ in range(choice.randrange(1, 4) if frames else 0):
        frame = bytearray(frames[at]) or bytearray(1)
        where = choice.randrange(4 if choice.random() < 0.95 else 0, len(frame)) if len(frame) > 5 else 0
        how = choice.randrange(6)
        if how == 0:
            frame[where] ^= 1 << choice.randrange(8)
        elif how == 1:
            frame[where : where + choice.randrange(1, 20)] = b""
        elif how == 2:
            frame[where:where] = choice.choice(_TEXTS)
        elif how == 3:
            frame[where : where + 4] = choice.choice(_NUMBERS)
        elif how == 4:
            frame[where:where] = choice.randbytes(choice.randrange(1, 30))
        else:
            other = choice.choice(choice.choice(others))
            frame[where:] = other[choice.randrange(len(other)) :]
        if choice.random() < 0.8 and len(frame) >= 4:
            frame[:4] = struct.pack(">i", len(frame) - 4)
        frames[at] = bytes(frame)
    return b"".join(frames)


async def run(wanted: int, seed: int) -> None:
    choice, every = random.Random(seed), list(conversations())
    with tempfile.TemporaryDirectory() as folder:
        strangers = Strangers(Path(folder))
        for frames in every:
            assert await strangers.receive(b"".join(frames), 1 << 16) == "User:user", "an unchanged login"
        begun = told = time.perf_counter()
        inputs = 0
        while strangers.frames < wanted:
            data = changed(choice.choice(every), every, choice)
            user = await strangers.receive(data, 1 << 16 if choice.random() < 0.9 else choice.randrange(1, 64))
            inputs += 1
            if user not in ("", "User:user"):
                raise AssertionError(f"{user} was let in by {data.hex()}")
            if time.perf_counter() - told > 60:
                told = time.perf_counter()
                print(f"{strangers.frames:,} frames, {strangers.frames / (told - begun):,.0f}/s", flush=True)
        seconds = time.perf_counter() - begun
    print(f"{strangers.frames:,} frames in {inputs:,} connections, {strangers.frames / seconds:,.0f} frames/s")
    print({user or "nobody": count for user, count in strangers.users.items()})


if __name__ == "__main__":
    logs.configure("fuzz", "error")
    given = [int(each) for each in sys.argv[1:]]
    with predictable(), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(*given, *(FRAMES, 1)[len(given) :]))
