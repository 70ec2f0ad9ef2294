"""Listeners with TLS: who is let in, as whom, what the others see, and certificates that change while clients work."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from protocol_lib.messages.api_versions import ApiVersionsRequest
from support.certificates import Authority, Pair
from support.late import aiokafka

from tests.wire.conftest import Running, StartBroker, Wire, until

VERSIONS = ApiVersionsRequest(client_software_name="test", client_software_version="1")
LogLines = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server(authority: Authority) -> Pair:
    return authority.issue("server")


async def connect(broker: Running, trust: ssl.SSLContext) -> Wire:
    host, port = broker.address
    return Wire(*await asyncio.open_connection(host, port, ssl=trust, server_hostname="localhost"))


async def refused(broker: Running, trust: ssl.SSLContext) -> str:
    """Return the reason that a client sees for not being served."""
    try:
        wire = await connect(broker, trust)
        await wire.call(18, 3, VERSIONS)
    except (ssl.SSLError, asyncio.IncompleteReadError) as error:
        return getattr(error, "reason", "") or ""
    raise AssertionError("the client was served")


def shaken(address: tuple[str, int], trust: ssl.SSLContext) -> None:
    with socket.create_connection(address) as connection, trust.wrap_socket(connection, server_hostname="localhost"):
        pass


def details(lines: LogLines) -> list[tuple[str, str]]:
    return [(line["reason"], line["detail"]) for line in lines() if line["event"] == "request refused"]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_both_versions_are_served_by_good_ciphers(
    start_broker: StartBroker, authority: Authority, server: Pair, version: ssl.TLSVersion
) -> None:
    broker = await start_broker(**authority.settings(server))
    trust = authority.trust()
    trust.minimum_version = trust.maximum_version = version
    wire = await connect(broker, trust)
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    name, shown, _ = wire.writer.get_extra_info("cipher")
    assert shown == version.name.replace("_", ".")
    assert "GCM" in name or "CHACHA20" in name
    await wire.close()


async def test_an_old_version_and_a_weak_cipher_are_refused(
    start_broker: StartBroker, authority: Authority, server: Pair, log_lines: LogLines
) -> None:
    broker = await start_broker(**authority.settings(server))
    old = authority.trust()
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
    weak = authority.trust()
    weak.maximum_version = ssl.TLSVersion.TLSv1_2
    weak.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    for trust in (old, weak):
        assert await refused(broker, trust)
    assert details(log_lines) == [("tls_handshake", "unsupported protocol"), ("tls_handshake", "no shared cipher")]


async def test_a_client_that_does_not_know_the_ca(
    start_broker: StartBroker, authority: Authority, server: Pair, log_lines: LogLines
) -> None:
    broker = await start_broker(**authority.settings(server))
    assert await refused(broker, ssl.create_default_context()) == "CERTIFICATE_VERIFY_FAILED"
    await until(lambda: bool(broker.refused))
    with pytest.raises(ssl.SSLError, match="unable to get local issuer"):  # this one sends the alert
        await asyncio.to_thread(shaken, broker.address, ssl.create_default_context())
    await until(lambda: broker.refused == {"tls_handshake": 2})
    assert details(log_lines) == [
        ("tls_handshake", "the client left before the end"),
        ("tls_handshake", "tlsv1 alert unknown ca"),
    ]


async def test_the_user_is_that_of_the_certificate(
    start_broker: StartBroker, authority: Authority, server: Pair, log_lines: LogLines
) -> None:
    rules = "RULE:^CN=([^,]+),OU=data$/$1/U,RULE:^CN=plain$/plain/"
    broker = await start_broker(
        **authority.settings(server),
        ssl_client_auth="requested",
        ssl_principal_mapping_rules=rules,
    )
    shown = [None, authority.issue("alice", "/OU=data/CN=alice"), authority.issue("plain")]
    seen = []
    for pair in shown:
        wire = await connect(broker, authority.trust(pair))
        assert (await wire.call(18, 3, VERSIONS)).error_code == 0
        (connection,) = broker.gateway._connections._open
        seen.append(connection.principal)  # type: ignore[attr-defined]
        await wire.close()
        await until(lambda: broker.gateway.metrics.connections == 0)
    assert seen == ["User:ANONYMOUS", "User:ALICE", "User:plain"]
    assert await refused(broker, authority.trust(authority.issue("other"))) == ""
    assert details(log_lines) == [("tls_principal", "no rule of MILLRACE_SSL_PRINCIPAL_MAPPING_RULES is for CN=other")]


async def test_certificates_that_are_required(
    start_broker: StartBroker, authority: Authority, server: Pair, tmp_path: Path, log_lines: LogLines
) -> None:
    broker = await start_broker(**authority.settings(server), ssl_client_auth="required")
    wire = await connect(broker, authority.trust(authority.issue("good")))
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    await wire.close()
    old = authority.issue("old", days=("20200101000000Z", "20210101000000Z"))
    foreign = Authority(tmp_path / "foreign").issue("foreign")
    for trust, reason in (
        (authority.trust(), "TLSV13_ALERT_CERTIFICATE_REQUIRED"),
        (authority.trust(old), "SSLV3_ALERT_CERTIFICATE_EXPIRED"),
        (authority.trust(foreign), "TLSV1_ALERT_UNKNOWN_CA"),
    ):
        assert await refused(broker, trust) in (reason, "")
    assert details(log_lines) == [
        ("tls_handshake", "peer did not return a certificate"),
        ("tls_handshake", "certificate verify failed: certificate has expired"),
        ("tls_handshake", "certificate verify failed: unable to get local issuer certificate"),
    ]


async def test_tls_and_no_tls_are_told_apart(
    start_broker: StartBroker, authority: Authority, server: Pair, log_lines: LogLines
) -> None:
    plain, encrypted = await start_broker(), await start_broker(**authority.settings(server))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(plain, authority.trust())
    wire = await encrypted.connect()
    wire.send(18, 3, VERSIONS)
    assert await wire.closed() == b""
    (first, length), second = details(log_lines)
    assert (first, length.partition(": ")[2]) == ("frame_length", "the client speaks TLS")
    assert second == ("tls_plaintext", "the client does not speak TLS")


def serial(wire: Wire) -> str:
    return str(wire.writer.get_extra_info("peercert")["serialNumber"])


def links(folder: Path, pair: Pair, name: str) -> None:
    """Put a pair into a folder as Kubernetes does: files that are links through `..data` to a folder with a date."""
    dated = folder / name
    dated.mkdir()
    shutil.copy(pair.key, dated / "tls.key")
    shutil.copy(pair.certificate, dated / "tls.crt")
    new = folder / "..data_tmp"
    new.symlink_to(name)
    os.replace(new, folder / "..data")
    for file in ("tls.key", "tls.crt"):
        with contextlib.suppress(FileExistsError):
            (folder / file).symlink_to(f"..data/{file}")


async def test_files_that_change_serve_the_next_connection(
    start_broker: StartBroker, authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second, third = (authority.issue(f"turn{number}") for number in range(3))
    folder = tmp_path / "secret"
    folder.mkdir()
    links(folder, first, "2026_1")
    pair = Pair(folder / "tls.key", folder / "tls.crt")
    broker = await start_broker(**authority.settings(pair))
    (certificates,) = broker.gateway._listener_security._certificates.values()
    trust = authority.trust()

    async def seen() -> str:
        wire = await connect(broker, trust)
        found = serial(wire)
        await wire.close()
        return found

    old = await connect(broker, trust)
    serials = [await seen()]
    assert certificates.check() is False
    links(folder, second, "2026_2")
    assert certificates.check() is True
    serials.append(await seen())
    assert len(set(serials)) == 2
    shutil.copy(third.key, folder / "tls.key")  # the key alone, in place
    assert certificates.check() is False
    assert await seen() == serials[1]
    shutil.copy(third.certificate, folder / "tls.crt")
    assert certificates.check() is True
    serials.append(await seen())
    assert len(set(serials)) == 3
    assert (await old.call(18, 3, VERSIONS)).error_code == 0
    for wrong in (authority.issue("late", days=("20200101000000Z", "20210101000000Z")), None):
        for path, source in ((pair.key, wrong and wrong.key), (pair.certificate, wrong and wrong.certificate)):
            path.write_bytes(source.read_bytes() if source else b"nothing")
        assert [certificates.check(), certificates.check()] == [False, False]
        assert await seen() == serials[2]
    faults = [line for line in capsys.readouterr().err.splitlines() if "new certificate not used" in line]
    assert [fault.count("key values mismatch") for fault in faults] == [1, 0, 0]
    assert ["the certificate has expired" in fault for fault in faults] == [False, True, False]
    await old.close()


async def test_no_record_is_lost_while_certificates_change(
    start_broker: StartBroker, authority: Authority, tmp_path: Path
) -> None:
    """Clients connect again and again, each with the certificate of the moment."""
    pairs = [authority.issue(f"load{number}") for number in range(4)]
    current = Pair(tmp_path / "key.pem", tmp_path / "certificate.pem")

    def use(pair: Pair) -> None:
        for source, target in ((pair.key, current.key), (pair.certificate, current.certificate)):
            shutil.copy(source, target.with_suffix(".new"))
            os.replace(target.with_suffix(".new"), target)

    use(pairs[0])
    broker = await start_broker(**authority.settings(current))
    (certificates,) = broker.gateway._listener_security._certificates.values()
    options = {
        "bootstrap_servers": f"localhost:{broker.address[1]}",
        "security_protocol": "SSL",
        "ssl_context": authority.trust(),
    }
    written: list[bytes] = []

    async def write(number: int) -> None:
        for turn in range(6):
            async with aiokafka.AIOKafkaProducer(**options, acks="all") as producer:
                for each in range(20):
                    value = b"%d-%d-%d" % (number, turn, each)
                    await producer.send_and_wait("single", value)
                    written.append(value)

    writers = [asyncio.create_task(write(number)) for number in range(3)]
    changes = 0
    while not all(writer.done() for writer in writers):
        use(pairs[(changes + 1) % 4])
        changes += certificates.check()
        await asyncio.sleep(0.02)
    await asyncio.gather(*writers)
    assert changes > 3
    assert broker.refused == {}
    async with aiokafka.AIOKafkaConsumer("single", **options, auto_offset_reset="earliest") as consumer:
        async with asyncio.timeout(60):
            read = [(await consumer.getone()).value for _ in written]
    assert sorted(read) == sorted(written)
    assert len(written) == 360


async def test_the_metric_is_the_end_of_the_certificate(
    start_broker: StartBroker, authority: Authority, server: Pair
) -> None:
    broker = await start_broker(**authority.settings(server))
    (value,) = [
        value() for name, _, value in broker.gateway.metrics.gauges if name.startswith("millrace_certificate_expires")
    ]
    wire = await connect(broker, authority.trust())
    assert value == ssl.cert_time_to_seconds(wire.writer.get_extra_info("peercert")["notAfter"])
    await wire.close()


async def test_handshakes_that_never_end_leave_room_for_others(
    start_broker: StartBroker, authority: Authority, server: Pair
) -> None:
    broker = await start_broker(**authority.settings(server), max_connections_per_ip=1001)
    starts = [b"\x16", b"\x16\x03\x01\x02\x00", b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + bytes(9000)]
    held = []
    for number in range(1000):
        held.append(await broker.connect())
        held[-1].writer.write(starts[number % 3])
    wire = await connect(broker, authority.trust())
    assert (await wire.call(18, 3, VERSIONS)).error_code == 0
    assert broker.gateway.memory_held == 0
    for each in (*held, wire):
        await each.close()
