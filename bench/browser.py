"""The console in Chromium, with a broker of separate services: sizes, times of screens, a long tail, and their costs.

`python bench/browser.py [--quick]` prints each figure with its bound, and fails if one is missed; `make bench` runs it.
A tail lasts ten minutes, or one with --quick. Without Chromium or Playwright (requirements/development.txt) it measures
the sizes alone. Times of screens are medians of ROUNDS pages with empty caches.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import statistics
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from admin_api.console_files import FOLDER, MEDIA_TYPES
from confluent_kafka import Producer
from table import Row, alternating, show
from up_process import RunningUp

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

TOPICS = 1000
ROUNDS = 5
TAIL_S = 600.0
QUICK_S = 60.0
RATE_PER_S = 200
TAILS = 5
#: Records of one turn of the producer whose cost is measured, and their size. A turn is longer than the first second of
#: a tail, in which it shows what it saved up.
PRODUCED = 300_000
VALUE = b"v" * 500
_COMMENT = re.compile(r"/\*\*.*?\*/\s*|^\s*// .*?\n", re.DOTALL | re.MULTILINE)
_WAIT_MS = 30_000

#: Counts long tasks, and the time from a key to the frame that shows its effect.
_OBSERVED = """
window.longest = 0;
new PerformanceObserver((list) => {
  for (const each of list.getEntries()) window.longest = Math.max(window.longest, each.duration);
}).observe({ type: "longtask", buffered: true });
"""
#: Milliseconds until a selector has as many elements, and the next frame is drawn.
_UNTIL = """([selector, wanted]) => new Promise((resolve) => {
  const look = () => document.querySelectorAll(selector).length >= wanted
    ? requestAnimationFrame(() => resolve(performance.now() - window.began)) : setTimeout(look, 1);
  look();
})"""
_TYPE = """(text) => new Promise((resolve) => {
  const field = document.querySelector("input[type=search]");
  const began = performance.now();
  field.value = text;
  field.dispatchEvent(new InputEvent("input", { bubbles: true }));
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
})"""


class Figure(NamedTuple):
    name: str
    value: float
    most: float
    unit: str

    @property
    def row(self) -> Row:
        """The line of the table."""
        places = 0 if abs(self.value) >= 10 else 1
        miss = "" if self.value <= self.most else " missed"
        return Row(self.name, f"<= {self.most:g} {self.unit}", f"{self.value:.{places}f} {self.unit}{miss}")


def sizes() -> Iterator[Figure]:
    """Yield the bytes of what a browser loads."""
    served = [path for path in FOLDER.rglob("*") if path.suffix in MEDIA_TYPES]
    contents = [path.read_bytes() for path in served]
    own = [path for path in served if path.suffix == ".js" and FOLDER / "vendor" not in path.parents]
    yield Figure("all assets", sum(map(len, contents)) / 1e3, 200, "kB")
    yield Figure("  compressed", sum(len(gzip.compress(each, 9)) for each in contents) / 1e3, 70, "kB")
    code = sum(len(_COMMENT.sub("", path.read_text())) for path in own)
    yield Figure("  own code without comments", code / 1e3, 120, "kB")


def _fill(up: RunningUp) -> None:
    """Make the topics, and records in the first one."""
    for first in range(0, TOPICS, 250):
        topics = [{"topic_name": f"topic-{number:04}", "partitions_count": 1} for number in range(first, first + 250)]
        body = json.dumps({"topics": topics}).encode()
        request = urllib.request.Request(f"http://{up.http}/api/v1/topics:create", body, method="POST")
        request.add_header("content-type", "application/json")
        urllib.request.urlopen(request, timeout=60).close()
    _produce(up, "topic-0000", 2000)


def _produce(up: RunningUp, topic: str, count: int, *, rate_per_s: float | None = None) -> None:
    producer = Producer({"bootstrap.servers": up.kafka, "linger.ms": 5})
    began = time.monotonic()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, json.dumps({"number": number, "text": "t" * 200}), f"key-{number}")
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if rate_per_s is not None:
            time.sleep(max(0.0, began + number / rate_per_s - time.monotonic()))
    assert producer.flush(60) == 0


@contextmanager
def _page(browser: Browser) -> Iterator[Page]:
    """Open a page with an empty cache, as the first one of a person."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(_WAIT_MS)
    context.add_init_script(_OBSERVED)
    page = context.new_page()
    yield page
    context.close()


def _drawn_ms(page: Page, selector: str, count: int = 1) -> float:
    found: float = page.evaluate(_UNTIL, [selector, count])
    return found


def _followed_ms(page: Page, hash_: str, selector: str, count: int) -> float:
    """Return the milliseconds from a click on a link of the page until its rows are drawn."""
    page.evaluate("(hash) => { window.began = performance.now(); location.hash = hash; }", hash_)
    return _drawn_ms(page, selector, count)


def screens(browser: Browser, console: str) -> Iterator[Figure]:
    """Yield the times until screens are drawn, what the API needs included."""
    taken: dict[str, list[float]] = {"first": [], "topics": [], "key": [], "newest": []}
    for _ in range(ROUNDS + 1):
        with _page(browser) as page:
            page.goto(console, wait_until="commit")
            page.evaluate("window.began = 0")
            taken["first"].append(_drawn_ms(page, "main .health"))
            taken["topics"].append(_followed_ms(page, "#/topics", "main [data-row]", 25))
            taken["key"] += [page.evaluate(_TYPE, text) for text in ("0", "09", "098", "09", "")]
            newest = "#/topics/topic-0000/records"
            taken["newest"].append(_followed_ms(page, newest, "main .records [data-row]", 50))
    median = {name: statistics.median(values[len(values) // (ROUNDS + 1) :]) for name, values in taken.items()}
    yield Figure("first view, from the address to the health of the cluster", median["first"] / 1e3, 1, "s")
    yield Figure(f"{TOPICS} topics: the first window drawn, with the answer of the API", median["topics"], 500, "ms")
    yield Figure(f"a key in the search of {TOPICS} topics", median["key"], 50, "ms")
    yield Figure("the newest 50 records", median["newest"] / 1e3, 1, "s")


def _heap_bytes(session: CDPSession) -> int:
    return int(session.send("Runtime.getHeapUsage")["usedSize"])


def _left_out(page: Page, count: int) -> int:
    """Wait until a tail has told of so many records; return how many it did not show."""
    ends = time.monotonic() + _WAIT_MS / 1e3
    while True:
        said = page.locator("main .progress").inner_text().replace(",", "")
        received, left_out = (re.search(rf"(\d+) {each}", said) for each in ("received", "left out"))
        numbers = [int(each[1]) if each else 0 for each in (received, left_out)]
        if sum(numbers) == count:
            return numbers[1]
        assert time.monotonic() < ends, said
        time.sleep(0.2)


def tail(browser: Browser, up: RunningUp, seconds: float) -> Iterator[Figure]:
    """Yield what a tail of RATE_PER_S records a second costs its page."""
    with _page(browser) as page, ThreadPoolExecutor(1) as pool:
        session = page.context.new_cdp_session(page)
        page.goto(f"http://{up.http}/console/#/topics/topic-0001/records?mode=live")
        page.get_by_text("Nothing came yet").wait_for()
        count = int(seconds * RATE_PER_S)
        produced = pool.submit(_produce, up, "topic-0001", count, rate_per_s=RATE_PER_S * 0.98)
        heap = 0
        while not produced.done():
            time.sleep(1)
            heap = max(heap, _heap_bytes(session))
        produced.result()
        left_out = _left_out(page, count)
        rows, longest = page.locator("main .records [data-row]").count(), page.evaluate("window.longest")
    name = f"tail of {RATE_PER_S} records/s for {seconds / 60:g} min"
    yield Figure(f"{name}: longest task", longest, 200, "ms")
    yield Figure("  heap, at most", heap / 1e6, 60, "MB")
    yield Figure("  rows kept", rows, 500, "rows")
    yield Figure("  records left out, for more than 200 came in a second", left_out, 0, "records")


class _Tails:
    """Clients that follow a topic over HTTP, as five pages do."""

    def __init__(self, up: RunningUp, topic: str) -> None:
        self._url = f"http://{up.http}/api/v1/topics/{topic}/tail"
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._follow) for _ in range(TAILS)]
        self._begun = threading.Barrier(TAILS + 1)

    def __enter__(self) -> None:
        for each in self._threads:
            each.start()
        self._begun.wait(30)

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for each in self._threads:
            each.join()

    def _follow(self) -> None:
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            answer.readline()
            self._begun.wait(30)
            while not self._stop.is_set():
                answer.read1(1 << 16)  # a stream with records, or the heartbeat of an idle one, ends the wait


def producer_cost(up: RunningUp) -> Figure:
    """Return the share by which five tails slow a producer down that writes as fast as it can."""

    def seconds() -> float:
        producer = Producer({"bootstrap.servers": up.kafka, "linger.ms": 5, "queue.buffering.max.messages": PRODUCED})
        began = time.perf_counter()
        for _ in range(PRODUCED):
            producer.produce("topic-0002", VALUE)
        assert producer.flush(120) == 0
        return time.perf_counter() - began

    def followed() -> float:
        with _Tails(up, "topic-0002"):
            taken = seconds()
            with ThreadPoolExecutor(1) as pool:  # ends the waits of the tails
                pool.submit(_produce, up, "topic-0002", 50, rate_per_s=20)
            return taken

    seconds()
    alone, with_tails = alternating(ROUNDS, seconds, followed)
    return Figure(f"{TAILS} tails cost a producer at full speed", 100 * (with_tails / alone - 1), 5, "%")


def _resident(up: RunningUp) -> Figure:
    (pid,) = up.services()["admin-api"]
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return Figure("admin-api, the most memory of this run", int(found[1]) / 1e3, 130, "MB")


def _in_chromium(program: str, up: RunningUp, seconds: float) -> Iterator[Figure]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver, ExitStack() as opened:
        browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        opened.callback(browser.close)
        yield from screens(browser, f"http://{up.http}/console/")
        yield from tail(browser, up, seconds)


def _reported(figures: Iterator[Figure]) -> Iterator[Figure]:
    for each in figures:
        show([each.row], head=False)
        yield each


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tail of one minute, not ten")
    arguments = parser.parse_args()
    program = shutil.which("chromium") or shutil.which("google-chrome")
    show([])
    missed = [each for each in _reported(sizes()) if each.value > each.most]
    if program is None:
        print("Chromium is not installed: no more is measured", file=sys.stderr)
        return 1 if missed else 0
    options = ("--processes", "--kafka-port", "0", "--http-port", "0")
    with RunningUp(*options, environment={"MILLRACE_ADMIN_RATE_LIMIT": "0"}) as up:
        _fill(up)
        measured: list[Callable[[], Iterator[Figure]]] = [
            lambda: _in_chromium(program, up, QUICK_S if arguments.quick else TAIL_S),
            lambda: iter([producer_cost(up)]),
            lambda: iter([_resident(up)]),
        ]
        for each in measured:
            missed += [figure for figure in _reported(each()) if figure.value > figure.most]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
