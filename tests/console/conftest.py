"""Fixtures of the console's tests: Chromium, a broker with its console, and pages that fail on each fault.

One Chromium and one broker serve all files. The broker has services of its own, and two admin-apis behind one address.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from console.console_pages import Served, Watched, fill
from console.two_servers import Balancer, another_admin, free_port
from support.late import Late
from up_process import RunningUp

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


_ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]

#: The browser and the broker: they end after the last of these tests.
_lasting = ExitStack()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the browser after the last of these tests: its driver runs an event loop in this thread, and no other can."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        _lasting.close()


@pytest.fixture(scope="session")
def chromium(program: str) -> Any:
    """A headless browser that reaches this machine alone: no name of another host is found."""
    driver = _lasting.enter_context(playwright.sync_playwright())
    browser = driver.chromium.launch(executable_path=program, args=_ARGUMENTS)
    _lasting.callback(browser.close)
    return browser


@pytest.fixture(scope="session")
def served(program: str) -> Served:
    port = free_port()
    topics = "orders:3,tail:2,odd:1,empty:1,framed:1"
    up = _lasting.enter_context(RunningUp("--processes", "--kafka-port", "0", "--http-port", "0", "--topics", topics))
    _lasting.enter_context(another_admin(up, port))
    servers = int(up.http.rpartition(":")[2]), port
    balancer = Balancer(servers)
    _lasting.callback(balancer.close)
    served = Served(up, balancer, servers)
    fill(served)
    return served


Opened = Callable[..., Any]


@pytest.fixture(scope="session")
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
        page.on("request", lambda each: _is_foreign(each.url, own) and own.faults.append(f"foreign {each.url}"))
        page.on("dialog", lambda each: own.faults.append(f"dialog {each.message}"))
        try:
            yield own
            faults = [each for each in own.faults if not any(part in each for part in own.expected)]
            assert not faults, faults
        finally:
            context.close()

    return watched


def _is_foreign(url: str, page: Watched) -> bool:
    origin = (page.address or page.served.url).removesuffix("/console/")
    return not url.startswith((f"{origin}/", f"blob:{origin}/"))


@pytest.fixture
def console(opened: Opened) -> Iterator[Watched]:
    """A wide page in light colours."""
    with opened(color_scheme="light") as page:
        yield page
