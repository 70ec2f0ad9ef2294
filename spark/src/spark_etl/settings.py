"""Settings of the Spark driver, from MILLRACE_* environment variables: the only place that reads the environment.

The pipeline file (the package config) has the work of a pipeline. The settings have its addresses, folders and memory.
"""

import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from spark_etl.errors import ConfigError

SPARK_VERSION = "4.0.0"  # the one place that names it, next to pyproject.toml; its connectors must match exactly
PACKAGES = (  # what Spark lacks: Maven coordinates
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    f"org.apache.spark:spark-avro_2.13:{SPARK_VERSION}",
    "io.delta:delta-spark_2.13:4.0.0",  # goes with Spark 4.0
    "org.postgresql:postgresql:42.7.8",
)


_SECRET_BYTES_MAX = 65_536  # of a file that a variable names


class EtlSettings(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="MILLRACE_", extra="ignore", frozen=True)

    bootstrap_servers: str = Field(
        default="localhost:9092", min_length=1, description="Kafka addresses: host:port, comma-separated."
    )
    etl_master: str = Field(
        default="local[2]",
        min_length=1,
        description="URL of the Spark master: local[n], spark://host:port, k8s://… (spark-submit's wins).",
    )
    etl_driver_host: str = Field(
        default="",
        description="Address of the driver that executors on other machines connect to. "
        "Empty: 127.0.0.1 for a local master, else the one that Spark finds.",
    )
    etl_spark_options: str = Field(
        default="",
        description="More properties of Spark, `name=value` separated by white space, as in "
        "`spark.executor.memory=2g spark.executor.cores=2`. They win over ours.",
    )
    etl_driver_memory: str = Field(default="1g", pattern=r"^[1-9]\d*[mg]$", description="Heap of the Spark JVM.")
    etl_shuffle_partitions: int = Field(
        default=2,
        ge=1,
        le=10_000,
        description="Tasks of a shuffle. A partitioned table is written by at least four for each core, up to 32.",
    )
    etl_temp_dir: Path = Field(
        default_factory=lambda: Path(tempfile.gettempdir()),
        description="Folder for temporary files (Spark's local dir, the JVM's java.io.tmpdir).",
    )
    etl_jars_dir: Path | None = Field(
        default=None,
        description="Folder with the jars that Spark lacks (`spark-etl jars DIR` fills one): Kafka, Delta Lake, Avro, "
        "PostgreSQL. Empty: Spark's own Ivy fetches them at the first start.",
    )
    etl_ivy_dir: Path | None = Field(
        default=None, description="Ivy's cache. Empty: Spark's default in the home folder."
    )
    etl_java_options: str = Field(default="-XX:+UseSerialGC", description="More options of the Spark JVM.")
    etl_ui_port: int = Field(default=0, ge=0, le=65535, description="Port of the Spark UI; 0: off.")
    etl_ui_host: str = Field(default="127.0.0.1", min_length=1, description="Address that the Spark UI listens at.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of log line to write."
    )

    @field_validator("etl_spark_options")
    @classmethod
    def _names_and_values(cls, text: str) -> str:
        for option in text.split():
            if not re.fullmatch(r"spark\.[^=]+=.*", option):
                raise ValueError(f"{option!r} is not spark.NAME=VALUE")
        return text

    def spark_options(self) -> dict[str, str]:
        return dict(option.split("=", 1) for option in self.etl_spark_options.split())

    def brief(self) -> "EtlSettings":
        """Return the settings of a command that looks at a few records: here, in one task, without compiled code."""
        options = f"{self.etl_java_options} -XX:TieredStopAtLevel=1".strip()
        return self.model_copy(
            update={"etl_master": "local[1]", "etl_shuffle_partitions": 1, "etl_java_options": options}
        )


class Variables(Mapping[str, str]):
    """The variables that `${NAME}` in a pipeline file may name.

    Where NAME is not set and NAME_FILE is, NAME is the text of that file: a mounted secret.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = given

    def __getitem__(self, name: str) -> str:
        if self._given.get(name) or f"{name}_FILE" not in self._given:
            return self._given[name]
        path = Path(self._given[f"{name}_FILE"])
        try:
            with path.open("rb") as file:
                data = file.read(_SECRET_BYTES_MAX + 1)
            if len(data) > _SECRET_BYTES_MAX:
                raise ConfigError(f"{name}_FILE: {path} is larger than {_SECRET_BYTES_MAX} bytes")
            return data.decode().strip()
        except OSError as error:
            raise ConfigError(f"{name}_FILE: {path}: {error.strerror}") from error
        except UnicodeDecodeError:
            raise ConfigError(f"{name}_FILE: {path} is not UTF-8") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._given)

    def __len__(self) -> int:
        return len(self._given)


def environment() -> Mapping[str, str]:
    """Return the variables of this process."""
    import os

    return os.environ
