"""Connections are counted by address from the moment they are accepted, and few enough for the open files."""

from __future__ import annotations

import resource

import pytest
from gateway_svc.clients import entrance as module
from gateway_svc.clients.entrance import Entrance, address_key, connections_max, peer_name
from gateway_svc.metrics import GatewayMetrics
from gateway_svc.refusals import Refusals


@pytest.mark.parametrize(
    ("host", "key"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::1", "2001:db8:1:2::"),
        ("2001:db8:1:3::1", "2001:db8:1:3::"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::"),
        ("unknown", "unknown"),
    ],
)
def test_an_ipv6_network_is_one_address(host: str, key: str) -> None:
    assert address_key(host) == key


def test_names_for_log_lines() -> None:
    assert [peer_name(host, 5) for host in ("1.2.3.4", "::ffff:1.2.3.4", "::1")] == [
        "1.2.3.4:5",
        "1.2.3.4:5",
        "[::1]:5",
    ]


def test_limits_in_all_and_for_each_address() -> None:
    metrics = GatewayMetrics()
    entrance = Entrance(Refusals(metrics), lambda: 0.0, most=4, most_per_address=2, rate=0)
    hosts = ["2001:db8::1", "2001:db8::2", "2001:db8::3", "10.0.0.1", "10.0.0.2", "10.0.0.3"]
    entries = [entrance.enter(host, 1, "EXTERNAL") for host in hosts]
    assert [entry is not None for entry in entries] == [True, True, False, True, True, False]
    assert dict(metrics.connections_rejected) == {"max_connections_per_ip": 1, "max_connections": 1}
    assert entrance.by_address == {"2001:db8::": 2, "10.0.0.1": 1, "10.0.0.2": 1}
    for entry in entries:
        if entry is not None:
            entry.leave()
            entry.leave()
    assert (len(entrance), dict(entrance.by_address)) == (0, {})


def test_a_burst_begins_at_once_and_later_ones_at_the_rate() -> None:
    now = 0.0
    entrance = Entrance(Refusals(GatewayMetrics()), lambda: now, most=100, most_per_address=9, rate=10)
    assert entrance.take_turns(60) == (60, 0.0)
    assert entrance.take_turns(60) == (40, 0.0)
    assert entrance.take_turns(60) == (0, 0.1)
    now = 0.5
    assert entrance.take_turns(60) == (5, 0.0)
    now = 1000.0
    assert entrance.take_turns(500) == (100, 0.0)
    unlimited = Entrance(Refusals(GatewayMetrics()), lambda: now, most=1, most_per_address=9, rate=0)
    assert unlimited.take_turns(60) == (60, 0.0)


@pytest.mark.parametrize(
    ("files", "with_storage", "expected"),
    [
        (1024, True, 448),
        (1024, False, 832),
        (4096, True, 1984),
        (20_000, True, 10_000),
        (16_000, True, 9424),
        (100, True, 16),
        (1 << 20, True, 10_000),
        (resource.RLIM_INFINITY, True, 10_000),
    ],
)
def test_connections_leave_descriptors_for_files(
    monkeypatch: pytest.MonkeyPatch, files: int, with_storage: bool, expected: int
) -> None:
    monkeypatch.setattr(module.resource, "getrlimit", lambda _: (files, files))
    assert connections_max(10_000, with_storage=with_storage) == expected
    assert connections_max(10, with_storage=with_storage) == 10
