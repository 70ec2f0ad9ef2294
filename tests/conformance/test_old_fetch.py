"""Python clients whose Fetch is below version 10 read records in zstd, also of a topic whose own codec it is."""

from __future__ import annotations

import json
import subprocess

import pytest
from conformance.building import built
from conformance.log_rows import EPOCH_MS, Row, create, produce

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(600)]

VALUES = [str(number) for number in range(20)]
CLIENTS = ("kafka-python 2.0.2", "aiokafka 0.12.0")


def test_a_topic_in_zstd_is_read(bootstrap: str, layout: str) -> None:
    folder = built("old-python")
    topics = [f"old-fetch-{codec}-{layout}" for codec in ("zstd", "producer")]
    for topic, codec in zip(topics, ("zstd", "producer"), strict=True):
        create(bootstrap, topic, compression_type=codec)
        produce(bootstrap, topic, 0, [Row(EPOCH_MS, None, value) for value in VALUES], "zstd", idempotent=False)

    command = [".venv/bin/python", "read.py", bootstrap, *topics]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=180)

    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found == [{"client": client, "topic": topic, "values": VALUES} for topic in topics for client in CLIENTS]
