"""Marks of begun batches, and the documents of a checkpoint that they are kept in."""

import json
from datetime import UTC
from pathlib import Path

import pytest
from spark_etl.checkpoint import notes
from spark_etl.checkpoint.batches import Batches, BatchPlace
from spark_etl.checkpoint.notes import LocalNotes
from spark_etl.errors import OutputError

pytestmark = pytest.mark.etl

PLACE = BatchPlace.of("orders", "8f2c1d0a", 7)


def test_the_place_names_pipeline_and_query():
    assert (PLACE.query_id, PLACE.batch_id, PLACE.pipeline) == ("8f2c1d0a", 7, "orders")
    assert PLACE.app_id == "etl/orders/8f2c1d0a"
    assert PLACE.name == "8f2c1d0a-7"


def test_the_second_try_learns_when_the_first_began(tmp_path):
    assert Batches(LocalNotes(tmp_path / "_etl")).begun(PLACE) is None
    again = Batches(LocalNotes(tmp_path / "_etl"))  # another driver
    first = again.begun(PLACE)
    assert first is not None
    assert first.tzinfo == UTC
    assert again.begun(PLACE) == first  # the time of the first try stays
    assert again.begun(BatchPlace.of("orders", "8f2c1d0a", 8)) is None


def test_a_finished_batch_stays_finished(tmp_path):
    batches = Batches(LocalNotes(tmp_path / "_etl"))
    batches.begun(PLACE)
    assert not batches.is_finished(PLACE)
    batches.finished(PLACE)
    batches.finished(PLACE)
    assert Batches(LocalNotes(tmp_path / "_etl")).is_finished(PLACE)
    assert batches.is_finished(BatchPlace.of("orders", "8f2c1d0a", 6))
    assert not batches.is_finished(BatchPlace.of("orders", "8f2c1d0a", 8))
    assert not batches.is_finished(BatchPlace.of("orders", "77777777", 7))
    files = [path.relative_to(tmp_path / "_etl") for path in tmp_path.rglob("*") if path.is_file()]
    assert files == [Path("finished/8f2c1d0a.json")]


def test_the_records_of_finished_batches_are_summed_once(tmp_path):
    batches = Batches(LocalNotes(tmp_path / "_etl"))
    table, topic = {"in": 5, "out": 4, "dlq": 1}, {"in": 5, "out": 3, "dlq": 2}
    for _ in range(2):  # the driver died before Spark committed the batch
        batches.finished(PLACE, ["postgres:x"], {"delta:/t": table, "kafka:t": topic})
    batches.finished(BatchPlace.of("orders", "8f2c1d0a", 8), [], {"delta:/t": table})
    assert batches.rows("8f2c1d0a") == {"delta:/t": {"in": 10, "out": 8, "dlq": 2}, "kafka:t": topic}
    assert batches.rows("77777777") == {}
    assert batches.last_finished("8f2c1d0a") == (8, [])


def test_a_damaged_mark_is_refused(tmp_path):
    batches = Batches(LocalNotes(tmp_path / "_etl"))
    batches.begun(PLACE)
    path = tmp_path / "_etl" / "begun" / "8f2c1d0a-7.json"
    path.write_text("{}")
    with pytest.raises(OutputError, match="the mark of batch 8f2c1d0a-7 has no valid time"):
        batches.begun(PLACE)
    path.write_text("{")
    with pytest.raises(OutputError, match=r"8f2c1d0a-7\.json: not JSON"):
        batches.begun(PLACE)
    path.write_text("[]")
    with pytest.raises(OutputError, match=r"8f2c1d0a-7\.json: not an object"):
        batches.begun(PLACE)


def test_a_document_that_was_not_finished_does_not_count(tmp_path):
    documents = LocalNotes(tmp_path / "_etl")
    documents.write("identity", {"cluster": "a"})
    (tmp_path / "_etl" / "identity.partial").write_text('{"clus')
    assert documents.read("identity") == {"cluster": "a"}
    assert json.loads((tmp_path / "_etl" / "identity.json").read_text()) == {"cluster": "a"}


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/data/x", Path("/data/x")),
        ("file:/data/x", Path("/data/x")),
        ("file:///data/x", Path("/data/x")),
        ("s3a://bucket/x", None),
        ("hdfs://host:9000/x", None),
    ],
)
def test_locations(location, expected):
    assert notes.local_path(location) == expected


def test_a_relative_location_becomes_absolute_and_a_remote_one_stays(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert notes.absolute("build/x") == str(tmp_path / "build" / "x")
    assert notes.absolute("s3a://bucket/x/") == "s3a://bucket/x"
