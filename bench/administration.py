"""Figures of administration with 1,000 topics: over Kafka, over REST and with the command line.

`python bench/administration.py [--topics NUMBER]` prints a table; `make bench-parts` runs it. The memory of
admin-api is measured last, after all other rows have used it.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from raw import Connection, batch, produce_frame
from table import Row, show
from up_process import RunningUp

TOPICS = 1000
LISTS, COMMANDS = 30, 5
#: A topic of 4 GB: batches of 1,000 records of 1 KB.
LARGE, BATCHES = "large", 4000


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


def timed_ms(times: int, url: str) -> list[float]:
    taken = []
    for _ in range(times):
        began = time.perf_counter()
        fetch(url)
        taken.append((time.perf_counter() - began) * 1000)
    return taken


def created_s(admin: AdminClient, names: list[str]) -> float:
    """Create topics with one call; return the time until all of them exist."""
    began = time.perf_counter()
    for each in admin.create_topics([NewTopic(name, 1) for name in names]).values():
        each.result(60)
    return time.perf_counter() - began


def deleted_s(admin: AdminClient, names: list[str]) -> float:
    """Delete topics with one call; return the time until all of them are gone."""
    began = time.perf_counter()
    for each in admin.delete_topics(names).values():
        each.result(60)
    return time.perf_counter() - began


def listed_s(http: str) -> float:
    """Return the time of one `millrace topic list`, the start of its Python included."""
    began = time.perf_counter()
    command = [str(Path(sys.executable).with_name("millrace")), "topic", "list", "--rest", http]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    return time.perf_counter() - began


def filled(up: RunningUp) -> None:
    """Make a topic of 4 GB."""
    admin = AdminClient({"bootstrap.servers": up.kafka})
    admin.create_topics([NewTopic(LARGE, 1)])[LARGE].result(60)
    connection = Connection(up.kafka, LARGE)
    connection.send([produce_frame(LARGE, 0, 1, batch(1000, 1000))], BATCHES, 2)
    connection.close()


def measure(up: RunningUp, topics: int) -> list[Row]:
    filled(up)
    newest = timed_ms(LISTS, f"http://{up.http}/api/v1/topics/{LARGE}/records?limit=100")
    admin = AdminClient({"bootstrap.servers": up.kafka})
    admin.list_topics(timeout=10)
    names = [f"topic-{number:05}" for number in range(2 * topics)]
    created_twice, deleted_twice = created_s(admin, names), deleted_s(admin, names)
    created = created_s(admin, names[:topics])
    api = f"http://{up.http}"
    cluster = json.loads(fetch(f"{api}/v3/clusters"))["data"][0]["cluster_id"]
    listed = timed_ms(LISTS, f"{api}/v3/clusters/{cluster}/topics")
    fetch(f"{api}/v3/clusters/{cluster}/topics/-/configs")
    commands = [listed_s(up.http) for _ in range(COMMANDS)]
    found = re.search(rb"^process_resident_memory_bytes (\S+)", fetch(f"{api}/metrics"), flags=re.M)
    assert found is not None
    resident = float(found[1])
    deleted = deleted_s(admin, names[:topics])
    return [
        Row(f"{topics} topics created in one call of an AdminClient", "≤ 3 s", f"{created:.2f} s"),
        Row(f"{topics} topics deleted in one call", "≤ 2 s", f"{deleted:.2f} s"),
        Row(f"{2 * topics} topics created in one call", "≤ 4 s", f"{created_twice:.2f} s"),
        Row(f"{2 * topics} topics deleted in one call", "≤ 5 s", f"{deleted_twice:.2f} s"),
        Row(f"list of {topics} topics over REST, p50", "≤ 50 ms", f"{statistics.median(listed):.0f} ms"),
        Row("newest 100 records of a topic of 4 GB, p50", "≤ 200 ms", f"{statistics.median(newest):.0f} ms"),
        Row(f"millrace topic list, {topics} topics, p50", "≤ 0.4 s", f"{statistics.median(commands):.2f} s"),
        Row("memory of admin-api after all of it", "≤ 110 MB", f"{resident / 1e6:.0f} MB"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=TOPICS, help=f"number of topics (default {TOPICS})")
    arguments = parser.parse_args()
    with RunningUp("--kafka-port", "0", "--http-port", "0") as up:
        show(measure(up, arguments.topics))


if __name__ == "__main__":
    main()
