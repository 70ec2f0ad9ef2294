"""Fixtures of the console's tests: Chromium, a broker with its console, and pages that fail on each fault."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from console.console_pages import Served, Watched, fill
from millrace import Broker
from support.late import Late

playwright = Late("playwright.sync_api")

#: Longest wait for what a page is to show, in ms. Other tests keep the processors busy.
WAIT_MS = 20_000


@pytest.fixture(scope="session")
def program() -> str:
    """The path of Chromium. Skips where a machine has none; continuous integration must have it."""
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is not None:
        return found
    if os.environ.get("CI"):
        pytest.fail("Chromium is missing: .ci/run installs it")
    pytest.skip("Chromium is not installed: apt-get install chromium")


@pytest.fixture(scope="module")
def chromium(program: str) -> Iterator[Any]:
    """A headless browser. Its driver runs an event loop in this thread: no other runs until it ends."""
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory, program: str) -> Iterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [each.getsockname()[1] for each in (first, second)]
    folder = tmp_path_factory.mktemp("console")
    options: dict[str, Any] = {"kafka_port": ports[0], "http_port": ports[1]}
    with Broker(data_dir=folder, admin=True, topics="orders:3,tail:2,odd:1,empty:1", **options) as broker:
        host, port = broker.http_address or ("", 0)
        served = Served(broker, f"http://{host}:{port}/console/")
        fill(served)
        yield served


Opened = Callable[..., Any]


@pytest.fixture(scope="module")
def opened(chromium: Any, served: Served) -> Opened:
    """Return a function that makes a page; it takes options of a browser's context."""

    @contextmanager
    def watched(**options: Any) -> Iterator[Watched]:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, "timezone_id": "UTC", **options})
        context.set_default_timeout(WAIT_MS)
        page = context.new_page()
        own = Watched(page, served)
        page.on("pageerror", lambda error: own.faults.append(f"error {error}"))
        page.on(
            "console",
            lambda each: (
                each.type in ("error", "warning") and own.faults.append(f"console {each.text} {each.location['url']}")
            ),
        )
        page.on("response", lambda each: each.status >= 400 and own.faults.append(f"{each.status} {each.url}"))
        page.on("request", lambda each: _is_foreign(each.url, served) and own.faults.append(f"foreign {each.url}"))
        page.on("dialog", lambda each: own.faults.append(f"dialog {each.message}"))
        try:
            yield own
            faults = [each for each in own.faults if not any(part in each for part in own.expected)]
            assert not faults, faults
        finally:
            context.close()

    return watched


def _is_foreign(url: str, served: Served) -> bool:
    origin = served.url.removesuffix("/console/")
    return not url.startswith((f"{origin}/", f"blob:{origin}/"))


@pytest.fixture
def console(opened: Opened) -> Iterator[Watched]:
    """A wide page in light colours."""
    with opened(color_scheme="light") as page:
        yield page
