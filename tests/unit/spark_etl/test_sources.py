"""The connector's options of each source section, and the sections that are refused."""

from datetime import UTC, datetime

import pytest
from pydantic import ValidationError
from spark_etl.config import KafkaOptions, KafkaSinkConfig, Source
from spark_etl.kafka.sources import options

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


def test_options_of_the_client_are_passed_on():
    client = {"fetch.max.bytes": "1048576", "client.rack": "a"}
    found = options("h:1", Source.model_validate({"topics": ["a"], "client": client}), KafkaOptions({}))
    assert found == {**ALWAYS, **FIRST, "kafka.fetch.max.bytes": "1048576", "kafka.client.rack": "a"}


@pytest.mark.parametrize(
    ("model", "given", "reason"),
    [
        (Source, {"group.id": "mine"}, "group.id: not among client.rack, connections.max.idle.ms, "),
        (Source, {"interceptor.classes": "org.Evil"}, "interceptor.classes: not among "),
        (Source, {"compression.type": "zstd"}, "compression.type: not among "),
        (Source, {"fetch.max.wait.ms": 500}, "fetch.max.wait.ms: not among "),
        (Source, {"max.poll.records": 0}, "max.poll.records: a number from 1 to 1000000 is needed"),
        (Source, {"max.poll.records": True}, "max.poll.records: a number from 1 to 1000000 is needed"),
        (Source, {"max.poll.records": "x"}, "max.poll.records: a number from 1 to 1000000 is needed"),
        (Source, {"client.rack": 7}, "client.rack: a text of at most 255 characters is needed"),
        (Source, ["client.rack"], "must be a mapping of client options"),
        (KafkaSinkConfig, {"compression.type": "brotli"}, "compression.type: one of none, gzip, snappy, lz4, zstd is"),
        (KafkaSinkConfig, {"acks": "0"}, "acks: not among "),
        (KafkaSinkConfig, {"enable.idempotence": "false"}, "enable.idempotence: not among "),
        (KafkaSinkConfig, {"partitioner.class": "org.Evil"}, "partitioner.class: not among "),
        (KafkaSinkConfig, {"delivery.timeout.ms": 20_000}, "delivery.timeout.ms (20000) must be at least request."),
    ],
)
def test_options_of_clients_that_are_refused(model, given, reason):
    needed = {"topics": ["a"]} if model is Source else {"type": "kafka", "topic": "t"}
    with pytest.raises(ValidationError) as refused:
        model.model_validate({**needed, "client": given})
    assert reason in str(refused.value)


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
