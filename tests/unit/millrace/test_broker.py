"""`Broker()`: a broker inside this process."""

import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import millrace
import pytest
from millrace.broker import _running_in_thread
from millrace.direct import DirectSettings
from service_chassis.lifecycle import StartError
from service_chassis.settings import SettingsError

from tests.support.late import confluent

CLEAN_MARKER = ".kafka_cleanshutdown"


def _produce(bootstrap_servers, topic, value):
    errors = []
    producer = confluent.Producer({"bootstrap.servers": bootstrap_servers, "acks": "all", "message.timeout.ms": 60_000})
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors == [None]


def _consume_one(bootstrap_servers, topic, group):
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        return consumer.poll(60)
    finally:
        consumer.close()


#: The threads that are left of a broker, after a while: other brokers of this process would confuse the count.
LEFT = """
import sys, threading, time
import millrace
from tests.unit.millrace.test_broker import _consume_one, _produce

with millrace.Broker(topics="orders:3") as broker:
    _produce(broker.bootstrap_servers, "orders", b"one")
    assert _consume_one(broker.bootstrap_servers, "orders", "readers").value() == b"one"
    assert threading.active_count() > 1
deadline = time.monotonic() + 60
while threading.active_count() > 1 and time.monotonic() < deadline:  # idle ones are asked to end, without a wait
    time.sleep(0.01)
print([each.name for each in threading.enumerate()])
"""


def test_no_thread_is_left():
    program = [sys.executable, "-c", LEFT]
    done = subprocess.run(program, cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("['MainThread']\n", "")


def test_round_trip_with_a_group_and_nothing_left():
    with millrace.Broker(topics="orders:3") as broker:
        assert broker.bootstrap_servers == "{}:{}".format(*broker.kafka_address)
        assert broker.http_address is None
        data_dir = broker.data_dir
        assert (data_dir / "orders-2").is_dir()
        _produce(broker.bootstrap_servers, "orders", b"one")

        def took(group):
            began = time.monotonic()
            assert _consume_one(broker.bootstrap_servers, "orders", group).value() == b"one"
            return time.monotonic() - began

        # No group rebalance delay of 3 s. One of several groups, for other tests run at the same time.
        assert any(took(f"readers-{number}") < 2.5 for number in range(20))
        port = broker.kafka_address[1]
    assert not data_dir.exists()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=2)
    with pytest.raises(RuntimeError, match="does not run"):
        _ = broker.bootstrap_servers


def test_given_folder_is_kept_and_read_again(tmp_path):
    broker = millrace.Broker(data_dir=tmp_path, topics="orders:1")
    with broker:
        _produce(broker.bootstrap_servers, "orders", b"kept")
    assert (tmp_path / CLEAN_MARKER).exists()
    with broker:
        assert _consume_one(broker.bootstrap_servers, "orders", "readers").value() == b"kept"


def test_starts_within_half_a_second():
    """One of several starts: other tests run at the same time."""

    def took() -> float:
        began = time.monotonic()
        with millrace.Broker():
            return time.monotonic() - began

    assert any(took() < 0.5 for _ in range(20))


def test_admin_api_beside_it():
    with millrace.Broker(admin=True) as broker:
        host, port = broker.http_address
        with urllib.request.urlopen(f"http://{host}:{port}/v3/clusters", timeout=30) as answer:
            assert answer.status == 200
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=2)


def test_errors_at_the_start_are_raised_here(tmp_path):
    with millrace.Broker(data_dir=tmp_path) as broker:
        with pytest.raises(StartError, match="in use"):
            millrace.Broker(data_dir=tmp_path).start()
        with pytest.raises(StartError, match=r"^cannot listen at EXTERNAL://localhost:\d+: Address already in use$"):
            millrace.Broker(kafka_port=broker.kafka_address[1]).start()
        with pytest.raises(RuntimeError, match="runs already"):
            broker.start()
    with pytest.raises(SettingsError, match="MILLRACE_FLUSH_POLICY"):
        millrace.Broker(flush_policy="never").start()


def test_an_error_at_the_start_is_raised_when_all_has_stopped(tmp_path):
    settings = DirectSettings(data_dir=str(tmp_path), listeners="EXTERNAL://localhost:0", log_level="error")
    with pytest.raises(StartError), _running_in_thread(settings, f"unix:{tmp_path}/missing/storage.sock"):
        pass
    assert (tmp_path / CLEAN_MARKER).exists()
    with millrace.Broker(data_dir=tmp_path) as again:
        assert again.data_dir == tmp_path


def test_importing_the_package_and_the_plugin_loads_no_broker():
    code = (
        "import sys, millrace, millrace.pytest_plugin;"
        "print([name for name in ('grpc', 'storage_svc', 'gateway_svc') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


@pytest.mark.parametrize("state", ["enable", "disable"])
@pytest.mark.parametrize("fails", [False, True])
def test_the_import_collects_no_garbage_and_restores_the_collector(state, fails):
    """Also when the import fails, as at Ctrl-C."""
    code = (
        "import gc, sys, millrace\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'millrace.broker': print(gc.isenabled())\n"
        f"        if name == 'millrace.broker' and {fails}: raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\n"
        f"gc.{state}()\n"
        "try: millrace.Broker\n"
        "except KeyboardInterrupt: print('stopped')\n"
        "print(gc.isenabled(), gc.get_freeze_count())\n"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.split() == ["False", *(["stopped"] * fails), str(state == "enable"), "0"]


def test_one_process_without_admin_imports_no_heavy_library():
    code = (
        "import sys, millrace\n"
        "heavy = {'grpc', 'prometheus_client', 'pydantic', 'typer', 'rich'}\n"
        "with millrace.Broker():\n"
        "    print(sorted(heavy & sys.modules.keys()))"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output == "[]\n"


_UNCLOSED = """
import os, sys, time
import millrace
broker = millrace.Broker({arguments})
broker.start()
print(broker.data_dir, flush=True)
{then}
print(time.monotonic(), flush=True)
"""


def _run_unclosed(arguments="", then=""):
    """Run a program that ends without closing its broker; return the data folder, the output and the time of its
    end.
    """
    ran = subprocess.run(
        [sys.executable, "-c", _UNCLOSED.format(arguments=arguments, then=then)],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert ran.stderr == ""
    data_dir, *printed, ended_at = ran.stdout.splitlines()
    return Path(data_dir), printed, time.monotonic() - float(ended_at)


def test_never_closed_it_stops_in_order_when_the_program_ends(tmp_path):
    temporary, _, took_s = _run_unclosed()
    assert not temporary.exists()
    assert took_s < 20  # not the 25 s that a stop may take
    _run_unclosed(f"data_dir={str(tmp_path)!r}")
    assert (tmp_path / CLEAN_MARKER).exists()


def test_a_fork_that_ends_leaves_it_alone():
    _, printed, took_s = _run_unclosed(
        then="if os.fork() == 0: sys.exit()\nos.wait()\nprint(broker.data_dir.joinpath('meta.properties').exists())"
    )
    assert printed == ["True"]
    assert took_s < 20


def test_unknown_setting_is_refused():
    with pytest.raises(TypeError, match=r"no setting num_partition$"):
        millrace.Broker(num_partition=3)
