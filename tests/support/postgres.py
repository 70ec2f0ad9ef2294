"""PostgreSQL for tests: a separate server on loopback, with its data in a folder of the test session.

    def test_something(postgres):
        postgres.run("CREATE TABLE t (n int)")
        assert postgres.rows("SELECT n FROM t") == []

PostgreSQL refuses to run as root: a session of root starts it as the user `postgres`, which its package creates.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from millrace.ports import Reservation

#: Debian has the programs of each version in a folder; the highest version is used.
PROGRAMS = max(Path("/usr/lib/postgresql").glob("*/bin"), default=Path("/usr/lib/postgresql/none/bin"))
USER, PASSWORD = "etl", "postgres-secret"
START_TIMEOUT_S = 60


class PostgresServer:
    """A server; `with` starts it and stops it. `url` is its address for JDBC."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "data"
        self._prefix = ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []
        if self._prefix:
            shutil.chown(folder, "postgres")
        with Reservation("127.0.0.1", 0) as reservation:
            self.port = reservation.address.port
        self.url = f"jdbc:postgresql://127.0.0.1:{self.port}/postgres"
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._program("initdb", "-D", str(self._data), "-U", USER, f"--pwfile={password}", "-A", "scram-sha-256", "-N")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PostgresServer:
        options = ["-p", str(self.port), "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        command = [*self._prefix, str(PROGRAMS / "postgres"), "-D", str(self._data), *options, "-c", "fsync=off"]
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_TIMEOUT_S
        while self._psql("SELECT 1", check=False).returncode != 0:
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        os.kill(self._pid(), signal.SIGINT)
        self._process.wait(60)

    def kill(self) -> None:
        """Kill (-9) all processes of the server. `with` starts it again."""
        assert self._process is not None
        above = {self._process.pid} if self._prefix else set()  # runuser, which takes the end of its child
        for pid in self.pids():
            if pid not in above:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self._process.wait(60)

    def _pid(self) -> int:
        return int((self._data / "postmaster.pid").read_text().splitlines()[0])

    def pids(self) -> list[int]:
        """Return the processes of the server and of its connections, and runuser, which stops with its child."""
        assert self._process is not None
        found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self._pid())], capture_output=True, text=True)
        return list({self._pid(): None, **dict.fromkeys(map(int, found.stdout.split())), self._process.pid: None})

    def run(self, *statements: str) -> None:
        for statement in statements:
            self._psql(statement)

    def rows(self, query: str, database: str = "postgres") -> list[tuple[str, ...]]:
        """Return the rows of a query as texts; null is `\\N`."""
        output = self._psql(query, database=database).stdout
        return [tuple(line.split("\t")) for line in output.splitlines()]

    def _psql(
        self, statement: str, *, database: str = "postgres", check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        address = ["-h", "127.0.0.1", "-p", str(self.port), "-U", USER, "-d", database]
        form = ["-X", "-q", "-A", "-t", "-F", "\t", "-P", "null=\\N", "-v", "ON_ERROR_STOP=1"]
        return subprocess.run(
            ["psql", *address, *form, "-c", statement],
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=check,
            timeout=60,
        )

    def _program(self, name: str, *arguments: str) -> None:
        done = subprocess.run(
            [*self._prefix, str(PROGRAMS / name), *arguments], capture_output=True, text=True, timeout=120, cwd="/"
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """Start PostgreSQL; skip where it is not installed, fail in CI."""
    if not (PROGRAMS / "initdb").exists():
        reason = "PostgreSQL is not installed"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="postgres-") as folder, PostgresServer(Path(folder)) as server:
        yield server
