"""The connector's options of each source section, and the sections that are refused."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError
from spark_etl.config import KafkaOptions, Source
from spark_etl.sources import options

pytestmark = pytest.mark.etl

ALWAYS = {
    "kafka.bootstrap.servers": "h:1",
    "kafka.fetch.max.wait.ms": "10",
    "kafka.isolation.level": "read_uncommitted",
    "failOnDataLoss": "true",
    "includeHeaders": "true",
}
FIRST = {"subscribe": "a", "startingOffsets": "earliest"}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({"topics": ["a"]}, FIRST),
        ({"topics": ["a", "b"], "start": "latest"}, {"subscribe": "a,b", "startingOffsets": "latest"}),
        ({"pattern": "a.*"}, {"subscribePattern": "a.*", "startingOffsets": "earliest"}),
        (
            {"topics": ["a"], "start": {"timestamp": "2026-01-31T10:00:00.5Z"}},
            {
                "subscribe": "a",
                "startingTimestamp": "1769853600500",
                "startingOffsetsByTimestampStrategy": "latest",
            },
        ),
        (
            {"topics": ["a"], "start": {"timestamp": datetime(2026, 1, 31, 10, tzinfo=UTC)}},
            {
                "subscribe": "a",
                "startingTimestamp": "1769853600000",
                "startingOffsetsByTimestampStrategy": "latest",
            },
        ),
        (
            {"topics": ["a"], "start": {"offsets": {"a": {0: 17, 1: "earliest", 2: "latest"}}}},
            {"subscribe": "a", "startingOffsets": '{"a": {"0": 17, "1": -2, "2": -1}}'},
        ),
        ({"topics": ["a"], "isolation": "read_committed"}, {**FIRST, "kafka.isolation.level": "read_committed"}),
        ({"topics": ["a"], "min_partitions": 8}, {**FIRST, "minPartitions": "8"}),
        ({"topics": ["a"], "max_offsets_per_trigger": 5}, {**FIRST, "maxOffsetsPerTrigger": "5"}),
        ({"topics": ["a"], "on_data_loss": "continue"}, {**FIRST, "failOnDataLoss": "false"}),
    ],
)
def test_options(section, expected):
    assert options("h:1", Source.model_validate(section), KafkaOptions({})) == {**ALWAYS, **expected}


def test_security_options_are_passed_on():
    kafka = KafkaOptions.model_validate({"security.protocol": "SASL_SSL", "ssl.endpoint.identification.algorithm": ""})
    assert options("h:1", Source(topics=["a"]), kafka) == {
        **ALWAYS,
        **FIRST,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.endpoint.identification.algorithm": "",
    }


@pytest.mark.parametrize(
    ("section", "reason"),
    [
        ({}, "either topics or pattern"),
        ({"topics": ["a"], "pattern": "b"}, "either topics or pattern"),
        ({"topics": ["a"], "start": {"offsets": {"b": {0: 1}}}}, "must name the same topics, a is in one only"),
        ({"topics": ["a"], "start": {"offsets": {"a": {0: -5}}}}, "greater than or equal to 0"),
        ({"topics": ["a"], "start": {"timestamp": "1969-01-01T00:00:00Z"}}, "must not be before 1970"),
        ({"topics": ["a"], "start": "middle"}, "'earliest' or 'latest'"),
        ({"topics": ["a"], "min_partitions": 0}, "greater than or equal to 1"),
    ],
)
def test_sections_that_are_refused(section, reason):
    with pytest.raises(ValidationError, match=reason):
        Source.model_validate(section)
