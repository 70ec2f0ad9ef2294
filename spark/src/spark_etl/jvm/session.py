"""One Spark session for one driver: small, quiet, UTC, and writing nowhere but below its temporary folder.

The master may be `local[n]` or any cluster's. Under spark-submit the session joins the JVM that exists.
"""

import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pyspark import SparkContext, java_gateway
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from spark_etl.errors import ConfigError, EtlError, RunError
from spark_etl.jvm import ivy_jars, java_program
from spark_etl.reasons import reason
from spark_etl.settings import PACKAGES, EtlSettings
from spark_etl.signals import STOPS

JARS = ("*spark-sql-kafka-0-10*.jar", "*delta-spark*.jar", "*spark-avro*.jar", "*postgresql*.jar")
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks costs seconds a batch
}
#: Avro allocates as many bytes as a length in a record names: a record of ten bytes could use up the heap.
AVRO_LIMITS = " ".join(
    f"-Dorg.apache.avro.limits.{name}.maxLength={size}"
    for name, size in {"bytes": 64 << 20, "string": 64 << 20, "collectionItems": 4 << 20}.items()
)
#: Spark generates one method for many expressions. Java's compilers leave those over 8,000 bytes to the interpreter,
#: which takes twice the time: the checks of twenty fields make a longer one.
LONG_METHODS = "-XX:-DontCompileHugeMethods"
#: Spark goes into nested values and expressions by recursion. With Java's 1 MB, a text field that holds objects nested
#: 998 deep would end the JVM; Jackson refuses more than 1,000.
DEEP_STACKS = "-Xss8m"
#: JDBC counts times in the zone of its JVM. New York was 3 min 58 s off before 1883: times would move by that.
ZONE = "UTC"
OF_EVERY_JVM = f"{LONG_METHODS} {DEEP_STACKS} {AVRO_LIMITS} -Duser.timezone={ZONE}"  # mutant: long-methods-compiled
ARROW_BYTES = 2 << 20
UI_ADDRESS = "SPARK_LOCAL_IP"
#: PySpark's loggers of each expression that Spark refuses. They print its whole plan, with the passwords of the source.
PLAN_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
#: The security options of Kafka in Spark's plans, which the user interface shows: each option up to the next one.
#: Possessive, so that Java matches a long value without deep recursion.
SECRETS = r'(?i)\b(sasl|ssl)\.[a-z.]+\s*(->|=|:)\s*(?:"(?:[^"\\]++|\\.)*+"|[^,)\]}"]++)*+'  # mutant: login-hidden


@contextmanager
def opened(settings: EtlSettings, name: str, *, kafka: bool = True) -> Iterator[SparkSession]:
    """Open a JVM and a session. At exit, the JVM ends and its temporary files are removed.

    Without `kafka` no further jars are loaded (decoding can be tried on any frame). ConfigError: there is no Java that
    Spark can use. A failure of Spark inside leaves as a RunError with its root cause, which only the living JVM knows.
    """
    with TemporaryDirectory(prefix="spark-etl-", dir=settings.etl_temp_dir, ignore_cleanup_errors=True) as folder:
        for logger in PLAN_LOGGERS:
            PySparkLogger.getLogger(logger).disabled = True
        builder = SparkSession.builder.appName(f"spark-etl {name}")
        for key, value in configuration(settings, Path(folder), kafka=kafka).items():
            builder = builder.config(key, value)
        # Spark makes a folder "artifacts" wherever the JVM was started.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of executors too
        with chdir(folder), _own_address(settings), _own_jvm():
            session = _started(builder)
        _set_zone(session)
        set_files(session)
        ivy_jars.keep(session.sparkContext.getConf(), settings.etl_ivy_dir, PACKAGES)
        try:
            yield session
        except EtlError:
            raise
        except Exception as error:
            raise RunError(reason(error)) from error
        finally:
            _close(session)


def _started(builder: Any) -> SparkSession:
    if not submitted():
        java_program.program()
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() == "JAVA_GATEWAY_EXITED":
            raise java_program.ended() from error
        raise
    return session


def _set_zone(session: SparkSession) -> None:
    """Set the zone of the driver's JVM: spark-submit may have started it, with other options than ours."""
    jvm: Any = session._jvm
    zones = jvm.java.util.TimeZone
    zones.setDefault(zones.getTimeZone(ZONE))


def set_files(session: SparkSession) -> None:
    """Have Spark read a path without a scheme as a local one, as the rest of the package does.

    Hadoop's configuration of a host (`HADOOP_CONF_DIR`) may name HDFS: locks and notes would be on another disk then.
    """
    session._jsc.hadoopConfiguration().set("fs.defaultFS", "file:///")  # mutant: paths-are-local


def submitted() -> bool:
    """Return whether spark-submit started this process: the JVM runs already, with spark-submit's options."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _close(session: SparkSession) -> None:
    """End the session, then the JVM. Its own orderly exit would take seconds and has nothing left to do."""
    gateway = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    lives = process is None or process.poll() is None
    if lives:
        session.stop()
    if gateway is None or process is None:  # spark-submit's JVM, which outlives this process
        return
    if lives:
        gateway.shutdown()
    process.kill()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def end_jvm() -> None:
    """Kill the JVM that this process started, if there is one: each call of it fails now."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()


@contextmanager
def _own_jvm() -> Iterator[None]:
    """Start the JVM deaf to the signals that stop a run. End it if its start fails, or a signal ends the wait for it.

    A terminal that closes and systemd signal every process, and the batch at work needs the JVM to finish. The JVM ends
    with its driver. One that is connected to none would wait for ever.
    """
    started: list[Any] = []
    module: Any = java_gateway
    real = module.Popen

    def popen(*arguments: Any, **named: Any) -> Any:
        started.append(real(*arguments, **{**named, "preexec_fn": _ignore_stops}))
        return started[-1]

    module.Popen = popen
    try:
        yield
    except BaseException:
        for process in started:
            process.kill()
            process.wait()
        raise
    finally:
        module.Popen = real


def _ignore_stops() -> None:
    """Ignore the signals, in a process that is about to become a JVM: Java leaves ignored ones alone.

    Its Python workers set handlers of their own. They inherit the mask: no such signal reaches them.
    """
    for number in STOPS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGINT])  # mutant: workers-finish-the-batch


@contextmanager
def _own_address(settings: EtlSettings) -> Iterator[None]:
    """Have the JVM's user interface listen at the configured address; Spark reads it from the environment only."""
    before = os.environ.get(UI_ADDRESS)
    os.environ[UI_ADDRESS] = settings.etl_ui_host
    try:
        yield
    finally:
        if before is None:
            del os.environ[UI_ADDRESS]
        else:
            os.environ[UI_ADDRESS] = before


def configuration(settings: EtlSettings, temporary: Path, *, kafka: bool) -> dict[str, str]:
    """Return all properties of a session; MILLRACE_ETL_SPARK_OPTIONS come last and win."""
    local = settings.etl_master.startswith("local")
    found = _of_the_session(settings) | (DELTA if kafka else {})
    if not submitted():
        found |= _of_the_jvm(settings, temporary, local) | (_jars(settings, local) if kafka else {})
    return found | settings.spark_options()


def _of_the_jvm(settings: EtlSettings, temporary: Path, local: bool) -> dict[str, str]:
    """Return the properties of a JVM that this process starts."""
    host = settings.etl_driver_host or ("127.0.0.1" if local else "")
    addresses = {"spark.driver.host": host, "spark.driver.bindAddress": host if local else "0.0.0.0"}
    return {
        "spark.master": settings.etl_master,
        "spark.driver.memory": settings.etl_driver_memory,
        "spark.driver.extraJavaOptions": " ".join(
            [
                f"-Djava.io.tmpdir={temporary}",
                f"-Dlog4j2.configurationFile={files('spark_etl.jvm') / 'log4j2.properties'}",
                f"-Dderby.system.home={temporary}",
                "-XX:-UsePerfData",
                OF_EVERY_JVM,
                settings.etl_java_options,
            ]
        ).strip(),
        **({} if local else {"spark.executor.extraJavaOptions": OF_EVERY_JVM}),
        **(addresses if host else {}),  # without one, Spark finds the address that executors reach
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.ui.enabled": str(bool(settings.etl_ui_port)).lower(),
        **({"spark.ui.port": str(settings.etl_ui_port)} if settings.etl_ui_port else {}),
    }


def _of_the_session(settings: EtlSettings) -> dict[str, str]:
    return {
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(settings.etl_shuffle_partitions),
        "spark.sql.session.timeZone": ZONE,
        "spark.executorEnv.TZ": ZONE,  # of executors that spark-submit gives other options than ours
        # A record must not be able to stop the pipeline: an expression that cannot be computed is NULL, which
        # rules and the partition check refuse.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        # Spark's default is INT96, of which the Python package deltalake reads 64 bits: not 9999-12-31, nor 0001-01-01.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Records travel to Python in batches. By default only their number is bounded.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(ARROW_BYTES),
        "spark.ui.showConsoleProgress": "false",
        "spark.redaction.string.regex": SECRETS,
        "spark.sql.redaction.string.regex": SECRETS,
        "spark.sql.redaction.options.regex": r"(?i)url|sasl|ssl|password|secret|token",
    }


def _jars(settings: EtlSettings, local: bool) -> dict[str, str]:
    """Return the options that load the jars: from the jars folder, else as Spark's Ivy found them, else by Ivy.

    Executors on other machines get the jars from the driver (spark.jars); a local session needs no copies.
    """
    jars = settings.etl_jars_dir
    if jars is None:
        found = ivy_jars.resolved(settings.etl_ivy_dir, PACKAGES)
        if found:
            return _loaded(found, local)
        ivy = {"spark.jars.ivy": str(settings.etl_ivy_dir.absolute())} if settings.etl_ivy_dir is not None else {}
        return {"spark.jars.packages": ",".join(PACKAGES), **ivy}
    absent = [pattern for pattern in JARS if not any(jars.glob(pattern))]
    if absent:
        raise ConfigError(f"MILLRACE_ETL_JARS_DIR: no {', '.join(absent)} in {jars}")
    if local:
        return {"spark.driver.extraClassPath": f"{jars.absolute()}/*"}
    return _loaded(sorted(jars.glob("*.jar")), local)


def _loaded(jars: Sequence[Path], local: bool) -> dict[str, str]:
    if local:
        return {"spark.driver.extraClassPath": os.pathsep.join(str(path.absolute()) for path in jars)}
    return {"spark.jars": ",".join(path.absolute().as_uri() for path in jars)}


def fetch_jars(settings: EtlSettings, target: Path) -> list[str]:
    """Fetch the packages by Spark's Ivy and copy the jars that pyspark lacks into `target`, all or nothing."""
    ivy = settings.etl_temp_dir / f"ivy-{os.getpid()}"
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        without_jars = settings.model_copy(update={"etl_jars_dir": None, "etl_ivy_dir": settings.etl_ivy_dir or ivy})
        with opened(without_jars, "jars"):
            pass
        found = ivy_jars.lacking(sorted(((settings.etl_ivy_dir or ivy) / "jars").glob("*.jar")))
        for name, jar in found.items():
            shutil.copyfile(jar, partial / name)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
        return list(found)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(ivy, ignore_errors=True)
