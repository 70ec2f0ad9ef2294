"""Settings that cannot work are refused with a message that names them; addresses are bound and advertised as set."""

from __future__ import annotations

import socket

import pytest
from gateway_svc.clients.listeners import advertised, bind
from gateway_svc.settings import GatewaySettings
from service_chassis.address import Address, Listener, parse_listeners
from service_chassis.settings import SettingsError, reference


@pytest.mark.parametrize(
    "wrong",
    [
        {"listeners": "localhost:9092"},
        {"listeners": "A://localhost:9092,A://localhost:9093"},
        {"advertised_listeners": "OTHER://localhost:9092"},
        {"advertised_listeners": "EXTERNAL://0.0.0.0:9092"},
        {"gateway_http": "nowhere"},
        {"gateway_lease_ms": 10},
        {"socket_request_max_bytes": 2**31},
    ],
)
def test_wrong_settings(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError):
        GatewaySettings(**wrong)


def test_every_setting_is_described() -> None:
    table = reference([GatewaySettings])
    assert "| `MILLRACE_LISTENERS` | `EXTERNAL://localhost:9092` |" in table
    assert "| `MILLRACE_GATEWAY_LEASE_MS` | `1000` |" in table


def test_the_name_is_the_host_name_unless_set() -> None:
    assert GatewaySettings().name == socket.gethostname()
    assert GatewaySettings(gateway_name="blue").name == "blue"


def test_localhost_is_bound_on_both_addresses_at_one_free_port() -> None:
    first, second = bind(Listener("EXTERNAL", Address("localhost", 0)), reuse_port=False)
    with first, second:
        assert (first.getsockname()[0], second.getsockname()[0]) == ("127.0.0.1", "::1")
        assert first.getsockname()[1] == second.getsockname()[1]


def test_a_port_that_is_taken() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        listener = Listener("EXTERNAL", Address("localhost", holder.getsockname()[1]))
        with pytest.raises(OSError, match=f"cannot listen at EXTERNAL://localhost:{listener.address.port}"):
            bind(listener, reuse_port=False)


def test_processes_may_share_a_port() -> None:
    first = bind(Listener("EXTERNAL", Address("localhost", 0)), reuse_port=True)
    port = first[0].getsockname()[1]
    second = bind(Listener("EXTERNAL", Address("localhost", port)), reuse_port=True)
    assert [each.getsockname()[1] for each in second] == [port, port]
    for each in (*first, *second):
        each.close()


@pytest.mark.parametrize(
    ("listeners", "told", "bound", "expected"),
    [
        ("A://localhost:0", "", "A://localhost:4000", "A://localhost:4000"),
        ("A://0.0.0.0:9092", "A://kafka:9092", "A://0.0.0.0:9092", "A://kafka:9092"),
        ("A://127.0.0.1:0", "A://kafka:0", "A://127.0.0.1:4000", "A://kafka:4000"),
        ("A://:9092", "", "A://:9092", f"A://{socket.gethostname()}:9092"),
        ("A://h:1,B://h:2", "B://b:20,A://a:10", "A://h:1,B://h:2", "A://a:10,B://b:20"),
    ],
)
def test_what_clients_are_told(listeners: str, told: str, bound: str, expected: str) -> None:
    names = ",".join(each.name for each in parse_listeners(listeners))
    settings = GatewaySettings(listeners=listeners, advertised_listeners=told, open_listeners=names)
    assert advertised(settings, parse_listeners(bound)) == parse_listeners(expected)
