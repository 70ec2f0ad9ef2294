from pathlib import Path

import pytest
from millrace.folders import private_folder
from millrace.layout import Layout
from service_chassis.address import Address


def _layout(**options):
    options = {"http": Address("localhost", 8082), **options}
    return Layout(
        data_dir=Path("/data"), socket_dir=Path("/run/m"), kafka=Address("localhost", 9092),
        advertised=Address("broker.example", 9092), **options,
    )  # fmt: skip


def _processes(**options):
    ports = iter(range(9101, 9200))
    return _layout(**options).processes(lambda: Address("127.0.0.1", next(ports)))


def test_one_process_and_admin():
    broker, admin = _processes(topics="orders:3")
    assert (broker.service, broker.http_address) == ("broker", "127.0.0.1:9101")
    assert broker.settings == {
        "MILLRACE_DATA_DIR": "/data",
        "MILLRACE_STORAGE_BIND": "unix:/run/m/storage.sock",
        "MILLRACE_TOPICS": "orders:3",
        "MILLRACE_LISTENERS": "EXTERNAL://localhost:9092",
        "MILLRACE_ADVERTISED_LISTENERS": "EXTERNAL://broker.example:9092",
        "MILLRACE_GATEWAY_NAME": "millrace",
        "MILLRACE_GATEWAY_DATA_DIR": "/data",
        "MILLRACE_BROKER_HTTP": "127.0.0.1:9101",
    }
    assert (admin.service, admin.http_address) == ("admin-api", "127.0.0.1:9102")
    assert (admin.clients, broker.clients) == (Address("localhost", 8082), None)
    assert admin.settings == {
        "MILLRACE_STORAGE_ADDRESS": "unix:/run/m/storage.sock",
        "MILLRACE_ADMIN_GATEWAYS": "localhost:9092",
        "MILLRACE_ADMIN_HTTP": "localhost:8082",
        "MILLRACE_ADMIN_HEALTH_HTTP": "127.0.0.1:9102",
    }


@pytest.mark.parametrize(
    ("http_host", "names"),
    [
        ("0.0.0.0", "localhost,127.0.0.1,[::1],broker.example,this-machine"),
        ("::", "localhost,127.0.0.1,[::1],broker.example,this-machine"),
        ("rest.example", "localhost,127.0.0.1,[::1],broker.example,this-machine,rest.example"),
        ("localhost", None),
        ("127.0.0.1", None),
    ],
)
def test_a_rest_api_that_others_reach_serves_the_names_of_this_machine(monkeypatch, http_host, names):
    monkeypatch.setattr("socket.gethostname", lambda: "this-machine")
    monkeypatch.delenv("MILLRACE_ADMIN_ALLOWED_HOSTS", raising=False)
    admin = _processes(http=Address(http_host, 8082))[-1]
    assert admin.settings.get("MILLRACE_ADMIN_ALLOWED_HOSTS") == names
    monkeypatch.setenv("MILLRACE_ADMIN_ALLOWED_HOSTS", "mine.example")
    assert "MILLRACE_ADMIN_ALLOWED_HOSTS" not in _processes(http=Address(http_host, 8082))[-1].settings


def test_separate_with_two_gateways_on_one_port():
    storage, first, second, admin = _processes(separate=True, gateways=2)
    assert [each.service for each in (storage, first, second, admin)] == [
        "storage-svc", "gateway-svc", "gateway-svc", "admin-api",
    ]  # fmt: skip
    assert "MILLRACE_TOPICS" not in storage.settings
    assert storage.settings["MILLRACE_STORAGE_HTTP"] == "127.0.0.1:9101"
    assert first.settings["MILLRACE_STORAGE_ADDRESS"] == storage.settings["MILLRACE_STORAGE_BIND"]
    assert first.settings["MILLRACE_REUSE_PORT"] == "true"
    assert {**first.settings, "MILLRACE_GATEWAY_HTTP": "127.0.0.1:9103"} == second.settings
    assert (first.number, second.number) == (1, 2)


def test_one_separate_gateway_has_the_port_for_itself():
    assert _processes(separate=True)[1].settings["MILLRACE_REUSE_PORT"] == "false"


def test_socket_folder_is_private_short_and_goes(tmp_path, monkeypatch):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with private_folder() as (folder, _):
        assert folder.stat().st_mode & 0o777 == 0o700
        assert len(f"{folder}/storage.sock") < 108
    assert not folder.exists()
    assert list(long.iterdir()) == []
