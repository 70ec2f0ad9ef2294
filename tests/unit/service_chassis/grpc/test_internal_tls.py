"""Services know each other by certificates where other machines can reach them, or are told not to ask."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
from pathlib import Path
from typing import Any

import pytest
from service_chassis import logs, rpc
from service_chassis.grpc_server import Server, ServerCall, unary
from service_chassis.grpc_status import RpcError, Status
from service_chassis.http2.limits import Limits
from service_chassis.internal_tls import InternalTls, InternalTlsSettings, internal_tls
from service_chassis.tls import TlsError
from support.certificates import Authority, Pair

KEY, CERTIFICATE, CA = (f"MILLRACE_INTERNAL_TLS_{name}_FILE" for name in ("KEY", "CERTIFICATE", "CA"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("services"))


def settings(authority: Authority, pair: Pair, **more: str) -> InternalTlsSettings:
    files = authority.files(pair)
    return InternalTlsSettings(
        internal_tls_key_file=files.key,
        internal_tls_certificate_file=files.certificate,
        internal_tls_ca_file=files.ca,
        **more,
    )


@pytest.mark.parametrize("address", ["unix:/s", "localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_an_address_of_this_machine_needs_no_word(address: str) -> None:
    assert internal_tls(InternalTlsSettings(), address, "X", serves=True) is None


@pytest.mark.parametrize("serves", [True, False])
def test_an_address_that_others_reach_ends_the_start(serves: bool) -> None:
    with pytest.raises(TlsError) as error:
        internal_tls(InternalTlsSettings(), "0.0.0.0:1", "X", serves=serves)
    why = "other machines can reach 0.0.0.0:1; set" if serves else "0.0.0.0:1 needs"
    word = "or MILLRACE_INTERNAL_TLS to off on a private network"
    assert str(error.value) == f"X: {why} {KEY}, {CERTIFICATE}, {CA}, {word}"


def test_files_that_are_not_all_there_end_the_start() -> None:
    with pytest.raises(TlsError, match=f"X: localhost:1 needs {CERTIFICATE}, {CA}, or"):
        internal_tls(InternalTlsSettings(internal_tls_key_file="/k"), "localhost:1", "X", serves=False)


def test_the_word_has_a_line_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    off = InternalTlsSettings(internal_tls="off")
    with logs.configured("test", "warning", "json"):
        assert internal_tls(off, "0.0.0.0:1", "X", serves=True) is None
        assert internal_tls(off, "localhost:1", "X", serves=True) is None
    line = json.loads(capsys.readouterr().err)
    assert line["event"] == "services do not encrypt what they tell each other, and trust everyone"
    assert line["address"] == "0.0.0.0:1"


async def _echo(message: bytes, _call: ServerCall) -> bytes:
    return message


async def serving(tls: InternalTls, **options: Any) -> tuple[Server, str]:
    server = Server(tls=tls.listening, peer_refusal=tls.refusal, **options)
    server.add("x", {"Echo": unary(_echo)})
    port = server.listen("127.0.0.1:0")
    await server.start()
    return server, f"localhost:{port}"


async def asked(address: str, tls: InternalTls | None) -> bytes | Status:
    async with rpc.channel(address, tls=tls) as channel:
        try:
            answer: bytes = await channel.unary("/x/Echo", bytes, bytes)(b"hello", timeout=20)
        except RpcError as error:
            return error.status
        return answer


async def test_only_services_of_the_ca_and_of_the_names_connect(authority: Authority, tmp_path: Path) -> None:
    storage = authority.issue("storage")
    gateway = authority.issue("gateway", names="DNS:gateway-svc,DNS:localhost")
    stranger = authority.issue("stranger", names="DNS:other")
    foreign = Authority(tmp_path)
    names = "admin-api, Gateway-SVC"
    server, address = await serving(InternalTls(settings(authority, storage, internal_tls_names=names), serves=True))

    def end(of: Authority, pair: Pair) -> InternalTls:
        return InternalTls(settings(of, pair), serves=False)

    assert await asked(address, end(authority, gateway)) == b"hello"
    assert await asked(address, end(authority, stranger)) is Status.UNAVAILABLE
    assert await asked(address, end(foreign, foreign.issue("gateway"))) is Status.UNAVAILABLE
    assert await asked(address, None) is Status.UNAVAILABLE
    assert await asked(address, end(authority, gateway)) == b"hello"
    await server.stop(0)


async def test_certificates_change_at_both_ends(authority: Authority, tmp_path: Path) -> None:
    current = Pair(tmp_path / "key", tmp_path / "certificate")
    pairs = [authority.issue(f"service{number}") for number in range(2)]
    shutil.copy(pairs[0].key, current.key)
    shutil.copy(pairs[0].certificate, current.certificate)
    serves, asks = (InternalTls(settings(authority, current), serves=each) for each in (True, False))
    server, address = await serving(serves)
    assert await asked(address, asks) == b"hello"
    shutil.copy(pairs[1].key, current.key)
    shutil.copy(pairs[1].certificate, current.certificate)
    seen = []
    for end in (serves, asks):
        before = end._certificates.context
        end._certificates._fresh_until = 0.0
        assert await asked(address, asks) == b"hello"
        seen.append(end._certificates.context is before)
    assert seen == [False, False]
    await server.stop(0)


async def test_handshakes_that_fail_take_no_places(authority: Authority) -> None:
    pair = authority.issue("places")
    tls = InternalTls(settings(authority, pair), serves=True)
    server, address = await serving(tls, limits=Limits(connections=2))
    for _ in range(5):
        assert await asked(address, None) is Status.UNAVAILABLE
    assert await asked(address, InternalTls(settings(authority, pair), serves=False)) == b"hello"
    await server.stop(0)


def test_a_unix_socket_is_for_its_user(tmp_path: Path) -> None:
    path = tmp_path / "s"
    server = Server()
    server.listen(f"unix:{path}")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert stat.S_ISSOCK(os.stat(path).st_mode)
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
