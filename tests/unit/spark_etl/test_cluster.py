"""The options that reach a cluster, for readers and writers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import spark_etl
from spark_etl.kafka.cluster import Cluster

pytestmark = pytest.mark.etl

SOURCE = Path(spark_etl.__file__).parent


def test_a_reader_does_not_wait_at_the_end_of_a_partition():
    cluster = Cluster("h:1", {"security.protocol": "SSL"})
    assert cluster.connector() == {"kafka.bootstrap.servers": "h:1", "kafka.security.protocol": "SSL"}
    assert cluster.reading() == {**cluster.connector(), "kafka.fetch.max.wait.ms": "10"}


def test_only_writers_use_the_options_of_a_writer():
    uses = {
        match[1]
        for path in SOURCE.rglob("*.py")
        for match in re.finditer(
            r"(\w+)\s*\.format\(\"kafka\"\)\s*\.options\(\*\*self\._cluster\.connector", path.read_text()
        )
    }
    assert uses == {"write"}
