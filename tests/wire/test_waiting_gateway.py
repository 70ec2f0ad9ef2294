"""`gateway-svc` whose storage is not there yet: it lives, and says why it is not ready."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from millrace.ports import Reservation
from service_chassis.probe import check

from tests.support.waiting import until
from tests.wire.test_workers import started


def _reasons(http: str) -> dict[str, str]:
    """Return the reasons of /readyz, by name."""
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{http}/readyz", timeout=30)
    assert refused.value.code == 503
    with refused.value:
        return dict(json.loads(refused.value.read())["faults"])


def _metrics(http: str) -> list[str]:
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    return [line.split()[2] for line in lines if line.startswith("# TYPE ")]


@pytest.mark.parametrize("workers", [1, 2])
def test_a_gateway_that_waits_for_storage_is_alive_and_says_why_it_is_not_ready(tmp_path: Path, workers: int) -> None:
    with Reservation("127.0.0.1", 0) as first, Reservation("127.0.0.1", 0) as second:
        http, storage_http = str(first.address), str(second.address)
    address = f"unix:{tmp_path}/storage.sock"
    settings = {
        "MILLRACE_STORAGE_ADDRESS": address,
        "MILLRACE_LISTENERS": "EXTERNAL://127.0.0.1:0",
        "MILLRACE_GATEWAY_NAME": "waiting",
        "MILLRACE_GATEWAY_HTTP": http,
        "MILLRACE_GATEWAY_WORKERS": str(workers),
    }
    gateway = started("gateway_svc", settings)
    try:
        until(lambda: check(http, "/healthz") is None)
        reason = "not registered with storage yet"
        until(lambda: reason in str(_reasons(http)))
        if workers == 1:
            assert _reasons(http)["service"] == reason
            assert _reasons(http).keys() == {"service", "storage"}
        assert check(http, "/healthz") is None
        assert "millrace_event_loop_lag_seconds" in _metrics(http)
        storage = started(
            "storage_svc",
            {
                "MILLRACE_DATA_DIR": str(tmp_path / "data"),
                "MILLRACE_STORAGE_BIND": address,
                "MILLRACE_STORAGE_HTTP": storage_http,
            },
        )
        try:
            until(lambda: check(http) is None)
            for service in (http, storage_http):
                names = _metrics(service)
                assert sorted(set(names)) == sorted(names), "Prometheus refuses a name that comes twice"
            gateway.send_signal(signal.SIGTERM)
            assert gateway.wait(60) == 0
        finally:
            storage.kill()
            storage.wait()
    finally:
        gateway.kill()
        gateway.wait()
