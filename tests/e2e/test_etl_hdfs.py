"""A pipeline whose checkpoint and table are on Hadoop's file system: runs, failures, a new start and each command."""

import argparse
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from pyspark.sql import SparkSession  # noqa: E402
from spark_etl import logs, sinks  # noqa: E402
from spark_etl.batch import writer  # noqa: E402
from spark_etl.checkpoint import batches  # noqa: E402
from spark_etl.checkpoint.offsets import Checkpoint  # noqa: E402
from spark_etl.commands import backfill, recover, replay_dlq, schema, status  # noqa: E402
from spark_etl.errors import OutputError, RunError  # noqa: E402
from spark_etl.jvm import session  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake import LakeTable, locks, maintenance  # noqa: E402
from spark_etl.run.accounts import Totals  # noqa: E402
from support.etl_runs import Etl, broker, etl  # noqa: E402
from support.hdfs import Hdfs, hdfs  # noqa: E402

__all__ = ["broker", "etl", "hdfs"]


def dies(*_arguments: object) -> None:
    raise RuntimeError("the driver dies here")


@pytest.fixture
def away(etl: Etl, hdfs: Hdfs) -> Etl:
    etl.place = hdfs.folder(etl.name)
    return etl


def remove(etl: Etl, name: str) -> None:
    path = etl.spark._jvm.org.apache.hadoop.fs.Path(f"{etl.place}/{name}")
    assert path.getFileSystem(etl.spark._jsc.hadoopConfiguration()).delete(path, True)


@pytest.mark.parametrize(
    "place", [(sinks.DeadLetters, "write"), (batches.Batches, "finished")], ids=["letters", "finished"]
)
def test_a_batch_that_was_interrupted_is_finished_once(
    away: Etl, monkeypatch: pytest.MonkeyPatch, place: tuple[type, str]
) -> None:
    away.produce(1, 2)
    assert away.run(summary=True) == Totals(batches=1, rows_in=2, rows_out=2, summaries=2)
    away.produce(3, "broken", 4)
    with monkeypatch.context() as patch:
        patch.setattr(*place, dies)
        with pytest.raises(RunError, match="the driver dies here"):
            away.run(summary=True)
    away.run(summary=True)
    assert away.ids() == [1, 2, 3, 4]
    assert [key for key, _ in away.read(away.letters)] == ["broken"]
    assert away.run(summary=True) == Totals()
    assert not list(away.folder.glob("**/_etl"))


def test_a_topic_that_was_created_again(away: Etl) -> None:
    away.produce(1, 2)
    away.run()
    away.delete()
    away.create()
    away.produce(3)
    assert away.run(source=", on_topic_change: restart").rows_in == 1
    away.produce(4)
    assert away.run(source=", on_topic_change: restart").rows_in == 1
    assert away.ids() == [1, 2, 3, 4]


def test_a_second_run_is_refused(away: Etl, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write the same batch to topics, and plan batches of the same numbers. Locks of files end at a host."""
    monkeypatch.setattr(locks, "LEASE_WAIT_SECONDS", 0.0)
    checkpoint, table = f"{away.place}/checkpoint", f"{away.place}/table"
    away.produce(1, 2)
    for place, refusal in (
        (f"{checkpoint}.run.lock", f"^{checkpoint}: another run uses this checkpoint; stop it first$"),
        (f"{table}/_etl/driver.lock", f"^{table}: another driver writes here; stop the pipeline's other run first$"),
    ):
        with hdfs.held(place), pytest.raises(OutputError, match=refusal):  # by another JVM
            away.run()
        with locks.checkpoint_lock(away.spark, checkpoint, "replay"):  # which excludes no run
            away.produce(3)
    assert away.run().rows_in == 4
    choice = argparse.Namespace(to="source", stage=None, rule=None, from_=None, until_=None)
    with (
        locks.checkpoint_lock(away.spark, checkpoint, "replay"),  # by the same JVM
        pytest.raises(OutputError, match=f"^{checkpoint}: another replay uses this checkpoint; stop it first$"),
    ):
        replay_dlq.Command(away.spark, Cluster(away.servers), away.pipeline, logs.get()).replay(choice)
    lake = LakeTable.existing(away.spark, away.pipeline.config.table)
    with (
        hdfs.held(f"{table}/_etl/command.lock"),
        pytest.raises(OutputError, match=f"^{table}: another command works on this table$"),
    ):
        maintenance.compact(away.spark, lake, 24.0)


def test_the_lock_of_a_client_that_died_is_free_after_its_lease(away: Etl, hdfs: Hdfs) -> None:
    place = f"{away.place}/checkpoint"
    with hdfs.held(f"{place}.run.lock"), hdfs.short_leases(), locks.checkpoint_lock(away.spark, place, "run"):
        lock = locks.lock_at(away.spark, f"{place}.run.lock")
        assert not lock.take(0.0)


@pytest.mark.parametrize("lock", ["checkpoint.run.lock", "table/_etl/driver.lock"])
@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_a_driver_that_has_lost_its_lock_commits_nothing(
    away: Etl, hdfs: Hdfs, monkeypatch: pytest.MonkeyPatch, lock: str, mode: str
) -> None:
    """It stood still for a minute, and another run may be at work by now."""
    table = f"- {{type: delta, path: {away.place}/table, mode: upsert, keys: [id]}}"
    upsert: dict[str, Any] = {"table": False, "sink": table} if mode == "upsert" else {}
    away.produce(1, 2)
    away.run(**upsert)
    away.produce(3, "broken")
    counted = writer.BatchWriter._counted

    def late(self: writer.BatchWriter, *arguments: Any) -> Any:
        hdfs.take(f"{away.place}/{lock}")
        return counted(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(writer.BatchWriter, "_counted", late)
        with pytest.raises(OutputError, match=rf"^{away.place}/{lock}: this driver has lost its lock"):
            away.run(**upsert)
    assert away.ids() == [1, 2]
    assert away.read(away.letters) == []
    assert away.run(**upsert).rows_in == 2
    assert away.ids() == [1, 2, 3]


def test_a_path_without_a_scheme_is_local(spark: SparkSession, hdfs: Hdfs) -> None:
    """Else Spark's part of a checkpoint would be on HDFS, and locks and notes on the local disk."""
    spark._jsc.hadoopConfiguration().set("fs.defaultFS", hdfs.url)
    session.set_files(spark)
    assert spark._jvm.org.apache.hadoop.fs.FileSystem.get(spark._jsc.hadoopConfiguration()).getScheme() == "file"


def test_the_commands(away: Etl) -> None:
    cluster = Cluster(away.servers)
    away.produce(1, "broken", 2, 3)
    away.run()
    away.produce(4)
    away.run()
    with cluster.admin(away.spark) as admin:
        checkpoint = Checkpoint(f"{away.place}/checkpoint", away.spark)
        assert status.state(checkpoint, admin.end_offsets, away.pipeline)["lag"] == 0
    assert schema.report(away.spark, away.pipeline)[1] == 0
    table = LakeTable.existing(away.spark, away.pipeline.config.table)
    assert maintenance.summary(maintenance.compact(away.spark, table, 24.0))["files_after"] == 1
    assert away.ids() == [1, 2, 3, 4]
    done = backfill.backfill(away.spark, away.servers, away.pipeline, 0, 1)
    assert (done["rows_in"], done["rows_out"], done["rows_dlq"]) == (2, 1, 1)
    assert away.ids() == [1, 2, 3, 4]

    remove(away, "checkpoint")
    recover.recover(away.spark, away.pipeline)
    away.produce(5)
    assert away.run().rows_in == 1
    assert away.ids() == [1, 2, 3, 4, 5]

    choice = argparse.Namespace(to="source", stage=None, rule=None, from_=None, until_=None)
    for letters in (1, 0):
        replayed = replay_dlq.Command(away.spark, cluster, away.pipeline, logs.get()).replay(choice)
        assert replayed["letters"] == letters
