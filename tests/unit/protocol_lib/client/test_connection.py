"""One connection: versions, order, time limits, and brokers that are broken."""

from __future__ import annotations

import asyncio
import socket
import ssl

import pytest
from protocol_lib.api import ApiKey
from protocol_lib.client.connection import Connection
from protocol_lib.client.errors import (
    AuthenticationError,
    ConnectionFailedError,
    InvalidResponseError,
    ResponseTimeoutError,
    UnsupportedByBrokerError,
)
from protocol_lib.client.sasl import SaslPlain
from protocol_lib.client.settings import Address, ClientSettings
from protocol_lib.codec import encode
from protocol_lib.messages.api_versions import ApiVersion, ApiVersionsResponse
from protocol_lib.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from protocol_lib.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol_lib.messages.metadata import MetadataRequest
from protocol_lib.messages.sasl_authenticate import SaslAuthenticateResponse
from protocol_lib.messages.sasl_handshake import SaslHandshakeResponse
from support.scripted_broker import ScriptedBroker, StartScript, versions

BEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def connect(broker: ScriptedBroker, **settings: object) -> Connection:
    chosen = ClientSettings(bootstrap_servers=broker.bootstrap, **settings)  # type: ignore[arg-type]
    return await Connection.open(Address("127.0.0.1", broker.port), chosen)


async def on_their_way(connection: Connection, count: int) -> None:
    while connection.in_flight < count:  # noqa: ASYNC110 (nothing else signals it)
        await asyncio.sleep(0)


def beats(header, request):
    """Start a broker that knows ApiVersions and answers heartbeats with their generation."""
    if header.api_key == ApiKey.API_VERSIONS:
        return versions()
    return HeartbeatResponse(error_code=request.generation_id)


async def test_requests_travel_in_the_newest_version_both_sides_know(scripted: StartScript) -> None:
    def answer(header, _request):
        if header.api_key == ApiKey.API_VERSIONS:
            return versions(HEARTBEAT=(1, 3), FIND_COORDINATOR=(0, 99))
        if header.api_key == ApiKey.HEARTBEAT:
            return HeartbeatResponse(error_code=0)
        return FindCoordinatorResponse()

    broker = await scripted(answer)
    connection = await connect(broker, client_id="me")
    await connection.request(BEAT)
    await connection.request(FindCoordinatorRequest(key="g"))
    await connection.request(FindCoordinatorRequest(key="g"), version_max=3)

    sent = [(header.api_key, header.api_version, header.client_id) for header, _ in broker.requests]
    assert sent == [(18, 4, "me"), (12, 3, "me"), (10, 6, "me"), (10, 3, "me")]


async def test_a_broker_that_does_not_know_our_api_versions_is_asked_in_the_version_it_names(
    scripted: StartScript,
) -> None:
    def answer(header, _request):
        if header.api_version > 2:
            named = ApiVersion(api_key=18, min_version=0, max_version=2)
            return encode(ApiVersionsResponse(error_code=35, api_keys=(named,)), 0)
        return versions(HEARTBEAT=(0, 0))

    broker = await scripted(answer)
    connection = await connect(broker)
    assert [header.api_version for header, _ in broker.requests] == [4, 2]
    assert connection.version_for(ApiKey.HEARTBEAT) == 0


async def test_a_broker_that_names_no_version_is_asked_in_the_first(scripted: StartScript) -> None:
    def answer(header, _request):
        return encode(ApiVersionsResponse(error_code=35, api_keys=()), 0) if header.api_version else versions()

    broker = await scripted(answer)
    await connect(broker)
    assert [header.api_version for header, _ in broker.requests] == [4, 0]


async def test_an_api_the_broker_lacks_is_refused_before_anything_is_sent(scripted: StartScript) -> None:
    broker = await scripted(lambda *_: versions(HEARTBEAT=(5, 7), METADATA=(0, -1)))
    connection = await connect(broker)
    for message in (BEAT, MetadataRequest(topics=None)):
        with pytest.raises(UnsupportedByBrokerError):
            await connection.request(message)
    assert len(broker.requests) == 1
    assert connection.is_open


async def test_requests_are_pipelined_and_answered_in_order(scripted: StartScript) -> None:
    release = asyncio.Event()

    async def answer(header, request):
        if header.api_key != ApiKey.API_VERSIONS:
            await release.wait()
        return beats(header, request)

    broker = await scripted(answer)
    connection = await connect(broker)
    requests = [HeartbeatRequest(group_id="g", generation_id=number, member_id="m") for number in range(20)]
    tasks = [asyncio.create_task(connection.request(each)) for each in requests]
    await on_their_way(connection, 20)
    tasks[3].cancel()  # its answer still comes, to nobody
    release.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(answers.pop(3), asyncio.CancelledError)
    assert [each.error_code for each in answers] == [number for number in range(20) if number != 3]
    assert connection.in_flight == 0


async def test_no_more_requests_are_on_their_way_than_allowed(scripted: StartScript) -> None:
    release = asyncio.Event()

    async def answer(header, request):
        if header.api_key != ApiKey.API_VERSIONS:
            await release.wait()
        return beats(header, request)

    broker = await scripted(answer)
    connection = await connect(broker, in_flight_max=3)
    tasks = [asyncio.create_task(connection.request(BEAT)) for _ in range(10)]
    for _ in range(20):
        await asyncio.sleep(0)
    assert connection.in_flight == 3
    release.set()
    assert len(await asyncio.gather(*tasks)) == 10


async def test_an_answer_that_does_not_come_in_time_ends_the_connection(scripted: StartScript) -> None:
    silent = asyncio.Event()

    async def answer(header, _request):
        if header.api_key != ApiKey.API_VERSIONS:
            await silent.wait()
        return versions()

    connection = await connect(await scripted(answer))
    late = asyncio.create_task(connection.request(BEAT, timeout_ms=50))
    later = asyncio.create_task(connection.request(BEAT))
    with pytest.raises(ResponseTimeoutError, match="Heartbeat"):
        await late
    with pytest.raises(ConnectionFailedError):
        await later
    with pytest.raises(ConnectionFailedError):
        await connection.request(BEAT)


@pytest.mark.parametrize("frame", [b"", b"\0\0\0\x63\0\0", b"\0\0\0\x02\0", b"\0\0\0\x02" + b"\0" * 50])
async def test_bytes_that_are_no_answer_end_the_connection(frame: bytes) -> None:
    """The answer is too short, to another request, cut short, or too long."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        body = b"\0\0\0\x01" + encode(versions(HEARTBEAT=(0, 0)), 4)
        writer.write(len(body).to_bytes(4, "big") + body)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(len(frame).to_bytes(4, "big") + frame)
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        settings = ClientSettings(bootstrap_servers=f"127.0.0.1:{port}")
        connection = await Connection.open(Address("127.0.0.1", port), settings)
        with pytest.raises(InvalidResponseError):
            await connection.request(BEAT)
        assert not connection.is_open


async def test_a_response_larger_than_allowed_ends_the_connection(scripted: StartScript) -> None:
    def answer(header, request):
        return b"\0" * 5000 if header.api_key == ApiKey.HEARTBEAT else versions()

    connection = await connect(await scripted(answer), response_bytes_max=4000)
    with pytest.raises(InvalidResponseError, match="5005 bytes"):
        await connection.request(BEAT)


async def test_a_broker_that_hangs_up_fails_the_waiting_requests(scripted: StartScript) -> None:
    connection = await connect(
        await scripted(lambda header, _: None if header.api_key == ApiKey.HEARTBEAT else versions())
    )
    with pytest.raises(ConnectionFailedError, match="closed by the broker"):
        await connection.request(BEAT)
    assert connection.closed.is_set()


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(ConnectionFailedError):
            await Connection.open(Address("127.0.0.1", port), ClientSettings(bootstrap_servers="x"))


@pytest.mark.parametrize("host", ["a" * 300, "a..b", "a\0b"])
async def test_a_name_that_can_be_no_hosts(host) -> None:
    with pytest.raises(ConnectionFailedError):
        await Connection.open(Address(host, 9092), ClientSettings(bootstrap_servers="x"))


async def test_a_broker_that_speaks_no_tls_is_not_tried_again() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    tls = ssl.create_default_context()
    with pytest.raises(AuthenticationError, match="SSL"):
        await Connection.open(address, ClientSettings(bootstrap_servers="x", tls=tls))
    server.close()


async def test_a_broker_that_sends_nothing_is_given_up(scripted: StartScript) -> None:
    silent = asyncio.Event()

    async def answer(_header, _request):
        await silent.wait()

    with pytest.raises(ConnectionFailedError, match="not connected in time"):
        await connect(await scripted(answer), connect_timeout_ms=50)


def plain(password: str, lifetime_ms: int = 0):
    def answer(header, request):
        if header.api_key == ApiKey.API_VERSIONS:
            return versions()
        if header.api_key == ApiKey.SASL_HANDSHAKE:
            known = request.mechanism == "PLAIN"
            return SaslHandshakeResponse(error_code=0 if known else 33, mechanisms=("PLAIN",))
        if header.api_key == ApiKey.SASL_AUTHENTICATE:
            right = request.auth_bytes == f"\0alice\0{password}".encode()
            return SaslAuthenticateResponse(
                error_code=0 if right else 58,
                error_message=None if right else "no",
                auth_bytes=b"",
                session_lifetime_ms=lifetime_ms,
            )
        return HeartbeatResponse(error_code=0)

    return answer


async def test_plain_sends_name_and_password_before_anything_else(scripted: StartScript) -> None:
    broker = await scripted(plain("secret"))
    connection = await connect(broker, sasl=SaslPlain("alice", "secret"))
    await connection.request(BEAT)
    assert [header.api_key for header, _ in broker.requests] == [18, 17, 36, 12]
    assert not connection.should_be_renewed


async def test_a_wrong_password_is_not_tried_again(scripted: StartScript) -> None:
    with pytest.raises(AuthenticationError, match="no") as caught:
        await connect(await scripted(plain("secret")), sasl=SaslPlain("alice", "wrong"))
    assert not caught.value.retriable


async def test_an_authentication_that_ends_soon_asks_for_a_new_connection(
    scripted: StartScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Soon: when 85 % of its time is over, here of an hour."""
    connection = await connect(await scripted(plain("secret", 3_600_000)), sasl=SaslPlain("alice", "secret"))
    authenticated_by = asyncio.get_running_loop().time()
    found = []
    for passed_s in (0, 3_000, 3_060):
        with monkeypatch.context() as later:
            later.setattr(asyncio.get_running_loop(), "time", lambda now=authenticated_by + passed_s: now)
            found.append(connection.should_be_renewed)
    assert found == [False, False, True]


async def test_retiring_waits_for_requests_on_their_way(scripted: StartScript) -> None:
    release = asyncio.Event()

    async def answer(header, request):
        if header.api_key != ApiKey.API_VERSIONS:
            await release.wait()
        return beats(header, request)

    connection = await connect(await scripted(answer))
    beat = asyncio.create_task(connection.request(BEAT))
    await on_their_way(connection, 1)
    retiring = asyncio.create_task(connection.retire())
    await asyncio.sleep(0.01)
    assert connection.is_open
    release.set()
    assert (await beat).error_code == 1
    await retiring
    assert not connection.is_open
