"""The wheel in an empty environment, as somebody else's project installs it: README's pytest example, `millrace up`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = re.search(r"<!-- example: broker -->\n```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)

pytestmark = [pytest.mark.install, pytest.mark.timeout(280)]

#: No option, variable or folder of this checkout may help.
CLEAN = {
    name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MILLRACE_", "VIRTUAL_ENV"))
}


def run(*command: str | Path, folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=CLEAN, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment that has the wheel, its dependencies, and README's client and pytest."""
    folder = tmp_path_factory.mktemp("install")
    wheels = folder / "wheels"
    run(
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", wheels, ROOT),
        folder=folder,
    )
    (wheel,) = wheels.iterdir()
    has_compiler = shutil.which("gcc") is not None
    assert wheel.name.startswith("millrace_broker-0.1.0-" + ("cp" if has_compiler else "py3-none-any"))
    run(sys.executable, "-m", "venv", "venv", folder=folder)
    pins = [
        line.removesuffix(" \\")
        for line in (ROOT / "requirements" / "development.txt").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    ]
    (folder / "constraints.txt").write_text("\n".join(pins))
    run(
        *("venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", "constraints.txt"),
        *(wheel, "confluent-kafka", "pytest"),
        folder=folder,
    )
    return folder / "venv" / "bin"


def test_only_ours_is_named_after_us(environment: Path, tmp_path: Path) -> None:
    listed = run(environment / "pip", "list", "--format=freeze", "--disable-pip-version-check", folder=tmp_path)
    assert re.findall("^millrace[a-z-]*", listed, flags=re.M) == ["millrace-broker"]
    assert not re.search("^(pyspark|pandas|matplotlib)=", listed, flags=re.M)


def test_the_wheel_has_every_page_of_the_rest_api(environment: Path, tmp_path: Path) -> None:
    code = (
        "import pathlib, admin_api; static = pathlib.Path(admin_api.__file__).parent / 'static';"
        "print(*sorted(str(each.relative_to(static)) for each in static.rglob('*') if each.is_file()), sep='\\n')"
    )
    static = ROOT / "admin-api" / "src" / "admin_api" / "static"
    expected = sorted(str(each.relative_to(static)) for each in static.rglob("*") if each.is_file())
    assert "console/index.html" in expected
    assert run(environment / "python", "-c", code, folder=tmp_path).splitlines() == expected


def test_the_wheel_says_whether_its_walker_is_compiled(environment: Path, tmp_path: Path) -> None:
    said = run(environment / "millrace", "version", folder=tmp_path)
    form = "compiled" if shutil.which("gcc") else "interpreted"
    assert said == f"millrace 0.1.0 (walker of records: {form})\n"


def test_a_wheel_is_built_without_a_compiler_too(tmp_path: Path) -> None:
    run(
        *("env", "CC=false", sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--wheel-dir", tmp_path, ROOT),
        folder=tmp_path,
    )
    assert [each.name for each in tmp_path.iterdir()] == ["millrace_broker-0.1.0-py3-none-any.whl"]


def test_the_readmes_example_and_the_fixture(environment: Path, tmp_path: Path) -> None:
    assert EXAMPLE is not None
    (tmp_path / "example.py").write_text(EXAMPLE[1])
    assert run(environment / "python", "example.py", folder=tmp_path) == ""
    (tmp_path / "test_mine.py").write_text(
        "def test_it(millrace_broker):\n    assert millrace_broker.bootstrap_servers.startswith('localhost:')\n"
    )
    assert "1 passed" in run(environment / "pytest", "-q", "test_mine.py", folder=tmp_path)


def test_up_serves_and_lists_a_topic(environment: Path, tmp_path: Path) -> None:
    command = [environment / "millrace", "up", "--kafka-port", "0", "--http-port", "0", "--topics", "orders:3"]
    with subprocess.Popen(command, cwd=tmp_path, env=CLEAN, stdout=subprocess.PIPE, text=True) as up:
        try:
            assert up.stdout is not None
            ready = re.fullmatch(r"ready kafka=(\S+) http=(\S+)\n", up.stdout.readline())
            assert ready is not None
            listed = run(environment / "millrace", "topic", "list", "--rest", ready[2], folder=tmp_path)
            assert listed.splitlines() == ["TOPIC   PARTITIONS", "orders  3"]
            run(environment / "millrace", "topic", "create", "bills", "--rest", ready[2], folder=tmp_path)
            listed = run(environment / "millrace", "topic", "list", "--rest", ready[2], folder=tmp_path)
            assert listed.splitlines() == ["TOPIC   PARTITIONS", "bills   1", "orders  3"]
        finally:
            up.terminate()
        assert up.wait(60) == 0
