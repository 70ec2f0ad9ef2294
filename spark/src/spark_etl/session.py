"""One Spark session for one driver: small, quiet, UTC, and writing nowhere but below its temporary folder."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark import SparkContext
from pyspark.sql import SparkSession

from spark_etl.errors import ConfigError
from spark_etl.settings import PACKAGES, EtlSettings

JARS = ("*spark-sql-kafka-0-10*.jar", "*delta-spark*.jar", "*spark-avro*.jar", "*postgresql*.jar")
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",  # the default of 50 tasks costs seconds a batch
}
JVM_EXIT_SECONDS = 15.0


@contextmanager
def opened(settings: EtlSettings, name: str, *, kafka: bool = True) -> Iterator[SparkSession]:
    """Open a JVM and a session. At exit, the JVM ends and its temporary files are removed.

    Without `kafka` no further jars are loaded (decoding can be tried on any frame).
    """
    with TemporaryDirectory(prefix="spark-etl-", dir=settings.etl_temp_dir, ignore_cleanup_errors=True) as folder:
        configuration = _configuration(settings, Path(folder)) | (_connector(settings) if kafka else {})
        builder = SparkSession.builder.appName(f"spark-etl {name}").master(settings.etl_master)
        for key, value in configuration.items():
            builder = builder.config(key, value)
        with chdir(folder):  # Spark makes a folder "artifacts" wherever the JVM was started
            session = builder.getOrCreate()
        try:
            yield session
        finally:
            _close(session)


def _close(session: SparkSession) -> None:
    """End the session and wait for the JVM, which would otherwise outlive this process by a moment."""
    gateway = SparkContext._gateway
    session.stop()
    if gateway is None:
        return
    process = gateway.proc
    gateway.shutdown()
    process.stdin.close()  # the JVM ends when its standard input does
    try:
        process.wait(JVM_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    SparkContext._gateway = None
    SparkContext._jvm = None


def _configuration(settings: EtlSettings, temporary: Path) -> dict[str, str]:
    log4j = files("spark_etl") / "log4j2.properties"
    return {
        "spark.driver.memory": settings.etl_driver_memory,
        "spark.driver.extraJavaOptions": " ".join(
            [
                f"-Djava.io.tmpdir={temporary}",
                f"-Dlog4j2.configurationFile={log4j}",
                f"-Dderby.system.home={temporary}",
                "-XX:-UsePerfData",
                settings.etl_java_options,
            ]
        ).strip(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(temporary),
        "spark.sql.warehouse.dir": str(temporary / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.shuffle.partitions": str(settings.etl_shuffle_partitions),
        "spark.sql.session.timeZone": "UTC",
        # A record must not be able to stop the pipeline: an expression that cannot be computed is NULL, which
        # rules and the partition check refuse.
        "spark.sql.ansi.enabled": "false",
        "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.ui.enabled": str(bool(settings.etl_ui_port)).lower(),
        **({"spark.ui.port": str(settings.etl_ui_port)} if settings.etl_ui_port else {}),
        "spark.ui.showConsoleProgress": "false",
    }


def _connector(settings: EtlSettings) -> dict[str, str]:
    """Return the options that load the jars, from the jars folder, else by Spark's Ivy; and those of Delta Lake."""
    jars = settings.etl_jars_dir
    if jars is not None:
        absent = [pattern for pattern in JARS if not any(jars.glob(pattern))]
        if absent:
            raise ConfigError(f"MILLRACE_ETL_JARS_DIR: no {', '.join(absent)} in {jars}")
        return {"spark.driver.extraClassPath": f"{jars.absolute()}/*", **DELTA}
    ivy = {"spark.jars.ivy": str(settings.etl_ivy_dir.absolute())} if settings.etl_ivy_dir is not None else {}
    return {"spark.jars.packages": ",".join(PACKAGES), **ivy, **DELTA}


def fetch_jars(settings: EtlSettings, target: Path) -> list[str]:
    """Fetch the packages by Spark's Ivy and copy the jars that pyspark lacks into `target`, all or nothing."""
    import pyspark

    own = {jar.name for jar in (Path(pyspark.__file__).parent / "jars").iterdir()}
    ivy = settings.etl_temp_dir / f"ivy-{os.getpid()}"
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    try:
        without_jars = settings.model_copy(update={"etl_jars_dir": None, "etl_ivy_dir": settings.etl_ivy_dir or ivy})
        with opened(without_jars, "jars"):
            pass
        found = []
        for jar in sorted(((settings.etl_ivy_dir or ivy) / "jars").glob("*.jar")):
            name = jar.name.partition("_")[2]  # Ivy names them organisation_artifact-version.jar
            if name not in own:
                shutil.copyfile(jar, partial / name)
                found.append(name)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
        return found
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(ivy, ignore_errors=True)
