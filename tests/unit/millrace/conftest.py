"""Processes and a broker for tests of the command line. Each test has another home folder."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from up_process import RunningUp

MILLRACE = (sys.executable, "-m", "millrace")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """The folder of the configuration, without a profile."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PROFILE", "REST", "KAFKA", "TOKEN"):
        monkeypatch.delenv(f"MILLRACE_{name}", raising=False)
    return tmp_path


@pytest.fixture(scope="session")
def up() -> Iterator[RunningUp]:
    """A broker with its REST API, for every test of the command line in this process."""
    with RunningUp("--kafka-port", "0", "--http-port", "0") as running:
        yield running


class Run:
    """Runs command lines in this process, against the broker of the profile in use."""

    def __init__(self, capture):
        self._capture = capture
        self._output = b""

    def __call__(self, *arguments, stdin=b""):
        """Return status, lines of output, and errors of a command line."""
        from millrace.cli import commands

        self._capture.readouterr()
        kept = os.dup(0)
        try:
            with tempfile.TemporaryFile() as file:
                file.write(stdin)
                file.seek(0)
                os.dup2(file.fileno(), 0)
            status = commands.run(list(arguments))
        except SystemExit as ended:
            status = ended.code or 0
        finally:
            os.dup2(kept, 0)
            os.close(kept)
        sys.stdout.flush()
        self._output, error = self._capture.readouterr()
        return status, self._output.decode(errors="surrogateescape").splitlines(), error.decode()

    def produced(self, lines, *arguments):
        assert self("produce", *arguments, stdin=lines) == (0, [], "")

    def consumed(self, *arguments):
        """Return the bytes that `consume` prints, without a remark."""
        status, _, error = self("consume", "-q", *arguments)
        assert (status, error) == (0, "")
        return self._output

    def json(self, *arguments):
        """Return the answer of a command line that ends well."""
        status, lines, error = self(*arguments, "-o", "json")
        assert (status, error) == (0, "")
        return json.loads("\n".join(lines))


@pytest.fixture
def run(capfdbinary, up, home):
    """A `Run` whose home has a profile of the broker."""
    (home / "millrace").mkdir()
    content = {"current": "here", "profiles": {"here": {"rest": up.http, "kafka": up.kafka, "token_file": ""}}}
    (home / "millrace" / "profiles.json").write_text(json.dumps(content))
    return Run(capfdbinary)


@pytest.fixture
def start():
    """A function that starts a command line as a process, which is killed if a test leaves it."""
    processes = []

    def begin(*arguments, **options):
        options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
        processes.append(subprocess.Popen([*MILLRACE, *arguments], **options))
        return processes[-1]

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


class LineReader(threading.Thread):
    """Reads the lines of a stream as they come; `until` waits for one."""

    def __init__(self, stream):
        super().__init__(daemon=True)
        self._stream = stream
        self._condition = threading.Condition()
        self.lines = []
        self.start()

    def run(self):
        for line in self._stream:
            with self._condition:
                self.lines.append(line.decode().rstrip("\n"))
                self._condition.notify_all()

    def until(self, wanted, timeout_s=30):
        """Wait until a line contains a text; return the lines so far."""
        with self._condition:
            assert self._condition.wait_for(lambda: any(wanted in line for line in self.lines), timeout_s), self.lines
            return list(self.lines)


def is_alive(pid):
    """Return whether a process has not ended; one that nobody has waited for has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
