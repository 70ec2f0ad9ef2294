"""The properties of a session for any master, without a JVM."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError
from pyspark import SparkConf, SparkContext, java_gateway
from pyspark.sql import SparkSession
from spark_etl.errors import ConfigError, EtlError, RunError
from spark_etl.jvm import session
from spark_etl.jvm.ivy_jars import keep
from spark_etl.jvm.session import configuration
from spark_etl.settings import PACKAGES, EtlSettings
from spark_etl.signals import STOPS, Stopped

pytestmark = pytest.mark.etl

NAMES = (
    "delta-spark_2.13-4.0.0.jar",
    "postgresql-42.7.8.jar",
    "spark-avro_2.13-4.0.0.jar",
    "spark-sql-kafka-0-10_2.13.jar",
)


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).touch()
    return tmp_path


def properties(settings: EtlSettings) -> dict[str, str]:
    return configuration(settings, Path("/tmp/driver"), kafka=True)


def test_a_local_master_stays_on_this_machine_and_copies_no_jar(jars):
    found = properties(EtlSettings(etl_master="local[2]", etl_jars_dir=jars))
    assert found["spark.master"] == "local[2]"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.driver.extraClassPath"] == f"{jars}/*"
    assert "spark.jars" not in found


def test_every_jvm_has_our_limits_and_compiles_long_methods(jars):
    of_every_jvm = {
        "-XX:-DontCompileHugeMethods",
        "-Xss8m",
        "-Dorg.apache.avro.limits.bytes.maxLength=67108864",
        "-Dorg.apache.avro.limits.string.maxLength=67108864",
        "-Dorg.apache.avro.limits.collectionItems.maxLength=4194304",
        "-Duser.timezone=UTC",
    }
    found = properties(EtlSettings(etl_master="spark://head:7077", etl_jars_dir=jars))
    assert set(found["spark.executor.extraJavaOptions"].split()) == of_every_jvm
    assert set(found["spark.driver.extraJavaOptions"].split()) >= of_every_jvm


def test_executors_of_a_cluster_get_the_jars_and_find_the_driver(jars):
    settings = EtlSettings(etl_master="spark://head:7077", etl_jars_dir=jars, etl_driver_host="10.0.0.5")
    found = properties(settings)
    assert found["spark.master"] == "spark://head:7077"
    assert (found["spark.driver.host"], found["spark.driver.bindAddress"]) == ("10.0.0.5", "0.0.0.0")
    assert found["spark.jars"] == ",".join(f"file://{jars}/{name}" for name in NAMES)
    assert "spark.driver.extraClassPath" not in found


def test_without_an_address_spark_finds_the_one_that_executors_reach(jars):
    found = properties(EtlSettings(etl_master="spark://head:7077", etl_jars_dir=jars))
    assert "spark.driver.host" not in found
    assert "spark.driver.bindAddress" not in found


def test_under_spark_submit_its_master_and_jvm_stay(jars, monkeypatch):
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "4321")
    found = properties(EtlSettings(etl_jars_dir=jars))
    assert not {"spark.master", "spark.driver.memory", "spark.driver.host", "spark.jars", "spark.local.dir"} & set(
        found
    )
    assert found["spark.sql.session.timeZone"] == "UTC"


def test_more_options_win(jars):
    settings = EtlSettings(
        etl_jars_dir=jars, etl_spark_options="spark.executor.memory=2g\n spark.sql.session.timeZone=CET spark.x.y=a=b"
    )
    found = properties(settings)
    assert found["spark.executor.memory"] == "2g"
    assert found["spark.sql.session.timeZone"] == "CET"
    assert found["spark.x.y"] == "a=b"


@pytest.mark.parametrize("text", ["executor.memory=2g", "spark.executor.memory", "-Dx=y"])
def test_an_option_that_is_none_of_sparks(text):
    with pytest.raises(ValidationError, match=r"is not spark\.NAME=VALUE"):
        EtlSettings(etl_spark_options=text)


def test_a_folder_without_the_connector(tmp_path):
    with pytest.raises(ConfigError, match=r"MILLRACE_ETL_JARS_DIR: no \*spark-sql-kafka-0-10\*\.jar, .* in"):
        properties(EtlSettings(etl_jars_dir=tmp_path))


def test_jars_that_ivy_has_found_are_loaded_without_ivy(tmp_path):
    """Jars that pyspark has stay out; a list with a jar that is gone does not count."""
    packages = ",".join(PACKAGES)
    avro, own = tmp_path / "org.apache.spark_spark-avro_2.13-4.0.0.jar", tmp_path / "org.slf4j_slf4j-api-2.0.16.jar"
    for jar in (avro, own):
        jar.touch()
    settings = EtlSettings(etl_ivy_dir=tmp_path)
    assert properties(settings)["spark.jars.packages"] == packages
    found = SparkConf(loadDefaults=False).set("spark.jars", f"file://{avro},file://{own}")
    keep(found, tmp_path, PACKAGES)  # a session of jars that are no packages
    assert list(tmp_path.glob("*.json")) == []
    keep(found.set("spark.jars.packages", packages), tmp_path, PACKAGES)
    loaded = properties(settings)
    assert loaded["spark.driver.extraClassPath"] == str(avro)
    assert "spark.jars.packages" not in loaded
    avro.unlink()
    assert properties(settings)["spark.jars.packages"] == packages


@pytest.mark.parametrize("between", ["=", " -> ", ": "])
def test_plans_hide_the_security_options_of_kafka(jars, between):
    found = properties(EtlSettings(etl_jars_dir=jars))["spark.redaction.string.regex"]
    options = {
        "kafka.sasl.jaas.config": 'org.x.ScramLoginModule required username="u, v" password="a)b]}\\"c;d";',
        "kafka.ssl.keystore.key": "-----BEGIN KEY-----\nTUlJ+/==\n-----END KEY-----",
        "kafka.ssl.key.password": "k-secret",
        "topic": "orders",
    }
    plan = "Map(" + ", ".join(f"{name}{between}{value}" for name, value in options.items()) + ") [id#1]"
    assert re.sub(found, "-", plan) == f"Map(kafka.-, kafka.-, kafka.-, topic{between}orders) [id#1]"


def test_a_start_that_a_signal_ends_leaves_no_jvm():
    """The JVM would wait for ever: the file in which it says where it listens cannot be written any more."""
    before, started = java_gateway.Popen, []

    def start() -> None:
        started.append(java_gateway.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        raise Stopped

    with pytest.raises(Stopped), session._own_jvm():
        start()
    assert started[0].returncode == -signal.SIGKILL
    assert java_gateway.Popen is before
    with session._own_jvm():
        process = java_gateway.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    for number in STOPS:  # to us and to the JVM, as a terminal sends it
        process.send_signal(number)
    assert process.poll() is None
    process.communicate(b"\n")
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("java", "refusal"),
    [
        (None, "{home} has no bin/java: install it, or set JAVA_HOME to its folder"),
        (
            'version "11.0.2" 2019-01-15',
            '{home}/bin/java is version "11.0.2": install it, or set JAVA_HOME to its folder',
        ),
        ('version "21.0.1" 2023-10-17', "the JVM of {home}/bin/java ended before Spark was ready: it wrote the reason"),
    ],
)
def test_a_java_that_spark_cannot_use(jars, tmp_path, monkeypatch, java, refusal):
    home = tmp_path / "java"
    monkeypatch.setenv("JAVA_HOME", str(home))
    if java is not None:
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk {java}' >&2\nexit 1\n")
        (home / "bin" / "java").chmod(0o755)
    settings = EtlSettings(etl_jars_dir=jars, etl_temp_dir=tmp_path)
    running = [
        (SparkContext, "_gateway"),
        (SparkContext, "_active_spark_context"),
        (SparkSession, "_instantiatedSession"),
    ]
    for owner, name in running:  # another test may have left a JVM in this process
        monkeypatch.setattr(owner, name, None)
    with pytest.raises(EtlError) as raised, session.opened(settings, "none"):
        pass
    text = str(raised.value).replace(f"JAVA_HOME ({home})", str(home))
    assert text.removeprefix("Spark needs Java 17 or later, and ").startswith(refusal.format(home=home))
    assert isinstance(raised.value, RunError) == ("21" in str(java))


def test_without_java_the_reason_names_it(jars, tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    expected = "^Spark needs Java 17 or later, and there is no java on the PATH: install it, or set JAVA_HOME"
    with pytest.raises(ConfigError, match=expected), session.opened(EtlSettings(etl_jars_dir=jars), "none"):
        pass
