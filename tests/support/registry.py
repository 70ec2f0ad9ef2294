"""Apicurio Registry for tests: version and variables of the deployments, on loopback, with its data in a broker.

    with Registry(folder, bootstrap) as registry:
        SchemaRegistryClient({"url": registry.url})

Its address stays the same over restarts. It needs Java 17 and Maven. Maven fetches the archive, 109 MB, once in a
checkout.
"""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import signal
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import yaml
from millrace.ports import Reservation
from support.maven import BUILD

VERSION = "3.0.9"
JVM = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Xmx512m")
START_TIMEOUT_S = 240
STOP_TIMEOUT_S = 30


def _program() -> Path:
    """Return the jar that runs, of the archive unpacked."""
    folder = BUILD / f"registry-{VERSION}"
    BUILD.mkdir(exist_ok=True)
    with (BUILD / "registry.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            artifact = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
            command = ["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=500)
            assert done.returncode == 0, done.stdout[-3000:]
            (archive,) = folder.glob("*.tar.gz")
            with tarfile.open(archive) as file:
                file.extractall(folder, filter="data")
            archive.unlink()
            (folder / "complete").touch()
    (runner,) = folder.glob("*-runner.jar")
    return runner


def _composed() -> dict[str, str]:
    """Return the variables that docker-compose.yml gives the registry."""
    text = (BUILD.parent / "docker-compose.yml").read_text()
    return dict(yaml.safe_load(text)["services"]["registry"]["environment"])


class Registry:
    """`options` are arguments of the JVM, `environment` further settings of the registry."""

    def __init__(
        self,
        folder: Path,
        bootstrap: str,
        *,
        options: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._log_path = folder / "registry.log"
        self._port = Reservation("127.0.0.1", 0)
        self._command = [*JVM, *options, "-jar", str(_program())]
        host, _, port = str(self._port.address).rpartition(":")
        self._base = f"http://{host}:{port}"
        self.url = f"{self._base}/apis/ccompat/v7"
        self._environment = {
            **_composed(),
            "APICURIO_KAFKASQL_BOOTSTRAP_SERVERS": bootstrap,
            "QUARKUS_HTTP_HOST": host,
            "QUARKUS_HTTP_PORT": port,
            **(environment or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the registry and return when it is ready."""
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={"PATH": "/usr/bin:/bin", **self._environment},
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the registry is not ready:\n{self.output()}")
            time.sleep(0.2)

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self._base}/health/ready", timeout=5) as answer:
            return bool(answer.status == 200)
        return False

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def output(self) -> str:
        """Return the end of its output."""
        return self._log_path.read_text()[-4000:] if self._log_path.exists() else ""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
