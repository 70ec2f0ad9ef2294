"""The live tail: records as they come, a pause, a storage that is killed, and an admin-api that goes away."""

from __future__ import annotations

import os
import re
import signal

import pytest
from console.console_pages import Watched

pytestmark = pytest.mark.blocks_event_loop("the browser's driver waits in this thread")


def values(first: int, last: int) -> list[dict[str, object]]:
    return [{"key": "k", "value": f"tail-{number:04}", "partition": number % 2} for number in range(first, last)]


def shown(console: Watched) -> list[int]:
    return sorted(int(each) for each in re.findall(r"tail-(\d+)", " ".join(console.row("tail-").all_inner_texts())))


def test_tail_shows_each_record_once_over_a_pause_and_kills(console: Watched):
    served = console.served
    console.expected = ["ERR_", "503", "500"]
    console.open("topics/tail/records?mode=live")
    console.page.get_by_text("Nothing came yet").wait_for()
    console.page.locator(".progress", has_text="live").wait_for()
    served.produce("tail", values(0, 20))
    console.page.get_by_text("20 received").wait_for()

    console.button("Pause").click()
    served.produce("tail", values(20, 40))
    console.page.get_by_text("20 records waiting").wait_for()
    assert shown(console) == list(range(20))
    console.button("Resume").click()
    console.row("tail-0039").wait_for()
    assert shown(console) == list(range(40))

    (storage,) = served.up.services()["storage-svc"]
    os.kill(served.up.pid, signal.SIGSTOP)  # it would start storage again before the page says anything
    try:
        os.kill(storage, signal.SIGKILL)
        console.page.get_by_text("interrupted, trying again").wait_for()
        console.page.locator("main .failure").first.wait_for()
    finally:
        os.kill(served.up.pid, signal.SIGCONT)
    served.produce("tail", values(40, 60))
    console.page.get_by_text("60 received").wait_for()
    assert shown(console) == list(range(60))
    console.page.locator("main .failure").first.wait_for(state="detached")


def test_tail_goes_on_at_the_other_admin_api(console: Watched):
    served = console.served
    console.expected = ["ERR_"]
    console.open("topics/tail/records?mode=live&q=both-")
    console.page.locator(".progress", has_text="live").wait_for()
    for number, server in enumerate(served.servers):  # one of them has the page's connection
        with served.balancer.without(server):
            value = {"key": "k", "value": f"both- tail-{number:04}"}
            served.produce("tail", [value])
            console.page.get_by_text(f"{number + 1} received").wait_for()
    assert shown(console) == [0, 1]


def test_tail_follows_its_filter(console: Watched):
    console.open("topics/tail/records?mode=live&q=tail-2001")
    console.page.locator(".progress", has_text="live").wait_for()
    console.served.produce("tail", values(2000, 2010))
    console.row("tail-2001").wait_for()
    assert shown(console) == [2001]
