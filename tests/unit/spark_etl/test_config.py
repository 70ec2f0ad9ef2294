"""A pipeline file is refused with the place and the reason, before anything starts."""

from pathlib import Path

import pytest
import yaml
from spark_etl.config import interpolate, load
from spark_etl.errors import ConfigError

FLIGHTS = Path(__file__).parents[3] / "spark" / "pipelines" / "flights.yaml"
SCHEMA = '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "day": {"type": "string"}}}'


def document() -> dict:
    return {
        "apiVersion": "etl/v1",
        "name": "orders",
        "checkpoint": "checkpoints/orders",
        "source": {"topics": ["orders"]},
        "decode": {"format": "json", "schema": "orders.json"},
        "sinks": [{"type": "parquet", "path": "lake/orders", "partition_by": ["day"]}],
        "dead_letter": {"topic": "orders.dlq"},
    }


def write(folder: Path, content: dict | str) -> Path:
    (folder / "orders.json").write_text(SCHEMA)
    path = folder / "orders.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def refusal(folder: Path, content: dict | str) -> str:
    with pytest.raises(ConfigError) as refused:
        load(write(folder, content), {})
    return str(refused.value)


def test_the_flights_pipeline_with_an_empty_environment():
    pipeline = load(FLIGHTS, {})
    config = pipeline.config
    assert config.source.topics == ["flights"]
    assert config.source.max_offsets_per_trigger == 500_000
    assert config.parquet.partition_by == ["flight_month"]
    assert config.parquet.path == "build/etl/lake/flights"
    assert [sink.topic for sink in config.summaries] == ["flights.delays"]
    assert config.dead_letter.topic == "flights.dlq"
    assert config.metrics.port == 0
    assert len(pipeline.schema_.names) == 19


def test_the_flights_pipeline_told_by_the_environment():
    environment = {
        "MILLRACE_ETL_OUTPUT_DIR": "/out",
        "MILLRACE_ETL_MAX_OFFSETS_PER_TRIGGER": "7",
        "MILLRACE_ETL_METRICS_PORT": "9404",
    }
    config = load(FLIGHTS, environment).config
    assert (config.parquet.path, config.source.max_offsets_per_trigger, config.metrics.port) == (
        "/out/flights",
        7,
        9404,
    )


def test_a_small_pipeline_has_the_documented_defaults(tmp_path):
    config = load(write(tmp_path, document()), {}).config
    assert (config.source.start, config.trigger, config.decode.unknown_fields) == (
        "earliest",
        "available_now",
        "reject",
    )
    assert (config.rules, config.derive, config.summaries) == ([], {}, [])


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dedupe": {"keys": ["id"]}}, "dedupe: unknown key"),
        ({"source": {"topics": ["orders"], "connector": "kafka"}}, "source.connector: unknown key"),
        ({"source": {"topics": []}}, "source.topics: List should have at least 1 item"),
        ({"source": {"topics": ["or ders"]}}, "source.topics.0: String should match pattern"),
        ({"trigger": "continuous"}, "trigger: Input should be 'available_now'"),
        ({"apiVersion": "etl/v2"}, "apiVersion: Input should be 'etl/v1'"),
        ({"name": None}, "name: Input should be a valid string"),
        ({"rules": [{"name": "r", "expr": "true", "on_violation": "drop"}]}, "rules.0.on_violation: Input should be"),
        ({"sinks": []}, "sinks: List should have at least 1 item"),
        ({"sinks": [{"type": "delta", "path": "x"}]}, "sinks.0: Input tag 'delta'"),
        ({"dead_letter": {"topic": "orders"}}, "must all name different topics"),
        ({"derive": {"id": "1"}}, "derive.id: the schema has a field of that name"),
        ({"derive": {"_key": "1"}}, "derive._key"),
        (
            {"sinks": [{"type": "parquet", "path": "x", "partition_by": ["month"]}]},
            "partition_by: no column 'month'",
        ),
        ({"rules": [{"name": "r", "expr": "true"}, {"name": "r", "expr": "false"}]}, "two rules have the same name"),
    ],
)
def test_what_is_wrong_is_named(tmp_path, change, reason):
    assert reason in refusal(tmp_path, {**document(), **change})


def test_a_missing_key_is_named(tmp_path):
    incomplete = document()
    del incomplete["dead_letter"]
    assert refusal(tmp_path, incomplete).endswith("orders.yaml: dead_letter: required")


def test_two_parquet_sinks_are_refused(tmp_path):
    both = document()
    both["sinks"] *= 2
    assert "exactly one parquet sink is needed" in refusal(tmp_path, both)


def test_yaml_cannot_make_python_objects(tmp_path):
    assert "not YAML" in refusal(tmp_path, "name: !!python/object/apply:os.getcwd []")


@pytest.mark.parametrize("content", ["- a list", "", "text"])
def test_a_file_that_is_no_mapping_is_refused(tmp_path, content):
    assert "must be a mapping" in refusal(tmp_path, content)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        load(tmp_path / "none.yaml", {})


def test_interpolation():
    environment = {"A": "1", "EMPTY": ""}
    assert interpolate({"x": ["${A}-${B:-two}", 3, None]}, environment) == {"x": ["1-two", 3, None]}
    assert interpolate("${EMPTY:-default}", environment) == "default"
    assert interpolate("$${A} costs $5", environment) == "${A} costs $5"


def test_interpolation_names_the_variable_that_is_missing():
    with pytest.raises(ConfigError, match="the environment variable LAKE is not set"):
        interpolate("${LAKE}/orders", {})


def test_a_variable_cannot_add_keys(tmp_path):
    evil = {**document(), "checkpoint": "${WHERE}"}
    config = load(write(tmp_path, evil), {"WHERE": "x\ndead_letter: {topic: other}"}).config
    assert config.checkpoint == "x\ndead_letter: {topic: other}"
    assert config.dead_letter.topic == "orders.dlq"
