"""A pipeline whose checkpoint and table are on Hadoop's file system: runs, failures, a new start and each command."""

import argparse

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl import logs, sinks  # noqa: E402
from spark_etl.checkpoint import Checkpoint  # noqa: E402
from spark_etl.cluster import Cluster  # noqa: E402
from spark_etl.commands import backfill, recover, replay_dlq, schema, status  # noqa: E402
from spark_etl.errors import RunError  # noqa: E402
from spark_etl.lake import LakeTable, maintenance  # noqa: E402
from spark_etl.run import batches  # noqa: E402
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


def test_the_commands(away: Etl) -> None:
    cluster = Cluster(away.servers)
    away.produce(1, "broken", 2, 3)
    away.run()
    away.produce(4)
    away.run()
    with cluster.admin(away.spark) as admin:
        assert (
            status.state(Checkpoint(f"{away.place}/checkpoint", away.spark), admin.end_offsets, away.pipeline)["lag"] == 0
        )
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
