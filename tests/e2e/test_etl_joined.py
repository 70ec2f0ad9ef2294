"""A joined table that is exchanged in the middle of a batch.

No output has null for a key that is in both tables. No record is refused by one try and good in the next one.
"""

import json
import os
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl.errors import OutputError, RunError  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from spark_etl.sinks import DeadLetters  # noqa: E402
from spark_etl.sinks.kafka_rows import KafkaRows  # noqa: E402
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
