"""Two runs of a pipeline at once, and two replays: the runner refuses the second one without a table, too."""

import argparse
import threading
from typing import Any

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(600)]

from spark_etl import logs  # noqa: E402
from spark_etl.batch import writer  # noqa: E402
from spark_etl.commands import replay_dlq  # noqa: E402
from spark_etl.errors import OutputError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.lake.locks import checkpoint_lock  # noqa: E402
from support.etl_runs import Etl, broker, etl, until  # noqa: E402

__all__ = ["broker", "etl"]


def replay(etl: Etl, to: str) -> dict[str, Any]:
    command = replay_dlq.Command(etl.spark, Cluster(etl.servers), etl.pipeline, logs.get())
    choice = {"stage": None, "rule": None, "from_": None, "until_": None}
    return command.replay(argparse.Namespace(to=to, **choice))


def test_a_second_run_without_a_table_is_refused(etl: Etl, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would write the same batch of records to the sinks."""
    monkeypatch.setattr("spark_etl.lake.locks.DRIVER_WAIT_SECONDS", 0.0)
    topic = f"{etl.name}.rows"
    given = {"table": False, "sink": f"- {{type: kafka, topic: {topic}}}"}
    real = writer.BatchWriter.write
    entered, may_go_on = threading.Event(), threading.Event()

    def write(*arguments: Any) -> Any:
        entered.set()
        may_go_on.wait(300)
        return real(*arguments)

    monkeypatch.setattr(writer.BatchWriter, "write", write)
    etl.produce(1, 2, "broken")
    first = threading.Thread(target=etl.run, kwargs=given)
    first.start()
    try:
        until(entered.is_set)
        refusal = r"/checkpoint: another run uses this checkpoint; stop it first$"
        with pytest.raises(OutputError, match=refusal):
            etl.run(**given)
        with pytest.raises(OutputError, match=refusal):
            replay(etl, "sinks")
    finally:
        may_go_on.set()
        first.join(300)
    assert len(etl.read(topic)) == 2
    assert replay(etl, "sinks")["letters"] == 1
    with (
        checkpoint_lock(etl.spark, f"{etl.folder}/checkpoint", "replay"),
        pytest.raises(OutputError, match=r"/checkpoint: another replay uses this checkpoint; stop it first$"),
    ):
        replay(etl, "source")
    etl.produce(3)
    assert etl.run(**given).rows_out == 1
