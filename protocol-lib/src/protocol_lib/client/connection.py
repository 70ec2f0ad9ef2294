"""One connection to one broker: requests out, responses in, paired by order and correlation id.

    connection = await Connection.open(Address("localhost", 9092), settings)
    response = await connection.request(MetadataRequest(topics=None))
    connection.close()

Requests are pipelined: each is written at once, and a broker answers a connection's requests in their order. Opening
asks for the broker's ApiVersions and authenticates; after that a request travels in the newest version that both
sides know. Every fault on the wire ends the connection, a request without an answer in time included: no later request
could be answered either.

Answers are at most `response_bytes_max` long. A caller with many connections bounds the memory of all their answers by
`room`: it is awaited with the size of each large answer before any memory is taken for it, and nothing more is received
until it returns. Records in an answer refer to the memory of the answer.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from protocol_lib.api import APIS, Api, ApiKey
from protocol_lib.client.errors import (
    AuthenticationError,
    ConnectionFailedError,
    InvalidResponseError,
    KafkaError,
    ResponseTimeoutError,
    ResponseTooLargeError,
    UnsupportedByBrokerError,
    check,
)
from protocol_lib.client.receiving import FrameReceiver, FrameTooLargeError
from protocol_lib.client.sasl import SaslMechanism
from protocol_lib.client.settings import Address, ClientSettings
from protocol_lib.codec import decode, encode_parts
from protocol_lib.errors import DecodeError, ErrorCode
from protocol_lib.framing import FrameError
from protocol_lib.headers import RequestHeader, decode_response_header, encode_request_header
from protocol_lib.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateRequest
from protocol_lib.messages.sasl_handshake import SaslHandshakeRequest
from protocol_lib.schema import message_info

#: The ApiVersions that is tried first. 5 would only add a check that brokers before 4.4 answer with a refusal.
_API_VERSIONS_FIRST: Final = 4
#: The first version whose tokens travel in SaslAuthenticate.
_SASL_HANDSHAKE: Final = 1
#: A new connection takes the place of one whose authentication lasts for less than this part of its time.
_RENEW_AT: Final = 0.85
#: TLS errors of a connection that was lost; every other one is about the identity or the kind of the peer.
_CUT_OFF: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
_WRITE_BUFFER_HIGH: Final = 1 << 20

#: Function that returns once there is memory for so many bytes.
Room = Callable[[int], Awaitable[None]]


@dataclass(slots=True)
class _Awaited:
    """Request that was written and waits for its answer."""

    correlation_id: int
    api: Api
    version: int
    answer: asyncio.Future[Any]
    timer: asyncio.TimerHandle


class Connection(asyncio.BufferedProtocol):
    """See the module. Made by `open` only."""

    def __init__(self, address: Address, settings: ClientSettings, room: Room | None = None) -> None:
        self.address = address
        #: versions that the broker serves: api key → (first, last)
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._receiver = FrameReceiver(settings.response_bytes_max)
        self._room = room
        self._making_room: asyncio.Task[None] | None = None
        self._awaited: deque[_Awaited] = deque()
        self._last_correlation_id = 0
        self._slots = asyncio.Semaphore(settings.in_flight_max)
        self._writable = asyncio.Event()
        self._writable.set()
        self._transport: asyncio.Transport | None = None
        self._ended: KafkaError | None = None
        self._renew_at: float | None = None
        #: set when the connection has ended
        self.closed = asyncio.Event()

    @classmethod
    async def open(cls, address: Address, settings: ClientSettings, *, room: Room | None = None) -> "Connection":
        """Return a connection that is negotiated and authenticated; KafkaError when there cannot be one."""
        connection = cls(address, settings, room)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await connection._connect()
                await connection._negotiate()
                if settings.sasl is not None:
                    await connection._authenticate(settings.sasl)
        except BaseException as fault:
            connection.close()
            translated = _translate(fault, address)
            if translated is None:
                raise
            raise translated from fault
        return connection

    # -- requests

    @property
    def is_open(self) -> bool:
        return self._ended is None

    @property
    def is_writable(self) -> bool:
        """Whether bytes that are written now go out soon."""
        return self._ended is None and self._writable.is_set()

    @property
    def in_flight(self) -> int:
        return len(self._awaited)

    @property
    def should_be_renewed(self) -> bool:
        """Whether its authentication ends so soon that a new connection should be used instead (KIP-368)."""
        return self._renew_at is not None and self._loop.time() >= self._renew_at

    def version_for(self, api_key: int, version_max: int | None = None) -> int:
        """Return the newest version both sides know, at most `version_max`; else UnsupportedByBrokerError."""
        api = APIS[api_key]
        first, last = self.versions.get(api_key, (0, -1))
        chosen = min(last, api.max_version, api.max_version if version_max is None else version_max)
        if chosen < max(first, api.min_version):
            raise UnsupportedByBrokerError(f"{self.address} serves {api.name} in versions {first} to {last}")
        return chosen

    async def request(self, message: Any, *, timeout_ms: int | None = None, version_max: int | None = None) -> Any:
        """Return the answer to a message. Waits for its turn when too many requests are on their way."""
        version = self.version_for(message_info(type(message)).api_key or 0, version_max)
        async with self._slots:
            await self.writable()
            return await self.submit(message, version, timeout_ms=timeout_ms)

    def submit(
        self, message: Any, version: int, *, timeout_ms: int | None = None, answered: bool = True
    ) -> asyncio.Future[Any]:
        """Write a request at once; the future gets the answer, None right away when none is to come.

        EncodeError when the message cannot be written in this version; then nothing is."""
        if self._ended is not None or self._transport is None:
            raise self._ended or ConnectionFailedError(f"{self.address}: not connected")
        api = APIS[message_info(type(message)).api_key or 0]
        parts = encode_parts(message, version)
        self._last_correlation_id = correlation_id = (self._last_correlation_id + 1) & 0x7FFFFFFF
        header = encode_request_header(RequestHeader(api.key, version, correlation_id, self._settings.client_id))
        size = len(header) + sum(map(len, parts))
        self._transport.writelines([size.to_bytes(4, "big") + header, *parts])  # type: ignore[list-item]
        future: asyncio.Future[Any] = self._loop.create_future()
        if not answered:
            future.set_result(None)
            return future
        timeout_s = (self._settings.request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        timer = self._loop.call_later(timeout_s, self._expire, future, api.name, timeout_s)
        self._awaited.append(_Awaited(correlation_id, api, version, future, timer))
        return future

    def close(self) -> None:
        """Close; requests without an answer yet fail with ConnectionFailedError."""
        self._end(ConnectionFailedError(f"{self.address}: closed"))

    async def writable(self) -> None:
        """Return when written bytes go out soon, or the connection has ended."""
        await self._writable.wait()

    async def retire(self) -> None:
        """Close when everything that is on its way is answered."""
        while self._awaited and self.is_open:
            await asyncio.wait([awaited.answer for awaited in self._awaited])
            await asyncio.sleep(0)
        self.close()

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.set_write_buffer_limits(_WRITE_BUFFER_HIGH)
        self._transport = transport
        if self._ended is not None:
            transport.abort()

    def get_buffer(self, _sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.received(nbytes):
                self._deliver(frame)
        except FrameTooLargeError as fault:
            self._end(ResponseTooLargeError(f"{self.address}: {fault}", fault.start))
        except FrameError as fault:
            self._end(InvalidResponseError(f"{self.address}: {fault}"))
        except DecodeError as fault:
            self._end(InvalidResponseError(f"{self.address}: {fault}"))
        if self._receiver.announced and self._room is not None and self._ended is None:
            assert self._transport is not None
            self._transport.pause_reading()  # mutant: room-before-answer
            self._making_room = self._loop.create_task(self._make_room(self._room, self._receiver.announced))

    def eof_received(self) -> None:
        self._end(ConnectionFailedError(f"{self.address}: closed by the broker"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(ConnectionFailedError(f"{self.address}: {exc or 'closed by the broker'}"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # -- inside

    async def _make_room(self, room: Room, size: int) -> None:
        await room(size)
        if self._transport is not None and self._ended is None:
            self._transport.resume_reading()

    def _deliver(self, frame: bytes | memoryview) -> None:
        if not self._awaited:
            raise DecodeError("a response to no request")
        awaited = self._awaited.popleft()
        awaited.timer.cancel()
        try:
            answer = _decode_answer(awaited, frame)
        except DecodeError as fault:
            if not awaited.answer.done():
                awaited.answer.set_exception(InvalidResponseError(f"{self.address}: {fault}"))
            raise
        if not awaited.answer.done():
            awaited.answer.set_result(answer)

    def _expire(self, answer: asyncio.Future[Any], api_name: str, timeout_s: float) -> None:
        fault = ResponseTimeoutError(f"{self.address}: no answer to {api_name} within {timeout_s:g} s")
        if not answer.done():
            answer.set_exception(fault)
        self._end(ConnectionFailedError(f"{self.address}: closed, an answer to {api_name} did not come in time"))

    def _end(self, fault: KafkaError) -> None:
        if self._ended is not None:
            return
        self._ended = fault
        if self._transport is not None:
            self._transport.abort()
        if self._making_room is not None:
            self._making_room.cancel()
        for awaited in self._awaited:
            awaited.timer.cancel()
            if not awaited.answer.done():
                awaited.answer.set_exception(fault)
        self._awaited.clear()
        self._writable.set()
        self.closed.set()

    async def _connect(self) -> None:
        host, port = self.address.host, self.address.port
        try:
            await self._loop.create_connection(lambda: self, host, port, ssl=self._settings.tls)
        except OSError as fault:  # those of certificates, which are ValueErrors too, among them
            if str(fault):
                raise
            raise ConnectionFailedError(f"{self.address}: closed by the broker before TLS was agreed on") from fault
        except (ValueError, OverflowError) as fault:  # no valid name or port; metadata may contain anything
            raise ConnectionFailedError(f"{self.address}: {fault}") from fault

    async def _negotiate(self) -> None:
        """Learn the versions that the broker serves. One without our ApiVersions answers in version 0 (KIP-511)."""
        version = _API_VERSIONS_FIRST
        request = ApiVersionsRequest(client_software_name="millrace-protocol", client_software_version="0.1.0")
        response: ApiVersionsResponse = await self.submit(request, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            served = {each.api_key: each.max_version for each in response.api_keys}
            version = min(version, max(served.get(ApiKey.API_VERSIONS, 0), 0))
            response = await self.submit(request, version)
        check(response.error_code, f"{self.address}: ApiVersions")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}

    async def _authenticate(self, mechanism: SaslMechanism) -> None:
        handshake = await self.submit(SaslHandshakeRequest(mechanism=mechanism.name), _SASL_HANDSHAKE)
        if handshake.error_code:
            offered = ", ".join(handshake.mechanisms)
            raise AuthenticationError(f"{self.address} offers {offered or 'no SASL mechanism'}, not {mechanism.name}")
        version = self.version_for(ApiKey.SASL_AUTHENTICATE)
        exchange = mechanism.exchange()
        token = next(exchange, None)
        began = self._loop.time()
        while token is not None:
            answer = await self.submit(SaslAuthenticateRequest(auth_bytes=token), version)
            if answer.error_code:
                raise AuthenticationError(f"{self.address}: {answer.error_message or 'authentication failed'}")
            if answer.session_lifetime_ms > 0:
                self._renew_at = began + _RENEW_AT * answer.session_lifetime_ms / 1000
            try:
                token = exchange.send(answer.auth_bytes)
            except StopIteration:
                token = None


def _translate(fault: BaseException, address: Address) -> KafkaError | None:
    """Return an error of the operating system, TLS or asyncio while connecting as one of ours, None for all others."""
    if isinstance(fault, ssl.SSLError) and not isinstance(fault, _CUT_OFF):
        return AuthenticationError(f"{address}: {fault}")
    if isinstance(fault, TimeoutError):
        return ConnectionFailedError(f"{address}: not connected in time")
    if isinstance(fault, OSError):
        return ConnectionFailedError(f"{address}: {fault}")
    return None


def _decode_answer(awaited: _Awaited, frame: bytes | memoryview) -> Any:
    api, version = awaited.api, awaited.version
    correlation_id, position = decode_response_header(api.key, version, frame)
    if correlation_id != awaited.correlation_id:
        raise DecodeError(f"an answer to request {correlation_id} where {awaited.correlation_id} was next")
    if api.key == ApiKey.API_VERSIONS and int.from_bytes(frame[4:6], "big") == ErrorCode.UNSUPPORTED_VERSION:
        version = 0
    return decode(api.response, version, frame, position)
