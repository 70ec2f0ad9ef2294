"""An expression that a record makes fail: the run ends at once, with the place of the expression in the file."""

from pathlib import Path

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(300)]

from millrace import Broker  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from spark_etl.errors import RunError, StatementError  # noqa: E402
from support.etl_runs import Etl  # noqa: E402

STATEMENTS = ["SELECT id, kind FROM input", "SELECT id, to_json(parse_json(kind)) AS kind FROM input"]


def test_a_statement_that_a_record_makes_fail_is_named(tmp_path: Path, spark: SparkSession, monkeypatch) -> None:
    with Broker() as broker:
        etl = Etl(tmp_path, broker.bootstrap_servers, spark)
        etl.produce(1, 2)
        transform = "transform:\n" + "".join(f'  - {{sql: "{text}"}}\n' for text in STATEMENTS)
        forever = "trigger: {processing_time: 1 second}\n"
        with pytest.raises(StatementError) as failed:
            etl.run(once=False, sections=forever + "derive: {two: id * 2}\n" + transform)
        place = f"{tmp_path}/pipeline.yaml:16: transform.1.sql: "
        assert str(failed.value).startswith(f"{place}JsonParseException: Unrecognized token 'k")
        assert str(failed.value).endswith(" (a record makes it fail)")
        assert "\n" not in str(failed.value)
        assert etl.work.totals.restarts == 0

        wrong = "derive: {two: id * 2, parts: \"split(kind, concat(kind, '['))[0]\"}\n"
        rule = "rules: [{name: fine, expr: parts <> ''}]\n"
        with pytest.raises(StatementError, match=r"pipeline\.yaml:\d+: derive\.parts: PatternSyntaxException: [^\n]+$"):
            etl.run(sections=wrong + rule)

        (tmp_path / "kinds.csv").write_text("name,text\nk0,{}\nk1,k\n")
        table = f'name: kinds, path: {tmp_path}/kinds.csv, format: csv, schema: "name string, text string"'
        on = "on: {of: name}, select: {made: to_json(parse_json(text))}"
        joined = f"derive: {{of: trim(kind), shown: upper(made)}}\njoin: [{{{table}, {on}}}]\n"
        with pytest.raises(StatementError, match=r"pipeline\.yaml:\d+: join\.0: JsonParseException: [^\n]+$"):
            etl.run(sections=joined + rule.replace("parts", "shown"))

        def dies(*_arguments: object) -> None:
            spark.sql("SELECT raise_error('boom')").collect()

        monkeypatch.setattr("spark_etl.batch.writer.BatchWriter.write", dies)
        with pytest.raises(RunError, match=r"^\[USER_RAISED_EXCEPTION\] boom") as failed_elsewhere:
            etl.run(sections="derive: {two: id * 2}\n")
        assert not isinstance(failed_elsewhere.value, StatementError)
