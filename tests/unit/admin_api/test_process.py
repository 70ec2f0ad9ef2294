"""The process: `python -m admin_api` starts, logs its address, answers probes, stops in order, refuses wrong
settings.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from service_chassis import probe

from tests.unit.admin_api.conftest import until_ready

if TYPE_CHECKING:
    from tests.unit.admin_api.conftest import Stack

Process = subprocess.Popen[str]


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    running: list[Process] = []

    def start(*arguments: str, **settings: str) -> Process:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MILLRACE_")}
        settings = {"admin_health_http": "127.0.0.1:0", **settings}
        environment |= {f"MILLRACE_{name.upper()}": value for name, value in settings.items()}
        process = subprocess.Popen(
            [sys.executable, "-m", "admin_api", *arguments], env=environment, stderr=subprocess.PIPE, text=True
        )
        running.append(process)
        return process

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.wait(60)
        assert process.stderr is not None
        process.stderr.close()


def _until(process: Process, event: str) -> list[dict[str, Any]]:
    """Return the log lines up to the one with this event."""
    assert process.stderr is not None
    lines = []
    for text in process.stderr:
        lines.append(json.loads(text))
        if lines[-1]["event"] == event:
            return lines
    raise AssertionError(f"{event!r} is not in {lines}")


def test_from_start_to_stop(stack: Stack, start: Callable[..., Process]) -> None:
    process = start(storage_address=stack.storage_address, admin_http="127.0.0.1:0")
    lines = _until(process, "listening")
    assert [line for line in lines if line["level"] != "info"] == []
    base_url = f"http://127.0.0.1:{lines[-1]['port']}"
    with httpx.Client(base_url=base_url, timeout=20) as client:
        until_ready(lambda: client.get("/readyz").json() == {"ready": True})
        topics = client.get(f"{stack.cluster}/topics").json()
        assert topics["metadata"]["self"] == f"{base_url}{stack.cluster}/topics"
        until_ready(lambda: len(client.get("/api/v1/metrics/range?metric=records").json()["points"]) >= 1)
        health = f"127.0.0.1:{lines[-1]['health_port']}"
        until_ready(lambda: probe.check(health) is None)
        assert probe.check(health, "/healthz") is None
        assert 'millrace_build_info{service="admin-api"' in httpx.get(f"http://{health}/metrics", timeout=20).text
        process.send_signal(signal.SIGTERM)
        _until(process, "stopped")
    assert process.wait(60) == 0
    assert "refused" in str(probe.check(health))


def test_localhost_is_both_loopback_addresses(start: Callable[..., Process]) -> None:
    process = start(storage_address="unix:/nowhere", admin_http="localhost:0")
    port = _until(process, "listening")[-1]["port"]
    for host in ("127.0.0.1", "[::1]"):
        assert httpx.get(f"http://{host}:{port}/healthz", timeout=20).json() == {"live": True}


def test_probes_until_storage_has_come_leave_no_warning(start: Callable[..., Process]) -> None:
    process = start(storage_address="unix:/nowhere", admin_http="127.0.0.1:0")
    line = _until(process, "listening")[-1]
    for port in [line["port"], line["health_port"]] * 5:
        assert httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=20).status_code == 503
    process.send_signal(signal.SIGTERM)
    assert [line["event"] for line in _until(process, "stopped") if line["level"] != "info"] == []


def test_live_and_not_ready_without_storage(start: Callable[..., Process]) -> None:
    process = start(storage_address="unix:/nowhere", admin_http="127.0.0.1:0")
    health = f"127.0.0.1:{_until(process, 'listening')[-1]['health_port']}"
    assert probe.check(health, "/healthz") is None
    body = '{"ready": false, "faults": {"storage": "storage cannot be reached: UNAVAILABLE"}}'
    assert probe.check(health) == f"{health}/readyz answered 503: {body}"


def test_a_warning_when_anyone_can_reach_it(start: Callable[..., Process]) -> None:
    process = start(storage_address="unix:/nowhere", admin_http="0.0.0.0:0", admin_auth="none")
    warnings = [line for line in _until(process, "listening") if line["level"] == "warning"]
    assert [(line["event"], line["address"]) for line in warnings] == [
        ("anyone who reaches this address administers the cluster: there is no authentication", "0.0.0.0:0")
    ]
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 0


def test_an_open_address_without_a_decision(start: Callable[..., Process]) -> None:
    process = start(admin_http="0.0.0.0:0")
    assert process.wait(60) == 78
    assert _until(process, "cannot start")[-1]["reason"] == (
        "MILLRACE_ADMIN_AUTH: other machines can reach 0.0.0.0:0; set it to token with a MILLRACE_ADMIN_TOKENS_FILE,"
        " to users, or to none if anyone may administer the cluster"
    )


def test_no_token_is_in_the_log(stack: Stack, start: Callable[..., Process], tmp_path: Path) -> None:
    good, wrong = "good-0123456789abcdef", "wrong-0123456789abcdef"
    (tmp_path / "tokens").write_text(f"ada admin {good}\n")
    process = start(
        storage_address=stack.storage_address,
        admin_http="0.0.0.0:0",
        admin_auth="token",
        admin_tokens_file=str(tmp_path / "tokens"),
        log_level="debug",
    )
    lines = _until(process, "listening")
    url = f"http://127.0.0.1:{lines[-1]['port']}{stack.cluster}/topics/absent"
    statuses = [
        httpx.delete(url, headers={"authorization": f"Bearer {token}"}, timeout=20).status_code
        for token in (wrong, good)
    ]
    assert statuses == [401, 404]
    process.send_signal(signal.SIGTERM)
    lines += _until(process, "stopped")
    changes = [(line["sender"], line["outcome"]) for line in lines if line["event"] == "change"]
    assert changes == [("anonymous", "refused"), ("ada", "refused")]
    assert good not in str(lines)
    assert wrong not in str(lines)


def test_an_address_in_use(start: Callable[..., Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(admin_http=address)
        assert process.wait(60) == 78
        reason = _until(process, "cannot start")[-1]["reason"]
    assert reason == f"MILLRACE_ADMIN_HTTP: cannot listen at {address}: Address already in use"


def test_a_health_address_in_use(start: Callable[..., Process]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        process = start(admin_http="127.0.0.1:0", admin_health_http=address)
        assert process.wait(60) == 78
        reason = _until(process, "cannot start")[-1]["reason"]
    assert reason == f"cannot listen at {address}: Address already in use"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"admin_http": "8082"}, "MILLRACE_ADMIN_HTTP: '8082' is not host:port"),
        ({"admin_health_http": "9104"}, "MILLRACE_ADMIN_HEALTH_HTTP: '9104' is not host:port"),
        (
            {"admin_storage_timeout_s": "0"},
            "MILLRACE_ADMIN_STORAGE_TIMEOUT_S: must be above 0",
        ),
    ],
)
def test_settings_that_cannot_be_used(start: Callable[..., Process], settings: dict[str, str], reason: str) -> None:
    process = start(**settings)
    assert process.wait(60) == 78
    assert _until(process, "cannot start")[-1]["reason"] == reason


def test_unknown_arguments(start: Callable[..., Process]) -> None:
    assert start("--help-me").wait(60) == 2


def test_importing_does_nothing(stack: Stack) -> None:
    """No application, no channel, no aiokafka and no protocol_lib: unused modules cost no memory."""
    program = (
        "import sys, threading, admin_api.app, admin_api.__main__, service_chassis.http.server;"
        "print(threading.active_count(), *({'aiokafka', 'protocol_lib', 'uvloop', 'httptools'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "1\n"
