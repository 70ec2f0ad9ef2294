"""Storage and two gateways of it, each in a separate process without a supervisor."""

import contextlib
import os
import subprocess
import sys
import time

from millrace.folders import private_folder
from millrace.ports import Reservation
from service_chassis.probe import check


@contextlib.contextmanager
def _service(name, http_address, settings):
    """Start one service as the launcher does, wait until it is ready, and kill it at the end."""
    popen = subprocess.Popen(
        [sys.executable, "-m", "millrace.service", name], env={**os.environ, **settings}, stdin=subprocess.PIPE
    )
    try:
        deadline = time.monotonic() + 60
        while fault := check(http_address):
            assert popen.poll() is None
            assert time.monotonic() < deadline, fault
            time.sleep(0.02)
        yield popen
    finally:
        popen.kill()
        popen.wait()
        popen.stdin.close()


@contextlib.contextmanager
def two_gateways(data_dir, topics, own=({}, {}), **of_storage):
    """Start storage and two gateways, each with its own settings; yield their processes and their addresses."""
    with contextlib.ExitStack() as held:
        socket_dir, _ = held.enter_context(private_folder())

        def address():
            return str(held.enter_context(Reservation("127.0.0.1", 0)).address)

        http = address()
        storage = f"unix:{socket_dir}/storage.sock"
        settings = {
            "MILLRACE_DATA_DIR": str(data_dir),
            "MILLRACE_STORAGE_BIND": storage,
            "MILLRACE_STORAGE_HTTP": http,
            "MILLRACE_TOPICS": topics,
            "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            **of_storage,
        }
        held.enter_context(_service("storage-svc", http, settings))
        gateways, addresses = [], []
        for name, settings_of_one in zip(("one", "two"), own, strict=True):
            kafka, http = address(), address()
            settings = {
                "MILLRACE_STORAGE_ADDRESS": storage,
                "MILLRACE_LISTENERS": f"EXTERNAL://{kafka}",
                "MILLRACE_GATEWAY_NAME": name,
                "MILLRACE_GATEWAY_HTTP": http,
                **settings_of_one,
            }
            addresses.append(kafka)
            gateways.append(held.enter_context(_service("gateway-svc", http, settings)))
        yield gateways, addresses
