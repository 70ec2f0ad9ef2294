"""A joined table that is exchanged in the middle of a batch.

No output has null for a key that is in both tables. No record is refused by one try and good in the next one.
"""

import json
import os
import shutil
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl.commands import recover  # noqa: E402
from spark_etl.errors import OutputError, RunError  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from spark_etl.sinks import DeadLetters  # noqa: E402
from spark_etl.sinks.kafka_rows import KafkaRows  # noqa: E402
from spark_etl.sinks.windows import WindowTopic  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

BEFORE = "code,name\nDE,Germany\nFR,France\n"
AFTER = "code,name\nDE,Federal Republic of Germany\nFR,France\nIT,Italy\n"
TABLE = "name: names, path: names.csv, format: csv, schema: 'code STRING, name STRING', on: {kind: code}"


def joined(unmatched: str = "keep") -> str:
    return f"join: [{{{TABLE}, select: {{country: name}}, unmatched: {unmatched}}}]"


def exchange(etl: Etl, text: str) -> None:
    names = etl.folder / "names.csv"
    names.with_suffix(".new").write_text(text)
    names.with_suffix(".new").rename(names)


def produce(etl: Etl, *kinds: str) -> None:
    etl.produce(*(json.dumps({"id": number, "kind": kind}) for number, kind in enumerate(kinds)))


def exchanging(etl: Etl, patch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
    """Exchange the table before the first call of a function."""
    real = getattr(owner, name)

    def first(*arguments: Any) -> Any:
        exchange(etl, AFTER)
        patch.setattr(owner, name, real)
        return real(*arguments)

    patch.setattr(owner, name, first)


def fails(*_arguments: object) -> None:
    raise RuntimeError("not today")


def test_every_output_reads_the_same_table(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is exchanged between two outputs."""
    exchange(etl, BEFORE)
    produce(etl, "DE", "FR")
    exchanging(etl, monkeypatch, KafkaRows, "write")
    topic = f"{etl.name}.rows"
    etl.run(sink=f"- {{type: kafka, topic: {topic}}}", sections=joined())
    assert sorted(json.loads(value or "")["country"] for _, value in etl.read(topic)) == ["France", "Germany"]


def test_a_batch_is_not_judged_again_with_another_table(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has the batch without IT, which was refused. It would be no letter with the new file."""
    exchange(etl, BEFORE)
    before = etl.folder / "names.csv"
    kept = before.stat()
    produce(etl, "DE", "IT")
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "write", fails)
        with pytest.raises(RunError, match="not today"):
            etl.run(sections=joined("dlq"))
    exchange(etl, AFTER)
    with pytest.raises(OutputError, match=r"^batch 0 is in the table as joined with earlier files, and .*/names\.csv"):
        etl.run(sections=joined("dlq"))
    assert etl.read(etl.letters) == []
    exchange(etl, BEFORE)
    os.utime(before, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # wall clock: the file before its exchange
    assert etl.run(sections=joined("dlq")) == Totals()
    assert (etl.ids(), [key for key, _ in etl.read(etl.letters)]) == ([0], [json.dumps({"id": 1, "kind": "IT"})])
    exchange(etl, AFTER)
    produce(etl, "IT")
    assert etl.run(sections=joined("dlq")) == Totals(batches=1, rows_in=1, rows_out=1)


@pytest.mark.parametrize("dedupe", [False, True], ids=["rows", "dedupe"])
def test_a_recovered_batch_is_not_judged_again_with_another_table(
    etl: Etl, monkeypatch: pytest.MonkeyPatch, dedupe: bool
) -> None:
    """The commit of the table says which tables judged it: the marks are lost with the checkpoint."""
    exchange(etl, BEFORE)
    before = etl.folder / "names.csv"
    kept = before.stat()
    produce(etl, "DE", "IT")
    step = "\ndedupe: {keys: [id], within: 1 day}" if dedupe else ""
    options = {
        "sections": joined("dlq") + step,
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}" if dedupe else "",
    }
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "write", fails)
        with pytest.raises(RunError, match="not today"):
            etl.run(**options)
    shutil.rmtree(etl.folder / "checkpoint")
    recover.recover(etl.spark, etl.pipeline)
    exchange(etl, AFTER)
    with pytest.raises(OutputError, match=r"^batch 0 is in the table as joined with earlier files, and .*/names\.csv"):
        etl.run(**options)
    exchange(etl, BEFORE)
    os.utime(before, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # wall clock: the file before its exchange
    etl.run(**options)
    assert (etl.ids(), [key for key, _ in etl.read(etl.letters)]) == ([0], [json.dumps({"id": 1, "kind": "IT"})])


def test_windows_that_a_topic_has_are_not_made_again_with_another_table(
    etl: Etl, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has the windows, and Spark not their batch: a record would count for two countries."""
    exchange(etl, BEFORE)
    before = etl.folder / "names.csv"
    kept = before.stat()
    produce(etl, "DE", "FR")
    topic = f"{etl.name}.win"
    aggregate = "{window: 10000 days, group_by: [country], select: {n: count(*)}}"
    options = {
        "table": False,
        "sink": f"- {{type: kafka, topic: {topic}, aggregate: {aggregate}}}",
        "sections": joined(),
        "decode": ", timestamp: {field: _timestamp, watermark: 1 minute}",
    }
    with monkeypatch.context() as patch:
        patch.setattr(WindowTopic, "_counted", fails)
        with pytest.raises(RunError, match="Python Proxy"):
            etl.run(**options)
    assert len(etl.read(topic)) == 2
    exchange(etl, AFTER)
    with pytest.raises(OutputError, match=rf"^batch 0 is in kafka:{topic} as joined with earlier files, and .*names"):
        etl.run(**options)
    exchange(etl, BEFORE)
    os.utime(before, ns=(kept.st_atime_ns, kept.st_mtime_ns))  # wall clock: the file before its exchange
    etl.run(**options)
    found = sorted((json.loads(value or "")["country"], json.loads(value or "")["n"]) for _, value in etl.read(topic))
    assert found == [("France", 1), ("Germany", 1)]


def test_a_batch_that_no_output_has_takes_the_new_table(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    exchange(etl, BEFORE)
    produce(etl, "DE", "IT")
    topic = f"{etl.name}.rows"
    given = {"table": False, "sink": f"- {{type: kafka, topic: {topic}}}", "sections": joined("dlq")}
    with monkeypatch.context() as patch:
        patch.setattr(DeadLetters, "write", fails)
        with pytest.raises(RunError, match="not today"):
            etl.run(**given)
    exchange(etl, AFTER)
    assert etl.run(**given) == Totals(batches=1, rows_in=2, rows_out=2)
    assert etl.read(etl.letters) == []
