"""`millrace up` for real, in both layouts."""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest
from millrace.cli import main
from protocol_lib.records.walker import FORM
from support.late import confluent
from up_process import RunningUp, UpFailedError

from tests.support.waiting import until
from tests.unit.millrace.conftest import is_alive

ANY_PORTS = ("--kafka-port", "0", "--http-port", "0")
LAYOUTS = {
    "combined": ((), {"broker": 1, "admin-api": 1}),
    "separate": (("--processes",), {"storage-svc": 1, "gateway-svc": 1, "admin-api": 1}),
    "two gateways": (("--gateways", "2"), {"storage-svc": 1, "gateway-svc": 2, "admin-api": 1}),
}
#: Written last when the data folder is closed in order.
CLEAN_MARKER = ".kafka_cleanshutdown"


def _produce(bootstrap_servers, values, topic="orders", timeout_s=60):
    errors = []
    producer = confluent.Producer(
        {"bootstrap.servers": bootstrap_servers, "acks": "all", "message.timeout.ms": timeout_s * 1000}
    )
    for value in values:
        producer.produce(topic, value.encode(), on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(timeout_s) == 0
    assert errors == []


def _consume(bootstrap_servers, count, topic="orders", group="readers", timeout_s=60):
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values, deadline = [], time.monotonic() + timeout_s
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            values.append(message.value().decode())
    consumer.close()
    return sorted(values)


def _get_json(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
        return json.loads(answer.read())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_serves_clients_and_stops_in_order(layout, tmp_path):
    arguments, expected = LAYOUTS[layout]
    environment = {"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0", "TMPDIR": str(tmp_path)}
    data_dir = tmp_path / "data"
    up = RunningUp(*ANY_PORTS, "--data-dir", str(data_dir), "--topics", "orders:2", *arguments, environment=environment)
    with up:
        assert re.fullmatch(r"localhost:[1-9]\d+", up.kafka)
        assert re.fullmatch(r"localhost:[1-9]\d+", up.http)
        services = up.services()
        assert {name: len(pids) for name, pids in services.items()} == expected
        values = [f"value {number:03d}" for number in range(100)]
        _produce(up.kafka, values)
        assert _consume(up.kafka, 100) == values
        (cluster,) = _get_json(up.http, "/v3/clusters")["data"]
        topics = _get_json(up.http, f"/v3/clusters/{cluster['cluster_id']}/topics")["data"]
        assert {"orders": 2}.items() <= {topic["topic_name"]: topic["partitions_count"] for topic in topics}.items()
        records = _get_json(up.http, "/api/v1/topics/orders/records?limit=500")["data"]
        assert sorted(record["value"] for record in records) == values
        tail = urllib.request.urlopen(f"http://{up.http}/api/v1/topics/orders/tail", timeout=30)
        assert tail.readline() == b"retry: 2000\n"
        _produce(up.kafka, ["tailed"])
        assert tail.readline() == b"\n"
        assert json.loads(tail.readline().removeprefix(b"data: "))["value"] == "tailed"
        # The services speak gRPC themselves; grpcio would bring threads and 11 MB to each of them.
        maps = {pid: Path(f"/proc/{pid}/maps").read_text() for pids in services.values() for pid in pids}
        assert {pid: "cygrpc" in text for pid, text in maps.items()} == dict.fromkeys(maps, False)
        assert not (data_dir / CLEAN_MARKER).exists()
        assert up.stop() == 0
        assert [pid for pids in services.values() for pid in pids if is_alive(pid)] == []
        stopped = [
            line["service"]
            for line in map(json.loads, up.log().splitlines())
            if line["event"] == "stopped"
        ]  # fmt: skip
        assert list(dict.fromkeys(stopped)) == list(reversed(expected)), up.log()
    assert (data_dir / CLEAN_MARKER).exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["data"]  # no socket folder is left


@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_a_killed_service_comes_back(layout):
    arguments, expected = LAYOUTS[layout]
    with RunningUp(*ANY_PORTS, *arguments, environment={"MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0"}) as up:
        _produce(up.kafka, ["before"], topic="users")
        for service in expected:
            (before,) = up.services()[service]
            os.kill(before, signal.SIGKILL)
            until(lambda: f'"pid": {before},' in up.log())  # noqa: B023
            until(lambda: len(up.services().get(service, [])) == 1)  # noqa: B023
            assert up.services()[service] != [before]
            until(lambda: up.log().count('"event": "service is back"') == list(expected).index(service) + 1)  # noqa: B023
        _produce(up.kafka, ["after"], topic="users")
        assert _consume(up.kafka, 2, topic="users") == ["after", "before"]
        ended = [line for line in map(json.loads, up.log().splitlines()) if line["event"] == "service ended"]
        assert [(line["process"], line["how"]) for line in ended] == [(name, "signal SIGKILL") for name in expected]
        assert _get_json(up.http, "/v3/clusters")["data"]


@pytest.mark.parametrize("layout", ["combined", "separate"])
def test_second_process_on_a_data_folder_is_refused(layout, tmp_path):
    arguments, _ = LAYOUTS[layout]
    with RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), *arguments) as up:
        second = RunningUp(*ANY_PORTS, "--data-dir", str(tmp_path), *arguments)
        with pytest.raises(UpFailedError, match=r"millrace up: data folder .* is in use by another process"):
            second.start()
        assert second.log().endswith(f"millrace up: data folder {tmp_path} is in use by another process\n")
        _produce(up.kafka, ["still served"])


def _listening(port):
    """Return the addresses that listen on a port, as /proc spells them."""
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    addresses = [fields[1].split(":") for fields in lines if fields[3] == "0A"]
    return sorted(address for address, found in addresses if int(found, 16) == port)


def test_rest_is_opened_only_when_it_is_named():
    loopback, wildcard = ["0" * 24 + "01000000", "0100007F"], "00000000"
    everyone = {"MILLRACE_OPEN_LISTENERS": "EXTERNAL"}
    with RunningUp(*ANY_PORTS, "--host", "0.0.0.0", "--advertised-host", "127.0.0.1", environment=everyone) as up:
        host, _, port = up.http.rpartition(":")
        assert host == "localhost"
        assert set(_listening(int(port))) <= set(loopback)
        assert _listening(int(up.kafka.rpartition(":")[2])) == [wildcard]
        assert "everyone who reaches this listener may do everything" in up.log()
    anyone = {"MILLRACE_ADMIN_AUTH": "none"}
    with RunningUp(*ANY_PORTS, "--http-host", "0.0.0.0", environment=anyone) as up:
        assert _listening(int(up.http.rpartition(":")[2])) == [wildcard]
        assert set(_listening(int(up.kafka.rpartition(":")[2]))) <= set(loopback)
        assert up.http.startswith("localhost:")


def test_rest_is_opened_only_with_a_decision_on_authentication(monkeypatch, capfd):
    monkeypatch.delenv("MILLRACE_ADMIN_AUTH", raising=False)
    monkeypatch.setattr("sys.argv", ["millrace", "up", "--http-host", "0.0.0.0"])
    assert main() == 1
    assert capfd.readouterr().err == (
        "millrace up: --http-host 0.0.0.0 opens the REST API to other machines; set MILLRACE_ADMIN_AUTH to token"
        " with a MILLRACE_ADMIN_TOKENS_FILE, to users, or to none if anyone may administer the cluster\n"
    )


def test_temporary_data_folder_goes(tmp_path_factory):
    tmp_path = tmp_path_factory.mktemp("t")  # short enough for a Unix socket below it
    with RunningUp(*ANY_PORTS, environment={"TMPDIR": str(tmp_path)}) as up:
        (folder,) = tmp_path.iterdir()
        assert sorted(entry.name for entry in folder.iterdir()) == ["data", "lock", "storage.sock"]
        assert up.stop() == 0
        assert list(tmp_path.iterdir()) == []


def test_nothing_lingers_when_the_supervisor_is_killed(tmp_path):
    data_dir = tmp_path / "data"
    environment = {"TMPDIR": str(tmp_path)}  # a killed supervisor cannot remove its folder
    with RunningUp(*ANY_PORTS, "--processes", "--data-dir", str(data_dir), environment=environment) as up:
        pids = [pid for found in up.services().values() for pid in found]
        assert len(pids) == 3
        os.kill(up.pid, signal.SIGKILL)
        until(lambda: not any(map(is_alive, pids)))
    assert (data_dir / CLEAN_MARKER).exists()


def test_interrupt_reaches_the_services_in_order_too():
    """Ctrl-C goes to the terminal's whole process group; the services are in separate groups."""
    with RunningUp(*ANY_PORTS) as up:
        for pids in up.services().values():
            assert {os.getpgid(pid) for pid in pids} == set(pids)
        os.kill(up.pid, signal.SIGINT)
        until(lambda: up.services() == {})
        assert up.stop() == 0


def test_asked_again_at_its_end_it_still_ends_well():
    """A terminal's Ctrl-C is often pressed twice; the interpreter's own end must not let the second one kill it."""
    with RunningUp(*ANY_PORTS) as up:
        os.kill(up.pid, signal.SIGTERM)
        until(lambda: up.services() == {})
        while Path(f"/proc/{up.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            os.kill(up.pid, signal.SIGTERM)
        assert up.stop() == 0


def test_version_and_help():
    command = [os.path.join(os.path.dirname(os.sys.executable), "millrace")]
    version = subprocess.run([*command, "version"], capture_output=True, text=True, timeout=60)
    assert (version.returncode, version.stdout) == (0, f"millrace 0.1.0 (walker of records: {FORM})\n")
    help_text = subprocess.run([*command, "up", "--help"], capture_output=True, text=True, timeout=60).stdout
    assert "--gateways N" in help_text
