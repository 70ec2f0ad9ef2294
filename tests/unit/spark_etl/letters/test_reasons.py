"""The root cause of failures of Spark and of Kafka, in one line, from a living JVM."""

import json
import socket
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from spark_etl.errors import RuleError, RunError
from spark_etl.kafka import admin
from spark_etl.kafka.admin import KafkaAdmin, UnreachableError
from spark_etl.reasons import REASON_CHARACTERS_MAX, reason

pytestmark = pytest.mark.etl


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT x FROM absent", "[TABLE_OR_VIEW_NOT_FOUND] The table or view `absent` cannot be found."),
        ("SELECT raise_error('boom')", "[USER_RAISED_EXCEPTION] boom"),  # inside a task
        ("SELECT 1 +", "[PARSE_SYNTAX_ERROR] Syntax error at or near end of input."),
    ],
)
def test_a_failure_of_spark(spark: SparkSession, sql: str, expected: str) -> None:
    with pytest.raises(PySparkException) as raised:
        spark.sql(sql).collect()
    text = reason(raised.value)
    assert text.startswith(expected)
    assert "\n" not in text


def test_the_cause_below_four_wrappers(spark: SparkSession) -> None:
    jvm = spark._jvm
    thrown = jvm.java.io.IOException("disk full\n\tat x")
    for layer in range(4):
        thrown = jvm.java.lang.RuntimeException(f"layer {layer}", thrown)
    failure = Exception("wrapped")
    failure.java_exception = thrown  # type: ignore[attr-defined]
    assert reason(failure) == "IOException: disk full"


def test_the_cause_that_another_process_had(spark: SparkSession) -> None:
    failure = Exception()
    failure.java_exception = spark._jvm.java.lang.RuntimeException(  # type: ignore[attr-defined]
        "Job aborted due to stage failure: Task 0 in stage 1.0 failed 4 times, most recent failure: Lost task 0.3 in"
        " stage 1.0 (TID 7) (10.0.0.7 executor 1): org.x.TooLarge: 5 bytes\n\tat org.x\nDriver stacktrace:"
    )
    assert reason(failure) == "org.x.TooLarge: 5 bytes"


def test_a_failure_of_ours_keeps_its_text_and_a_long_one_is_cut():
    assert reason(RuleError("2 records break the rule paid")) == "2 records break the rule paid"
    assert len(reason(RunError("x" * 5000))) == REASON_CHARACTERS_MAX
    outer = ValueError("outer")
    outer.__cause__ = OSError("inner\nmore")
    assert reason(outer) == "OSError: inner"


def test_an_exception_of_a_jvm_that_is_gone():
    class Gone:
        def getCause(self) -> None:  # noqa: N802  (Java's name)
            raise ConnectionRefusedError

    failure = RuntimeError()
    failure.java_exception = Gone()  # type: ignore[attr-defined]
    assert reason(failure) == "RuntimeError (Spark's JVM gives no details: ConnectionRefusedError)"


def test_an_absent_broker(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert admin.ANSWER_SECONDS <= 15
    monkeypatch.setattr(admin, "ANSWER_SECONDS", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with KafkaAdmin.opened(spark, address) as client, pytest.raises(UnreachableError) as raised:
            client.cluster_id()
    hint = "one that expects another kafka.security.protocol does not answer either"
    expected = f"no Kafka broker answered at {address} within 0.5 s; {hint} (TimeoutException: "
    assert str(raised.value).startswith(expected)
    with pytest.raises(UnreachableError, match=r"^no address is known of none\.invalid:9092$"):  # not started yet
        KafkaAdmin.opened(spark, "none.invalid:9092").__enter__()


def test_a_log_line_of_the_jvm_has_the_root_cause_and_no_frames(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    inner = jvm.java.lang.IllegalStateException("the disk is full")
    event = log4j.core.impl.Log4jLogEvent.newBuilder()
    event = event.setLevel(log4j.Level.ERROR).setLoggerName("o.a.s.Executor")
    event = event.setMessage(log4j.message.SimpleMessage("Lost task: " + "\n\tat a.B.c(B.java:1)" * 500))
    event = event.setThrown(jvm.java.lang.RuntimeException("job aborted", inner)).build()
    layout = log4j.LogManager.getContext(False).getConfiguration().getAppender("stderr").getLayout()
    text = str(layout.toSerializable(event))
    line = json.loads(text)
    assert len(text) < 1_200
    assert (line["service"], line["level"], line["logger"]) == ("spark-etl", "error", "o.a.s.Executor")
    assert (line["exception"], line["reason"]) == ("java.lang.IllegalStateException", "the disk is full")
    assert line["event"].startswith("Lost task: \n\tat a.B.c")
