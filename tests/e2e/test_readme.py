"""The examples of the README and of docs run as they are printed, in their order, against a started broker.

They use the default ports 9092 and 8082; the tests are left out when another program holds one of them.
"""

from __future__ import annotations

import contextlib
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


#: The blocks of docs/security.md that run as they are printed.
SECURITY = dict(
    re.findall(r"<!-- run: ([\w-]+) -->\n```bash\n(.*?)```", (ROOT / "docs" / "security.md").read_text(), flags=re.S)
)
TLS_CLIENT = ("-X", "security.protocol=ssl", "-X", "ssl.ca.location=tls/ca.pem")


@pytest.fixture
def curl() -> None:
    if shutil.which("curl") is None and not os.environ.get("CI"):
        pytest.skip("curl is not installed")


@pytest.fixture
def kcat() -> None:
    if shutil.which("kcat") is None and not os.environ.get("CI"):
        pytest.skip("kcat is not installed")


@contextlib.contextmanager
def started(code: str, folder: Path) -> Iterator[None]:
    """Run lines that end with `millrace up`, until clients may connect; then end it."""
    need_free_ports()
    command = ["bash", "-euo", "pipefail", "-c", code]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment_in(folder), start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert "".join(process.stdout.readline() for _ in range(3)).startswith("ready kafka=")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)


def need_free_ports() -> None:
    busy = [port for port in (9092, 8082) if in_use(port)]
    if busy and not os.environ.get("CI"):
        pytest.skip(f"the README's ports are taken: {busy}")


def environment_in(folder: Path) -> dict[str, str]:
    """Return the variables of a shell that has the commands of this environment, and its profiles in the folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(folder)}


def shell(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash", "-euo", "pipefail", "-c", code]
    environment = environment_in(folder)
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, env=environment)


def succeeded(code: str, folder: Path) -> str:
    done = shell(code, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# The brokers of these tests come first: they have the ports that the broker of the others has till the end.


def test_a_secured_cluster(tmp_path: Path, kcat: None) -> None:
    (_, broker), (_, clients) = EXAMPLES["secured_broker"], EXAMPLES["secured_clients"]
    assert len((broker + clients).splitlines()) == 10
    with started(broker, tmp_path):
        succeeded(clients, tmp_path)
        alice = "kcat -b localhost:9092 -F <(sed s/admin/alice/ admin.properties) -t orders"
        refused = shell(f"{alice} -C -e", tmp_path)
        assert "Topic authorization failed" in refused.stderr
        assert succeeded("kcat -b localhost:9092 -F admin.properties -t orders -C -e -q", tmp_path) == "hello\n"
        assert shell("kcat -b localhost:9092 -L -m 2", tmp_path).returncode != 0
        assert "alice" in succeeded("millrace user list", tmp_path)


def test_tls_of_the_page_on_security(tmp_path: Path, kcat: None) -> None:
    succeeded(SECURITY["certificates"], tmp_path)
    with started(SECURITY["broker"], tmp_path):
        given = " ".join(TLS_CLIENT)
        succeeded(f"echo hello | kcat -b localhost:9092 {given} -t orders -P", tmp_path)
        assert succeeded(f"kcat -b localhost:9092 {given} -t orders -C -e -q", tmp_path) == "hello\n"
        assert shell("kcat -b localhost:9092 -L -m 2", tmp_path).returncode != 0
        assert (
            succeeded(f"millrace consume orders -o start -e {given.replace('=ssl', '=SSL')} -f '%v\n'", tmp_path)
            == "hello\n"
        )


def test_logins_of_the_page_on_security(tmp_path: Path) -> None:
    with started(SECURITY["logins"], tmp_path):
        assert "bob" in succeeded(SECURITY["users"], tmp_path)
        login = "security.protocol=SASL_PLAINTEXT -X sasl.mechanism=PLAIN -X sasl.username=bob -X"
        succeeded(f"echo x | millrace produce orders -X {login} 'sasl.password=a password of bob'", tmp_path)
        refused = shell(f"echo x | millrace produce orders -X {login} sasl.password=another", tmp_path)
        assert "Invalid username or password" in refused.stderr


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    need_free_ports()
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
    environment = environment_in(folder)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rest(broker: None, curl: None) -> None:
    out = run("rest")
    assert '"topic_name":"orders"' in out.replace(" ", "")
    assert out.count('"partition_id"') == 3


def test_kcat(broker: None, kcat: None) -> None:
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
    assert EXAMPLES.keys() == tested | {"secured_broker", "secured_clients"} | OUTPUTS.keys()
    in_containers = {"compose-rights"}  # tests/compose/test_secured.py
    assert SECURITY.keys() == {"certificates", "broker", "logins", "users"} | in_containers


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_example_prints_what_its_page_shows(broker: None, curl: None, kcat: None, name: str) -> None:
    assert run(name) == OUTPUTS[name]


def test_the_advertised_address(broker: None, kcat: None) -> None:
    assert "at localhost:9092" in run("troubleshooting_address")


def test_a_backup_is_verified(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data", topics="orders:1") as broker:
        producer = confluent.Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all"})
        producer.produce("orders", b"x")
        assert producer.flush(10) == 0
    assert "0 faults" in run("operations_backup", folder=tmp_path)
