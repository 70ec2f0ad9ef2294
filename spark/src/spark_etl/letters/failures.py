"""A failure of Spark in our terms, and the expression of the pipeline file that it is to blame on.

An expression that throws (a text that is no regular expression, `parse_json` of no JSON) fails the batch at each try.
Spark's report names neither the expression nor its line. The batch's records are therefore judged once more, each time
with one expression more.
"""

from collections.abc import Generator

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from spark_etl.config import DeltaSinkConfig, Pipeline, PipelineConfig, Statement
from spark_etl.config.pipeline_file import Place
from spark_etl.errors import DataLossError, EtlError, OutputError, PartitionsError, RunError, StatementError, TableError
from spark_etl.judgement import plan
from spark_etl.reasons import java_causes, java_chain, reason

_DATA_LOSS = ("KAFKA_DATA_LOSS", "data may have been lost", "data may have been missed")  # Spark's words
#: Spark's words for partitions that a query of `available_now` did not find at its start, or finds no more.
_PARTITIONS = (
    "topic partitions in pre-fetched offset",
    "have been lost during running query with Trigger.AvailableNow",
)
#: Spark's words for a state whose columns have other types than the file gives them now.
_STATE = ("[STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE]", "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]")
_TRANSIENT = ("TimeoutException", "DisconnectException", "NetworkException", "NotLeaderOrFollowerException")
#: Packages of failures that no expression causes.
_OTHERS = ("org.apache.kafka.", "java.io.", "java.net.", "java.nio.", "java.util.concurrent.", "org.postgresql.")


def may_be_of_expression(error: BaseException) -> bool:
    """Return whether an expression can be the cause: the root is no failure of Kafka, a disk or a network."""
    causes = java_causes(error)
    return bool(causes) and not causes[-1].startswith(_OTHERS)


def blamed(session: SparkSession, pipeline: Pipeline, records: DataFrame) -> EtlError | None:
    """Return the failure of the first part that fails on the records, None if none does."""
    parts = _parts(pipeline.config)
    found = next(parts, None)
    while found is not None:
        place, config = found
        part = pipeline.model_copy(update={"config": config})
        part._lines = None
        planned = True
        try:
            plan(session, records, part).rows.write.format("noop").mode("overwrite").save()
        except (PySparkException, Py4JJavaError) as error:
            if place is None or not may_be_of_expression(error):
                return None
            return StatementError(str(pipeline.fault(place, f"{reason(error)} (a record makes it fail)")))
        except TableError:  # it was exchanged just now
            return None
        except EtlError as error:  # this part cannot be planned alone
            planned = False
            if place is not None and place[0] == "join":  # its table changed since the run began
                return StatementError(str(pipeline.fault(place, str(error).partition(": ")[2])))
        found = _next(parts, planned)
    return None


Part = tuple[Place | None, PipelineConfig]


def _next(parts: Generator[Part, bool, None], planned: bool) -> Part | None:
    try:
        return parts.send(planned)
    except StopIteration:
        return None


def _parts(config: PipelineConfig) -> Generator[Part, bool, None]:
    """Yield pipelines that grow by one expression each, and the place of that expression; None: decoding alone.

    It is sent whether the part could be planned: a derived column that cannot be so without joins comes after them.
    """
    bare: dict[str, object] = {"derive": {}, "join": [], "rules": [], "transform": [], "dedupe": None, "sinks": []}
    decode = config.decode.model_copy(update={"timestamp": None})

    def grown(**sections: object) -> PipelineConfig:
        return config.model_copy(update={**bare, "decode": decode, **sections})

    yield None, grown()
    derived: dict[str, str] = {}
    for name, expression in config.derive.items():
        if (yield ("derive", name), grown(derive={**derived, name: expression})):
            derived[name] = expression
    for number in range(len(config.join)):
        yield ("join", number), grown(derive=derived, join=config.join[: number + 1])
    for name, expression in config.derive.items():
        if name not in derived:
            derived = {**derived, name: expression}
            yield ("derive", name), grown(derive=derived, join=config.join)
    steps = {"derive": config.derive, "join": config.join}
    for number in range(len(config.rules)):
        yield ("rules", number, "expr"), grown(**steps, rules=config.rules[: number + 1])
    for number in range(len(config.transform)):
        yield ("transform", number, "sql"), grown(**steps, transform=config.transform[: number + 1])
    for number, sink in enumerate(config.sinks):
        if isinstance(sink, DeltaSinkConfig) and sink.where is not None:
            taken = Statement(sql=f"SELECT * FROM input WHERE ({sink.where}\n)")
            yield ("sinks", number, "where"), grown(**steps, transform=[*config.transform, taken])


def run_error(error: Exception) -> EtlError:
    """Return the root cause as an error of ours."""
    causes, text = java_causes(error), reason(error)
    if any(words in text for words in _DATA_LOSS) or any(
        cause.endswith("OffsetOutOfRangeException") for cause in causes
    ):
        return DataLossError(f"{text} (source.on_data_loss: continue reads the records that are left)")
    if text.startswith(_STATE):
        return OutputError(
            "columns of `dedupe.keys` or of an aggregate of windows have other types than their state in the"
            " checkpoint. Give them the types of before, give the aggregate another topic, or move the checkpoint away"
            " and use `recover`"
        )
    if _is_of_timestamp(error):
        return RunError(
            "a record's timestamp is more than 290,000 years from now, and Spark cannot read the record. Delete the"
            " topic's records up to it, and set source.on_data_loss: continue"
        )
    failure = PartitionsError(text) if any(words in text for words in _PARTITIONS) else RunError(text)
    failure.transient = any(cause.endswith(_TRANSIENT) for cause in causes)
    return failure


def _is_of_timestamp(error: Exception) -> bool:
    """Return whether the connector failed to turn a record's timestamp into Spark's microseconds."""
    chain = java_chain(error)
    if not chain or chain[-1].getClass().getName() != "java.lang.ArithmeticException":
        return False
    return any("KafkaRecordToRowConverter" in str(frame) for frame in chain[-1].getStackTrace())
