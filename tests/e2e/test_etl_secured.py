"""A driver against Apache Kafka with TLS and logins: source, sinks, administration and group; it shows no secret."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic
from uuid import uuid4

import pytest

pytestmark = [pytest.mark.etl, pytest.mark.timeout(400)]

from confluent_kafka import ConsumerGroupTopicPartitions, Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from millrace.ports import Reservation  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from spark_etl import logs  # noqa: E402
from spark_etl.config import load  # noqa: E402
from spark_etl.errors import ClusterError  # noqa: E402
from spark_etl.kafka.cluster import Cluster  # noqa: E402
from spark_etl.kafka.ends import client_of, end_offsets  # noqa: E402
from spark_etl.metrics import Metrics  # noqa: E402
from spark_etl.run.pipeline_run import Run  # noqa: E402
from support.etl_runs import until  # noqa: E402
from support.kafka_broker import PASSWORD, USER, ApacheKafka  # noqa: E402
from support.spark_session import QUICK_JAVA  # noqa: E402

MECHANISMS = {"SCRAM-SHA-512": ("SASL_SSL", "scram.Scram"), "PLAIN": ("SASL_PLAINTEXT", "plain.Plain")}
SCHEMA = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
PAGES = ("environment/", "SQL/", "StreamingQuery/", "jobs/", "executors/")


class Secured:
    """A pipeline of all kinds of connections, whose login comes from the environment."""

    def __init__(self, folder: Path, kafka: ApacheKafka, mechanism: str) -> None:
        protocol, module = MECHANISMS[mechanism]
        self.servers = kafka.addresses[protocol]
        self.name = f"s{uuid4().hex[:8]}"
        self.metrics, self.ui = (Reservation("127.0.0.1", 0) for _ in range(2))
        self.module = f"org.apache.kafka.common.security.{module}LoginModule required"
        self.path = folder / "pipeline.yaml"
        (folder / "schema.json").write_text(json.dumps(SCHEMA))
        self.path.write_text(
            f"""
apiVersion: etl/v1
name: {self.name}
checkpoint: {folder}/checkpoint
trigger: {{processing_time: 1 second}}
source: {{topics: [{self.name}.in]}}
kafka:
  security.protocol: {protocol}
  sasl.mechanism: {mechanism}
  sasl.jaas.config: "${{LOGIN}}"
  ssl.truststore.type: PEM
  ssl.truststore.location: {kafka.certificate}
decode: {{format: json, schema: schema.json}}
sinks:
  - {{type: delta, path: {folder}/table}}
  - {{type: kafka, topic: {self.name}.rows}}
dead_letter: {{topic: {self.name}.dlq}}
restart: {{attempts: 1, backoff: 1 second}}
metrics: {{port: {self.metrics.address.port}}}
"""
        )
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        self.admin.create_topics([NewTopic(f"{self.name}.in", 1, 1)])[f"{self.name}.in"].result(30)
        producer = Producer({"bootstrap.servers": kafka.bootstrap})
        for value in ('{"id": 1}', "broken", '{"id": 2}'):
            producer.produce(f"{self.name}.in", value)
        assert producer.flush(30) == 0

    def login(self, password: str) -> dict[str, str]:
        return {"LOGIN": f'{self.module} username="{USER}" password="{password}";'}

    def got(self, port: int, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=30) as answer:
            return str(answer.read().decode())

    def state(self) -> dict:
        try:
            return dict(json.loads(self.got(self.metrics.address.port, "healthz")))
        except OSError:
            return {}

    def group(self) -> list[tuple[str, int]]:
        group = f"etl.{self.name}"
        listed = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
        return [(each.topic, each.offset) for each in listed.topic_partitions]


@contextmanager
def running(secured: Secured, jars: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {
        **os.environ,
        **secured.login(PASSWORD),
        "MILLRACE_BOOTSTRAP_SERVERS": secured.servers,
        "MILLRACE_ETL_JARS_DIR": str(jars),
        "MILLRACE_ETL_TEMP_DIR": str(folder),
        "MILLRACE_ETL_UI_PORT": str(secured.ui.address.port),
        "MILLRACE_ETL_JAVA_OPTIONS": QUICK_JAVA,
        "MILLRACE_LOG_LEVEL": "debug",
    }
    command = [sys.executable, "-m", "spark_etl", "run", str(secured.path)]
    with (folder / "out").open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, text=True)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def test_a_driver_with_a_login_shows_no_secret(apache_kafka: ApacheKafka, jars: Path, tmp_path: Path) -> None:
    secured = Secured(tmp_path, apache_kafka, "SCRAM-SHA-512")
    with running(secured, jars, tmp_path) as process:
        until(lambda: process.poll() is not None or secured.state().get("batches") == 1)
        assert process.poll() is None, (tmp_path / "out").read_text()[-3000:]
        shown = [secured.got(secured.metrics.address.port, page) for page in ("metrics", "healthz")]
        shown += [secured.got(secured.ui.address.port, page) for page in PAGES]
        (application,) = json.loads(secured.got(secured.ui.address.port, "api/v1/applications"))
        place = f"api/v1/applications/{application['id']}"
        shown += [
            secured.got(secured.ui.address.port, f"{place}/{page}") for page in ("environment", "sql?details=true")
        ]
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM
    assert "Spark Properties" in shown[2]
    assert [page[max(at - 300, 0) : at + 80] for page in shown if (at := page.find(PASSWORD)) >= 0] == []
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 10
    assert [path for path in written if PASSWORD.encode() in path.read_bytes()] == []
    assert secured.group() == [(f"{secured.name}.in", 3)]
    metadata = secured.admin.list_topics(timeout=30).topics
    assert {f"{secured.name}.rows", f"{secured.name}.dlq"} <= set(metadata)
    committed = [line for line in (tmp_path / "out").read_text().splitlines() if '"batch committed"' in line]
    assert [(json.loads(line)["rows_out"], json.loads(line)["rows_dlq"]) for line in committed] == [(2, 1)]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_one_line(
    apache_kafka: ApacheKafka, spark: SparkSession, tmp_path: Path, mechanism: str
) -> None:
    secured = Secured(tmp_path, apache_kafka, mechanism)
    pipeline = load(secured.path, secured.login("wrong-secret"))
    cluster = Cluster(secured.servers, pipeline.config.kafka.properties)
    work = Run(pipeline, cluster, spark, Metrics(secured.name), logs.get(), once=True)
    began = monotonic()
    with pytest.raises(ClusterError) as refused:
        work.run(Event())
    assert monotonic() - began < 30
    reason = str(refused.value)
    assert "uthentication failed" in reason
    assert "\n" not in reason
    assert "wrong-secret" not in reason


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_without_a_jvm(apache_kafka: ApacheKafka, tmp_path: Path, mechanism: str) -> None:
    secured = Secured(tmp_path, apache_kafka, mechanism)

    def ends(password: str) -> dict[str, dict[int, int]]:
        options = load(secured.path, secured.login(password)).config.kafka.properties
        return end_offsets(client_of(secured.servers, options), [f"{secured.name}.in"])

    assert ends(PASSWORD) == {f"{secured.name}.in": {0: 3}}
    with pytest.raises(ClusterError, match="uthentication failed") as refused:
        ends("wrong-secret")
    assert "wrong-secret" not in str(refused.value)
