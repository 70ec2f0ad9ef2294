"""A pipeline file is refused with the place and the reason, before anything starts."""

import json
from pathlib import Path

import pytest
import yaml
from spark_etl.config import interpolate, load
from spark_etl.errors import ConfigError
from spark_etl.settings import Variables
from support.pipelines import pipeline

FLIGHTS = Path(__file__).parents[3] / "spark" / "pipelines" / "flights.yaml"
SCHEMA = '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "day": {"type": "string"}}}'


def document() -> dict:
    return {
        "apiVersion": "etl/v1",
        "name": "orders",
        "checkpoint": "checkpoints/orders",
        "source": {"topics": ["orders"]},
        "decode": {"format": "json", "schema": "orders.json"},
        "sinks": [{"type": "delta", "path": "lake/orders", "partition_by": ["day"]}],
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
    assert config.source.max_offsets_per_trigger == 2_000_000
    assert config.table.partition_by == ["flight_month"]
    assert config.table.path == str(FLIGHTS.parents[2] / "build/etl/lake/flights")
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
    assert (config.table.path, config.source.max_offsets_per_trigger, config.metrics.port) == (
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
        ({"duplicates": {"keys": ["id"]}}, ": duplicates: unknown key"),
        ({"source": {"topics": ["orders"], "connector": "kafka"}}, "source.connector: unknown key"),
        ({"source": {"topics": []}}, ": source: either topics or pattern is needed"),
        ({"source": {"topics": ["or ders"]}}, "source.topics.0: String should match pattern"),
        ({"trigger": "continuous"}, "trigger: Input should be 'available_now'"),
        ({"apiVersion": "etl/v2"}, "apiVersion: Input should be 'etl/v1'"),
        ({"name": None}, "name: Input should be a valid string"),
        ({"rules": [{"name": "r", "expr": "true", "on_violation": "log"}]}, "rules.0.on_violation: Input should be"),
        ({"sinks": []}, "sinks: List should have at least 1 item"),
        ({"sinks": [{"type": "iceberg", "path": "x"}]}, "sinks.0: Input tag 'iceberg'"),
        ({"dead_letter": {"topic": "orders"}}, "must all name different topics"),
        ({"derive": {"id": "1"}}, "derive.id: the schema has a field of that name"),
        ({"derive": {"_key": "1"}}, "derive._key"),
        (
            {"sinks": [{"type": "delta", "path": "x", "partition_by": ["month"]}]},
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
    assert refusal(tmp_path, incomplete).endswith("orders.yaml:1: dead_letter: required")


@pytest.mark.parametrize("other", ["{0}/lake/orders", "file:{0}/lake/orders", "{0}/lake", "lake/orders/large"])
def test_a_table_in_the_folder_of_another_is_refused(tmp_path, other):
    both = document()
    both["sinks"].append({"type": "delta", "path": other.format(tmp_path)})
    assert refusal(tmp_path, both).endswith(
        f": sinks.1.path: two sinks write to the same folder, {tmp_path}/lake/orders"
    )


@pytest.mark.parametrize("checkpoint", ["{0}/lake/orders", "file:{0}/lake/orders/state", "lake/orders/state/x"])
def test_a_checkpoint_in_the_folder_of_a_table_is_refused(tmp_path, checkpoint):
    found = refusal(tmp_path, {**document(), "checkpoint": checkpoint.format(tmp_path)})
    assert found.endswith(
        f": checkpoint: it is in the folder of a table, {tmp_path}/lake/orders, which removes other files"
    )


def test_the_first_table_of_all_rows_comes_first(tmp_path):
    several = document()
    several["sinks"] = [
        {"type": "delta", "path": "a", "where": "id > 1"},
        {"type": "delta", "path": "b", "columns": ["id"]},
        {"type": "delta", "path": "c"},
        {"type": "delta", "path": "d"},
    ]
    config = load(write(tmp_path, several), {}).config
    assert config.table is config.sinks[2]
    assert config.beside == [config.sinks[number] for number in (0, 1, 3)]


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        (
            {"columns": ["id"], "partition_by": ["day"]},
            "columns must have those of keys, order_by, partition_by and statistics",
        ),
        ({"columns": ["id"], "mode": "upsert", "keys": ["day"]}, "columns must have those of keys"),
        (
            {"columns": ["id"], "mode": "upsert", "keys": ["id"], "envelope": "debezium"},
            "columns are for rows, not for an envelope",
        ),
        ({"where": ""}, "sinks.0.where: String should have at least 1 character"),
    ],
)
def test_a_choice_that_does_not_fit_the_sink_is_refused(tmp_path, sink, reason):
    assert reason in refusal(tmp_path, {**document(), "sinks": [{"type": "delta", "path": "x", **sink}]})


def test_an_aggregate_of_a_table_needs_one_of_all_rows(tmp_path):
    partial = {"type": "delta", "path": "x", "where": "id > 1"}
    total = {"type": "kafka", "topic": "sums", "aggregate": {"group_by": ["day"], "select": {"n": "count(*)"}}}
    reason = "sinks.1.aggregate: without window, it is of a delta sink that takes all rows"
    assert reason in refusal(tmp_path, {**document(), "sinks": [partial, total]})


@pytest.mark.parametrize("scheme", ["s3a", "S3", "s3n", "gs", "abfss", "wasb", "viewfs", "webhdfs"])
def test_places_without_locks_are_refused_with_the_reason(tmp_path, scheme):
    """Delta's store for S3 looks for an entry of the log and then writes it: two runs could both do so."""
    place = f"{scheme}://bucket/orders"
    reason = f"places on {scheme}:// are refused, as nothing there keeps two runs from writing at once"
    assert f"2: checkpoint: {reason}" in refusal(tmp_path, {**document(), "checkpoint": place})
    table = {**document(), "sinks": [{"type": "delta", "path": place}]}
    assert f": sinks.0.path: {reason}" in refusal(tmp_path, table)
    join = {"name": "j", "path": place, "format": "parquet", "on": {"id": "id"}, "select": {"more": "name"}}
    assert load(write(tmp_path, {**document(), "join": [join]}), {}).config.join[0].path == place


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


def test_a_variable_can_be_the_text_of_a_file(tmp_path):
    (tmp_path / "login").write_text("a secret\n")
    variables = Variables({"LOGIN_FILE": str(tmp_path / "login"), "NONE_FILE": str(tmp_path / "none"), "SET": "1"})
    assert interpolate(["${LOGIN}", "${SET}", "${OTHER:-2}"], variables) == ["a secret", "1", "2"]
    assert interpolate("${LOGIN}", Variables({"LOGIN": "set", "LOGIN_FILE": "/none"})) == "set"
    with pytest.raises(ConfigError, match=r"NONE_FILE: .*none: No such file or directory"):
        interpolate("${NONE:-default}", variables)
    (tmp_path / "login").write_bytes(b"a\xff")
    with pytest.raises(ConfigError, match=r"LOGIN_FILE: .* is not UTF-8"):
        interpolate("${LOGIN}", variables)


def test_a_variable_cannot_add_keys(tmp_path):
    evil = {**document(), "checkpoint": "${WHERE}"}
    config = load(write(tmp_path, evil), {"WHERE": "x\ndead_letter: {topic: other}"}).config
    assert config.checkpoint == f"{tmp_path}/x\ndead_letter: {{topic: other}}"
    assert config.dead_letter.topic == "orders.dlq"


LINES = """apiVersion: etl/v1
name: orders
checkpoint: here
source:
  topics: [orders]
decode: {format: json, schema: orders.json}
derive:
  month: substring(day, 1, 7)
sinks:
  - type: delta
    path: lake
    partition_by: [month]
dead_letter:
  topic: orders.dlq
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("  topic: orders.dlq", "  topic: orders.dlq\n  size: 3", "15: dead_letter.size: unknown key"),
        ("    path: lake", "    path: ''", "11: sinks.0.path: String should have at least 1 character"),
        ("    path: lake\n", "", "10: sinks.0.path: required"),
        ("  topics: [orders]", "  topics: [orders]\n  topics: [two]", "6: the key topics appears twice"),
        ("  topics: [orders]", "  topics: [orders", "6: not YAML: expected ',' or ']', but got ':'"),
        ("checkpoint: here", "checkpoint: ${HERE}", "3: checkpoint: the environment variable HERE is not set and "),
        ("  topic: orders.dlq", "  topic: orders", "14: dead_letter.topic: source, sinks and dead_letter must all "),
        ("partition_by: [month]", "partition_by: [year]", "12: sinks.0.partition_by: no column 'year' in the schema"),
        ("  topics: [orders]", "  pattern: '['", "5: source.pattern: not a regular expression: unterminated"),
        ("  topics: [orders]", "  pattern: '[a-z&&[^b]]'", "5: source.pattern: not a regular expression: Possible"),
    ],
)
def test_an_error_has_its_line(tmp_path, old, new, expected):
    assert LINES.count(old) == 1
    assert refusal(tmp_path, LINES.replace(old, new)).startswith(f"{tmp_path}/orders.yaml:{expected}")


def test_secrets_are_never_printed(tmp_path):
    text = LINES + "kafka: {security.protocol: SASL_SSL, sasl.jaas.config: '${JAAS}'}\n"
    pipeline = load(write(tmp_path, text), {"JAAS": "hunter2"})
    assert "hunter2" not in repr(pipeline) + str(pipeline) + pipeline.config.model_dump_json()
    assert pipeline.config.kafka.properties == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "hunter2"}
    refused = refusal(tmp_path, LINES + "kafka: {sasl.jaas.config: [hunter2]}\n")
    assert "hunter2" not in refused
    assert "only options that begin with security., sasl. or ssl." in refusal(
        tmp_path, LINES + "kafka: {group.id: mine}\n"
    )


def test_words_of_yaml_stay_texts_and_a_share_is_exact(tmp_path):
    """`on` is a key of joins, and 7 of 1,000 records are not more than 0.7%."""
    (tmp_path / "orders.json").write_text(SCHEMA)
    path = tmp_path / "orders.yaml"
    join = "{name: no, path: days.csv, format: csv, schema: code STRING, on: {day: code}, select: {off: code}}"
    text = yaml.safe_dump({**document(), "max_refused": "0.7%"}) + f"join: [{join}]\n"
    path.write_text(text)
    config = load(path, {}).config
    assert config.join[0].on == {"day": "code"}
    assert (config.join[0].name, list(config.join[0].select)) == ("no", ["off"])
    assert config.max_refused == 7 / 1_000


def test_a_warning_comes_before_the_end(tmp_path):
    both = {"max_refused": "5%", "warn_refused": "5%"}
    assert refusal(tmp_path, {**document(), **both}).endswith(
        ": warn_refused: must be less than max_refused, which ends the run"
    )
    config = load(write(tmp_path, {**document(), **both, "warn_refused": "4.9%"}), {}).config
    assert (config.warn_refused, config.max_refused) == (0.049, 0.05)


def test_a_file_of_no_text_is_refused_in_one_line(tmp_path):
    reason = refusal(tmp_path, "name: a\0b")
    assert "not YAML: unacceptable character #x0000" in reason
    assert "\n" not in reason


def test_two_sinks_of_one_table_are_refused(tmp_path):
    sink = {"type": "postgres", "url": "jdbc:postgresql://db/shop", "table": "orders"}
    reason = refusal(tmp_path, {**document(), "sinks": [sink, {**sink, "columns": ["id"]}]})
    assert reason.endswith(": sinks.1.table: two sinks write the same table")


def test_relative_places_count_from_the_file(tmp_path, monkeypatch):
    """A checkpoint where an earlier build kept it, counted from the working folder, is found, and the run refused."""
    folder, work = tmp_path / "pipelines", tmp_path / "work"
    folder.mkdir()
    work.mkdir()
    monkeypatch.chdir(work)
    join = {"name": "j", "path": "../dim.parquet", "format": "parquet", "on": {"id": "id"}, "select": {"n": "n"}}
    sinks = [{"type": "delta", "path": "lake"}]
    document = {"checkpoint": "build/checkpoint", "join": [join], "sinks": sinks}
    config = pipeline(folder, **document).config
    places = [config.checkpoint, config.join[0].path, config.table.path]
    assert places == [f"{folder}/build/checkpoint", f"{tmp_path}/dim.parquet", f"{folder}/lake"]
    for place, name in (("build/checkpoint", "checkpoint"), ("lake", "sinks.0.path")):
        (work / place).mkdir(parents=True)
        with pytest.raises(ConfigError) as refused:
            pipeline(folder, **document)
        text = str(refused.value)
        assert f"{name}: relative places count from this file, and there is nothing at {folder}/{place}" in text
        assert f"move {work}/{place} to that place" in text
        (folder / place).mkdir(parents=True)
    assert pipeline(folder, **document).config == config
    hadoop = pipeline(folder, **{**document, "checkpoint": "hdfs://n/c"}).config
    assert hadoop.checkpoint == "hdfs://n/c"


def test_a_property_has_the_column_of_its_name(tmp_path):
    properties = {"US Gross": {"type": "integer"}, "_links": {"type": "object", "properties": {"US Gross": {}}}}
    (tmp_path / "films.json").write_text(json.dumps({"type": "object", "properties": properties}))
    decode = {"format": "json", "schema": "films.json"}
    named = {**document(), "decode": {**decode, "names": {"US Gross": "gross", "_links": "links"}}}
    named["sinks"] = [{"type": "console"}]
    named["rules"] = []
    assert load(write(tmp_path, named), {}).names == ["gross", "links"]
    named["decode"] = decode
    assert 'decode.names, such as {"US Gross": US_Gross, "_links": links}' in refusal(tmp_path, named)
    named["decode"] = {**decode, "names": {"US Gross": "gross", "_links": "links", "other": "more"}}
    assert "decode.names: no schema has the property 'other'" in refusal(tmp_path, named)
    named["decode"] = {**decode, "names": {"US Gross": "_gross"}}
    assert "decode.names.US Gross: String should match" in refusal(tmp_path, named)
    named["decode"] = {"format": "raw", "names": {"a": "b"}}
    assert "names are only for JSON" in refusal(tmp_path, named)
