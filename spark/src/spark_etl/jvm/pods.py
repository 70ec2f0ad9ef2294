"""The roles `driver` and `executor` of a container on Kubernetes, as Spark's scheduler there starts its image.

Spark passes the role as the first argument and everything else in SPARK_* variables. Each role is another program,
which takes the place of this process:

    driver ARGUMENTS…     spark-submit in client mode, listening at SPARK_DRIVER_BIND_ADDRESS
    executor ARGUMENTS…   the JVM of an executor, with the jars of pyspark and of MILLRACE_ETL_JARS_DIR
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from spark_etl.errors import ConfigError

ROLES = ("driver", "executor")
_BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_OPTION = re.compile(r"^SPARK_JAVA_OPT_(\d+)$")
#: Option of the executor's program → variable with its value.
_EXECUTOR = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}


def become(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the role's program in the place of this process. ConfigError: a variable of Spark's is missing."""
    program = command(arguments, environment)
    os.execvpe(program[0], program, {**environment, "SPARK_HOME": str(_home())})


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line of a role. ConfigError: a variable of Spark's is missing."""
    role, *others = arguments
    try:
        if role == "driver":
            address = f"spark.driver.bindAddress={environment['SPARK_DRIVER_BIND_ADDRESS']}"
            return [str(_home() / "bin" / "spark-submit"), "--conf", address, "--deploy-mode", "client", *others]
        memory = environment["SPARK_EXECUTOR_MEMORY"]
        given = [item for option, name in _EXECUTOR.items() for item in (option, environment[name])]
    except KeyError as error:
        raise ConfigError(f"{role}: the variable {error.args[0]} is missing: Spark on Kubernetes sets it") from None
    numbered = {int(match[1]): value for name, value in environment.items() if (match := _OPTION.match(name))}
    options = [numbered[number] for number in sorted(numbered)]
    return ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", _class_path(environment), _BACKEND, *given]


def _class_path(environment: Mapping[str, str]) -> str:
    own = [f"{environment['MILLRACE_ETL_JARS_DIR']}/*"] if environment.get("MILLRACE_ETL_JARS_DIR") else []
    given = [environment[name] for name in ("SPARK_CLASSPATH", "SPARK_EXTRA_CLASSPATH") if environment.get(name)]
    return ":".join([*given, f"{_home()}/jars/*", *own])


def _home() -> Path:
    return Path(pyspark.__file__).parent
