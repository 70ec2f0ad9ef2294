"""Millrace in containers, as docker-compose.yml describes it: built, started, removed with its volumes at the end.

Both composes will do (`docker compose`, else docker-compose 1.29). Each run is a separate project on free ports. Where
CI=true a missing Docker engine fails the tests instead of skipping them.
"""

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ("storage-svc", "gateway-svc", "admin-api")
HEALTHY_WITHIN_S = 120


def free_port() -> int:
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def compose_command() -> list[str] | None:
    """Return the compose command of this machine, if it has one and an engine for it."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        return None
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) and subprocess.run([*command, "version"], capture_output=True).returncode == 0:
            return command
    return None


class Stack:
    """One compose project."""

    def __init__(self, command: list[str], *overlays: str, **variables: str) -> None:
        self.kafka_port, self.http_port = free_port(), free_port()
        self.bootstrap = f"localhost:{self.kafka_port}"
        self.rest = f"http://localhost:{self.http_port}"
        self._command = [*command, *(f"--file={ROOT / name}" for name in ("docker-compose.yml", *overlays))]
        self._environment = os.environ | {
            "COMPOSE_PROJECT_NAME": f"millrace-test-{uuid4().hex[:8]}",
            "KAFKA_PORT": str(self.kafka_port),
            "HTTP_PORT": str(self.http_port),
            "BUILD_NETWORK": os.environ.get("BUILD_NETWORK", "host"),
            **variables,
        }
        if command == ["docker-compose"]:  # 1.29 builds through the engine's own, classic builder
            self._environment |= {"COMPOSE_DOCKER_CLI_BUILD": "0", "DOCKER_BUILDKIT": "0"}

    def run(
        self, *arguments: str, profile: str | None = None, timeout_s: float = 300, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        chosen = ["--profile", profile] if profile else []
        done = subprocess.run(
            [*self._command, *chosen, *arguments],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        if check and done.returncode != 0:
            pytest.fail(f"compose {' '.join(arguments)}: {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
        return done

    def job(self, name: str, *arguments: str, timeout_s: float = 400) -> str:
        """Run one of the profiles' containers to its end; return its standard output."""
        return self.run("run", "-T", "--rm", name, *arguments, profile=name, timeout_s=timeout_s).stdout

    def execute(self, service: str, *command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.run("exec", "-T", service, *command, check=check)

    def inspect(self, service: str) -> dict[str, Any]:
        container = self.run("ps", "-q", service).stdout.split()[0]
        done = subprocess.run(["docker", "inspect", container], capture_output=True, text=True, check=True)
        return dict(json.loads(done.stdout)[0])

    def health(self, service: str) -> str:
        state = self.inspect(service)["State"]
        return str(state["Health"]["Status"]) if state["Status"] == "running" else str(state["Status"])

    def wait_healthy(self) -> None:
        deadline = time.monotonic() + HEALTHY_WITHIN_S
        while (health := {service: self.health(service) for service in SERVICES}) != dict.fromkeys(SERVICES, "healthy"):
            if time.monotonic() > deadline:
                pytest.fail(f"not healthy: {health}\n{self.logs()}")
            time.sleep(0.5)

    def up(self) -> None:
        self.run("up", "--detach", *SERVICES)
        self.wait_healthy()

    def logs(self, *services: str) -> str:
        done = self.run("logs", "--no-color", *services, check=False)
        return done.stdout[-20_000:]


@pytest.fixture(scope="session")
def command() -> list[str]:
    """The compose command, after it has built every image."""
    command = compose_command()
    if command is None and os.environ.get("CI") == "true":
        pytest.fail("no Docker engine with compose")
    if command is None:
        pytest.skip("no Docker engine with compose")
    builder = Stack(command)
    builder.run("build", timeout_s=1500)
    for profile in ("demo", "spark"):
        builder.run("build", profile, profile=profile, timeout_s=1500)
    return command


@contextlib.contextmanager
def running(stack: Stack) -> Iterator[Stack]:
    try:
        stack.up()
        yield stack
    finally:
        stack.run("down", "--volumes", "--remove-orphans", check=False)


@pytest.fixture(scope="session")
def stack(command: list[str]) -> Iterator[Stack]:
    with running(Stack(command)) as stack:
        yield stack
