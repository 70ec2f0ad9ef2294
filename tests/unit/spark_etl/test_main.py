"""The command without Spark: a wrong file or setting ends it with status 2 and one JSON line that says why."""

import json
import logging
import signal
import sys
from pathlib import Path

import pytest
from spark_etl import __main__, logs
from spark_etl.__main__ import main
from spark_etl.signals import Stopped

FLIGHTS = Path(__file__).parents[3] / "spark" / "pipelines" / "flights.yaml"


@pytest.fixture(autouse=True)
def signals_restored():
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def refusal(capsys: pytest.CaptureFixture[str]) -> dict:
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    return json.loads(lines[0])


def test_a_pipeline_file_with_an_unknown_key(tmp_path, capsys):
    path = tmp_path / "p.yaml"
    path.write_text(FLIGHTS.read_text().replace("trigger: available_now", "trigger: available_now\nretries: 3"))
    assert main(["run", str(path)]) == 2
    line = refusal(capsys)
    assert (line["level"], line["service"], line["event"]) == ("error", "spark-etl", "configuration refused")
    assert line["reason"] == f"{path}:7: retries: unknown key"


def test_run_may_be_left_out(tmp_path, capsys):
    assert main([str(tmp_path / "none.yaml")]) == 2
    assert refusal(capsys)["reason"].endswith("none.yaml: No such file or directory")


def test_a_setting_that_cannot_be(monkeypatch, capsys):
    monkeypatch.setenv("MILLRACE_ETL_DRIVER_MEMORY", "lots")
    assert main(["run", str(FLIGHTS)]) == 2
    assert refusal(capsys)["reason"].startswith("MILLRACE_ETL_DRIVER_MEMORY: String should match pattern")


def test_a_jars_folder_without_the_connector(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MILLRACE_ETL_JARS_DIR", str(tmp_path))
    assert main(["run", str(FLIGHTS)]) == 2
    assert refusal(capsys)["reason"] == (
        "MILLRACE_ETL_JARS_DIR: no *spark-sql-kafka-0-10*.jar, *delta-spark*.jar, *spark-avro*.jar, *postgresql*.jar "
        f"in {tmp_path}"
    )


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_signal_that_ends_a_call_of_java_is_no_failure(monkeypatch, capsys, failure):
    """py4j turns the end of its call into a failure, and a handler of PySpark interrupts."""

    def perform(*_arguments: object) -> int:
        try:
            signal.raise_signal(signal.SIGINT)
        except Stopped:
            raise failure from None
        return 0

    monkeypatch.setattr(__main__, "_perform", perform)
    assert main(["validate", str(FLIGHTS)]) == 128 + signal.SIGINT
    assert refusal(capsys)["event"] == "stopped"


def test_a_library_logs_lines_of_json_and_py4j_none(capsys):
    logs.configure("info")
    try:
        raise OSError("gone")
    except OSError:
        logging.getLogger("x").exception("failed")
        for module in ("/lib/py4j/java_gateway.py", "/lib/x.py"):
            record = logging.LogRecord("root", logging.ERROR, module, 1, "no %s", ("answer",), sys.exc_info())
            logging.getLogger().handle(record)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["event"] for line in lines] == ["failed", "no answer"]
    assert [line for line in lines if "exception" in line] == []


def test_a_status_that_needs_a_jvm_says_so(tmp_path, monkeypatch, capsys):
    for name, value in {"CHECKPOINT_DIR": "hdfs://127.0.0.1:1/c", "OUTPUT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(f"MILLRACE_ETL_{name}", value)
    monkeypatch.setenv("JAVA_HOME", "/none")
    assert main(["status", str(FLIGHTS)]) == 2
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["reason"].startswith("only Java can read the checkpoint hdfs://127.0.0.1:1/c")
    assert lines[1]["reason"].startswith("Spark needs Java 17 or later, and JAVA_HOME (/none) has no bin/java")


@pytest.mark.parametrize(
    ("name", "before", "after", "reason"),
    [
        ("orders.yaml", "name: orders\n", "name: orders\nretries: 3\n", ":3: retries: unknown key"),
        ("orders.json", '"integer"', '"integr"', ": properties.order_id.type: must be one of string,"),
        ("orders.yaml", "build/etl/checkpoints", "s3a://b", ":3: checkpoint: places on s3a:// are refused, as nothing"),
        (
            "orders.yaml",
            "rules:",
            "join: [{name: j, path: none, format: delta, on: {order_id: id}, select: {x: y}}]\nrules:",
            ":6: join.0.path: there is nothing at ",
        ),
    ],
)
def test_validate_names_faults_of_the_files_without_a_jvm(tmp_path, monkeypatch, capsys, name, before, after, reason):
    for each in ("orders.yaml", "orders.json"):
        (tmp_path / each).write_text((FLIGHTS.parents[2] / "examples" / "etl" / each).read_text())
    changed = (tmp_path / name).read_text().replace(before, after, 1)
    (tmp_path / name).write_text(changed)
    monkeypatch.setenv("JAVA_HOME", "/none")
    assert main(["validate", str(tmp_path / "orders.yaml")]) == 2
    assert refusal(capsys)["reason"].startswith(f"{tmp_path / name}{reason}")
