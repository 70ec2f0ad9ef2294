"""Topics and partitions that come and go between the plan of a batch and its end."""

import json
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from confluent_kafka.admin import NewPartitions, NewTopic  # noqa: E402
from spark_etl.batch import writer  # noqa: E402
from spark_etl.errors import IdentityError, RunError  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402

__all__ = ["broker", "etl"]

DIES = "the driver dies here"


def interrupted(etl: Etl, monkeypatch: pytest.MonkeyPatch, **given: Any) -> None:
    """Run until the files of the first batch are in place, and do not count."""

    def dies(*_arguments: object) -> None:
        raise RuntimeError(DIES)

    with monkeypatch.context() as patch:
        patch.setattr(writer.BatchWriter, "_metadata", dies)
        with pytest.raises(RunError, match=DIES):
            etl.run(**given)


def test_a_batch_is_repeated_although_its_topic_has_more_partitions_now(etl: Etl, monkeypatch) -> None:
    etl.produce(1, 2)
    interrupted(etl, monkeypatch)
    etl.admin.create_partitions([NewPartitions(etl.topic, 3)])[etl.topic].result(30)
    etl.produce(3, 4)
    assert etl.run() == Totals(batches=2, rows_in=4, rows_out=4)
    assert etl.ids() == [1, 2, 3, 4]


def test_a_topic_of_a_pattern_goes_before_the_batch_with_its_records_is_done(etl: Etl, monkeypatch) -> None:
    """The pipeline goes on. It never reads a new topic of the name from old offsets."""
    stays, goes = f"{etl.name}.t1", f"{etl.name}.t2"
    for topic in (stays, goes):
        etl.create(topic)
    etl.produce(1, 2, topic=stays)
    etl.produce(3, 4, topic=goes)
    etl.topics = []
    given = {"source": f", pattern: '{etl.name}[.]t.', on_data_loss: continue"}
    real = writer.BatchWriter._counted

    def counted(*arguments: Any) -> Any:
        if goes in etl.admin.list_topics(timeout=30).topics:
            etl.admin.delete_topics([goes])[goes].result(30)
        return real(*arguments)

    monkeypatch.setattr(writer.BatchWriter, "_counted", counted)
    assert etl.run(**given) == Totals(batches=1, rows_in=4, rows_out=4)
    assert etl.metadata()["topic_ids"].keys() == {stays, goes}
    monkeypatch.undo()
    etl.create(goes)
    etl.produce(10, 11, 12, 13, topic=goes)
    with pytest.raises(IdentityError, match=f"the topic {goes} was deleted and created again"):  # Spark has its offsets
        etl.run(**given)
    etl.admin.delete_topics([goes])[goes].result(30)
    etl.produce(5, topic=stays)
    assert etl.run(**given) == Totals(batches=1, rows_in=1, rows_out=1)
    assert (etl.metadata()["topic_ids"].keys(), etl.metadata()["created_again"]) == ({stays}, [goes])
    etl.create(goes)
    etl.produce(10, 11, 12, 13, topic=goes)
    assert etl.run(**given) == Totals(batches=1, rows_in=4, rows_out=4)
    assert etl.ids() == [1, 2, 3, 4, 5, 10, 11, 12, 13]


def test_batches_grow_although_they_have_fewer_records_than_offsets(etl: Etl) -> None:
    """Spark gives three partitions three of ten offsets each, so that no batch has ten records."""
    topic = f"{etl.name}.three"
    etl.admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    etl.topics = [topic]
    etl.produce(*range(30), topic=topic, partitions=3)
    assert etl.run(source=", max_bytes_per_trigger: 100000").rows_in == 30
    kept = json.loads((etl.folder / "checkpoint" / "_etl" / "record_size.json").read_text())
    assert 20 < kept["mean"] < 40
    assert etl.ids() == list(range(30))
