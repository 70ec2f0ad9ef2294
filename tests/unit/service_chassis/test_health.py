import asyncio
import json
import socket
import time
import urllib.error
import urllib.request

import pytest
from prometheus_client import Counter
from service_chassis import health, lifecycle, metrics, probe
from service_chassis.version import VERSION


@pytest.fixture
def served():
    state = health.Health()
    registry = metrics.Registry("storage-svc")
    endpoint = health.HttpEndpoint("127.0.0.1:0", registry, state).start()
    yield state, registry, f"127.0.0.1:{endpoint.port}"
    endpoint.close()


def _get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_an_address_that_is_taken_keeps_the_service_from_starting(served):
    state, registry, address = served
    with pytest.raises(lifecycle.StartError, match=f"^cannot listen at {address}: Address already in use$"):
        health.HttpEndpoint(address, registry, state).start()


def test_ready_only_when_said_and_every_check_passes(served):
    state, _, address = served
    assert _get(address, "/readyz") == (503, '{"ready": false, "faults": {"service": "starting"}}\n')
    state.set_ready(True)
    assert _get(address, "/readyz") == (200, '{"ready": true, "faults": {}}\n')
    assert probe.check(address, timeout_s=30) is None
    state.checks["disk"] = lambda: "full"
    state.checks["bug"] = lambda: 1 // 0
    status, body = _get(address, "/readyz")
    assert status == 503
    assert json.loads(body)["faults"] == {
        "disk": "full",
        "bug": "ZeroDivisionError: integer division or modulo by zero",
    }
    assert probe.check(address, timeout_s=30).startswith(f"{address}/readyz answered 503: ")
    state.checks.clear()
    state.set_ready(False, "stopping")
    assert json.loads(_get(address, "/readyz")[1])["faults"] == {"service": "stopping"}


async def test_live_while_the_event_loop_turns(served, monkeypatch):
    state, _, address = served
    assert (await asyncio.to_thread(_get, address, "/healthz"))[0] == 200
    end_watch = state.watch_loop()
    assert state.is_live()
    monkeypatch.setattr(health, "LOOP_STUCK_AFTER_S", 0.2)
    time.sleep(0.3)  # noqa: ASYNC251 the loop is stuck, which is the point
    assert not state.is_live()
    end_watch()
    assert state.is_live()
    state.live = False
    assert (await asyncio.to_thread(_get, address, "/healthz"))[0] == 503


def test_metrics(served):
    _, registry, address = served
    Counter("millrace_things", "Things.", registry=registry).inc(3)
    status, body = _get(address, "/metrics")
    assert status == 200
    assert f'millrace_build_info{{service="storage-svc",version="{VERSION}"}} 1.0' in body
    assert "millrace_things_total 3.0" in body
    assert "process_resident_memory_bytes" in body
    assert _get(address, "/else")[0] == 404
    Counter("millrace_later", "Registered after a scrape.", registry=registry)
    assert "millrace_later_total 0.0" in _get(address, "/metrics")[1]


def test_merged_registries_show_each_family_once():
    first, second = metrics.Registry("storage-svc"), metrics.Registry("gateway-svc")
    Counter("millrace_appends", "A.", registry=first)
    Counter("millrace_requests", "R.", registry=second)
    names = [family.name for family in metrics.merged(first, second).collect()]
    assert len(names) == len(set(names))
    assert {"millrace_appends", "millrace_requests", "millrace_build_info"} <= set(names)


def test_closed_endpoint_frees_its_port(served):
    with socket.socket() as reserved:  # so that no other process gets the port
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
        endpoint = health.HttpEndpoint(address, metrics.Registry("x"), health.Health()).start()
        endpoint.close()
        endpoint.close()
        again = health.HttpEndpoint(address, metrics.Registry("x"), health.Health()).start()
        again.close()


def test_probe_says_what_is_wrong():
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unheard.getsockname()[1]}"
        assert "refused" in probe.check(address)
        unheard.listen()
        assert "timed out" in probe.check(address, timeout_s=0.1)
