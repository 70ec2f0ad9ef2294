"""assembly/healthcheck: the health check of the service images, a shell that asks /readyz."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from service_chassis.health import Health, HttpEndpoint
from service_chassis.metrics import Registry


@pytest.fixture
def health() -> Health:
    return Health()


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    endpoint = HttpEndpoint("127.0.0.1:0", Registry("storage-svc"), health).start()
    yield endpoint.port
    endpoint.close()


def check(root: Path, address: str) -> "subprocess.CompletedProcess[str]":
    command = ["bash", str(root / "assembly" / "healthcheck"), "MILLRACE_STORAGE_HTTP"]
    environment = os.environ | {"MILLRACE_STORAGE_HTTP": address}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1", "[::]", ""])
def test_a_ready_service_passes(root: Path, health: Health, port: int, host: str) -> None:
    health.set_ready(True)
    done = check(root, f"{host}:{port}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_service_that_is_not_ready_fails_with_the_reason(root: Path, port: int) -> None:
    done = check(root, f"0.0.0.0:{port}")
    assert done.returncode == 1
    assert done.stdout.startswith("HTTP/1.1 503 ")
    assert done.stdout.endswith('{"ready": false, "faults": {"service": "starting"}}\n')


def test_a_service_that_does_not_listen_fails(root: Path) -> None:
    done = check(root, "0.0.0.0:1")
    assert done.returncode == 1
    assert "Connection refused" in done.stderr


def test_the_file_can_be_executed(root: Path) -> None:
    assert os.access(root / "assembly" / "healthcheck", os.X_OK)


def test_a_check_starts_no_further_process(root: Path, health: Health, port: int) -> None:
    """The check of every service runs every five seconds for ever: a start of Python would be a tenth of a core."""
    health.set_ready(True)
    program = f"PATH= . {root / 'assembly' / 'healthcheck'} MILLRACE_STORAGE_HTTP"
    environment = {"MILLRACE_STORAGE_HTTP": f"0.0.0.0:{port}"}
    done = subprocess.run(["/bin/bash", "-c", program], env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
