"""Offsets that the REST API would reset, and those of Apache Kafka's kafka-consumer-groups.sh --dry-run, are equal."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support.kafka_broker import need_java
from up_process import RunningUp

from tests.conformance.test_group_command import HOUR_S, Groups

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(300)]

GROUP = "compared"


@pytest.fixture(scope="module")
def up() -> Iterator[RunningUp]:
    need_java()
    with RunningUp("--kafka-port", "0", "--http-port", "0") as running:
        yield running


@pytest.fixture(scope="module")
def groups(up: RunningUp) -> Groups:
    """A group that has committed 4 of 10 in one partition, and nothing in the other."""
    made = Groups(up.kafka, "compared-topic")
    made.commit(GROUP, 4)
    return made


def over_rest(up: RunningUp, **body: Any) -> list[tuple[str, int, int]]:
    request = urllib.request.Request(
        f"http://{up.http}/api/v1/consumer-groups/{GROUP}/offsets:reset",
        data=json.dumps({**body, "dry_run": True}).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        rows = json.load(answer)["data"]
    return sorted((row["topic_name"], row["partition_id"], row["after"]) for row in rows)


def test_every_target_leads_where_kafkas_tool_does(up: RunningUp, groups: Groups) -> None:
    three_hours_ago = groups.now - 3.5 * HOUR_S
    at_ms = int(three_hours_ago * 1000)
    cases: list[tuple[tuple[str, ...], dict[str, Any]]] = [
        (("--to-earliest",), {"to": "earliest"}),
        (("--to-latest",), {"to": "latest"}),
        (("--to-current",), {"to": "current"}),
        (("--to-offset", "7"), {"to": "offset", "value": 7}),
        (("--to-offset", "99"), {"to": "offset", "value": 99}),
        (("--by-duration", "PT2H30M"), {"to": "duration", "value": "PT2H30M"}),
        (("--by-duration", "PT0S"), {"to": "duration", "value": "PT0S"}),
        (
            ("--to-datetime", datetime.fromtimestamp(three_hours_ago, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+00:00")),
            {"to": "timestamp", "value": at_ms - at_ms % 1000},
        ),
        (("--shift-by", "-3"), {"to": "shift-by", "value": -3, "partitions": [0]}),
        (("--shift-by", "100"), {"to": "shift-by", "value": 100, "partitions": [0]}),
    ]
    for options, body in cases:
        topic = f"{groups.topic}:0" if "partitions" in body else groups.topic
        _, *rows = groups.command("--reset-offsets", "--group", GROUP, "--topic", topic, *options, "--dry-run")
        of_kafka = sorted((row[1], int(row[2]), int(row[3])) for row in rows if row[0] == GROUP)
        assert over_rest(up, topic=groups.topic, **body) == of_kafka, options
    assert groups.committed(GROUP) == [4, -1001]
