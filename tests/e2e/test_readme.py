"""The examples of the README and of docs run as they are printed, in their order, against a started broker.

They use the default ports 9092 and 8082; the tests are left out when another program holds one of them.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from millrace.broker import Broker
from support.late import confluent

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/quickstart.md", "docs/operations.md", "docs/troubleshooting.md")
README = "\n".join((ROOT / page).read_text() for page in PAGES)
EXAMPLES = {
    name: (language, code)
    for name, language, code in re.findall(r"<!-- example: (\w+) -->\n```(\w+)\n(.*?)```", README, flags=re.S)
}
#: The lines that an example prints, where its page shows them.
OUTPUTS = dict(re.findall(r"<!-- output: (\w+) -->\n```\n(.*?)```", README, flags=re.S))

#: The lines that `millrace up` prints when clients may connect.
ADDRESSES = re.findall(r"<!-- addresses of millrace up -->\n```\n(.*?)```", README, flags=re.S)[0]


def in_use(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def curl() -> None:
    if shutil.which("curl") is None and not os.environ.get("CI"):
        pytest.skip("curl is not installed")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    busy = [port for port in (9092, 8082) if in_use(port)]
    if busy and not os.environ.get("CI"):
        pytest.skip(f"the README's ports are taken: {busy}")
    command = [
        str(Path(sys.executable).with_name("millrace")),
        "up",
        "--data-dir",
        str(tmp_path_factory.mktemp("data")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    shown = "".join(process.stdout.readline() for _ in range(3))
    try:
        free = re.compile(r"(?<=127\.0\.0\.1:)\d+")  # ports of the metrics
        assert free.sub("N", shown) == free.sub("N", ADDRESSES)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def run(name: str, timeout: int = 60, folder: Path = ROOT) -> str:
    language, code = EXAMPLES[name]
    command = ["bash", "-euo", "pipefail", "-c", code] if language == "bash" else [sys.executable, "-c", code]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rest(broker: None, curl: None) -> None:
    out = run("rest")
    assert '"topic_name":"orders"' in out.replace(" ", "")
    assert out.count('"partition_id"') == 3


def test_kcat(broker: None) -> None:
    if shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")
    lines = run("kcat").splitlines()
    assert sorted(lines) == ['alice {"amount": 3} source=readme', 'bob {"amount": 5} source=readme']


def test_aiokafka(broker: None) -> None:
    assert "b'carol' b'{\"amount\": 7}'" in run("aiokafka")


def test_lag(broker: None, curl: None) -> None:
    assert '"total_lag"' in run("lag")


@pytest.mark.etl
@pytest.mark.timeout(240)
def test_spark(broker: None) -> None:
    run("aiokafka")
    out = run("spark", timeout=220)
    assert '|carol|{"amount": 7}|' in out.replace(" ", "").replace('{"amount":', '{"amount": ')


def test_broker_in_a_test() -> None:
    assert run("broker") == ""


def test_every_example_has_a_test() -> None:
    tested = {"rest", "kcat", "aiokafka", "lag", "spark", "broker", "operations_backup", "troubleshooting_address"}
    assert EXAMPLES.keys() == tested | OUTPUTS.keys()


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_what_its_page_shows(broker: None, curl: None, name: str) -> None:
    if shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")
    assert run(name) == OUTPUTS[name]


def test_the_advertised_address(broker: None) -> None:
    if shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")
    assert "at localhost:9092" in run("troubleshooting_address")


def test_a_backup_is_verified(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", topics="orders:1") as broker:
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"x")
        assert producer.flush(10) == 0
    assert "0 faults" in run("operations_backup", folder=tmp_path)
