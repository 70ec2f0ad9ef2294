"""The command lines of Spark's driver and executors on Kubernetes."""

import json
from pathlib import Path

import pyspark
import pytest
from spark_etl.__main__ import main
from spark_etl.errors import ConfigError
from spark_etl.jvm import pods

pytestmark = pytest.mark.etl

HOME = Path(pyspark.__file__).parent
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://driver:7078",
    "SPARK_EXECUTOR_ID": "3",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_APPLICATION_ID": "spark-7",
    "SPARK_EXECUTOR_POD_IP": "10.0.0.3",
    "SPARK_RESOURCE_PROFILE_ID": "0",
    "SPARK_EXECUTOR_POD_NAME": "exec-3",
    "SPARK_EXECUTOR_MEMORY": "1024m",
    "SPARK_JAVA_OPT_10": "-Dten=1",
    "SPARK_JAVA_OPT_2": "-Dtwo=1",
    "MILLRACE_ETL_JARS_DIR": "/opt/spark-jars",
    "SPARK_CLASSPATH": "/given/*",
}


def test_the_driver_is_spark_submit_in_client_mode():
    given = ["driver", "--properties-file", "/opt/x", "local:///main.py", "run"]
    assert pods.command(given, {"SPARK_DRIVER_BIND_ADDRESS": "10.0.0.2"}) == [
        f"{HOME}/bin/spark-submit",
        "--conf",
        "spark.driver.bindAddress=10.0.0.2",
        "--deploy-mode",
        "client",
        *given[1:],
    ]
    assert (HOME / "bin" / "spark-submit").is_file()


def test_an_executor_is_a_jvm_with_every_jar_and_its_options_in_order():
    assert pods.command(["executor"], EXECUTOR) == [
        "java",
        "-Dtwo=1",
        "-Dten=1",
        "-Xms1024m",
        "-Xmx1024m",
        "-cp",
        f"/given/*:{HOME}/jars/*:/opt/spark-jars/*",
        "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend",
        *("--driver-url", "spark://driver:7078"),
        *("--executor-id", "3"),
        *("--cores", "1"),
        *("--app-id", "spark-7"),
        *("--hostname", "10.0.0.3"),
        *("--resourceProfileId", "0"),
        *("--podName", "exec-3"),
    ]


@pytest.mark.parametrize("name", sorted(set(EXECUTOR) - {"SPARK_JAVA_OPT_2", "SPARK_JAVA_OPT_10"}))
def test_a_variable_of_sparks_is_missing(name):
    environment = {key: value for key, value in EXECUTOR.items() if key != name}
    if name in ("MILLRACE_ETL_JARS_DIR", "SPARK_CLASSPATH"):
        assert pods.command(["executor"], environment)
        return
    with pytest.raises(ConfigError, match=f"^executor: the variable {name} is missing"):
        pods.command(["executor"], environment)


def test_the_command_line_without_kubernetes(capsys, monkeypatch):
    monkeypatch.delenv("SPARK_DRIVER_BIND_ADDRESS", raising=False)
    assert main(["driver", "run"]) == 2
    reason = json.loads(capsys.readouterr().err.splitlines()[-1])["reason"]
    assert reason == "driver: the variable SPARK_DRIVER_BIND_ADDRESS is missing: Spark on Kubernetes sets it"
